"""A node holds 1+R watches of attachments, through a thousand arrivals and departures: the server's metrics say so.

What follows is an agent's own: its informer and its `NodeWatches`, over HTTPS, with a node's credential, at a real
`netloom apiserver`. R is how many Networks of fabric vxlan have an attachment on the node. Networks and Subnets may be
followed for a while after the last attachment is gone, attachments may not.
"""

import asyncio
import contextlib
import http.client
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from netloom.control.node.views import NodeWatches, attachment_informer
from netloom.errors import Forbidden
from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT
from netloom.model.values.selectors import selector
from netloom.store.base import Store
from netloom.store.kube import kubeconfig as kubeconfigs
from netloom.store.kube.store import KubeStore
from tests.control.helpers import document
from tests.run.serving import netloom
from tests.run.test_apiserver import apiserver

CHANGES = 1000
BURST = 9
NETWORKS = [(namespace, f"net{n}", "ovn" if n == 4 else "vxlan") for namespace in ("ns1", "ns2") for n in range(5)]
NODES = ("n1", "n1", "n2", "n3")
LINGERING = ("networks", "subnets")
AT_MOST = 24
"""Attachments there are at a time: few enough that Networks come and go."""


class Gauge:
    """What /metrics says is open for a node, by resource."""

    def __init__(self, kubeconfig: Path) -> None:
        cluster = kubeconfigs.load(str(kubeconfig))
        url = urlsplit(cluster.server)
        assert url.hostname
        self.connection = http.client.HTTPSConnection(url.hostname, url.port, timeout=120, context=cluster.tls())
        self._headers = cluster.headers()

    def read(self, node: str = "n1") -> dict[str, int]:
        self.connection.request("GET", "/metrics", headers=self._headers)
        text = self.connection.getresponse().read().decode()
        found = re.findall(rf'^netloom_api_watches\{{node="{node}",resource="(\w+)"\}} (\S+)$', text, re.MULTILINE)
        return {resource: int(float(count)) for resource, count in found}


@dataclass
class Users:
    """Attachments that come and go at random, a few at a time."""

    store: Store
    random: Random
    there: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """By namespace and name: node and Network."""
    made: int = 0

    async def change(self, count: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(self._leave() if self._one_leaves() else self._arrive())

    def _one_leaves(self) -> bool:
        return self.random.random() < len(self.there) / AT_MOST

    async def _arrive(self) -> None:
        namespace, network, _ = self.random.choice(NETWORKS)
        node = self.random.choice(NODES)
        self.made += 1
        name = f"a{self.made}"
        made = document(NETWORK_ATTACHMENT, name, {"node": node, "network": network}, namespace)
        await self.store.create(NETWORK_ATTACHMENT, made)
        self.there[namespace, name] = node, network

    async def _leave(self) -> None:
        if not self.there:
            return await self._arrive()
        key = self.random.choice(sorted(self.there))
        del self.there[key]
        await self.store.delete(NETWORK_ATTACHMENT, *key)
        return None

    def expected(self) -> dict[str, int]:
        """Return what node n1 has to follow, and so watch."""
        concern = {(key[0], network) for key, (node, network) in self.there.items() if node == "n1"}
        fabrics = {(namespace, name): fabric for namespace, name, fabric in NETWORKS}
        vxlan = {key for key in concern if fabrics[key] == "vxlan"}
        policed = len({namespace for namespace, _ in vxlan})
        found = Counter(networkattachments=1 + len(vxlan), networks=len(concern), subnets=len(concern))
        found += Counter(evpnnetworks=len(vxlan))
        namespaces = len({namespace for namespace, _ in concern})
        found += Counter(mirrors=namespaces, shapings=namespaces)
        return dict(found + Counter(securityprofiles=policed))


def test_a_node_holds_one_watch_and_one_per_relevant_network_through_a_thousand_changes(tmp_path: Path) -> None:
    with apiserver(tmp_path, "--store", f"sqlite:{tmp_path / 'netloom.db'}") as admin:
        node = tmp_path / "n1.kubeconfig"
        node.write_text(netloom("credential", "--data", admin.parent, "--name", "n1", "--role", "node:n1").out)
        asyncio.run(_arrivals_and_departures(admin, node))


async def _arrivals_and_departures(admin: Path, node: Path) -> None:
    gauge = Gauge(admin)
    async with contextlib.AsyncExitStack() as held:
        held.callback(gauge.connection.close)
        users = Users(await _open(admin, held), Random(6))
        store = await _open(node, held)
        for namespace, name, fabric in NETWORKS:
            await users.store.create(NETWORK, document(NETWORK, name, {"fabric": fabric}, namespace))
        attachments = attachment_informer(store, "n1", random=Random(1))
        neighbours = NodeWatches(store, attachments, node="n1", random=Random(2))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in (attachments.run(), neighbours.run())]
            counts: list[int] = []
            changed = 0
            while changed < CHANGES:
                burst = min(users.random.randint(1, BURST), CHANGES - changed)
                await users.change(burst)
                changed += burst
                await _settled(gauge, users.expected(), lingering=LINGERING)
                counts.append(gauge.read()["networkattachments"])
            assert len(set(counts)) > 3, "Networks came and went"
            await _settled(gauge, users.expected())
            await _may_open_no_other(store, users)
            for key in users.there:
                await users.store.delete(NETWORK_ATTACHMENT, *key)
            await _settled(gauge, {"networkattachments": 1})
            assert attachments.lists == 1
            for task in tasks:
                task.cancel()


async def _open(kubeconfig: Path, held: contextlib.AsyncExitStack) -> KubeStore:
    store = await KubeStore.open(kubeconfigs.load(str(kubeconfig)))
    held.push_async_callback(store.close)
    return store


async def _settled(gauge: Gauge, expected: dict[str, int], lingering: Collection[str] = ()) -> None:
    """Wait until the server says that just these are open; of those that may linger at least these, if any."""
    deadline = asyncio.get_running_loop().time() + 30.0

    def differ(found: dict[str, int]) -> bool:
        one, other = ({name: count for name, count in x.items() if name not in lingering} for x in (found, expected))
        return one != other or any(found.get(name, 0) < expected.get(name, 0) for name in lingering)

    while differ(found := gauge.read()):
        assert asyncio.get_running_loop().time() < deadline, f"{found} are open, and {expected} should be"
        await asyncio.sleep(0.005)


async def _may_open_no_other(store: Store, users: Users) -> None:
    """Try what would be a watch more, with the node's credential."""
    mine = {(key[0], network) for key, (node, network) in users.there.items() if node == "n1"}
    irrelevant = [(namespace, name) for namespace, name, _ in NETWORKS if (namespace, name) not in mine]
    refused = [("", ""), ("ns1", ""), ("", "spec.node=n2"), ("", "spec.node!=n1")]
    refused += [(namespace, f"spec.network={name},spec.node!=n1") for namespace, name in irrelevant]
    refused += [(namespace, f"spec.network={name}") for namespace, name, fabric in NETWORKS if fabric == "ovn"]
    for namespace, fields in refused:
        wanted = selector("", fields, selectable=NETWORK_ATTACHMENT.selectable)
        try:
            await store.watch(NETWORK_ATTACHMENT, namespace, selector=wanted, since=1)
        except Forbidden:
            continue
        raise AssertionError(f"a node may watch attachments in {namespace!r} by {fields!r}")
