"""The kernel's network devices, addresses and routes.

`worker` has the commands that plugging a port needs, `kernel` is one network namespace, `codec` is rtnetlink as bytes,
`audit` reports differences.
"""
