import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.manager import Manager
from netloom.control.subnets import BY_NETWORK, SubnetValidator, by_network, check
from netloom.errors import Unreachable
from netloom.model.kinds.networks import Network, Subnet
from netloom.model.registry import EVENT, NETWORK, SUBNET
from netloom.model.values.selectors import EVERYTHING, Selector
from netloom.sim.world import eventually
from netloom.store.base import Event, Page, Sink, Stored, Watch
from netloom.store.memory import MemoryStore
from tests.control.helpers import assemble, fill, memory, network, noon, run, subnet, subnet_of

CASES = json.loads((Path(__file__).parent / "data" / "subnet-cases.json").read_text())


class Awkward(MemoryStore):
    """A store whose first status updates fail, and whose informers' view lacks some objects."""

    def __init__(self, failing: int, hidden: list[str]) -> None:
        super().__init__()
        self.failing = failing
        self.hidden = hidden

    async def update(self, *args: Any, **options: Any) -> Stored:
        if self.failing and options.get("subresource"):
            self.failing -= 1
            raise Unreachable("not now")
        return await super().update(*args, **options)

    async def list(self, kind: Any, namespace: str = "", *, selector: Selector = EVERYTHING, **options: Any) -> Page:
        page = await super().list(kind, namespace, selector=selector, **options)
        if not self.hidden or kind is not SUBNET or selector:
            return page
        items = [item for item in page.items if str(Key(item.namespace, item.name)) not in self.hidden]
        return Page(items, page.revision, page.token)

    async def watch(self, kind: Any, *args: Any, **options: Any) -> Watch:
        return Filtered(await super().watch(kind, *args, **options), self.hidden if kind is SUBNET else [])


class Filtered:
    def __init__(self, inner: Watch, hidden: list[str]) -> None:
        self.inner = inner
        self.hidden = hidden

    async def next(self) -> list[Event]:
        while True:
            events = await self.inner.next()
            if seen := [e for e in events if str(Key(e.object.namespace, e.object.name)) not in self.hidden]:
                return seen

    @property
    def revision(self) -> int:
        return self.inner.revision

    def direct(self, sink: Sink | None) -> None:
        """What is hidden must not come another way."""

    async def close(self) -> None:
        await self.inner.close()


@asynccontextmanager
async def validating(store: MemoryStore) -> AsyncIterator[Manager]:
    manager = assemble(store, random=Random(1))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(manager.run())
        yield manager
        task.cancel()


async def _put_network(store: MemoryStore, given: dict[str, Any]) -> None:
    await store.create(NETWORK, network(given["name"], given.get("vni"), given["namespace"]))
    if chosen := given.get("chosen"):
        document = (await store.get(NETWORK, given["namespace"], given["name"])).document()
        await store.update(NETWORK, document | {"status": {"vni": chosen}}, subresource="status")


async def _put_subnet(store: MemoryStore, given: dict[str, Any]) -> None:
    made = await store.create(SUBNET, subnet(given["name"], given["cidr"], given["network"], given["namespace"]))
    if given.get("validated"):
        document = made.document() | {"status": {"validated": True}}
        await MemoryStore.update(store, SUBNET, document, subresource="status")


async def _act(store: MemoryStore, action: dict[str, Any]) -> None:
    match action:
        case {"delete": name}:
            await store.delete(SUBNET, *name.split("/"))
        case {"deleteNetwork": name}:
            await store.delete(NETWORK, *name.split("/"))
        case {"network": given}:
            await _put_network(store, given)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]).replace(" ", "-"))
@pytest.mark.parametrize("seed", range(3))
def test_case(case: dict[str, Any], seed: int) -> None:
    async def main() -> None:
        store = Awkward(case.get("failUpdates", 0), case.get("hidden", []))
        for given in case["networks"]:
            await _put_network(store, given)
        for given in case["subnets"]:
            await _put_subnet(store, given)
        async with validating(store):
            for part in case["rounds"]:
                await asyncio.sleep(10)
                for name, expected in part["expect"].items():
                    value = await subnet_of(store, name.split("/")[1], name.split("/")[0])
                    seen = {"validated": value.status.validated, "errors": list(value.status.errors)}
                    assert seen == expected, name
                await _act(store, part.get("then", {}))

    run(main(), seed)


