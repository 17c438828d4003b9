"""The controllers of one simulated process: the program's own, with a clock that is wrong, and nobody to elect.

And the same with bugs planted in them.
"""

from random import Random
from typing import Any

from netloom.control.ipam.allocator import LockClient
from netloom.control.ipam.controller import Ipam
from netloom.control.ipam.views import Attachment, Lock
from netloom.control.runtime.manager import Manager
from netloom.model.kind import Registry
from netloom.model.registry import IP_LOCK, NETWORK_ATTACHMENT
from netloom.run.controllers import Options, assemble
from netloom.sim.world import Process

COLLECTED = Registry((NETWORK_ATTACHMENT, IP_LOCK))
"""What is owned here; following all other kinds, too, would only take time."""

WORKERS = 4
"""There are half a dozen keys here; a hundred idle workers would only take time."""


class _GullibleLocks(LockClient):
    def is_owner(self, view: Attachment, lock: Lock) -> bool:
        return bool(view.metadata.uid and lock.metadata.uid)


class _GullibleIpam(Ipam):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.allocator.locks.__class__ = _GullibleLocks


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
    manager = assemble(
        process.store,
        random=Random(f"{process.name}{process.incarnation}"),
        clock=process.clock,
        options=Options(quarantine=quarantine, planning=False),
        registry=COLLECTED,
        **options,
    )
    for controller in manager.controllers:
        controller.workers = min(controller.workers, WORKERS)
    return manager
