"""What a node's credential may change; tests/e2e/test_node_fields.py tries every field."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from netloom.control.runtime.events import Recorder
from netloom.errors import Forbidden, TooManyRequests
from netloom.front.api.admission.admission import Write, WriteOperation
from netloom.front.api.admission.node_writes import EVENT_BURST, NodeRestriction
from netloom.front.api.auth.identity import Identity
from netloom.front.api.auth.node_networks import NodeNetworks
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.kinds.events import AGENT
from netloom.model.registry import EVENT, NETWORK_ATTACHMENT, NODE
from netloom.store.base import Store, Stored
from netloom.store.memory import MemoryStore
from tests.front.serving import Serving, attachment, document, path

N1 = Identity("n1", roles=("netloom:node:n1",))
ADMIN = Identity("root", roles=("netloom:admin",))


def node(name: str, underlay: str = "192.0.2.1", **metadata: Any) -> Document:
    made = document("Node", name, "", {"underlayIP": underlay})
    return made | {"metadata": {"name": name, **metadata}}


def event(about: Stored, name: str = "told", namespace: str = "default", **changes: Any) -> Document:
    """Return an Event as n1's agent writes it."""
    subject = {
        "apiVersion": about.kind.api_version,
        "kind": about.kind.name,
        "name": about.name,
        "uid": about.document()["metadata"]["uid"],
    }
    if about.namespace:
        subject["namespace"] = about.namespace
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": subject,
        "source": {"component": AGENT, "host": "n1"},
        "reportingComponent": AGENT,
        "reportingInstance": "n1",
        "message": "said",
        **changes,
    }


def creation(kind: Kind, new: Document, who: Identity = N1, *, dry_run: bool = False) -> Write:
    metadata = new["metadata"]
    namespace = metadata.get("namespace", "")
    name = metadata.get("name", "")
    return Write(
        operation=WriteOperation.CREATE, kind=kind, namespace=namespace, name=name, who=who, new=new, dry_run=dry_run
    )


def rule(**options: Any) -> NodeRestriction:
    return NodeRestriction(lambda: 0.0, **options)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def test_a_node_makes_only_its_own_node() -> None:
    async def main() -> None:
        store = MemoryStore()
        for name, who in (
            ("n1", N1),
            ("n2", ADMIN),
            ("n2", Identity("both", roles=("netloom:node:n1", "netloom:admin"))),
            ("n2", Identity("known to somebody else")),
        ):
            await rule().review(creation(NODE, node(name), who), store)
        editor = Identity("n1", roles=("netloom:node:n1", "netloom:editor", "netloom:admin:a"))
        for name, who in (("n2", N1), ("", N1), ("n2", editor)):
            with pytest.raises(Forbidden, match=r'User "n1" cannot create resource "nodes".*only its own Node'):
                await rule().review(creation(NODE, node(name), who), store)

    run(main())


@pytest.mark.parametrize(
    ("metadata", "refused"),
    [
        ({"labels": {"node.netloom.dev/rack": "a"}}, ""),
        ({"labels": {"gateway": "yes"}}, "metadata.labels: .*not gateway"),
        ({"labels": {"node.netloom.dev.example/rack": "a"}}, "metadata.labels"),
        ({"annotations": {"node.netloom.dev/rack": "a"}}, "metadata.annotations"),
        ({"finalizers": ["netloom.dev/mine"]}, "metadata.finalizers"),
    ],
)
def test_a_node_makes_its_node_with_labels_of_its_own_only(metadata: Document, refused: str) -> None:
    async def main() -> None:
        write = creation(NODE, node("n1", **metadata))
        if not refused:
            await rule().review(write, MemoryStore())
            return
        with pytest.raises(Forbidden, match=refused):
            await rule().review(write, MemoryStore())

    run(main())


def test_a_node_cannot_label_itself_a_gateway(server: Serving) -> None:
    assert server.post(path("nodes", ""), node("n1"), who="n1").code == 201
    own = path("nodes", "", "n1")
    answer = server.patch(own, {"metadata": {"labels": {"gateway": "yes"}}}, who="n1")
    assert (answer.code, "not gateway" in answer.json["message"]) == (403, True)
    assert server.patch(own, {"metadata": {"labels": {"gateway": "yes"}}}).code == 200
    assert server.patch(own, {"metadata": {"labels": {"gateway": None}}}, who="n1").code == 403
    assert server.patch(own, {"metadata": {"labels": {"node.netloom.dev/rack": "a"}}}, who="n1").code == 200
    assert server.get(own).json["metadata"]["labels"] == {"gateway": "yes", "node.netloom.dev/rack": "a"}


