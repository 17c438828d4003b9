"""Many hosts on one machine: namespaces with real Open vSwitch and OVN.

`Lab` is its Python interface. It is imported on demand: the supervisor and the keeper, which every lab runs, need
little of it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netloom.lab.lab import CommandFailed, Lab, down

__all__ = ["CommandFailed", "Lab", "down"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from netloom.lab import lab  # as said above

        return getattr(lab, name)
    raise AttributeError(name)
