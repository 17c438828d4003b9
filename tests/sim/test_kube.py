"""Controllers of a cluster network that crash, freeze and lag: in the end there is what is planned, and no more."""

import asyncio
from random import Random
from typing import Any

import pytest
from msgspec import structs

from netloom.control.kube.views import MADE
from netloom.errors import AlreadyExists, Conflict, NotFound
from netloom.model.kind import Kind
from netloom.model.kinds.kubernetes import ClusterNode, Pod, Service, decode
from netloom.model.kubernetes import CLUSTER_NODE, ENDPOINT_SLICE, POD, SERVICE
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.plan.kube import names
from netloom.plan.kube.changes import changes
from netloom.plan.kube.cluster import plan_network, plan_node, slices
from netloom.plan.kube.pods import plan_pod
from netloom.plan.kube.policies.network_policies import plan_hosts
from netloom.plan.kube.services.pools import parse
from netloom.run.controllers import Options
from netloom.sim import loop as sim
from netloom.sim.links import NetworkFaults
from netloom.sim.world import Process, World, eventually
from netloom.store.base import Stored
from netloom.store.memory import MemoryStore
from tests.control.helpers import assemble
from tests.plan.kube_objects import FOUR, node_document, pod_document, service_document, slice_document
from tests.sim.scenarios import BLOCKS, SEEDS, run_block

SLOW = NetworkFaults(latency=0.3, lose_request=0.03, lose_answer=0.03, break_watch=0.05, expire_watch=0.05)
BLOCKS_OF = {"n1": "10.128.0.0/24", "n2": "10.128.1.0/24"}
PODS = ("a", "b", "c")
FOREIGN: dict[str, Any] = {
    "apiVersion": NETWORK_ATTACHMENT.api_version,
    "kind": NETWORK_ATTACHMENT.name,
    "metadata": {"name": "pod.default.c", "namespace": names.NAMESPACE},
    "spec": {"node": "n9", "network": "mine"},
}


class Guarded(MemoryStore):
    """A store that asks of each deletion whether the object was made for the cluster."""

    async def delete(self, kind: Kind, namespace: str, name: str, **options: Any) -> Stored:
        if kind is NETWORK_ATTACHMENT and not options.pop("by_user", False):
            found = (await self.get(kind, namespace, name)).document()
            assert found["metadata"].get("labels", {}).get(names.MANAGED), f"{name} of others is deleted"
        return await super().delete(kind, namespace, name, **options)

    async def settled(self) -> bool:
        """Whether there is what is planned of nodes and pods."""
        nodes = [decode(one.raw, ClusterNode) for one in (await self.list(CLUSTER_NODE)).items]
        known = {one.metadata.name: one for one in nodes}
        plans = [plan_network(FOUR, nodes), plan_hosts(FOUR), *(plan_node(FOUR, one) for one in nodes)]
        for one in (await self.list(POD)).items:
            pod = decode(one.raw, Pod)
            on = known.get(pod.spec.node_name)
            plans.append(plan_pod(FOUR, pod, slices(FOUR, on)[0] if on is not None else ()))
        wanted = [one for plan in plans for one in plan.objects]
        kinds = {one.kind for one in wanted}
        live = [
            item.value()
            for kind in _kinds(kinds)
            for item in (await self.list(kind, names.NAMESPACE)).items
            if item.document()["metadata"].get("labels", {}).get(names.MANAGED)
        ]
        found = changes(wanted, [_without_source(one) for one in live])
        missing = [one for one in found.create if one.metadata.name != FOREIGN["metadata"]["name"]]
        return not (missing or found.update or found.remove)


def _kinds(wanted: set[str]) -> list[Kind]:
    return [kind for kind in MADE if kind.name in wanted or kind is NETWORK_ATTACHMENT]


def _without_source(one: Any) -> Any:
    one.metadata.annotations.pop(names.SOURCE, None)
    return one


async def _control(process: Process) -> None:
    manager = assemble(
        process.store,
        random=Random(process.incarnation),
        clock=process.clock,
        options=Options(planning=False, kube=FOUR),
        parts=("kube",),
    )
    await manager.run()


async def _user(store: Guarded, random: Random) -> None:
    """Do what a cluster might do with a node or a pod, or somebody to one of the objects."""
    try:
        what = random.random()
        if what < 0.2:
            name = random.choice(("n1", "n2"))
            if name in {one.name for one in (await store.list(CLUSTER_NODE)).items}:
                await store.delete(CLUSTER_NODE, "", name)
            else:
                await store.create(CLUSTER_NODE, node_document(name, BLOCKS_OF[name]))
        elif what < 0.8:
            await _pod(store, random)
        elif what < 0.9:
            await store.delete(NETWORK_ATTACHMENT, names.NAMESPACE, "pod.default.a", by_user=True)
        else:
            await store.create(SERVICE, service_document("web", "10.96.0.7"))
            await store.create(ENDPOINT_SLICE, slice_document("web-1", "web", "10.128.0.9"))
    except (AlreadyExists, Conflict, NotFound):
        pass


