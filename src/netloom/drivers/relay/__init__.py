"""Relays: processes that delay and drop the packets of a port where the kernel has no netem.

`relays` starts and commands them; `process` is the process, one for each port.
"""
