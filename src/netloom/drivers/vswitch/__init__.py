"""The node's Open vSwitch: `driver` observes and changes its database; `control` sends commands to the daemon.

`prepare` prepares a node's switch for OVN, `mirrors` writes mirrors, `hook_journal` records programs that run at
interfaces. `drivers/vxlan` writes the flows of the vxlan fabric.
"""
