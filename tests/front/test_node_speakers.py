"""What a node may read and write for the BGPSpeakers that it runs; tests/front/test_roles.py has the table of reads."""

import asyncio
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import Forbidden
from netloom.front.api.admission.node_writes import REMOTE_VTEPS, UNDERLAYS_SECONDS, NodeRestriction
from netloom.front.api.auth.identity import Attributes
from netloom.front.api.auth.node_speakers import NodeSpeakers
from netloom.front.api.auth.roles import RoleAuthorizer
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import (
    BGP_PEER,
    BGP_SPEAKER,
    EVENT,
    EVPN_NETWORK,
    NETWORK,
    NETWORK_ATTACHMENT,
    NODE,
    REMOTE_VTEP,
)
from netloom.run.metrics.metering import MeteredStore
from netloom.store.memory import MemoryStore
from tests.front.serving import Serving, document, network, path, serving
from tests.front.test_node_writes import N1, creation, event, rule
from tests.front.test_rights import OFTEN, error
from tests.front.test_roles import counting, fields, thing

TIME = "2026-11-16T09:00:00Z"


def speaker(name: str = "main", node: str = "n1") -> Document:
    return document("BGPSpeaker", name, "default", {"asn": 65000, "routerID": "192.0.2.1", "node": node})


def peer(name: str = "far", of: str = "main") -> Document:
    return document("BGPPeer", name, "default", {"speaker": of, "address": "192.0.2.9", "remoteASN": 65000})


def evpn(name: str = "blue", of: str = "main", extended: str = "blue") -> Document:
    return document("EVPNNetwork", name, "default", {"speaker": of, "network": extended})


def vtep(owner: Document | None, name: str = "blue.192-0-2-7.10.0", **changes: Any) -> Document:
    spec = {"evpnNetwork": "blue", "network": "blue", "node": "n1", "address": "192.0.2.7", "vni": 10, "localVNI": 10}
    made = document("RemoteVTEP", name, "default", spec | changes)
    if owner is not None:
        made["metadata"]["ownerReferences"] = [reference(owner)]
    return made


def reference(owner: Document) -> Document:
    named = {key: owner[key] for key in ("apiVersion", "kind")}
    return named | {key: owner["metadata"][key] for key in ("name", "uid")}


def condition(name: str) -> Document:
    return {"type": name, "status": "True", "reason": "Well", "lastTransitionTime": TIME}


def prepare(server: Serving, *more: Document) -> Document:
    """Make a speaker of n1 with a peer and an EVPNNetwork, which is returned, and the same of n2."""
    made = [speaker(), peer(), evpn(), speaker("theirs", "n2"), peer("theirs", "theirs")]
    for one in [*made, evpn("theirs", "theirs", "red"), *more]:
        answer = server.post(path(one["kind"].lower() + "s"), one)
        assert answer.code == 201, answer.json
    found: Document = server.get(path("evpnnetworks", name="blue")).json
    return found


# Statuses.


@pytest.mark.parametrize(
    ("plural", "status", "refused"),
    [
        ("bgpspeakers", {"peers": 2, "established": 1, "lastHeartbeat": TIME, "conditions": [condition("Ready")]}, ""),
        ("bgpspeakers", {"conditions": [condition("Accepted")]}, "status.conditions[Accepted]"),
        ("bgpspeakers", {"observedGeneration": 1}, ""),
        ("bgppeers", {"state": "Established", "received": 1, "lastError": "x", "observedGeneration": 1}, ""),
        ("bgppeers", {"conditions": [condition("Ready")]}, ""),
        ("evpnnetworks", {"remoteVTEPs": ["192.0.2.7"], "remoteMACs": 2, "localMACs": 3}, ""),
        ("evpnnetworks", {"duplicateMACs": ["02:00:00:00:00:01"], "conditions": [condition("Advertised")]}, ""),
        ("evpnnetworks", {"vni": 11}, "status.vni"),
        ("evpnnetworks", {"forwarding": True}, "status.forwarding"),
        ("evpnnetworks", {"conditions": [condition("Ready")]}, "status.conditions[Ready]"),
        ("evpnnetworks", {"conditions": [condition("Accepted")]}, "status.conditions[Accepted]"),
        ("evpnnetworks", {"observedGeneration": 1}, "status.observedGeneration"),
    ],
)
def test_a_speaker_reports_its_part_of_a_status(server: Serving, plural: str, status: Document, refused: str) -> None:
    prepare(server)
    own = {"bgpspeakers": "main", "bgppeers": "far", "evpnnetworks": "blue"}[plural]
    answer = server.patch(path(plural, name=own, subresource="status"), {"status": status}, who="n1")
    assert (answer.code, refused in answer.json.get("message", "")) == (403 if refused else 200, True), answer.json
    for who, name in (("n1", "theirs"), ("n2", own)):
        assert server.patch(path(plural, name=name, subresource="status"), {"status": status}, who=who).code == 403
    assert server.patch(path(plural, name=own), {"spec": {"node": "n2"}}, who="n1").code == 403
    assert server.delete(path(plural, name=own), who="n1").code == 403


