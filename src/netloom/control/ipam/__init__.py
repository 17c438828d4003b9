"""IPAM: each attachment gets its addresses and its MAC, exactly once, and returns them.

`controller` reconciles attachments. The hard state is the IPLocks in the store (`lock_client`, `locks`); `ledger` is a
cache of what is used, `allocator` chooses, `wait_queue` holds the attachments that no Subnet has a free address for.
"""
