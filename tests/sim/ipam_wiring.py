"""The controllers of one simulated process: the program's own, with a clock that is wrong, and nobody to elect.

And the same with bugs planted in them.
"""

from random import Random
from typing import Any

from netloom.control.ipam import Ipam
from netloom.control.ipam_locking import Locksmith
from netloom.control.ipam_views import Attachment, Lock
from netloom.control.manager import Manager
from netloom.model.kind import Registry
from netloom.model.registry import IP_LOCK, NETWORK_ATTACHMENT
from netloom.run.controllers import Options, assemble
from netloom.sim.world import Process

COLLECTED = Registry((NETWORK_ATTACHMENT, IP_LOCK))
"""What is owned here; following all other kinds, too, would only take time."""


class _GullibleSmith(Locksmith):
    def is_mine(self, view: Attachment, lock: Lock) -> bool:
        return view is not lock


class _GullibleIpam(Ipam):
    def __init__(self, *args: Any, quarantine: float, **options: Any) -> None:
        super().__init__(*args, quarantine=quarantine, **options)
        self._smith = _GullibleSmith(self._client, self.books, quarantine=quarantine)


def wiring(process: Process, quarantine: float) -> Manager:
    """Return the controllers of one process."""
    return _assemble(process, quarantine)


def gullible(process: Process, quarantine: float) -> Manager:
    """Return controllers with a planted bug: a lock that is there already is taken for one's own."""
    return _assemble(process, quarantine, ipam=_GullibleIpam)


def impatient(process: Process, quarantine: float) -> Manager:
    """Return controllers with a planted bug: an address rests for half the time it should."""
    return _assemble(process, quarantine / 2)


def forgetful(process: Process, quarantine: float) -> Manager:
    """Return controllers with a planted bug: nobody collects the locks of attachments that are gone."""
    return _assemble(process, quarantine, housekeeping=False)


def _assemble(process: Process, quarantine: float, **options: Any) -> Manager:
    return assemble(
        process.store,
        random=Random(f"{process.name}{process.incarnation}"),
        clock=process.clock,
        told=Options(quarantine=quarantine),
        registry=COLLECTED,
        **options,
    )
