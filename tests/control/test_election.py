import asyncio
from random import Random
from typing import Any

import pytest

from netloom.control.runtime.election import Candidate, Durations, Election, JointElection
from netloom.errors import Forbidden, NetloomError, NotFound, Unreachable
from netloom.model.kinds.cluster import Lease
from netloom.model.registry import LEASE
from netloom.sim import loop as sim
from netloom.sim.world import eventually
from netloom.store.base import Store, Stored
from netloom.store.memory import MemoryStore
from tests.control.helpers import memory, noon, run


class Moody:
    """A store that hangs, or raises what is queued, or acts and then loses the answer."""

    def __init__(self, inner: MemoryStore) -> None:
        self.inner = inner
        self.hanging = False
        self.errors: list[NetloomError] = []
        self.lost_answers = 0

    async def _mood(self) -> None:
        if self.hanging:
            await asyncio.sleep(10**6)
        if self.errors:
            raise self.errors.pop(0)

    async def get(self, *args: Any) -> Stored:
        await self._mood()
        return await self.inner.get(*args)

    async def create(self, *args: Any) -> Stored:
        await self._mood()
        return self._lost(await self.inner.create(*args))

    async def update(self, *args: Any) -> Stored:
        await self._mood()
        return self._lost(await self.inner.update(*args))

    def _lost(self, stored: Stored) -> Stored:
        if self.lost_answers:
            self.lost_answers -= 1
            raise Unreachable("the answer was lost")
        return stored


def candidate(store: Any, identity: str, namespace: str = "kube-system", **durations: Any) -> Election:
    typed: Store = store
    return Election(
        typed,
        name="netloom",
        namespace=namespace,
        identity=identity,
        random=Random(identity),
        durations=Durations(**durations),
        clock=noon,
    )


async def lease_of(store: MemoryStore) -> Lease:
    value = (await store.get(LEASE, "kube-system", "netloom")).value()
    assert isinstance(value, Lease)
    return value


async def forever() -> None:
    await asyncio.Event().wait()


def test_the_first_candidate_leads_and_the_lease_says_so_as_kubernetes_has_it() -> None:
    async def main() -> None:
        store = memory()
        one = candidate(store, "one")
        assert one.holder == ""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(one.run(forever))
            await eventually(one.certain)
            document = (await store.get(LEASE, "kube-system", "netloom")).document()
            assert document["spec"] == {
                "holderIdentity": "one",
                "leaseDurationSeconds": 4,
                "acquireTime": "2030-01-01T12:00:00.000000Z",
                "renewTime": "2030-01-01T12:00:00.000000Z",
                "leaseTransitions": 0,
            }
            await asyncio.sleep(10)
            assert one.certain()
            task.cancel()
        assert not one.certain()
        released = (await lease_of(store)).spec
        assert (released.holder_identity, released.lease_duration_seconds) == ("", 1)

    run(main())


def test_renewals_are_seen_though_the_time_of_day_stands_still() -> None:
    async def main() -> None:
        store = memory()
        one = candidate(store, "one")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(one.run(forever))
            await eventually(one.certain)
            revisions = set()
            for _ in range(5):
                revisions.add((await lease_of(store)).metadata.revision)
                await asyncio.sleep(1.01)
            assert len(revisions) == 5
            task.cancel()

    run(main())


def test_a_lease_given_back_is_taken_at_once() -> None:
    async def main() -> None:
        store = memory()
        one, two = candidate(store, "one"), candidate(store, "two")
        async with asyncio.TaskGroup() as group:
            first = group.create_task(one.run(forever))
            await eventually(one.certain)
            second = group.create_task(two.run(forever))
            await asyncio.sleep(20)
            assert not two.certain()
            assert two.holder == "one"
            first.cancel()
            now = asyncio.get_running_loop().time()
            await eventually(two.certain, every=0.01)
            assert asyncio.get_running_loop().time() - now < 0.5
            assert (await lease_of(store)).spec.lease_transitions == 1
            second.cancel()

    run(main())


def test_a_dead_leader_is_replaced_within_five_seconds_and_not_before_its_certainty_ended() -> None:
    async def main() -> None:
        store, dead = memory(), Moody(memory())
        dead.inner = store
        one, two = candidate(dead, "one"), candidate(store, "two")
        async with asyncio.TaskGroup() as group:
            first = group.create_task(one.run(forever))
            await eventually(one.certain)
            second = group.create_task(two.run(forever))
            await asyncio.sleep(10)
            dead.hanging = True
            now = asyncio.get_running_loop().time()
            while not two.certain():
                both = one.certain() and two.certain()
                assert not both
                await asyncio.sleep(0.01)
            assert 3 < asyncio.get_running_loop().time() - now < 5
            assert not one.certain()
            first.cancel()
            second.cancel()

    run(main())


def test_work_is_cancelled_at_the_deadline_and_begun_again_when_the_store_is_back() -> None:
    async def main() -> None:
        store = Moody(memory())
        one = candidate(store, "one")
        worked: list[tuple[str, float]] = []
        loop = asyncio.get_running_loop()

        async def lead() -> None:
            worked.append(("begin", loop.time()))
            try:
                await forever()
            finally:
                worked.append(("end", loop.time()))

        async with asyncio.TaskGroup() as group:
            task = group.create_task(one.run(lead))
            await asyncio.sleep(5.5)
            store.hanging = True
            await asyncio.sleep(10)
            assert [what for what, _ in worked] == ["begin", "end"]
            assert worked[1][1] <= 5.5 + 3
            store.hanging = False
            await eventually(one.certain)
            assert one.transitions == 2
            task.cancel()

    run(main())


