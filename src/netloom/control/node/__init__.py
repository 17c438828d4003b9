"""The controllers of a node's agent.

`attachments` plugs and unplugs ports (`ports`) by the plans of `port_planner`, `fabric` writes the flows of the vxlan
fabric, `hooks` runs programs, `mirrors` writes mirrors, `tunnels` resolves the next hops of tunnels, `node` writes the
Node object. `views` watches what is relevant to this node; `switch` and `host` know the switch and the machine.

They are built and connected in `run/node/parts.py`.
"""