def test_no_two_nodes_have_one_underlay_address(server: Serving) -> None:
    assert server.post(path("nodes", ""), node("n2", "192.0.2.2"), who="n2").code == 201
    refused = server.post(path("nodes", ""), node("n1", "192.0.2.2"), who="n1")
    assert (refused.code, "another Node has 192.0.2.2" in refused.json["message"]) == (403, True)
    assert server.post(path("nodes", ""), node("n1", "192.0.2.1"), who="n1").code == 201
    moved = {"spec": {"underlayIP": "192.0.2.2"}}
    assert server.patch(path("nodes", "", "n1"), moved, who="n1").code == 403
    assert server.patch(path("nodes", "", "n1"), {"spec": {"underlayIP": "192.0.2.3"}}, who="n1").code == 200


def test_a_node_cannot_take_anothers_address_by_a_status(server: Serving) -> None:
    """As it was shown: the victim's address and MAC, the gateway's address, one outside the Subnet."""
    server.post(path("nodes", ""), node("n1"), who="n1")
    server.post(path("networkattachments"), attachment("a"))
    status = path("networkattachments", name="a", subresource="status")
    for claimed in (
        {"ips": ["10.0.0.3/24"], "mac": "06:00:00:03:00:07"},
        {"ips": ["10.0.0.1/24"]},
        {"ips": ["192.0.2.99/24"]},
        {"hostIP": "192.0.2.2"},
        {"conditions": [{"type": "Addressed", "status": "True", "lastTransitionTime": "2026-11-15T09:00:00Z"}]},
    ):
        answer = server.patch(status, {"status": claimed}, who="n1")
        assert (answer.code, "status." in answer.json["message"]) == (403, True), claimed
    plugged = {"type": "Plugged", "status": "True", "lastTransitionTime": "2026-11-15T09:00:00Z"}
    own = {"ifcName": "nl0", "hostIP": "192.0.2.1", "errors": {"host": ["x"]}, "conditions": [plugged]}
    assert server.patch(status, {"status": own}, who="n1").code == 200
    # An attachment of another node, or one whose Node is not there.
    server.post(path("networkattachments"), attachment("b", node="n2"))
    theirs = path("networkattachments", name="b", subresource="status")
    assert server.patch(theirs, {"status": {"ifcName": "nl0"}}, who="n1").code == 403
    assert server.patch(theirs, {"status": {"hostIP": "192.0.2.2"}}, who="n2").code == 403
    assert server.patch(theirs, {"status": {"ifcName": "nl0"}}, who="n2").code == 200


async def objects(store: Store) -> dict[str, Stored]:
    """Make the Node n1, and an attachment on it and one elsewhere."""
    made = {"node": await store.create(NODE, node("n1"))}
    for name, on in (("mine", "n1"), ("theirs", "n2")):
        made[name] = await store.create(NETWORK_ATTACHMENT, attachment(name, node=on))
    return made


@pytest.mark.parametrize(
    ("about", "changes", "refused"),
    [
        ("mine", {}, ""),
        ("node", {}, ""),
        ("theirs", {}, "involvedObject"),
        ("node", {"metadata": {"name": "x", "namespace": "invented"}}, "metadata.namespace"),
        ("mine", {"metadata": {"name": "x", "namespace": "invented"}}, "involvedObject"),
        ("mine", {"metadata": {"name": "x", "namespace": "default", "finalizers": ["a/b"]}}, "metadata.finalizers"),
        ("mine", {"metadata": {"name": "x", "namespace": "default", "labels": {"a": "b"}}}, "metadata.labels"),
        ("mine", {"reportingInstance": "n2"}, "reportingInstance"),
        ("mine", {"reportingComponent": "netloom-controller"}, "reportingComponent"),
        ("mine", {"source": {"component": AGENT, "host": "n2"}}, "source.host"),
        ("mine", {"source": None}, "source.host"),
        ("mine", {"message": "x" * 1024}, ""),
        ("mine", {"message": "x" * 1025}, "message"),
        ("mine", {"reason": "x" * 16384}, "16384 bytes"),
        ("mine", {"related": {"kind": "Node", "name": "n2"}}, "related"),
        ("mine", {"involvedObject": {"kind": "Pod", "apiVersion": "v1", "name": "x"}}, "involvedObject"),
    ],
)
def test_a_node_writes_events_of_its_own_about_its_own(about: str, changes: Document, refused: str) -> None:
    async def main() -> None:
        store = MemoryStore()
        made = await objects(store)
        write = creation(EVENT, event(made[about], **changes))
        if not refused:
            await rule().review(write, store)
            return
        with pytest.raises(Forbidden, match=refused):
            await rule().review(write, store)

    run(main())


