"""Bad requests: each is an error of one attachment only, and ends when its cause ends."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest

from netloom.model import codec
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.registry import EVENT, IP_LOCK, KINDS, NETWORK, NETWORK_ATTACHMENT, SUBNET
from netloom.run.controllers import Options
from netloom.store.memory import MemoryStore
from tests.control.helpers import assemble, document, memory, network, run, subnet

(TABLE,) = codec.documents((Path(__file__).parent / "data" / "requests.yaml").read_bytes())
CASES: list[dict[str, Any]] = TABLE["cases"]
OLD = ("holder", "g1", "g2", "g3")


async def _world(store: MemoryStore) -> None:
    for name, vni in (("blue", 7), ("red", 8), ("green", 9)):
        await store.create(NETWORK, network(name, vni))
    await store.create(SUBNET, subnet("blue-v4", "10.0.0.0/24", exclude=["10.0.0.50-10.0.0.59", "10.0.0.99"]))
    await store.create(SUBNET, subnet("blue-v6", "fd00::/64"))
    await store.create(SUBNET, subnet("red-v4", "10.9.0.0/24", "red"))
    await store.create(SUBNET, subnet("green-v4", "10.3.0.0/30", "green"))
    kept = {"network": "blue", "vni": 7, "ip": "10.0.0.200"}
    await store.create(IP_LOCK, document(IP_LOCK, "v1-7-10-0-0-200", kept))
    await asyncio.sleep(2)
    await store.create(SUBNET, subnet("blue-bad", "10.0.0.128/25"))
    await _attach(store, "holder", {"ips": ["10.0.0.9", "fd00::9"], "mac": "02:00:00:00:00:09"})
    for name in ("g1", "g2", "g3"):
        await _attach(store, name, {"network": "green"})
        await asyncio.sleep(1.5)


async def _attach(store: MemoryStore, name: str, spec: dict[str, Any]) -> None:
    await store.create(
        NETWORK_ATTACHMENT, document(NETWORK_ATTACHMENT, name, {"node": "n1", "network": "blue", **spec})
    )


async def _do(store: MemoryStore, action: dict[str, Any]) -> None:
    verb = next(verb for verb in ("create", "edit", "delete") if verb in action)
    kind, name = KINDS.named(action[verb].split("/")[0]), action[verb].split("/")[1]
    if verb == "delete":
        await store.delete(kind, "ns1", name)
    elif verb == "edit":
        found = (await store.get(kind, "ns1", name)).document()
        found["spec"] |= action["spec"]
        await store.update(kind, found)
    elif kind is NETWORK_ATTACHMENT:
        await _attach(store, name, action["spec"])
    else:
        await store.create(kind, document(kind, name, action["spec"]))
    await asyncio.sleep(2)


async def _seen(store: MemoryStore, name: str) -> NetworkAttachment:
    value = (await store.get(NETWORK_ATTACHMENT, "ns1", name)).value()
    assert isinstance(value, NetworkAttachment)
    return value


async def _others(store: MemoryStore) -> dict[str, Any]:
    items = (await store.list(NETWORK_ATTACHMENT)).items
    return {item.name: item.document()["status"] for item in items if item.name != "request"}


def test_there_are_at_least_forty_five_bad_requests() -> None:
    assert len(CASES) >= 45
    assert len({case["name"] for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]).replace(" ", "-"))
def test_request(case: dict[str, Any]) -> None:
    async def main() -> None:
        store = memory()
        manager = assemble(store, random=Random(1), collect=True, parts=[""], options=Options(quarantine=1.0))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(manager.run())
            await _world(store)
            for action in case.get("before", ()):
                await _do(store, action)
            await asyncio.sleep(5)
            before = await _others(store)
            await _attach(store, "request", case["spec"])
            await asyncio.sleep(5)
            await _refused(store, case)
            assert await _others(store) == before
            for action in case["heal"]:
                await _do(store, action)
            await asyncio.sleep(10)
            await _healed(store, case)
            task.cancel()

    run(main())


async def _refused(store: MemoryStore, case: dict[str, Any]) -> None:
    seen = await _seen(store, "request")
    assert list(seen.status.errors.ipam) == case["errors"]
    assert list(seen.status.ips) == case.get("ips", [])
    addressed = seen.status.condition("Addressed")
    assert addressed is not None
    assert (addressed.status, addressed.reason) == ("False", case["reason"])
    assert addressed.message == "; ".join(case["errors"])
    ready = seen.status.condition("Ready")
    assert ready is not None
    assert ready.status == "False"
    events = [item.document() for item in (await store.list(EVENT)).items]
    warned = {e["message"] for e in events if e["involvedObject"]["name"] == "request" and e["type"] == "Warning"}
    assert set(case["errors"]) <= warned


async def _healed(store: MemoryStore, case: dict[str, Any]) -> None:
    healed = await _seen(store, "request")
    assert healed.status.errors.ipam == ()
    assert list(healed.status.ips) == case["then"]
    addressed = healed.status.condition("Addressed")
    assert addressed is not None
    assert addressed.status == "True"
    assert healed.status.mac == (healed.spec.mac.lower() or healed.status.mac)
    locks = [item.document() for item in (await store.list(IP_LOCK)).items]
    own = {
        lock["spec"]["ip"]
        for lock in locks
        if lock["metadata"].get("ownerReferences", [{}])[0].get("name") == "request"
    }
    assert own == {ip.partition("/")[0] for ip in case["then"]}