def test_a_speaker_leaves_the_controllers_fields_as_they_are(server: Serving) -> None:
    prepare(server)
    status = path("evpnnetworks", name="blue", subresource="status")
    theirs = {"vni": 10, "forwarding": True, "conditions": [condition("Ready")]}
    assert server.patch(status, {"status": theirs}).code == 200
    whole = {"status": theirs | {"remoteMACs": 1, "conditions": [condition("Ready"), condition("Advertised")]}}
    assert server.patch(status, whole, who="n1").code == 200
    for removed in ({"vni": None}, {"forwarding": None}, {"conditions": [condition("Advertised")]}):
        assert server.patch(status, {"status": removed}, who="n1").code == 403


# RemoteVTEPs.


def test_a_speaker_writes_what_it_has_learned(server: Serving) -> None:
    owner = prepare(server)
    made = vtep(owner)
    assert server.post(path("remotevteps"), made, who="n1").code == 201
    own = path("remotevteps", name=made["metadata"]["name"])
    assert server.get(own, who="n1").code == 200
    assert server.patch(own, {"spec": {"flood": True}}, who="n1").json["spec"]["flood"] is True
    replaced = server.get(own, who="n1").json
    replaced["spec"]["macs"] = [{"mac": "02:00:00:00:00:01"}]
    assert server.put(own, replaced, who="n1").code == 200
    for change in (
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"finalizers": ["a/b"]}},
        {"metadata": {"ownerReferences": None}},
        {"status": {"observedGeneration": 1}},
    ):
        assert server.patch(own, change, who="n1").code == 403, change
    for who in ("n2", "viewer"):
        assert server.patch(own, {"spec": {"flood": False}}, who=who).code == 403
        assert server.delete(own, who=who).code == 403
    assert server.delete(path("remotevteps"), who="n1").code == 403
    assert server.delete(own, who="n1").code == 200
    # It may be gone already: collected with its owner.
    assert server.delete(own, who="n1").code == 404
    assert server.put(own, replaced, who="n1").code == 404
    assert server.get(path("remotevteps", "elsewhere", "x"), who="n1").code == 403


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"spec": {"node": "n2"}}, "spec.node"),
        ({"spec": {"evpnNetwork": "theirs"}}, "spec.evpnNetwork"),
        ({"spec": {"evpnNetwork": "missing"}}, "spec.evpnNetwork"),
        ({"spec": {"network": "red"}}, "spec.network: must be that of the EVPNNetwork, blue"),
        ({"metadata": {"name": "theirs.192-0-2-7.10.0"}}, "metadata.name"),
        ({"metadata": {"name": "blue.more.192-0-2-7.10.0"}}, "metadata.name"),
        ({"metadata": {"name": "blue"}}, "metadata.name"),
        ({"metadata": {"name": "", "generateName": "blue.192-0-2-7.10.n"}}, "metadata.name"),
        ({"metadata": {"labels": {"a": "b"}}}, "metadata.labels"),
        ({"metadata": {"annotations": {"a": "b"}}}, "metadata.annotations"),
        ({"metadata": {"finalizers": ["a/b"]}}, "metadata.finalizers"),
        ({"metadata": {"generateName": "a"}}, "metadata.generateName"),
        ({"metadata": {"ownerReferences": []}}, "metadata.ownerReferences"),
        ({"metadata": {"ownerReferences": [{"uid": "another"}]}}, "metadata.ownerReferences"),
        ({"metadata": {"ownerReferences": [{"name": "theirs"}]}}, "metadata.ownerReferences"),
        ({"metadata": {"ownerReferences": [{"kind": "Network"}]}}, "metadata.ownerReferences"),
        ({"metadata": {"ownerReferences": [{}, {"uid": "another"}]}}, "metadata.ownerReferences"),
        ({"metadata": {"ownerReferences": [{"blockOwnerDeletion": True}]}}, ""),
        ({"status": {"observedGeneration": 1}}, "status"),
    ],
)
def test_a_remote_vtep_is_of_an_evpn_network_of_the_node(server: Serving, change: Document, refused: str) -> None:
    owner = prepare(server)
    made = vtep(owner)
    for part, changes in change.items():
        if "ownerReferences" in changes:
            owners = [reference(owner) | one for one in changes["ownerReferences"]]
            changes = {"ownerReferences": owners}
        made[part] = made.get(part, {}) | changes
    answer = server.post(path("remotevteps"), made, who="n1")
    assert (answer.code, refused in answer.json.get("message", "")) == (403 if refused else 201, True), answer.json


@pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::7"])
def test_the_address_of_a_node_is_never_that_of_a_remote_vtep(address: str) -> None:
    async def main() -> None:
        store, now = MemoryStore(), [0.0]
        restriction = NodeRestriction(lambda: now[0])
        await store.create(BGP_SPEAKER, speaker())
        owner = (await store.create(EVPN_NETWORK, evpn())).document()
        made = creation(REMOTE_VTEP, vtep(owner, address=address.replace("db8::", "db8:0::")))
        await restriction.review(made, store)
        await store.create(NODE, thing(NODE, "n7", "", {"underlayIP": address}))
        now[0] = UNDERLAYS_SECONDS + 1
        with pytest.raises(Forbidden, match=r"spec\.address: Node n7 has"):
            await restriction.review(made, store)
        await store.delete(NODE, "", "n7")
        now[0] *= 2
        await restriction.review(made, store)

    asyncio.run(main())


def test_a_node_without_a_speaker_writes_no_remote_vtep(server: Serving) -> None:
    owner = prepare(server)
    server.delete(path("bgpspeakers", name="theirs"))
    made = vtep(owner, node="n2")
    for one in (peer("theirs", "theirs"), evpn("theirs", "theirs", "red")):
        assert server.delete(path(one["kind"].lower() + "s", name="theirs")).code == 200
    assert server.delete(path("bgpspeakers", name="theirs")).code == 200
    answer = server.post(path("remotevteps"), made, who="n2")
    assert (answer.code, "spec" in answer.json["message"]) == (403, False)  # Before the body is read.


