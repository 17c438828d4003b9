"""The node's Open vSwitch: `driver` follows its database and changes it; `control` commands the daemon itself.

`prepare` makes a bare node's switch ready for OVN. Flows of the vxlan fabric are written by `drivers/vxlan`.
"""
