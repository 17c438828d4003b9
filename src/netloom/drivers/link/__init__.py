"""The kernel's network devices, addresses and routes.

`worker` does what plugging a port takes, `kernel` is one network namespace, `codec` is rtnetlink as bytes.
"""
