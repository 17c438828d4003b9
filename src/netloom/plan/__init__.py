"""Pure planning: desired and observed state in, what must be done out.  No IO, no clock.

world/      the objects that plans are made from, and which plan asked for which
policy/     what SecurityProfiles and Shapings mean on either fabric
addresses/  which addresses, MACs and locks an attachment has
ovn/        resources to rows of OVN's northbound database
vxlan/      one node's attachments, and those they reach, to OpenFlow flows
node/       what an attachment means on its node: devices, programs, what the node's operator grants
audit/      what does not fit together, for `netloom doctor`
names.py    what things are called in OVN and on the nodes
rows.py     rows that must exist in an OVSDB database
problem.py  which object is planned, and what is wrong with it

Plans are carried out by `drivers/`; `control/` decides when.
"""
