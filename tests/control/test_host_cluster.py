"""A node of a Kubernetes cluster: its table follows from its attachment and LoadBalancers, and is removed again."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from netloom.control.node.cluster import COMPARE, ClusterDrivers
from netloom.control.node.node import CLUSTER_NETWORK
from netloom.drivers.nft.changes import applied, changes
from netloom.drivers.nft.tracking import Targets
from netloom.model.kinds.cluster import Node
from netloom.model.registry import LOAD_BALANCER, NETWORK, NETWORK_ATTACHMENT, NODE, SUBNET
from netloom.plan.kube.node.nftables import Table
from netloom.plan.problem import ProblemError
from netloom.signals import Signal
from netloom.sim import loop as sim
from tests.control.helpers import document, memory, run
from tests.control.host_world import World
from tests.control.test_host import eventually

NAMESPACE = "netloom-pods"
ROUTES = [{"to": "10.244.0.0/16", "via": "10.244.1.1"}, {"to": "10.96.0.0/12", "via": "10.244.1.1"}]


class MemoryTable:
    """A table as nft has it: a transaction is applied to it if it fits."""

    def __init__(self) -> None:
        self.on_outdated: Signal[[]] = Signal()
        self.table = applied(None)
        self.current = False
        self.connected = True
        self.refused: Mapping[str, str] = {}
        self.missing = False
        self.transactions = 0
        self._known = applied(None)

    @property
    def seen(self) -> Mapping[str, str]:
        sets = {} if self.table is None else self.table.sets
        return {f"{name}/{key}": value for name, one in sets.items() for key, value in one.elements.items()}

    def invalidate(self) -> None:
        self.current = False

    async def recount(self) -> None:
        self.current = self.current and self.table == self._known

    async def compare(self, desired: Table | None, *, remove: bool = True) -> None:
        self._known, self.current = self.table, True
        await self.apply(desired)

    async def apply(self, delta: Table | None) -> None:
        if self.missing:
            raise ProblemError("NftMissing", "nft cannot be run: install the package nftables")
        if not self.current:
            return await self.compare(delta)
        if not changes("t", self._known, delta):
            return None
        if self._known != self.table:
            self.current = False
            raise ProblemError("NftFailed", "nft refused it")
        self.transactions += 1
        self.table = self._known = applied(delta)
        return None

    def numbers(self) -> Mapping[str, float]:
        return {"nft_transactions": self.transactions}


Test = Callable[[World, MemoryTable, asyncio.TaskGroup], Coroutine[Any, Any, None]]


def cluster(test: Test, *, setting: str = NAMESPACE) -> list[tuple[str, tuple[int, ...]]]:
    """Run a test on a node of a cluster; return for what the kernel was made to forward packets."""
    forwarded: list[tuple[str, tuple[int, ...]]] = []

    def forward(device: str, families: Collection[int]) -> list[str]:
        forwarded.append((device, tuple(families)))
        return []

    async def forget(now: Targets, before: Targets) -> int:
        return len(before.keys() - now.keys())

    async def main() -> None:
        world, table = World(memory(), sim.current().random), MemoryTable()
        world.grants = {
            "kube_namespace": setting,
            "internal_routes": (f"{NAMESPACE}=10.244.0.0/16", f"{NAMESPACE}=10.96.0.0/12"),
            "internal_names": (f"{NAMESPACE}=nl-host",),
        }
        world.cluster = ClusterDrivers(table, forward, forget)
        async with asyncio.TaskGroup() as group:
            try:
                await test(world, table, group)
            finally:
                await world.kill()

    run(main())
    return forwarded


async def join(world: World, *, addressed: bool = True) -> None:
    """Make the Network and the node's attachment, as the controller and IPAM do."""
    if not (await world.store.list(NETWORK)).items:
        await world.store.create(NETWORK, document(NETWORK, "pods", {}, NAMESPACE))
        await world.store.create(
            SUBNET, document(SUBNET, "slice", {"network": "pods", "cidr": "10.244.1.0/24"}, NAMESPACE)
        )
    spec = {"node": "n1", "network": "pods", "port": {"type": "internal", "name": "nl-host"}, "routes": ROUTES}
    made = document(NETWORK_ATTACHMENT, "node.n1", spec, NAMESPACE, labels={"kube.netloom.dev/host": "true"})
    await world.store.create(NETWORK_ATTACHMENT, made)
    if addressed:
        await address(world)


async def address(world: World) -> None:
    made = (await world.store.get(NETWORK_ATTACHMENT, NAMESPACE, "node.n1")).document()
    made["status"] = {**made.get("status", {}), "ips": ["10.244.1.2/24"], "mac": "02:00:00:00:00:02"}
    await world.store.update(NETWORK_ATTACHMENT, made, subresource="status")


async def serve(world: World, name: str, number: int, node_port: int | None, namespace: str = NAMESPACE) -> None:
    """Make a LoadBalancer, or change it."""
    vip = {"ip": f"10.96.0.{number}", "port": 80} | ({"nodePort": node_port} if node_port else {})
    spec: dict[str, Any] = {"networks": ["pods"], "vips": [vip], "endpoints": []}
    if node_port:
        spec["externalTrafficPolicy"] = "cluster"
    made = document(LOAD_BALANCER, name, spec, namespace)
    for stored in (await world.store.list(LOAD_BALANCER, namespace)).items:
        if stored.name == name:
            await world.store.update(LOAD_BALANCER, made | {"metadata": stored.document()["metadata"]})
            return
    await world.store.create(LOAD_BALANCER, made)


