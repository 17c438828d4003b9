"""The objects of a Sandbox: names, the usable parts of its topology, placement, and the objects themselves.  Pure."""
