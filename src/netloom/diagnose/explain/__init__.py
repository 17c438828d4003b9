"""The state of one object, from its spec to the device (`explanation`), and the times of its steps (`timeline`).

`ovn` and `port` read the databases and the node, `sources` the objects that a timeline is made from.
"""
