"""One history of IPAM: a world, its books, controllers that are all certain to lead, and users who change objects."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from netloom.control.runtime.manager import Manager
from netloom.model.kinds.networks import VNILock
from netloom.model.registry import VNI_LOCK
from netloom.plan.audit.addresses import audit
from netloom.sim import loop as sim
from netloom.sim.links import NO_FAULTS, NetworkFaults
from netloom.sim.world import Process, World
from tests.sim.ipam_ledger import Ledger
from tests.sim.ipam_oracle import State, complaints
from tests.sim.ipam_users import People, subnets_of

REST = 150.0
"""How long, in virtual seconds, everything may take to come right after the last fault: less than a sweep."""

Wiring = Callable[[Process, float], Manager]
"""Makes the controllers of one process, with a quarantine of so many seconds."""


class History:
    """One run: the world, the books, the processes, and what users requested."""

    def __init__(self, world: World, store: Ledger, wiring: Wiring, *, controllers: int) -> None:
        self.world = world
        self.store = store
        self.random = sim.current().random
        self.people = People(store, self.random)
        self.processes = [world.process(f"c{number}", self._body(wiring)) for number in range(controllers)]

    def _body(self, wiring: Wiring) -> Callable[[Process], Coroutine[Any, Any, None]]:
        async def body(process: Process) -> None:
            await wiring(process, self.store.quarantine).run()

        return body

    def start(self) -> None:
        """Start all processes."""
        for process in self.processes:
            process.start()

    def check(self) -> None:
        """Raise whatever broke so far."""
        self.store.check()
        self.world.check()

    def calm(self) -> None:
        """End all faults."""
        self.world.faults = NO_FAULTS
        for process in self.processes:
            process.thaw()
            process.link.heal()
            process.link.faults = NO_FAULTS
            if not process.alive:
                process.start()

    def state(self) -> State:
        """Return all there is now."""
        store = self.store
        return State(
            networks=store.networks,
            subnets=subnets_of(store),
            attachments=store.attachments,
            locks=store.locks,
        )

    async def rest(self, within: float = REST) -> None:
        """Wait until everything is as it should be; say what is not if it never is."""
        deadline = asyncio.get_running_loop().time() + within
        while found := complaints(self.state()):
            self.check()
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"not at rest after {within:g} s: {found}")
            await asyncio.sleep(1)
        self.check()
        findings = self.findings()
        assert not findings, findings

    def findings(self) -> list[str]:
        """Return what the audit finds wrong now."""
        now = self.state()
        held = [stored.value() for stored in self.store.all(VNI_LOCK)]
        vnis = [one for one in held if isinstance(one, VNILock)]
        return [str(found) for found in audit(now.networks, now.subnets, now.attachments, now.locks, vnis)]


@contextlib.asynccontextmanager
async def living(
    wiring: Wiring, *, quarantine: float, faults: NetworkFaults, controllers: int = 1
) -> AsyncIterator[History]:
    """Give a history to fill; when it is filled, all faults end, and everything must come to rest."""
    store = Ledger(quarantine=quarantine)
    async with World(store, faults=faults) as world:
        past = History(world, store, wiring, controllers=controllers)
        try:
            yield past
            past.check()
            past.calm()
            await past.rest()
        except AssertionError as error:
            error.add_note("\n".join([f"quarantine {quarantine:g}", *past.people.story]))
            raise
