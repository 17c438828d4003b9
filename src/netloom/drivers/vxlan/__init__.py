"""The vxlan fabric on the node's switch.

`driver` writes flows in bundles; `bridge` creates the bridge and its tunnel port.
"""
