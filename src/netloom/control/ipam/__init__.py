"""IPAM: each attachment gets its addresses and its MAC, exactly once, and returns them.

`controller` reconciles attachments. The hard state is the IPLocks in the store; `locks` ends them. `ledger` caches
which addresses are used, `pools` which addresses each Subnet has; `allocator` chooses and locks one, and queues the
attachments for which no Subnet has a free address. `macs` knows which MACs are used, `status` writes an attachment's
status, `telemetry` its Events and metrics. `views` are the parts of attachments and locks that are kept in memory.
"""
