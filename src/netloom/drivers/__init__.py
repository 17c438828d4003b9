"""Drivers: each observes one external system and makes it what the plans say.

northbound/  OVN's northbound database
vswitch/     the node's Open vSwitch database, and ovs-vswitchd's control socket
link/        the kernel's devices, addresses and routes
vxlan/       the flows of the vxlan fabric on the node's switch
programs/    programs that attachments run on the node

`shapes` has the two Protocols of a driver, `errors` the exception of the node's drivers. What a driver must do is
planned in `plan/`; when it does so is decided in `control/`.
"""
