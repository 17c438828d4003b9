"""The network of a cluster on the simulated loop: its objects come, change one by one, and go; others' stay."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from msgspec import structs

from netloom.errors import Conflict, Invalid, NotFound
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.kubernetes import (
    CLUSTER_NAMESPACE,
    CLUSTER_NETWORK_POLICY,
    CLUSTER_NODE,
    ENDPOINT_SLICE,
    NETWORK_POLICY,
    POD,
    SERVICE,
)
from netloom.model.registry import (
    EVENT,
    LOAD_BALANCER,
    NETWORK,
    NETWORK_ATTACHMENT,
    PORT_POOL,
    ROUTER,
    SECURITY_PROFILE,
    SUBNET,
)
from netloom.plan.kube import names
from netloom.plan.kube.cluster import ZONE
from netloom.plan.kube.planned import ClusterSettings
from netloom.plan.pools import LABEL
from netloom.run.controllers import Options
from netloom.store.base import Page, Stored
from netloom.store.memory import MemoryStore
from tests.control.helpers import assemble, memory, run, until
from tests.plan.kube_objects import (
    FOUR,
    document,
    namespace_document,
    node_document,
    pod_document,
    policy_document,
    service_document,
    slice_document,
)

MADE = (SUBNET, ROUTER, NETWORK_ATTACHMENT, SECURITY_PROFILE, LOAD_BALANCER)
Main = Callable[["Counted"], Coroutine[Any, Any, None]]


class Counted(MemoryStore):
    """A store that counts the writes of objects that are made for a cluster."""

    writes = 0

    async def create(self, kind: Kind, *args: Any, **options: Any) -> Stored:
        self.writes += kind in MADE
        return await super().create(kind, *args, **options)

    async def update(self, kind: Kind, *args: Any, **options: Any) -> Stored:
        self.writes += kind in MADE and not options.get("subresource")
        return await super().update(kind, *args, **options)

    async def delete(self, kind: Kind, *args: Any, **options: Any) -> Stored:
        self.writes += kind in MADE
        return await super().delete(kind, *args, **options)


def with_controller(
    *phases: Main,
    of: type[Counted] = Counted,
    parts: tuple[str, ...] = ("kube",),
    settings: ClusterSettings = FOUR,
) -> None:
    """Run each phase beside a controller that was started for it."""

    async def whole() -> None:
        store = memory(of)
        assert isinstance(store, Counted)
        await store.create(CLUSTER_NODE, node_document("n1", "10.128.0.0/24"))
        for phase in phases:
            options = Options(planning=False, kube=settings)
            manager = assemble(store, random=Random(1), parts=parts, options=options, collect=True)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(manager.run())
                await phase(store)
                running.cancel()

    run(whole())


async def found(store: MemoryStore, kind: Kind = NETWORK_ATTACHMENT) -> dict[str, Document]:
    return {one.name: one.document() for one in (await store.list(kind, names.NAMESPACE)).items}


async def there(store: MemoryStore, *expected: str, kind: Kind = NETWORK_ATTACHMENT) -> None:
    """Wait until there are these objects of a kind and no others, and nothing changes any more."""

    async def same() -> bool:
        return set(await found(store, kind)) == set(expected)

    try:
        await until(same)
    except TimeoutError:
        assert set(await found(store, kind)) == set(expected)
    await asyncio.sleep(5)
    assert await same()


async def finish(store: MemoryStore, name: str, phase: str = "Succeeded") -> None:
    document = (await store.get(POD, "default", name)).document()
    document["status"] = {"phase": phase}
    await store.update(POD, document, subresource="status")


async def edit(store: MemoryStore, kind: Kind, namespace: str, name: str, change: Callable[[Document], object]) -> None:
    document = (await store.get(kind, namespace, name)).document()
    change(document)
    await store.update(kind, document)


async def reasons(store: MemoryStore) -> set[tuple[str, str]]:
    await asyncio.sleep(5)
    events = [one.document() for one in (await store.list(EVENT)).items]
    return {(one["involvedObject"]["kind"], one["reason"]) for one in events}


def test_a_pod_has_an_attachment_from_when_it_is_scheduled_until_it_has_finished() -> None:
    async def main(store: Counted) -> None:
        await store.create(POD, pod_document("waiting", ""))
        await store.create(POD, pod_document("host", host=True))
        await store.create(POD, pod_document("web", labels={"app": "web"}))
        await there(store, "node.n1", "pod.default.web")
        one = (await found(store))["pod.default.web"]
        uid = (await store.get(POD, "default", "web")).document()["metadata"]["uid"]
        assert one["metadata"]["labels"] == {
            "app": "web",
            names.MANAGED: "true",
            names.OF_NAMESPACE: "default",
            names.POD_UID: uid,
        }
        assert one["metadata"]["annotations"] == {names.POD_NAME: "web", names.SOURCE: "Pod/default/web"}
        assert one["spec"]["port"] == {"type": "pod"}
        await edit(store, POD, "default", "waiting", lambda pod: pod["spec"].update(nodeName="n1"))
        await there(store, "node.n1", "pod.default.web", "pod.default.waiting")
        await finish(store, "web")
        await there(store, "node.n1", "pod.default.waiting")
        await store.delete(POD, "default", "waiting")
        await there(store, "node.n1")

    with_controller(main)


def test_a_pod_that_is_created_again_gets_another_attachment() -> None:
    async def main(store: Counted) -> None:
        await store.create(POD, pod_document("web"))
        await there(store, "node.n1", "pod.default.web")
        first = (await found(store))["pod.default.web"]["metadata"]
        await store.delete(POD, "default", "web")
        await store.create(POD, pod_document("web"))
        await there(store, "node.n1", "pod.default.web")
        second = (await found(store))["pod.default.web"]["metadata"]
        assert second["uid"] != first["uid"]
        assert second["labels"][names.POD_UID] != first["labels"][names.POD_UID]

    with_controller(main)


def test_a_change_of_labels_changes_the_attachment_and_a_change_of_status_writes_nothing() -> None:
    async def main(store: Counted) -> None:
        await store.create(POD, pod_document("web", labels={"app": "web"}))
        await there(store, "node.n1", "pod.default.web")
        before = store.writes
        await finish(store, "web", "Pending")
        await asyncio.sleep(30)
        assert store.writes == before
        uid = (await found(store))["pod.default.web"]["metadata"]["uid"]
        await edit(store, POD, "default", "web", lambda pod: pod["metadata"].update(labels={"app": "db"}))
        await asyncio.sleep(5)
        one = (await found(store))["pod.default.web"]["metadata"]
        assert (one["labels"]["app"], one["uid"]) == ("db", uid)
        assert store.writes == before + 1

    with_controller(main)


def test_a_restart_with_nothing_changed_writes_nothing() -> None:
    async def first(store: Counted) -> None:
        for number in range(20):
            await store.create(POD, pod_document(f"p{number}", labels={"app": str(number)}))
        await store.create(CLUSTER_NAMESPACE, namespace_document("default"))
        await store.create(SERVICE, service_document("web", "10.96.0.7"))
        await store.create(ENDPOINT_SLICE, slice_document("web-1", "web", "10.128.0.9"))
        await store.create(NETWORK_POLICY, policy_document("deny", {"podSelector": {}, "policyTypes": ["Ingress"]}))
        await there(store, "node.n1", *(f"pod.default.p{number}" for number in range(20)))
        store.writes = 0

    async def second(store: Counted) -> None:
        await asyncio.sleep(3600)  # With sweeps.
        assert store.writes == 0

    with_controller(first, second)


def test_what_happened_while_no_controller_ran_is_made_up_for() -> None:
    async def first(store: Counted) -> None:
        for name in ("a", "b"):
            await store.create(POD, pod_document(name))
        await there(store, "node.n1", "pod.default.a", "pod.default.b")

    async def second(store: Counted) -> None:
        await there(store, "node.n1", "node.n2", "pod.default.b", "pod.default.c")
        assert (await found(store))["pod.default.c"]["spec"]["subnets"] == ["slice-v4.n2"]

    async def whole() -> None:
        store = memory(Counted)
        await store.create(CLUSTER_NODE, node_document("n1", "10.128.0.0/24"))
        for phase in (first, None, second):
            if phase is None:
                await store.delete(POD, "default", "a")
                await store.create(CLUSTER_NODE, node_document("n2", "10.128.1.0/24"))
                await store.create(POD, pod_document("c", "n2"))
                continue
            manager = assemble(
                store, random=Random(1), parts=("kube",), options=Options(planning=False, kube=FOUR), collect=True
            )
            async with asyncio.TaskGroup() as group:
                running = group.create_task(manager.run())
                assert isinstance(store, Counted)
                await phase(store)
                running.cancel()

    run(whole())


def test_a_node_comes_gets_its_block_and_goes_with_what_was_made_for_it() -> None:
    async def main(store: Counted) -> None:
        await store.create(CLUSTER_NODE, node_document("n2"))
        await store.create(POD, pod_document("early", "n2"))
        await there(store, "node.n1")
        assert ("Pod", "NodeWithoutPodCIDR") in await reasons(store)
        spec = {"podCIDR": "10.128.1.0/24", "podCIDRs": ["10.128.1.0/24"]}
        await edit(store, CLUSTER_NODE, "", "n2", lambda node: node.update(spec=spec))
        await there(store, "node.n1", "node.n2", "pod.default.early")
        await there(store, "slice-v4.n1", "slice-v4.n2", kind=SUBNET)
        router = (await found(store, ROUTER))["pods"]
        assert [one["via"] for one in router["spec"]["policies"] if "via" in one] == [["10.128.0.2"], ["10.128.1.2"]]
        await store.delete(CLUSTER_NODE, "", "n2")
        await store.delete(POD, "default", "early")
        await there(store, "node.n1")
        await there(store, "slice-v4.n1", kind=SUBNET)
        router = (await found(store, ROUTER))["pods"]
        assert [one["via"] for one in router["spec"]["policies"] if "via" in one] == [["10.128.0.2"]]

    with_controller(main)


def test_pods_get_no_address_of_a_node_whose_allocation_comes_first() -> None:
    async def main(store: Counted) -> None:
        for number in range(30):
            await store.create(POD, pod_document(f"p{number}", "n2"))
        await store.create(CLUSTER_NODE, node_document("n2", "10.128.1.0/24"))

        async def addressed() -> bool:
            return all(one.get("status", {}).get("ips") for one in (await found(store)).values())

        await there(store, "node.n1", "node.n2", *(f"pod.default.p{number}" for number in range(30)))
        await until(addressed)
        assert (await found(store))["node.n2"]["status"]["ips"] == ["10.128.1.2/24"]

    with_controller(main, parts=("kube", "subnets", "networks", "ipam", "ipam-locks"))


def test_an_object_of_others_with_a_planned_name_stays_and_is_reported() -> None:
    async def main(store: Counted) -> None:
        other = {
            "apiVersion": NETWORK_ATTACHMENT.api_version,
            "kind": NETWORK_ATTACHMENT.name,
            "metadata": {"name": "pod.default.web", "namespace": names.NAMESPACE},
            "spec": {"node": "n9", "network": "mine"},
        }
        await store.create(NETWORK_ATTACHMENT, other)
        await store.create(POD, pod_document("web"))
        assert ("Pod", "NameTaken") in await reasons(store)
        assert (await found(store))["pod.default.web"]["spec"] == other["spec"]
        await store.delete(POD, "default", "web")
        await asyncio.sleep(60)
        assert (await found(store))["pod.default.web"]["spec"] == other["spec"]

    with_controller(main)


def test_what_somebody_changed_or_deleted_is_as_planned_again() -> None:
    async def main(store: Counted) -> None:
        await store.create(POD, pod_document("web", labels={"app": "web"}))
        await store.create(POD, pod_document("db"))
        await there(store, "node.n1", "pod.default.web", "pod.default.db")

        def tamper(document: Document) -> None:
            document["spec"]["defaultRoute"] = False
            document["metadata"]["labels"] |= {"role": "admin"}
            document["metadata"]["annotations"] |= {"note": "mine", names.SOURCE: "Pod/default/db"}

        await edit(store, NETWORK_ATTACHMENT, names.NAMESPACE, "pod.default.web", tamper)
        await store.delete(NETWORK_ATTACHMENT, names.NAMESPACE, "pod.default.db")
        await there(store, "node.n1", "pod.default.web", "pod.default.db")
        one = (await found(store))["pod.default.web"]
        assert one["spec"]["defaultRoute"] is True
        assert "role" not in one["metadata"]["labels"]
        assert one["metadata"]["annotations"][names.SOURCE] == "Pod/default/web"

    with_controller(main)


def test_a_pod_that_cannot_be_decoded_keeps_its_attachment() -> None:
    async def main(store: Counted) -> None:
        await store.create(POD, pod_document("web"))
        await there(store, "node.n1", "pod.default.web")
        await edit(store, POD, "default", "web", lambda pod: pod["spec"].update(hostNetwork="perhaps"))
        await there(store, "node.n1", "pod.default.web")

    with_controller(main)


def test_a_service_follows_its_slices() -> None:
    async def main(store: Counted) -> None:
        await store.create(SERVICE, service_document("web", "10.96.0.7"))
        await there(store, "service-v4.default.web", kind=LOAD_BALANCER)
        await store.create(ENDPOINT_SLICE, slice_document("web-1", "web", "10.128.0.9"))
        await store.create(ENDPOINT_SLICE, slice_document("web-2", "web", "10.128.0.10"))
        await asyncio.sleep(5)
        spec = (await found(store, LOAD_BALANCER))["service-v4.default.web"]["spec"]
        assert {one["ip"] for one in spec["endpoints"]} == {"10.128.0.9", "10.128.0.10"}
        await store.delete(ENDPOINT_SLICE, "default", "web-1")
        await asyncio.sleep(5)
        spec = (await found(store, LOAD_BALANCER))["service-v4.default.web"]["spec"]
        assert [one["ip"] for one in spec["endpoints"]] == ["10.128.0.10"]
        await store.delete(SERVICE, "default", "web")
        await there(store, kind=LOAD_BALANCER)

    with_controller(main)


def test_a_service_with_hints_follows_the_zones_of_nodes() -> None:
    async def main(store: Counted) -> None:
        await store.create(SERVICE, service_document("web", "10.96.0.7"))
        await store.create(SERVICE, service_document("plain", "10.96.0.8"))
        slices = slice_document("web-1", "web", "10.128.0.9", "10.128.0.10")
        for endpoint, zone in zip(slices["endpoints"], "ab", strict=True):
            endpoint["hints"] = {"forZones": [{"name": zone}]}
        await store.create(ENDPOINT_SLICE, slices)
        await there(store, "service-v4.default.web", "service-v4.default.plain", kind=LOAD_BALANCER)
        assert await used(store) == {"": {"9", "10"}}
        await edit(store, CLUSTER_NODE, "", "n1", lambda node: node["metadata"].update(labels={ZONE: "a"}))
        await store.create(CLUSTER_NODE, node_document("n2", "10.128.1.0/24", labels={ZONE: "b"}))
        assert await used(store) == {"n1": {"9"}, "n2": {"10"}}
        await edit(store, CLUSTER_NODE, "", "n2", lambda node: node["metadata"].update(labels={ZONE: "a"}))
        assert await used(store) == {"": {"9", "10"}}, "nobody is in zone b"
        before = store.writes
        await edit(store, CLUSTER_NODE, "", "n2", lambda node: node["metadata"].update(labels={}))
        assert await used(store) == {"n1": {"9"}, "n2": {"9", "10"}}
        assert store.writes == before + 1

    async def used(store: MemoryStore) -> dict[str, set[str]]:
        await asyncio.sleep(5)
        nodes: dict[str, set[str]] = {}
        for one in (await found(store, LOAD_BALANCER))["service-v4.default.web"]["spec"]["endpoints"]:
            nodes.setdefault(one.get("node", ""), set()).add(one["ip"].rpartition(".")[2])
        return nodes

    with_controller(main)


def test_a_policy_follows_the_labels_of_namespaces_and_the_ports_of_pods() -> None:
    async def main(store: Counted) -> None:
        for name, team in (("default", "a"), ("shop", "b"), ("bank", "b")):
            await store.create(CLUSTER_NAMESPACE, namespace_document(name, team=team))
        peer = {"namespaceSelector": {"matchLabels": {"team": "b"}}}
        rule = {"from": [peer], "ports": [{"protocol": "TCP", "port": "http"}]}
        spec = {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [rule], "policyTypes": ["Ingress"]}
        await store.create(NETWORK_POLICY, policy_document("allow", spec))
        await there(store, "hosts", "policy.default.allow", kind=SECURITY_PROFILE)
        port = [{"name": "http", "containerPort": 8080}]
        await store.create(POD, pod_document("web", labels={"app": "web"}, ports=port))
        await there(store, "hosts", "policy.default.allow", "policy-tcp-http-8080.default.allow", kind=SECURITY_PROFILE)
        before = store.writes
        await store.create(POD, pod_document("web2", labels={"app": "web"}, ports=port))
        await asyncio.sleep(5)
        assert store.writes == before + 1
        assert _namespaces(await found(store, SECURITY_PROFILE)) == {("bank", "shop")}
        await edit(store, CLUSTER_NAMESPACE, "", "bank", lambda one: one["metadata"].update(labels={"team": "a"}))
        await asyncio.sleep(5)
        assert _namespaces(await found(store, SECURITY_PROFILE)) == {("shop",)}
        await store.delete(NETWORK_POLICY, "default", "allow")
        await there(store, "hosts", kind=SECURITY_PROFILE)

    with_controller(main)


def test_a_cluster_policy_is_followed_from_when_its_kind_is_served_until_it_is_not() -> None:
    class Young(Counted):
        served = False

        async def list(self, kind: Kind, *arguments: Any, **options: Any) -> Page:
            if kind is CLUSTER_NETWORK_POLICY and not self.served:
                raise NotFound("the server could not find the requested resource")
            return await super().list(kind, *arguments, **options)

    async def main(store: Counted) -> None:
        assert isinstance(store, Young)
        await store.create(POD, pod_document("web"))
        await there(store, "node.n1", "pod.default.web")
        peer = {"namespaces": {"matchLabels": {"team": "b"}}}
        nodes = {"action": "Accept", "to": [{"nodes": {}}]}
        spec = {"tier": "Admin", "priority": 5, "subject": {"namespaces": {}}}
        spec |= {
            "ingress": [{"action": "Deny", "from": [peer]}],
            "egress": [nodes, {"action": "Deny", "to": [{"networks": ["203.0.113.0/24"]}]}],
        }
        await store.create(CLUSTER_NETWORK_POLICY, document(CLUSTER_NETWORK_POLICY, "company", spec=spec))
        await there(store, "hosts", kind=SECURITY_PROFILE)
        store.served = True
        await asyncio.sleep(15)
        await there(store, "cluster-policy.company", "hosts", kind=SECURITY_PROFILE)
        assert "ingress" not in (await found(store, SECURITY_PROFILE))["cluster-policy.company"]["spec"]
        await store.create(CLUSTER_NAMESPACE, namespace_document("shop", team="b"))
        address = {"type": "InternalIP", "address": "192.0.2.7"}
        node = (await store.get(CLUSTER_NODE, "", "n1")).document()
        await store.update(CLUSTER_NODE, node | {"status": {"addresses": [address]}}, subresource="status")
        await asyncio.sleep(5)
        profiles = await found(store, SECURITY_PROFILE)
        assert _namespaces(profiles) == {("shop",)}
        assert profiles["cluster-policy.company"]["spec"]["egress"][0]["to"] == [{"cidr": "192.0.2.7/32"}]
        await store.delete(CLUSTER_NETWORK_POLICY, "", "company")
        await there(store, "hosts", kind=SECURITY_PROFILE)

    with_controller(main, of=Young)


def _profile(name: str, **annotations: str) -> Document:
    metadata = {"name": name, "namespace": names.NAMESPACE, "annotations": annotations}
    return {"apiVersion": SECURITY_PROFILE.api_version, "kind": "SecurityProfile", "metadata": metadata, "spec": {}}


def test_a_pod_has_the_profiles_that_it_names_and_is_granted_and_is_closed_until_it_has_all() -> None:
    async def profiles(store: Counted, pod: str) -> list[str]:
        await asyncio.sleep(5)
        found_: list[str] = (await found(store))[f"pod.default.{pod}"]["spec"].get("securityProfiles", [])
        return found_

    async def main(store: Counted) -> None:
        for name, to in (("web", "shop, default"), ("db", "*"), ("secret", "bank"), (names.NOT_GRANTED, "*")):
            await store.create(SECURITY_PROFILE, _profile(name, **{names.GRANTED_TO: to}))
        texts = {"none": "", "two": " web,db ,web", "bad": "web,secret", "odd": "A b, ../x, hosts", "late": "late"}
        texts |= {"marker": names.NOT_GRANTED, "many": ",".join(f"p{n}" for n in range(99))}
        for pod, text in texts.items():
            await store.create(POD, pod_document(pod, annotations={names.PROFILES: text}))
        assert await profiles(store, "none") == []
        assert await profiles(store, "two") == ["web", "db"]
        assert await profiles(store, "bad") == ["web", names.NOT_GRANTED]
        for pod in ("odd", "marker", "late", "many"):
            assert await profiles(store, pod) == [names.NOT_GRANTED]
        events = [one.document() for one in (await store.list(EVENT)).items]
        assert {one["involvedObject"]["name"] for one in events} == {"bad", "odd", "marker", "late", "many"}
        assert all(names.PROFILES in one["message"] for one in events)
        await store.create(SECURITY_PROFILE, _profile("late"))
        assert await profiles(store, "late") == [names.NOT_GRANTED]
        granted = {names.GRANTED_TO: "default"}
        await edit(
            store, SECURITY_PROFILE, names.NAMESPACE, "late", lambda one: one["metadata"].update(annotations=granted)
        )
        assert await profiles(store, "late") == ["late"]
        await edit(store, SECURITY_PROFILE, names.NAMESPACE, "web", lambda one: one["metadata"].update(annotations={}))
        assert await profiles(store, "two") == ["db", names.NOT_GRANTED]
        await edit(store, POD, "default", "two", lambda one: one["metadata"].update(annotations={names.PROFILES: "db"}))
        assert await profiles(store, "two") == ["db"]

    with_controller(main)


def _namespaces(profiles: dict[str, Document]) -> set[tuple[str, ...]]:
    """Return the lists of namespaces in selectors of peers."""
    rules = [rule for one in profiles.values() for rule in one["spec"].get("ingress", ())]
    peers = [peer for rule in rules for peer in rule.get("from", ()) if "selector" in peer]
    found: set[tuple[str, ...]] = set()
    for peer in peers:
        for one in peer["selector"].get("matchExpressions", ()):
            if one["key"] == names.OF_NAMESPACE:
                found.add(tuple(one["values"]))
        if names.OF_NAMESPACE in peer["selector"].get("matchLabels", {}):
            found.add((peer["selector"]["matchLabels"][names.OF_NAMESPACE],))
    return found


def test_a_refusal_by_the_store_costs_one_object_and_is_an_event() -> None:
    class Refusing(Counted):
        async def create(self, kind: Kind, document: Document, **options: Any) -> Stored:
            if document["metadata"]["name"] == "pod.default.bad":
                raise Invalid("not today")
            return await super().create(kind, document, **options)

    async def whole() -> None:
        store = memory(Refusing)
        await store.create(CLUSTER_NODE, node_document("n1", "10.128.0.0/24"))
        manager = assemble(
            store, random=Random(1), parts=("kube",), options=Options(planning=False, kube=FOUR), collect=True
        )
        async with asyncio.TaskGroup() as group:
            running = group.create_task(manager.run())
            for name in ("bad", "good"):
                await store.create(POD, pod_document(name))
            await there(store, "node.n1", "pod.default.good")
            assert ("Pod", "Refused") in await reasons(store)
            running.cancel()

    run(whole())


def test_without_the_namespace_of_the_objects_an_event_says_so_and_the_store_is_not_flooded() -> None:
    class Without(Counted):
        attempts = 0
        there = False

        async def create(self, kind: Kind, document: Document, **options: Any) -> Stored:
            if kind in (*MADE, NETWORK) and not self.there:
                self.attempts += 1
                raise NotFound('namespaces "netloom-pods" not found')
            return await super().create(kind, document, **options)

    async def whole() -> None:
        store = memory(Without)
        assert isinstance(store, Without)
        await store.create(CLUSTER_NODE, node_document("n1", "10.128.0.0/24"))
        manager = assemble(
            store, random=Random(1), parts=("kube",), options=Options(planning=False, kube=FOUR), collect=True
        )
        async with asyncio.TaskGroup() as group:
            running = group.create_task(manager.run())
            await asyncio.sleep(600)
            assert ("Node", "ReconcileFailed") in await reasons(store)
            assert store.attempts < 150
            store.there = True
            await there(store, "node.n1")
            running.cancel()

    run(whole())


def test_a_node_without_a_network_by_its_condition_has_one_when_its_attachment_is_ready() -> None:
    async def main(store: Counted) -> None:
        cloud = {"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated"}
        document = (await store.get(CLUSTER_NODE, "", "n1")).document()
        document["status"] = {"conditions": [{"type": "Ready", "status": "True"}, cloud]}
        await store.update(CLUSTER_NODE, document, subresource="status")
        await there(store, "node.n1")
        assert (await condition(store))["status"] == "True"
        host = (await found(store))["node.n1"]
        host["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
        await store.update(NETWORK_ATTACHMENT, host, subresource="status")
        await asyncio.sleep(5)
        assert (await condition(store))["status"] == "False"
        revision = (await store.get(CLUSTER_NODE, "", "n1")).revision
        await asyncio.sleep(3600)
        assert (await store.get(CLUSTER_NODE, "", "n1")).revision == revision

    async def condition(store: MemoryStore) -> Document:
        conditions = (await store.get(CLUSTER_NODE, "", "n1")).document()["status"]["conditions"]
        (one,) = [one for one in conditions if one["type"] == "NetworkUnavailable"]
        assert isinstance(one, dict)
        return one

    with_controller(main)


def test_the_cluster_and_the_objects_may_be_on_two_servers() -> None:
    async def whole() -> None:
        store, cluster = memory(Counted), memory()
        await cluster.create(CLUSTER_NODE, node_document("n1", "10.128.0.0/24"))
        await cluster.create(POD, pod_document("web"))
        await cluster.create(POD, pod_document("lost", "n9"))
        options = Options(planning=False, kube=FOUR)
        manager = assemble(store, random=Random(1), parts=("kube",), options=options, collect=True, cluster=cluster)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(manager.run())
            await there(store, "node.n1", "pod.default.web")
            assert ("Pod", "NodeWithoutPodCIDR") in await reasons(cluster)
            running.cancel()

    run(whole())


POOLED = structs.replace(FOUR, pool_size=3)


async def plug(store: MemoryStore) -> None:
    """Do what IPAM and the agents do for every attachment that is new."""
    for name, one in (await found(store)).items():
        if not one.get("status", {}).get("conditions"):
            one["status"] = {"conditions": [{"type": "Plugged", "status": "True"}]}
            try:
                await store.update(NETWORK_ATTACHMENT, one, subresource="status")
            except (Conflict, NotFound):
                continue  # It was taken, or is gone.
            assert name


async def pool_filled(store: MemoryStore, number: int = 3) -> set[str]:
    """Wait for the free ports of the pool, and return their names."""

    async def same() -> bool:
        return len(await free_ports(store)) == number

    await until(same)
    await plug(store)
    await asyncio.sleep(5)
    return await free_ports(store)


async def free_ports(store: MemoryStore) -> set[str]:
    return {name for name, one in (await found(store)).items() if one["metadata"].get("ownerReferences")}


async def of_pods(store: MemoryStore) -> dict[str, str]:
    """Return the attachments of pods by pod; a pod with two of them is an error."""
    own = [
        (one["metadata"].get("annotations", {}).get(names.SOURCE, ""), name)
        for name, one in (await found(store)).items()
    ]
    pods = [(source, name) for source, name in own if source.startswith("Pod/")]
    assert len(dict(pods)) == len(pods), pods
    return dict(pods)


def test_a_pod_gets_a_free_port_with_its_labels_and_ends_with_it() -> None:
    async def main(store: Counted) -> None:
        assert await pool_filled(store) == {"pool.n1.0", "pool.n1.1", "pool.n1.2"}
        pool = (await found(store, PORT_POOL))["pool.n1"]
        assert pool["spec"] == {
            "node": "n1", "network": "pods", "subnets": ["slice-v4.n1"], "size": 3, "defaultRoute": True,
        }  # fmt: skip
        before = (await found(store))["pool.n1.0"]
        writes = store.writes
        await store.create(POD, pod_document("web", labels={"app": "web"}))
        await asyncio.sleep(1)
        assert store.writes - writes == 1
        assert await of_pods(store) == {"Pod/default/web": "pool.n1.0"}
        one = (await found(store))["pool.n1.0"]
        uid = (await store.get(POD, "default", "web")).document()["metadata"]["uid"]
        assert one["metadata"]["labels"] == {
            "app": "web",
            LABEL: "pool.n1",
            names.MANAGED: "true",
            names.OF_NAMESPACE: "default",
            names.POD_UID: uid,
        }
        assert one["metadata"]["annotations"] == {names.POD_NAME: "web", names.SOURCE: "Pod/default/web"}
        assert not one["metadata"].get("ownerReferences")
        # The spec is that of every pod, so nothing has to be done for it on the node.
        assert (one["spec"], one["metadata"]["generation"]) == (before["spec"], before["metadata"]["generation"])
        assert len(await pool_filled(store)) == 3
        await edit(store, POD, "default", "web", lambda pod: pod["metadata"]["labels"].update(app="db"))
        await asyncio.sleep(1)
        assert (await found(store))["pool.n1.0"]["metadata"]["labels"]["app"] == "db"
        await finish(store, "web")
        await asyncio.sleep(1)
        assert "pool.n1.0" not in await found(store)

    with_controller(main, parts=("kube", "pools", "garbage"), settings=POOLED)


def test_pods_beyond_the_pool_and_those_that_policies_cover_get_attachments_of_their_own() -> None:
    async def main(store: Counted) -> None:
        await store.create(NETWORK_POLICY, policy_document("closed", {"podSelector": {"matchLabels": {"app": "db"}}}))
        await pool_filled(store)
        await store.create(POD, pod_document("db", labels={"app": "db"}))
        for number in range(5):
            await store.create(POD, pod_document(f"web-{number}"))
        await asyncio.sleep(1)
        pods = await of_pods(store)
        assert pods["Pod/default/db"] == "pod.default.db"
        assert sorted(pods.values()) == [
            "pod.default.db", "pod.default.web-3", "pod.default.web-4", "pool.n1.0", "pool.n1.1", "pool.n1.2",
        ]  # fmt: skip

    with_controller(main, parts=("kube", "pools", "garbage"), settings=POOLED)


def test_a_pool_with_profiles_is_for_the_pods_that_exactly_these_cover() -> None:
    async def main(store: Counted) -> None:
        await store.create(NETWORK_POLICY, policy_document("closed", {"podSelector": {"matchLabels": {"app": "db"}}}))
        await there(store, "hosts", "policy.default.closed", kind=SECURITY_PROFILE)
        spec = {
            "node": "n1", "network": "pods", "subnets": ["slice-v4.n1"], "size": 2, "defaultRoute": True,
            "securityProfiles": ["policy.default.closed"],
        }  # fmt: skip
        await store.create(
            PORT_POOL,
            document(PORT_POOL, "closed", names.NAMESPACE, spec=spec),
        )
        await pool_filled(store, 2)
        await store.create(POD, pod_document("web"))
        await store.create(POD, pod_document("db", labels={"app": "db"}))
        await asyncio.sleep(1)
        assert await of_pods(store) == {"Pod/default/db": "closed.0", "Pod/default/web": "pod.default.web"}
        # It is covered as the pod it is now, not as a port of its pool.
        assert not (await found(store))["closed.0"]["spec"].get("securityProfiles")
        await store.delete(PORT_POOL, names.NAMESPACE, "closed")
        await asyncio.sleep(5)
        assert await free_ports(store) == set()
        assert await of_pods(store) == {"Pod/default/db": "closed.0", "Pod/default/web": "pod.default.web"}

    with_controller(main, parts=("kube", "pools", "garbage"))


def test_a_node_that_goes_takes_its_pool_with_it() -> None:
    async def main(store: Counted) -> None:
        await pool_filled(store)
        await store.create(POD, pod_document("web"))
        await pool_filled(store)
        await store.delete(CLUSTER_NODE, "", "n1")
        await there(store)
        assert await found(store, PORT_POOL) == {}

    with_controller(main, parts=("kube", "pools", "garbage"), settings=POOLED)


@pytest.mark.parametrize("seed", range(12))
def test_controllers_that_are_killed_at_any_time_give_no_pod_two_ports_and_no_port_to_two(seed: int) -> None:
    random = Random(seed)

    async def whole() -> None:
        store = memory(Counted)
        await store.create(CLUSTER_NODE, node_document("n1", "10.128.0.0/24"))
        owners: dict[str, str] = {}
        pods: set[str] = set()
        for number in range(10):
            manager = assemble(
                store, random=Random(seed), parts=("kube", "pools", "garbage"), collect=True,
                options=Options(planning=False, kube=POOLED),
            )  # fmt: skip
            async with asyncio.TaskGroup() as group:
                running = group.create_task(manager.run())
                if number % 2 == 0:
                    await asyncio.sleep(4)
                for at in range(random.randrange(4)):
                    name = f"web-{number}-{at}"
                    pods.add(name)
                    await store.create(POD, pod_document(name))
                if pods and random.random() < 0.4:
                    name = random.choice(sorted(pods))
                    pods.discard(name)
                    await store.delete(POD, "default", name)
                await asyncio.sleep(random.choice((0.0, 0.001, 0.01, 0.1)))
                running.cancel()
            await plug(store)
            for source, name in (await of_pods(store)).items():
                one = (await found(store))[name]["metadata"]
                # As long as the pod is there it keeps what it got.
                assert owners.setdefault(source, one["uid"]) == one["uid"]
        manager = assemble(
            store, random=Random(seed), parts=("kube", "pools", "garbage"), collect=True,
            options=Options(planning=False, kube=POOLED),
        )  # fmt: skip
        async with asyncio.TaskGroup() as group:
            running = group.create_task(manager.run())
            await asyncio.sleep(30)
            running.cancel()
        assert set(await of_pods(store)) == {f"Pod/default/{name}" for name in pods}
        assert len(await free_ports(store)) == 3
        assert len(await found(store)) == 1 + 3 + len(pods)

    run(whole())
