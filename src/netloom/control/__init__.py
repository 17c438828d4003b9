"""The loop: resources change, keys are queued, somebody looks again, and says what was seen.

`informer` keeps a copy of what the store has, `queue` holds the keys to look at, `controller` brings both together with
a reconcile function, `manager` runs all of it, and `election` sees to it that one process at a time does. The first
controllers are `gc` (owned objects go with their owners) and `subnets` (blocks that overlap are found out).
"""
