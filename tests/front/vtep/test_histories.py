"""Histories of requests: whatever was added, DELETE undoes it; and requests at once do not lose each other."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import Conflict, Unreachable
from netloom.front.vtep.operations import Vtep
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import EVPN_NETWORK, NETWORK
from netloom.store.base import Stored
from netloom.store.memory import MemoryStore
from tests.front.vtep.rest import CLIENT, KINDS, SPEAKER, Rest

VNIS = st.integers(1, 4)
SWITCHES = st.sampled_from(["ls1", "ls2", "vni-1", "mine"])
NETWORKS = st.fixed_dictionaries({"vni": VNIS}, optional={"logical_switch": SWITCHES})
MACS = st.sampled_from(["02:00:00:00:00:01", "02:00:00:00:00:02"])
REQUESTS = st.lists(
    st.one_of(
        st.tuples(st.just("POST"), st.just("/vtep/networks"), NETWORKS),
        st.tuples(st.just("DELETE"), VNIS.map("/vtep/networks/{}".format), st.none()),
        st.tuples(
            st.just("POST"),
            VNIS.map("/vtep/networks/{}/clients".format),
            MACS.map(lambda mac: CLIENT | {"mac": mac}),
        ),
        st.builds(lambda vni, mac: ("DELETE", f"/vtep/networks/{vni}/clients/{mac}", None), VNIS, MACS),
        st.just(("POST", "/vtep/neighbors", {"address": "10.0.0.1", "remote_as": 65000})),
        st.just(("DELETE", "/vtep/neighbors/10.0.0.1", None)),
    ),
    max_size=12,
)


@given(REQUESTS)
def test_deleting_the_speaker_restores_what_was_before(requests: list[tuple[str, str, Any]]) -> None:
    with asyncio.Runner() as runner:
        rest = Rest(runner)
        rest.create(NETWORK, "mine", {"fabric": "ovn"})
        before = rest.contents()
        rest.post("/vtep/speakers", SPEAKER)
        expected: dict[int, str] = {}
        for method, path, body in requests:
            code, _ = rest.request(method, path, body)
            assert code in (200, 404, 409)
            if path == "/vtep/networks":
                wanted = body.get("logical_switch", f"vni-{body['vni']}")
                assert (code == 200) == (expected.get(body["vni"], wanted) == wanted)
                expected.setdefault(body["vni"], wanted)
            elif method == "DELETE" and path.count("/") == 3 and "networks" in path:
                assert (code == 200) == (expected.pop(int(path.rpartition("/")[2]), None) is not None)
            # The Networks are those that were there, and those that the requests name.
            assert set(rest.names(NETWORK)) == {"mine", *expected.values()}
        assert sorted(rest.get("/vtep/networks")) == sorted(map(str, expected))
        rest.delete("/vtep/speakers")
        assert rest.contents() == before


class Contested(MemoryStore):
    """A store in which another client changes an object before each of the first updates."""

    def __init__(self) -> None:
        super().__init__()
        self.conflicts = 5

    async def update(self, kind: Kind, document: Document, *, subresource: str = "", dry_run: bool = False) -> Stored:
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict("the object has been modified")
        return await super().update(kind, document, subresource=subresource, dry_run=dry_run)


def test_clients_that_are_added_at_once_are_all_added() -> None:
    async def add(vtep: Vtep, number: int) -> None:
        await vtep.run("add_client", CLIENT | {"vni": 10, "mac": f"02:00:00:00:00:{number:02x}"})

    async def add_all(vteps: list[Vtep]) -> None:
        await asyncio.gather(*(add(vteps[i % 2], i) for i in range(40)))

    with asyncio.Runner() as runner:
        rest = Rest(runner, Contested())
        rest.post("/vtep/speakers", SPEAKER)
        rest.post("/vtep/networks", {"vni": 10})
        runner.run(add_all([rest.vtep, Rest(runner, rest.store).vtep]))
        assert len(rest.object(EVPN_NETWORK, "vni-10")["spec"]["clients"]) == 40


def test_the_same_network_added_at_once_is_one() -> None:
    async def add_all(vteps: list[Vtep]) -> list[Document]:
        return await asyncio.gather(*(vtep.run("add_network", {"vni": 10, "logical_switch": "ls1"}) for vtep in vteps))

    with asyncio.Runner() as runner:
        rest = Rest(runner)
        rest.post("/vtep/speakers", SPEAKER)
        answers = runner.run(add_all([Rest(runner, rest.store).vtep for _ in range(5)]))
        assert all(answer == answers[0] for answer in answers)
        assert (rest.names(EVPN_NETWORK), rest.names(NETWORK)) == (["vni-10"], ["ls1"])


class Interrupted(MemoryStore):
    """A store that fails at a write, before or after it has taken effect."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0
        self.is_applied = False

    async def _fail(self, write: Awaitable[Any]) -> Any:
        self.left -= 1
        if self.left != 0:
            return await write
        if self.is_applied:
            await write
        elif asyncio.iscoroutine(write):
            write.close()
        raise Unreachable("the store does not answer")

    async def create(self, kind: Kind, document: Document, **options: Any) -> Any:
        return await self._fail(super().create(kind, document, **options))

    async def update(self, kind: Kind, document: Document, **options: Any) -> Any:
        return await self._fail(super().update(kind, document, **options))

    async def delete(self, kind: Kind, namespace: str, name: str, **options: Any) -> Any:
        return await self._fail(super().delete(kind, namespace, name, **options))


NEIGHBOR = {"address": "10.0.0.1", "remote_as": 65000}
HISTORY: list[tuple[str, str, Any]] = [
    ("POST", "/vtep/speakers", SPEAKER),
    ("POST", "/vtep/neighbors", NEIGHBOR),
    ("POST", "/vtep/networks", {"vni": 10, "logical_switch": "ls1"}),
    ("POST", "/vtep/networks/10/clients", CLIENT),
    ("DELETE", f"/vtep/networks/10/clients/{CLIENT['mac']}", None),
    ("DELETE", "/vtep/neighbors/10.0.0.1", None),
    ("DELETE", "/vtep/networks/10", None),
    ("POST", "/vtep/neighbors", NEIGHBOR),
    ("POST", "/vtep/networks", {"vni": 11}),
    ("DELETE", "/vtep/speakers", None),
]


@pytest.mark.parametrize("is_applied", [False, True], ids=["lost", "applied"])
@pytest.mark.parametrize("number", range(len(HISTORY)))
def test_a_request_that_the_store_interrupts_is_completed_by_the_same_request(number: int, is_applied: bool) -> None:
    def specs(rest: Rest) -> dict[str, Any]:
        return {f"{kind.name}/{name}": rest.object(kind, name)["spec"] for kind in KINDS for name in rest.names(kind)}

    def run(write: int) -> tuple[bool, dict[str, Any]]:
        """Fail at a write of the request, and repeat it; return whether it failed, and the objects."""
        with asyncio.Runner() as runner:
            rest = Rest(runner, store := Interrupted())
            for request in HISTORY[:number]:
                assert rest.request(*request)[0] == 200
            store.left, store.is_applied = write, is_applied
            code, _ = rest.request(*HISTORY[number])
            assert code in (200, 503)
            store.left = 0
            again, _ = rest.request(*HISTORY[number])
            assert again == 200 or (HISTORY[number][0], again) == ("DELETE", 404)
            return code == 503, specs(rest)

    failed, expected = run(0)
    assert not failed
    writes = 0
    while (found := run(writes + 1))[0]:
        assert found[1] == expected
        writes += 1
    assert writes >= 1
