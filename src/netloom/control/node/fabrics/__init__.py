"""How packets of this node's ports get to other nodes and sites, where OVN does not see to it.

`fabric` writes the flows of vxlan Networks, `bridges` keeps the bridges of linux Networks, `remote_vteps` the VXLAN
ports to other sites, and `tunnels` resolves the next hops of all tunnels, those of OVN too.
"""