def test_the_status_says_all_there_is_to_say() -> None:
    async def main() -> None:
        store = memory()
        await store.create(NETWORK, network("blue", 10))
        exclude = ["10.10.0.2", "10.10.0.200-10.10.0.254"]
        await store.create(SUBNET, subnet("good", "10.10.0.0/24", gateway="10.10.0.1", exclude=exclude))
        await store.create(SUBNET, subnet("stray", "10.11.0.0/24", "red"))
        async with validating(store):
            await asyncio.sleep(5)
            good = (await store.get(SUBNET, "ns1", "good")).document()["status"]
            assert good == {
                "validated": True,
                "capacity": 197,
                "used": 0,
                "observedGeneration": 1,
                "conditions": [
                    {
                        "type": kind,
                        "status": "True",
                        "observedGeneration": 1,
                        "lastTransitionTime": "2030-01-01T12:00:00.000000Z",
                        "reason": reason,
                    }
                    for kind, reason in (("Validated", "Disjoint"), ("Ready", "Ready"))
                ],
            }
            stray = (await subnet_of(store, "stray")).status
            assert [(c.type, c.status, c.reason, c.message) for c in stray.conditions] == [
                ("Validated", "False", "NetworkMissing", "Network ns1/red does not exist"),
                ("Ready", "False", "NetworkMissing", "Network ns1/red does not exist"),
            ]
        events = [stored.document() for stored in (await store.list(EVENT)).items]
        assert sorted((e["involvedObject"]["name"], e["type"], e["reason"], e["message"]) for e in events) == [
            ("good", "Normal", "SubnetValidated", "10.10.0.0/24 overlaps no other block"),
            ("stray", "Warning", "SubnetFailedValidation", "Network ns1/red does not exist"),
        ]

    run(main())


def test_a_refusal_names_the_rivals_in_one_event() -> None:
    async def main() -> None:
        store = memory()
        await store.create(NETWORK, network("blue", 10))
        for name in ("b", "a", "c"):
            await store.create(SUBNET, subnet(name, "10.10.0.0/24"))
        async with validating(store):
            await asyncio.sleep(5)
        events = [stored.document() for stored in (await store.list(EVENT)).items]
        assert sorted(e["message"] for e in events if e["involvedObject"]["name"] == "b") == [
            "Found rival subnets: ns1/a, ns1/c"
        ]

    run(main())


def test_capacity_follows_the_spec_and_nothing_is_written_without_news() -> None:
    async def main() -> None:
        store = memory()
        await store.create(NETWORK, network("blue", 10))
        await store.create(SUBNET, subnet("s1", "10.10.0.0/24"))
        async with validating(store) as manager:
            await asyncio.sleep(5)
            assert (await subnet_of(store, "s1")).status.capacity == 253
            document = (await store.get(SUBNET, "ns1", "s1")).document()
            document["spec"]["exclude"] = ["10.10.0.10-10.10.0.19"]
            await store.update(SUBNET, document)
            await asyncio.sleep(5)
            changed = await subnet_of(store, "s1")
            assert (changed.status.capacity, changed.status.observed_generation) == (243, 2)
            before = await store.revision()
            for _ in range(3):
                manager.controllers[0].queue.update(manager.controllers[0].all_keys())
                await asyncio.sleep(5)
            assert await store.revision() == before

    run(main())


def test_a_subnet_that_is_going_is_left_alone() -> None:
    async def main() -> None:
        store = memory()
        await store.create(NETWORK, network("blue", 10))
        held = subnet("s1", "10.10.0.0/24")
        held["metadata"]["finalizers"] = ["netloom.dev/test"]
        await store.create(SUBNET, held)
        await store.delete(SUBNET, "ns1", "s1")
        async with validating(store):
            await asyncio.sleep(5)
            assert not (await subnet_of(store, "s1")).status.validated

    run(main())


def _value(kind: Any, document: dict[str, Any], revision: int, uid: str) -> Any:
    document["metadata"] |= {"resourceVersion": str(revision), "uid": uid}
    return kind.decode(json.dumps(document).encode())


