"""The controller of EVPNNetworks: what it accepts, which speaker forwards, what it removes; in simulated time."""

import asyncio
from typing import Any

from netloom.errors import NotFound
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.kinds.bgp import SPEAKER_SILENT_SECONDS
from netloom.model.registry import BGP_SPEAKER, EVPN_NETWORK, NETWORK, REMOTE_VTEP
from netloom.store.base import Store
from tests.control.helpers import controlled, document, until

PARTS = ("evpn", "networks", "garbage")


async def _status(store: Store, kind: Kind, name: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = (await store.get(kind, "ns1", name)).document().get("status", {})
    except NotFound:
        return {}
    return found


async def _reason(store: Store, name: str, condition: str = "Accepted") -> str:
    conditions = (await _status(store, EVPN_NETWORK, name)).get("conditions", ())
    return next((one["reason"] for one in conditions if one["type"] == condition), "")


async def _beat(store: Store, name: str, beat: str) -> None:
    stored = (await store.get(BGP_SPEAKER, "ns1", name)).document()
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2030-01-01T00:00:00Z"}
    stored["status"] = {"lastHeartbeat": beat, "conditions": [ready]}
    await store.update(BGP_SPEAKER, stored, subresource="status")


async def _speaker(store: Store, name: str, node: str = "gw") -> None:
    spec = {"asn": 65000, "routerID": "192.0.2.1", "node": node}
    await store.create(BGP_SPEAKER, document(BGP_SPEAKER, name, spec))


async def _evpn(store: Store, name: str, network: str = "blue", speaker: str = "main", **spec: Any) -> None:
    await store.create(EVPN_NETWORK, document(EVPN_NETWORK, name, {"network": network, "speaker": speaker, **spec}))


async def _network(store: Store, name: str, **spec: Any) -> None:
    await store.create(NETWORK, document(NETWORK, name, spec))


def _remote(name: str, evpn: str, network: str, node: str) -> Document:
    spec = {"evpnNetwork": evpn, "network": network, "node": node, "address": "192.0.2.9", "vni": 10, "localVNI": 10}
    return document(REMOTE_VTEP, name, spec)


def test_what_cannot_be_extended_says_why_and_is_accepted_when_it_can() -> None:
    async def main(store: Store) -> None:
        await _evpn(store, "early")
        await until(lambda: _is(store, "early", "NetworkMissing"))
        await _network(store, "blue", vni=10)
        await until(lambda: _is(store, "early", "SpeakerMissing"))
        await _speaker(store, "main")
        await until(lambda: _is(store, "early", "Accepted"))
        status = await _status(store, EVPN_NETWORK, "early")
        assert (status["vni"], status["forwarding"], status["node"]) == (10, True, "gw")
        assert await _reason(store, "early", "Ready") == "Pending"
        await _evpn(store, "again")
        await until(lambda: _is(store, "again", "AlreadyExtended"))
        await _network(store, "red", vni=11)
        await _evpn(store, "same", "red", vni=10)
        await until(lambda: _is(store, "same", "VNIInUse"))
        await _network(store, "plain", vni=12, fabric="vxlan")
        await _evpn(store, "plain", "plain", vni=13)
        await until(lambda: _is(store, "plain", "OtherVNI"))
        assert (await _status(store, EVPN_NETWORK, "plain")).get("vni") is None

    controlled(main, parts=PARTS)


def test_large_vnis_of_a_speaker_have_numbers_of_their_own() -> None:
    async def main(store: Store) -> None:
        await _speaker(store, "main")
        for vni in (10, 65536 + 10, 2 * 65536 + 10):
            await _network(store, f"net-{vni}", vni=vni)
            await _evpn(store, f"net-{vni}", f"net-{vni}")

        async def numbers() -> list[int]:
            names = [stored.name for stored in (await store.list(EVPN_NETWORK)).items]
            return [(await _status(store, EVPN_NETWORK, name)).get("rdNumber", 0) for name in sorted(names)]

        async def distinct() -> bool:
            found = await numbers()
            return len(set(found)) == 3 and min(found) > 0

        await until(distinct)
        assert (await _status(store, EVPN_NETWORK, "net-10"))["rdNumber"] == 10
        before = await numbers()
        await asyncio.sleep(30)
        assert await numbers() == before

    controlled(main, parts=PARTS)


async def _is(store: Store, name: str, reason: str) -> bool:
    return await _reason(store, name) == reason


def test_of_two_speakers_one_forwards_and_the_other_takes_over() -> None:
    async def main(store: Store) -> None:
        await _network(store, "blue", vni=10)
        for name in ("a", "b"):
            await _speaker(store, name, f"gw-{name}")
            await _evpn(store, name, speaker=name)

        async def forwarding() -> set[str]:
            return {name for name in ("a", "b") if (await _status(store, EVPN_NETWORK, name)).get("forwarding")}

        async def beating(names: str, seconds: float) -> None:
            for number in range(int(seconds)):
                for name in names:
                    await _beat(store, name, f"2030-01-01T12:{number // 60:02}:{number % 60:02}Z")
                await asyncio.sleep(1)
                assert len(await forwarding()) <= 1

        async def turn(name: str) -> int:
            found: int = (await _status(store, EVPN_NETWORK, name)).get("turn", 0)
            return found

        await beating("ab", 20)
        assert await forwarding() == {"a"}
        assert (await turn("a"), await turn("b")) == (1, 0)
        await beating("b", 2 * SPEAKER_SILENT_SECONDS)
        assert await forwarding() == {"b"}
        assert await turn("b") == 2
        await beating("ab", 40)
        assert await forwarding() == {"b"}, "the one that forwards stays"
        await asyncio.sleep(100)
        assert await forwarding() == {"b"}, "without a live speaker nothing changes"
        conditions = (await _status(store, BGP_SPEAKER, "a"))["conditions"]
        assert [one["reason"] for one in conditions] == ["SpeakerSilent"]

    controlled(main, parts=PARTS)


def test_remote_vteps_that_no_speaker_can_have_written_are_deleted() -> None:
    async def main(store: Store) -> None:
        await _network(store, "blue", vni=10)
        await _speaker(store, "main")
        await _evpn(store, "blue")
        for name, evpn, network, node in (
            ("kept", "blue", "blue", "gw"),
            ("of-another-node", "blue", "blue", "n7"),
            ("of-another-network", "blue", "red", "gw"),
            ("of-nothing", "red", "blue", "gw"),
        ):
            await store.create(REMOTE_VTEP, _remote(name, evpn, network, node))

        async def names() -> list[str]:
            return [stored.name for stored in (await store.list(REMOTE_VTEP)).items]

        async def only_one() -> bool:
            return await names() == ["kept"]

        await until(only_one)
        await store.delete(EVPN_NETWORK, "ns1", "blue")

        async def none() -> bool:
            return await names() == []

        await until(none)

    controlled(main, parts=PARTS)