async def condition(world: World) -> tuple[str, str]:
    """Return status and reason of the Node's condition."""
    for stored in (await world.store.list(NODE)).items:
        value = stored.value()
        assert isinstance(value, Node)
        found = value.status.condition(CLUSTER_NETWORK)
        return ("", "") if found is None else (found.status, found.reason)
    return "", ""


def ports(table: MemoryTable) -> dict[str, str]:
    """Return the node ports, and where they lead."""
    prefix = "node-ports4/6 . "
    return {key.removeprefix(prefix): value for key, value in table.seen.items() if key.startswith(prefix)}


def when(expected: Mapping[int, int], table: MemoryTable) -> Callable[[], Coroutine[Any, Any, bool]]:
    """Whether the table has exactly these node ports."""

    async def check() -> bool:
        found = {str(port): f"10.96.0.{number} . 80" for port, number in expected.items()}
        return table.table is not None and ports(table) == found

    return check


def test_the_table_follows_the_services_of_the_cluster() -> None:
    async def main(world: World, table: MemoryTable, group: asyncio.TaskGroup) -> None:
        await join(world)
        await serve(world, "a", 10, 30080)
        await serve(world, "inside", 11, None)
        await serve(world, "of-others", 12, 30082, "ns1")
        agent = world.start(group)
        await eventually(when({30080: 10}, table), "the table")
        assert "pods4/10.244.0.0/16" in table.seen
        assert "services4/10.96.0.0/12" in table.seen
        assert table.transactions == 1

        async def ready() -> bool:
            return await condition(world) == ("True", "Programmed")

        await eventually(ready, "the condition")
        await serve(world, "b", 13, 30083)
        await eventually(when({30080: 10, 30083: 13}, table), "one more")
        await serve(world, "a", 14, 30080)
        await eventually(when({30080: 14, 30083: 13}, table), "another")
        await world.store.delete(LOAD_BALANCER, NAMESPACE, "b")
        await eventually(when({30080: 14}, table), "one less")
        assert table.transactions == 4
        assert agent.numbers()["nft_transactions"] == 4

    assert set(cluster(main)) == {("nl-host", (4,))}


def test_a_new_agent_writes_nothing_if_nothing_changed() -> None:
    async def main(world: World, table: MemoryTable, group: asyncio.TaskGroup) -> None:
        await join(world)
        await serve(world, "a", 10, 30080)
        world.start(group)
        await eventually(when({30080: 10}, table), "the table")
        await world.kill()
        table.invalidate()
        world.start(group)

        async def compared() -> bool:
            return table.current

        await eventually(compared, "a comparison")
        assert table.transactions == 1

    cluster(main)


def test_a_table_that_others_removed_is_written_again() -> None:
    async def main(world: World, table: MemoryTable, group: asyncio.TaskGroup) -> None:
        await join(world)
        await serve(world, "a", 10, 30080)
        world.start(group)
        await eventually(when({30080: 10}, table), "the table")
        table.table = None
        await asyncio.sleep(2 * COMPARE)
        assert ports(table) == {"30080": "10.96.0.10 . 80"}
        table.table = None
        await serve(world, "b", 11, 30081)  # This change does not fit what is there.
        await eventually(when({30080: 10, 30081: 11}, table), "both")

    cluster(main)


def test_a_node_that_leaves_the_cluster_has_no_table_and_one_that_returns_has_it_again() -> None:
    async def main(world: World, table: MemoryTable, group: asyncio.TaskGroup) -> None:
        world.start(group)

        async def outside() -> bool:
            return table.table is None and await condition(world) == ("False", "NotInCluster")

        await eventually(outside, "a node without a cluster")
        await join(world, addressed=False)

        async def waiting() -> bool:
            return await condition(world) == ("False", "NotAddressed")

        await eventually(waiting, "a node without an address")
        await address(world)
        await serve(world, "a", 10, 30080)
        await eventually(when({30080: 10}, table), "the table")
        await world.store.delete(NETWORK_ATTACHMENT, NAMESPACE, "node.n1")
        await eventually(outside, "the node to leave")
        await serve(world, "a", 11, 30080)
        await join(world)
        await eventually(when({30080: 11}, table), "the node to return")

    cluster(main)


def test_a_node_without_nft_says_so_and_works_once_it_is_there() -> None:
    async def main(world: World, table: MemoryTable, group: asyncio.TaskGroup) -> None:
        table.missing = True
        await join(world)
        world.start(group)

        async def said() -> bool:
            return await condition(world) == ("False", "NftMissing")

        await eventually(said, "the condition")
        table.missing = False
        await eventually(when({}, table), "the table")

    cluster(main)


def test_an_agent_of_no_cluster_has_no_table_and_no_condition() -> None:
    async def main(world: World, table: MemoryTable, group: asyncio.TaskGroup) -> None:
        await join(world)
        world.start(group)
        await asyncio.sleep(2 * COMPARE)
        assert table.table is None
        assert await condition(world) == ("", "")

    assert cluster(main, setting="") == []


def test_a_node_that_is_no_longer_told_of_a_cluster_drops_its_condition() -> None:
    async def main(world: World, table: MemoryTable, group: asyncio.TaskGroup) -> None:
        await join(world)
        world.start(group)

        async def programmed() -> bool:
            return await condition(world) == ("True", "Programmed")

        await eventually(programmed, "the condition")
        await world.kill()
        world.grants["kube_namespace"] = ""
        world.start(group)

        async def dropped() -> bool:
            return await condition(world) == ("", "")

        await eventually(dropped, "no condition")

    cluster(main)