def _validator(store: MemoryStore) -> tuple[SubnetValidator, Cache[Subnet]]:
    cache: Cache[Subnet] = Cache(lambda stored: SUBNET.decode(stored.raw), {BY_NETWORK: by_network})  # type: ignore[arg-type, return-value]
    recorder = Recorder(store, "test", random=Random(1))
    return SubnetValidator(Client(store), cache, recorder, clock=noon), cache


def test_a_subnet_that_is_gone_or_replaced_by_now_is_nobodys_business() -> None:
    async def main() -> None:
        store = memory()
        validator, cache = _validator(store)
        made = await store.create(SUBNET, subnet("s1", "10.10.0.0/24"))
        fill(cache, [made], made.revision)
        await store.delete(SUBNET, "ns1", "s1")
        assert await validator.reconcile(Key("ns1", "s1")) is None
        await store.create(NETWORK, network("blue", 10))
        assert await validator.reconcile(Key("ns1", "s1")) is None
        await store.create(SUBNET, subnet("s1", "10.10.0.0/24"))
        before = await store.revision()
        assert await validator.reconcile(Key("ns1", "s1")) is None
        assert await validator.reconcile(Key("ns1", "unheard-of")) is None
        assert await store.revision() == before

    run(main())


def test_each_version_of_a_network_is_decoded_once() -> None:
    async def main() -> None:
        store = memory()
        validator, _ = _validator(store)
        await store.create(NETWORK, network("blue", 10))
        assert await validator._read_vnis() == {Key("ns1", "blue"): 10}
        first = validator._vnis[Key("ns1", "blue")]
        assert await validator._read_vnis() == {Key("ns1", "blue"): 10}
        assert validator._vnis[Key("ns1", "blue")] is first

    run(main())


def test_a_change_of_a_network_concerns_its_subnets_only_if_the_vni_changed() -> None:
    async def main() -> None:
        store = memory()
        validator, cache = _validator(store)
        made = await store.create(SUBNET, subnet("s1", "10.10.0.0/24"))
        fill(cache, [made], made.revision)
        blue: Network = _value(NETWORK, network("blue", 10), 1, "u")
        same: Network = _value(NETWORK, network("blue", 10, labels={"a": "b"}), 2, "u")
        key = Key("ns1", "blue")
        assert list(validator.network_changed(Change(key, blue, same))) == []
        assert list(validator.network_changed(Change(key, None, blue))) == [Key("ns1", "s1")]
        assert list(validator.network_changed(Change(key, blue, None))) == [Key("ns1", "s1")]

    run(main())


def test_a_rival_replaced_by_another_of_its_name_frees_those_it_stood_in_the_way_of() -> None:
    async def main() -> None:
        validator, _ = _validator(memory())
        old: Subnet = _value(SUBNET, subnet("rival", "10.0.0.0/24"), 1, "u1")
        new: Subnet = _value(SUBNET, subnet("rival", "10.0.0.0/24"), 2, "u2")
        assert validator._remember(Key("ns1", "s1"), [old]) is not None
        assert list(validator.subnet_changed(Change(Key("ns1", "rival"), old, old))) == [Key("ns1", "rival")]
        assert set(validator.subnet_changed(Change(Key("ns1", "rival"), old, new))) == {
            Key("ns1", "s1"),
            Key("ns1", "rival"),
        }

    run(main())


def test_judging_is_blind_to_the_order_of_rivals() -> None:
    mine: Subnet = _value(SUBNET, subnet("s1", "10.0.0.0/8"), 1, "u1")
    others = [_value(SUBNET, subnet(f"r{n}", f"10.{n}.0.0/16"), n, f"v{n}") for n in range(20)]
    shuffled = list(others)
    Random(3).shuffle(shuffled)
    assert check(mine, [mine, *others]).errors == check(mine, [*shuffled, mine]).errors
    assert len(check(mine, others).rivals) == 20


def test_the_validators_events_about_unknown_keys_have_no_object() -> None:
    async def main() -> None:
        validator, _ = _validator(memory())
        assert validator.event_target(Key("ns1", "s1")) is None
        await eventually(lambda: True)

    run(main())