def test_an_event_names_the_object_that_is_there_by_its_uid() -> None:
    async def main() -> None:
        store = MemoryStore()
        for about in (await objects(store)).values():
            wrong = event(about)
            wrong["involvedObject"]["uid"] = "another"
            with pytest.raises(Forbidden, match="involvedObject"):
                await rule().review(creation(EVENT, wrong), store)

    run(main())


def test_an_agent_tells_of_an_attachment_that_is_gone() -> None:
    async def main() -> None:
        store = MemoryStore()
        made = await objects(store)
        node_networks = NodeNetworks(store)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(node_networks.run())
            await node_networks.known.wait()
            for name in ("mine", "theirs"):
                await store.delete(NETWORK_ATTACHMENT, "default", name)
            restriction = rule(was_on=node_networks.was_on)
            await restriction.review(creation(EVENT, event(made["mine"])), store)
            with pytest.raises(Forbidden, match="involvedObject"):
                await restriction.review(creation(EVENT, event(made["theirs"])), store)
            task.cancel()

    run(main())


def test_a_node_writes_so_many_events_and_then_some_a_second() -> None:
    async def main() -> None:
        store = MemoryStore()
        about = (await objects(store))["mine"]
        times = [0.0]
        restriction = NodeRestriction(lambda: times[0])

        async def written() -> int:
            for number in range(10_000):
                try:
                    await restriction.review(creation(EVENT, event(about)), store)
                except TooManyRequests:
                    return number
            return -1

        assert await written() == EVENT_BURST
        await restriction.review(creation(EVENT, event(about), dry_run=True), store)
        await restriction.review(creation(EVENT, event(about), ADMIN), store)
        times[0] = 10.0
        assert await written() == 20

    run(main())


def test_a_node_neither_reads_nor_rewrites_events_of_others(server: Serving) -> None:
    events = "/api/v1/namespaces/default/events"
    server.post(path("nodes", ""), node("n1"))
    stored = server.run(server.store.get(NODE, "", "n1"))
    assert server.post(events, event(stored), who="n1").code == 201
    for name, changes in (("theirs", {"reportingInstance": "n2"}), ("controllers", {"reportingComponent": "c"})):
        assert server.post(events, event(stored, name, **changes)).code == 201
        for media in ("merge-patch", "json-patch", "apply-patch"):
            body = [] if media == "json-patch" else {"apiVersion": "v1", "kind": "Event"}
            where = f"{events}/{name}" + ("?fieldManager=x" if media == "apply-patch" else "")
            kind = "yaml" if media == "apply-patch" else "json"
            assert server.patch(where, body, f"application/{media}+{kind}", who="n1").code == 403
        assert server.put(f"{events}/{name}", event(stored, name), who="n1").code == 403
        assert server.get(f"{events}/{name}", who="n1").code == 403
    assert server.patch(f"{events}/told", {"count": 2}, who="n1").json["count"] == 2
    assert server.patch(f"{events}/told", {"metadata": {"finalizers": ["a/b"]}}, who="n1").code == 403
    assert server.get(f"{events}/told", who="n1").code == 200
    assert server.get(events, who="n1").code == 403
    assert server.delete(f"{events}/told", who="n1").code == 403
    assert server.delete(f"{events}/told").code == 200
    assert server.get(f"{events}/told").code == 404


def test_what_an_agents_recorder_writes_is_taken() -> None:
    class Restricted(MemoryStore):
        """Takes Events as the API takes them from n1."""

        async def create(self, kind: Kind, document: Document, *, dry_run: bool = False) -> Stored:
            if kind is EVENT:
                await rule().review(creation(kind, document), self)
            return await super().create(kind, document, dry_run=dry_run)

    async def main() -> None:
        store = Restricted()
        recorder = Recorder(store, AGENT, random=Random(1), host="n1")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(recorder.run())
            for about in (await objects(store)).values():
                recorder.warning(about.value(), "Told", "x" * 5000)
            await recorder.flush()
            task.cancel()
        assert (recorder.counters.written, recorder.counters.failed) == (2, 1)  # One is about another node's.

    run(main())
