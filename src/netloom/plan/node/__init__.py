"""The plans of one node: its ports, the programs that run at them, and what its operator grants to namespaces."""
