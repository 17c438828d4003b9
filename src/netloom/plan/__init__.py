"""Pure planning: from desired and observed state to what must exist.  No IO, no clock.

world/      the objects that plans are made from, and which plan read which
policy/     what SecurityProfiles and Shapings mean on either fabric
addresses/  the addresses, MACs and locks of attachments
ovn/        from resources to rows of OVN's northbound database
vxlan/      from a node's attachments, and those they reach, to OpenFlow flows
node/       attachments on their node: devices, programs, what the node's operator grants
audit/      inconsistencies, for `netloom doctor`
names.py    names in OVN and on the nodes
rows.py     rows that must exist in an OVSDB database
problem.py  which object is planned, and why a part of it is not

`drivers/` carry plans out; `control/` decides when.
"""