def test_the_work_may_take_its_time_to_stop_and_the_lease_is_renewed_meanwhile() -> None:
    async def main() -> None:
        store = memory()
        one, two = candidate(store, "one"), candidate(store, "two")
        stopped: list[float] = []

        async def lead() -> None:
            try:
                await forever()
            finally:
                await asyncio.sleep(20)
                assert one.certain()
                stopped.append(asyncio.get_running_loop().time())

        async with asyncio.TaskGroup() as group:
            first = group.create_task(one.run(lead))
            await eventually(one.certain)
            second = group.create_task(two.run(forever))
            await asyncio.sleep(1)
            first.cancel()
            await eventually(two.certain, every=0.01)
            assert stopped
            second.cancel()

    run(main())


def test_a_lost_answer_does_not_lose_the_lease() -> None:
    async def main() -> None:
        store = Moody(memory())
        store.lost_answers = 1
        one = candidate(store, "one")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(one.run(forever))
            await eventually(one.certain)
            store.lost_answers = 1
            store.errors = [Unreachable("away")]
            await asyncio.sleep(20)
            assert one.certain()
            assert one.transitions == 1
            task.cancel()

    run(main())


def test_a_lease_taken_by_force_ends_the_work_at_once() -> None:
    async def main() -> None:
        store = memory()
        one = candidate(store, "one")
        ended = asyncio.Event()

        async def lead() -> None:
            try:
                await forever()
            finally:
                ended.set()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(one.run(lead))
            await eventually(one.certain)
            document = (await store.get(LEASE, "kube-system", "netloom")).document()
            document["spec"]["holderIdentity"] = "usurper"
            await store.update(LEASE, document)
            await ended.wait()
            assert asyncio.get_running_loop().time() < 2.5
            assert not one.certain()
            assert one.holder == "usurper"
            task.cancel()

    run(main())


def test_a_deleted_lease_is_made_anew() -> None:
    async def main() -> None:
        store = memory()
        one = candidate(store, "one")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(one.run(forever))
            await eventually(one.certain)
            await store.delete(LEASE, "kube-system", "netloom")
            await asyncio.sleep(5)
            assert one.certain()
            assert one.transitions == 1
            task.cancel()

    run(main())


def test_a_release_that_fails_is_left_to_run_out() -> None:
    async def main() -> None:
        store = Moody(memory())
        one = candidate(store, "one")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(one.run(forever))
            await eventually(one.certain)
            store.errors = [Unreachable("away")]
            task.cancel()
        assert (await lease_of(store.inner)).spec.holder_identity == "one"

    run(main())


def test_the_election_ends_with_the_work_and_its_errors_are_not_swallowed() -> None:
    async def main() -> None:
        store = memory()
        one = candidate(store, "one")

        async def brief() -> None:
            await asyncio.sleep(1)

        await one.run(brief)
        assert (await lease_of(store)).spec.holder_identity == ""

        async def broken() -> None:
            raise TimeoutError("of its own")

        with pytest.raises(ExceptionGroup) as caught:
            await one.run(broken)
        assert str(caught.value.exceptions[0]) == "of its own"

    run(main())


def test_a_candidate_needs_an_identity_and_durations_that_make_sense() -> None:
    with pytest.raises(ValueError, match="identity"):
        candidate(None, "")
    with pytest.raises(ValueError, match="retry"):
        Durations(duration=3, deadline=3.0)


def test_while_the_lease_that_decides_is_changed_no_two_lead() -> None:
    """Old candidates know one namespace, new ones the other, those in between both; all come and go at random."""

    async def main() -> None:
        store, random = memory(), Random(7)

        def made(name: str) -> Candidate:
            old, new = candidate(store, name, "default"), candidate(store, name, "system")
            kinds: dict[str, Candidate] = {"old": old, "both": JointElection(old, new), "new": new}
            return kinds[name.partition("-")[0]]

        running: dict[str, tuple[Candidate, asyncio.Task[None]]] = {}
        led: set[str] = set()

        def one_leads() -> None:
            certain = [name for name, (one, _) in running.items() if one.certain()]
            led.update(name.partition("-")[0] for name in certain)
            assert len(certain) <= 1, certain

        sim.current().invariants.append(one_leads)
        number = 0
        async with asyncio.TaskGroup() as group:
            # First old ones and those in between, then these and new ones: as an upgrade goes.
            for phase in (("old", "both"), ("both", "new")):
                for name in [name for name in running if name.partition("-")[0] not in phase]:
                    running.pop(name)[1].cancel()
                await asyncio.sleep(10)
                for _ in range(60):
                    if running and random.random() < 0.5:
                        running.pop(random.choice(sorted(running)))[1].cancel()
                    if len(running) < 3:
                        number += 1
                        name = f"{random.choice(phase)}-{number}"
                        one = made(name)
                        running[name] = one, group.create_task(one.run(forever))
                    await asyncio.sleep(random.uniform(0, 8))
            for _, task in running.values():
                task.cancel()
        assert led == {"old", "both", "new"}

    run(main())


def test_a_lease_that_cannot_be_held_is_complained_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store = Moody(memory())
        store.errors = [NotFound('namespaces "netloom-system" not found')] * 8 + [Forbidden("you may not")] * 4
        one = candidate(store, "one")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(one.run(forever))
            await eventually(one.certain)
            task.cancel()

    run(main())
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert said == [
        'cannot take the Lease kube-system/netloom: namespaces "netloom-system" not found (does the namespace exist?)',
        "cannot take the Lease kube-system/netloom: you may not",
    ]
