"""Resources to rows of OVN's northbound database, one change at a time.

`planner` plans one resource after the other; `world` answers what a plan asks of other resources, and `tracking` notes
who asked, so that a change replans only what it concerns. `desired` is the sum of all plans.

layer2/  logical switches and their ports, DHCP, DNS, QoS, mirrors
layer3/  logical routers and their ports, gateways, NAT, policies, load balancers, VIPs
policy/  SecurityProfiles as port groups, address sets and ACLs
"""
