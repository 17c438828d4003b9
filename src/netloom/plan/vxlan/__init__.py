"""The vxlan fabric of one node as OpenFlow flows.

`fabric` takes local ports, remote ports, SecurityProfiles and Shapings one change at a time; `ports`, `policy` and
`meters` make the flows; `flow_claims` knows which flows several of them need. `layout` has the tables and registers.
"""
