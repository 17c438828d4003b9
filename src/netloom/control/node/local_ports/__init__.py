"""The ports of this node's attachments: planned, made, repaired, removed, and reported.

`attachments` reconciles them, by the plans of `port_planner` and through `ports`; `pods` makes those of pods when a
container runtime asks for them, one operation at a time for each interface (`turns`). `hooks` runs the programs of
attachments, `status` writes what was reached, and `lifetimes` measures how long that took.
"""
