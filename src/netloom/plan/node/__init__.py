"""The plans of one node: ports, the programs that run at them, mirrors, and what its operator grants to namespaces."""
