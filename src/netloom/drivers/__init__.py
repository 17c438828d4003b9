"""Drivers: each observes one external system and makes it what the plans say.

northbound/  OVN's northbound database
vswitch/     the node's Open vSwitch database, and ovs-vswitchd's control socket
link/        the kernel's devices, addresses and routes
vxlan/       the flows of the vxlan fabric on the node's switch
programs/    programs that attachments want run

What they are to do is worked out in `plan/`; when they do it is decided in `control/`.
"""
