"""The nftables table of a node of a cluster: what it has (`table`, `host_ports`), as a value (`nftables`).  Pure."""