async def _pod(store: Guarded, random: Random) -> None:
    name = random.choice(PODS)
    there = {one.name: one for one in (await store.list(POD)).items}
    if name not in there:
        where = random.choice(("n1", "n2", ""))
        await store.create(POD, pod_document(name, where, labels={"app": random.choice("xy")}))
        return
    document = there[name].document()
    match random.randrange(4):
        case 0:
            await store.delete(POD, "default", name)
        case 1:
            document["metadata"]["labels"] = {"app": random.choice("xyz"), names.HOST: "true"}
            await store.update(POD, document)
        case 2:
            document["status"] = {"phase": random.choice(("Running", "Succeeded"))}
            await store.update(POD, document, subresource="status")
        case 3 if not document["spec"].get("nodeName"):
            document["spec"]["nodeName"] = random.choice(("n1", "n2"))
            await store.update(POD, document)


async def busy_day() -> None:
    """Pods and nodes come and go while two processes with the controller crash, freeze and lag."""
    random = sim.current().random
    store = Guarded(clock=lambda: 0.0, random=Random(1))
    await store.create(CLUSTER_NODE, node_document("n1", BLOCKS_OF["n1"]))
    foreign = random.random() < 0.3
    if foreign:
        await store.create(NETWORK_ATTACHMENT, FOREIGN)
    async with World(store, faults=SLOW) as world:
        processes = [world.process(name, _control) for name in ("one", "two")]
        for process in processes:
            process.start()
        for _ in range(15):
            await _user(store, random)
            await asyncio.sleep(random.choice((0.0, 0.1, 1.0, 5.0)))
            victim = random.choice(processes)
            match random.randrange(6):
                case 0:
                    victim.kill()
                    victim.start()
                case 1:
                    victim.freeze()
                case 2:
                    victim.thaw()
            world.check()
        for process in processes:
            process.thaw()
        await eventually(store.settled, within=900, every=2)
        world.check()
        if foreign:
            assert (await store.get(NETWORK_ATTACHMENT, names.NAMESPACE, "pod.default.c")).document()["spec"] == (
                FOREIGN["spec"]
            )


@pytest.mark.parametrize("block", range(BLOCKS))
def test_in_the_end_there_is_what_is_planned_for_the_cluster(block: int) -> None:
    run_block(busy_day, block, min(SEEDS, 40))


POOLED = structs.replace(FOUR, load_balancer_pools=(parse("192.0.2.8/31"), parse("shop=192.0.2.64/32")))


async def _allocate(process: Process) -> None:
    manager = assemble(
        process.store,
        random=Random(process.incarnation),
        clock=process.clock,
        options=Options(planning=False, kube=POOLED),
        parts=("kube",),
    )
    await manager.run()


async def _balance(store: MemoryStore, random: Random) -> None:
    """Do what a user might do with a Service."""
    name = random.choice("abcd")
    there = {one.name: one for one in (await store.list(SERVICE)).items}
    try:
        if name not in there:
            document = service_document(name, f"10.96.0.{ord(name)}")
            document["spec"]["type"] = "LoadBalancer"
            document["spec"]["loadBalancerIP"] = random.choice(("", "", "192.0.2.9"))
            await store.create(SERVICE, document)
        elif random.random() < 0.5:
            await store.delete(SERVICE, "default", name)
        else:
            document = there[name].document()
            document["spec"]["type"] = random.choice(("ClusterIP", "LoadBalancer"))
            await store.update(SERVICE, document)
    except (AlreadyExists, Conflict, NotFound):
        pass


async def _addressed(store: MemoryStore) -> bool:
    """Whether every Service has an address of its own, as far as there are any."""
    asking = has = 0
    found: list[str] = []
    for one in (await store.list(SERVICE)).items:
        service = decode(one.raw, Service)
        ips = [each.ip for each in service.status.load_balancer.ingress]
        found += ips
        if service.spec.type == "LoadBalancer":
            asking += not service.spec.load_balancer_ip or "192.0.2.9" in ips
            has += bool(ips)
        elif ips:
            return False
    return len(found) == len(set(found)) and set(found) <= {"192.0.2.8", "192.0.2.9"} and has >= min(asking, 2)


async def busy_addresses() -> None:
    """Services come and go while two controllers that both write crash, freeze and lag."""
    random = sim.current().random
    store = MemoryStore(clock=lambda: 0.0, random=Random(1))
    await store.create(CLUSTER_NODE, node_document("n1", BLOCKS_OF["n1"]))
    async with World(store, faults=SLOW) as world:
        processes = [world.process(name, _allocate) for name in ("one", "two")]
        for process in processes:
            process.start()
        for _ in range(15):
            await _balance(store, random)
            await asyncio.sleep(random.choice((0.0, 0.1, 1.0, 5.0)))
            victim = random.choice(processes)
            match random.randrange(6):
                case 0:
                    victim.kill()
                    victim.start()
                case 1:
                    victim.freeze()
                case 2:
                    victim.thaw()
            world.check()
        for process in processes:
            process.thaw()

        async def settled() -> bool:
            return await _addressed(store)

        await eventually(settled, within=900, every=2)
        world.check()


@pytest.mark.parametrize("block", range(BLOCKS))
def test_in_the_end_no_two_services_have_one_address(block: int) -> None:
    run_block(busy_addresses, block, min(SEEDS, 16))
