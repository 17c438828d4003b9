"""Addresses, without IO.

`blocks` has the arithmetic of addresses and the pool of a Subnet, `allocation` decides which addresses an attachment
gets, `reserved` which addresses other objects keep for themselves; `macs` derives MACs from addresses.
"""