@pytest.mark.parametrize("counted", [True, False])
def test_a_node_has_a_bounded_number_of_remote_vteps(counted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netloom.front.api.admission.node_writes.REMOTE_VTEPS", 3)

    async def main() -> None:
        store = MemoryStore()
        await store.create(BGP_SPEAKER, speaker())
        owner = (await store.create(EVPN_NETWORK, evpn())).document()
        index = NodeSpeakers(store)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(index.run())
            await index.known()
            restriction = rule(remote_vteps=index.remote_vteps) if counted else rule()

            async def create(number: int) -> None:
                made = vtep(owner, f"blue.192-0-2-7.10.{number}")
                await restriction.review(creation(REMOTE_VTEP, made), store)
                await store.create(REMOTE_VTEP, made)

            await store.create(REMOTE_VTEP, vtep(None, "other", node="n2"))
            for number in range(3):
                await create(number)
            with pytest.raises(Forbidden, match="at most 3 RemoteVTEPs: this one has 3"):
                await create(3)
            await store.delete(REMOTE_VTEP, "default", "blue.192-0-2-7.10.1")
            await create(3)
            task.cancel()

    asyncio.run(main())
    assert REMOTE_VTEPS == 16384


# Events.


def test_a_node_writes_events_about_its_speakers() -> None:
    async def main() -> None:
        store = MemoryStore()
        for one, kind in ((speaker, BGP_SPEAKER), (peer, BGP_PEER), (evpn, EVPN_NETWORK)):
            mine = await store.create(kind, one())
            await rule().review(creation(EVENT, event(mine)), store)
            theirs = await store.create(kind, one("theirs", "n2" if kind is BGP_SPEAKER else "theirs"))
            wrong = event(mine)
            wrong["involvedObject"]["uid"] = "another"
            for refused in (event(theirs), wrong, event(mine, namespace="invented")):
                with pytest.raises(Forbidden, match="involvedObject"):
                    await rule().review(creation(EVENT, refused), store)

    asyncio.run(main())


# The ends of rights.

BY_NODE = ((BGP_SPEAKER, "spec.node=n1"),)
BY_SPEAKER = (*BY_NODE, (BGP_PEER, "spec.speaker=main"), (EVPN_NETWORK, "spec.speaker=main"))
WATCHED = (
    *BY_SPEAKER,
    (EVPN_NETWORK, "spec.network=blue"),
    (NETWORK, "metadata.name=blue"),
    (NETWORK_ATTACHMENT, "spec.network=blue"),
)
"""What a speaker watches: for the BGPSpeaker, for what names it, and for the Network that is extended."""


@pytest.mark.parametrize(
    ("kind", "name", "change", "left"),
    [
        (BGP_SPEAKER, "main", {"node": "n2"}, BY_NODE),
        (BGP_SPEAKER, "main", None, BY_NODE),
        (EVPN_NETWORK, "blue", {"speaker": "another"}, BY_SPEAKER),
        (EVPN_NETWORK, "blue", None, BY_SPEAKER),
        (EVPN_NETWORK, "blue", {"network": "red"}, BY_SPEAKER),
    ],
)
@pytest.mark.parametrize("counted", [True, False])
def test_rights_end_with_the_speaker_or_the_evpn_network(
    kind: Kind, name: str, change: Document | None, left: tuple[tuple[Kind, str], ...], counted: bool
) -> None:
    async def main() -> None:
        store = MemoryStore()
        authorizer = RoleAuthorizer(store)

        async def allowed() -> list[tuple[Kind, str]]:
            asked = {one: Attributes("watch", one[0], "default", selector=fields(*one)) for one in WATCHED}
            return [one for one, what in asked.items() if await authorizer.allows(N1, what)]

        async with counting(authorizer) if counted else nullcontext():
            assert await allowed() == list(BY_NODE)
            await store.create(BGP_SPEAKER, speaker())
            await store.create(EVPN_NETWORK, evpn())
            assert await allowed() == list(WATCHED)
            version = authorizer.version(N1)
            assert (version is not None) is counted
            if change is None:
                await store.delete(kind, "default", name)
            else:
                changed = (await store.get(kind, "default", name)).document()
                changed["spec"] |= change
                await store.update(kind, changed)
            assert await allowed() == list(left)
            assert not counted or authorizer.version(N1) is not version

    asyncio.run(main())


def test_what_a_speaker_asks_for_is_allowed_without_a_request_to_the_store() -> None:
    async def main() -> None:
        store = MeteredStore(MemoryStore())
        await store.create(BGP_SPEAKER, speaker())
        await store.create(EVPN_NETWORK, evpn())
        authorizer = RoleAuthorizer(store)
        async with counting(authorizer):
            before = dict(store.operations)
            for kind, text in WATCHED:
                assert await authorizer.allows(N1, Attributes("watch", kind, "default", selector=fields(kind, text)))
            assert store.operations == before

    asyncio.run(main())


def test_only_a_lost_right_ends_the_version_of_a_node() -> None:
    """Statuses change every second: what was allowed is not authorized again for that, nor for what others lose."""

    async def main() -> None:
        store = MemoryStore()
        for kind, one in ((BGP_SPEAKER, speaker()), (BGP_SPEAKER, speaker("theirs", "n2")), (EVPN_NETWORK, evpn())):
            await store.create(kind, one)
        authorizer = RoleAuthorizer(store)
        async with counting(authorizer):
            version = authorizer.version(N1)
            for kind, name, status in ((BGP_SPEAKER, "main", "peers"), (EVPN_NETWORK, "blue", "remoteMACs")):
                changed = (await store.get(kind, "default", name)).document() | {"status": {status: 7}}
                await store.update(kind, changed, subresource="status")
            await store.create(EVPN_NETWORK, evpn("theirs", "theirs", "red"))
            await store.delete(EVPN_NETWORK, "default", "theirs")
            await store.delete(BGP_SPEAKER, "default", "theirs")
            await store.create(EVPN_NETWORK, evpn("more", extended="red"))
            assert authorizer.version(N1) is version
            await store.delete(EVPN_NETWORK, "default", "more")
            assert authorizer.version(N1) is not version

    asyncio.run(main())


def test_many_speakers_cost_what_a_few_do() -> None:
    """Neither an allowed watch nor a refused one reads more of the store because there are more speakers."""

    async def asked(count: int) -> tuple[int, int]:
        store = MeteredStore(MemoryStore())
        for number in range(count):
            name = f"s{number}"
            await store.create(BGP_SPEAKER, speaker(name, f"n{number}"))
            await store.create(EVPN_NETWORK, evpn(name, name, name))
        authorizer = RoleAuthorizer(store)
        found = []
        async with counting(authorizer):
            for wanted, allowed in (("s1", True), ("s0", False)):
                before = sum(store.operations.values())
                for kind, text in ((NETWORK, f"metadata.name={wanted}"), (EVPN_NETWORK, f"spec.speaker={wanted}")):
                    what = Attributes("watch", kind, "default", selector=fields(kind, text))
                    assert await authorizer.allows(N1, what) is allowed
                found.append(sum(store.operations.values()) - before)
        return found[0], found[1]

    async def main() -> None:
        few, many = await asked(2), await asked(200)
        assert few == many
        assert many[0] == 0

    asyncio.run(main())


def test_a_speaker_that_moves_ends_the_watches_and_the_writes_of_its_node(credentials: Path) -> None:
    with serving(credentials, limits=OFTEN, running=True) as server:
        owner = prepare(server, network())
        made = vtep(owner)
        assert server.post(path("remotevteps"), made, who="n1").code == 201
        selected = {
            "evpnnetworks": "spec.speaker%3Dmain",
            "networks": "metadata.name%3Dblue",
            "networkattachments": "spec.network%3Dblue",
        }
        with ExitStack() as stack:
            watches = [
                stack.enter_context(server.watching(f"{path(plural)}?watch=true&fieldSelector={text}", "n1"))
                for plural, text in selected.items()
            ]
            own = f"{path('remotevteps')}?watch=true&resourceVersion=1&fieldSelector=spec.node%3Dn1"
            kept = stack.enter_context(server.watching(own, "n1"))
            assert server.patch(path("bgpspeakers", name="main"), {"spec": {"node": "n2"}}).code == 200
            for watch in watches:
                assert error(list(iter(watch.next, None))[-1]) == ("ERROR", 403, "Forbidden")
            name = made["metadata"]["name"]
            for plural, one in (("bgpspeakers", "main"), ("bgppeers", "far"), ("evpnnetworks", "blue")):
                status = path(plural, name=one, subresource="status")
                assert server.patch(status, {"status": {}}, who="n1").code == 403
                assert server.patch(status, {"status": {}}, who="n2").code == 200
            assert server.patch(path("remotevteps", name=name), {"spec": {"flood": True}}, who="n1").code == 403
            assert server.post(path("remotevteps"), vtep(owner, "blue.192-0-2-8.10.0"), who="n1").code == 403
            # Its own it may still see and remove.
            assert kept.take(1) == [("ADDED", name)]
            assert server.delete(path("remotevteps", name=name), who="n1").code == 200
            assert kept.take(1) == [("DELETED", name)]


names = st.sampled_from(["a", "b", "c"])
changes = st.lists(
    st.tuples(st.sampled_from([BGP_SPEAKER, EVPN_NETWORK, REMOTE_VTEP]), names, st.booleans(), names, names),
    max_size=25,
)


@given(changes)
def test_the_index_says_what_the_store_says_after_any_changes(
    history: list[tuple[Kind, str, bool, str, str]],
) -> None:
    async def main() -> None:
        store = MemoryStore()
        index, unindexed = NodeSpeakers(store), NodeSpeakers(store)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(index.run())
            await index.known()
            for kind, name, exists, one, other in history:
                await change(store, kind, name, exists, one, other)
                for node in "abc":
                    page = await store.list(REMOTE_VTEP, selector=fields(REMOTE_VTEP, f"spec.node={node}"))
                    assert index.remote_vteps(node) == len(page.items)
                    assert await index.runs_any(node, "x") == await unindexed.runs_any(node, "x")
                    for network_name in "abc":
                        assert index.counted(node, "x", network_name) == await unindexed.extends(
                            node, "x", network_name
                        )
            task.cancel()

    async def change(store: MemoryStore, kind: Kind, name: str, exists: bool, one: str, other: str) -> None:
        spec = {"speaker": one, "network": other} if kind is EVPN_NETWORK else {"node": one}
        found = (await store.list(kind, "x", selector=fields(kind, f"metadata.name={name}"))).items
        if not exists:
            if found:
                await store.delete(kind, "x", name)
        elif not found:
            await store.create(kind, thing(kind, name, "x", spec))
        elif kind is not REMOTE_VTEP:
            await store.update(kind, found[0].document() | {"spec": spec})

    asyncio.run(main())


def test_an_index_keeps_nothing_of_what_is_gone() -> None:
    async def main() -> None:
        store = MemoryStore()
        index = NodeSpeakers(store)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(index.run())
            await index.known()
            made = ((BGP_SPEAKER, speaker()), (EVPN_NETWORK, evpn()), (REMOTE_VTEP, vtep(None)))
            for kind, one in made:
                await store.create(kind, one)
            for kind, one in made:
                await store.delete(kind, "default", one["metadata"]["name"])
            kept = (index._nodes, index._speakers, index._evpn_networks, index._extended, index._vteps)
            assert list(kept) == [{}] * 5
            task.cancel()

    asyncio.run(main())
