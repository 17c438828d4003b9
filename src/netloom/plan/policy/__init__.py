"""What SecurityProfiles and Shapings mean, for both fabrics: membership, match expressions, rates and priorities.

`ovn/` makes ACLs and QoS rows of them, `vxlan/` flows and meters.
"""
