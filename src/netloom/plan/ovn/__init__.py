"""From resources to rows of OVN's northbound database, one change at a time.

`planner` plans one resource after the other, `desired` is the sum of all plans, `profiles` makes ACLs of
SecurityProfiles. `comparison` compares two plans, `forecast` predicts what controllers will allocate.

layer2/  logical switches and their ports, DHCP, DNS, QoS, mirrors
layer3/  logical routers and their ports, gateways, NAT, policies, load balancers, VIPs
"""
