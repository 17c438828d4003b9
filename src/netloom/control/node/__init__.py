"""The controllers of a node's agent.

`local_ports` plugs and unplugs the ports of attachments, `fabrics` leads their packets to other nodes. `views` watches
what is relevant to this node; `switch` and `host` know the switch and the machine; `node` writes the Node object,
`mirrors` the mirrors, `cluster` the nftables table of a node of a Kubernetes cluster, and `host_documents` applies
documents of Sandboxes without OVN.

They are built and connected in `run/node/parts.py`.
"""
