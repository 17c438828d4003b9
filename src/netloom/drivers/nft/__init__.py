"""nftables on a node: one table of ours, which `nft` reads and writes.  No other table is looked at or changed.

`driver` is a `ReconciledSet` (drivers/shapes.py); `listing` decodes what `nft -j` prints; `changes` makes the commands
of one transaction; `forwarding` sets what the kernel needs to forward packets; `tracking` ends flows of UDP that the
table no longer leads to where they go. What the table has is planned in plan/kube/node/table.py.
"""
