"""What an agent follows: the Networks its attachments are in, the others there, and nothing else."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

from netloom.control.node.views import LINGER, AttachmentView, NodeWatches, attachment_informer
from netloom.control.runtime.cache import Change, Key
from netloom.model.kind import Kind
from netloom.model.registry import (
    EVPN_NETWORK,
    NETWORK,
    NETWORK_ATTACHMENT,
    REMOTE_VTEP,
    SECURITY_PROFILE,
    SHAPING,
    SUBNET,
)
from netloom.run.metrics.metering import MeteredStore
from netloom.sim import loop as sim
from tests.control.helpers import document, memory, run

BLUE, RED = Key("ns1", "blue"), Key("ns1", "red")


@dataclass
class Agent:
    """A node's view of a store, and what it was told of others."""

    store: MeteredStore
    watches: NodeWatches
    others: dict[str, AttachmentView] = field(default_factory=dict)
    """By uid."""

    def told(self, change: Change[AttachmentView]) -> None:
        if change.old is not None:
            self.others.pop(change.old.value.metadata.uid, None)
        if change.new is not None:
            self.others[change.new.value.metadata.uid] = change.new

    @property
    def names(self) -> list[str]:
        return sorted(view.stored.name for view in self.others.values())

    async def make(self, kind: Kind, name: str, spec: dict[str, Any], namespace: str = "ns1") -> None:
        await self.store.create(kind, document(kind, name, spec, namespace))

    async def attach(self, name: str, node: str, network: str = "blue", host: str = "") -> None:
        """Make an attachment, and have it plugged where a host is given."""
        await self.make(NETWORK_ATTACHMENT, name, {"node": node, "network": network})
        if host:
            await self.plug(name, host)

    async def plug(self, name: str, host: str) -> None:
        made = (await self.store.get(NETWORK_ATTACHMENT, "ns1", name)).document()
        made["status"] = {"hostIP": host}
        await self.store.update(NETWORK_ATTACHMENT, made, subresource="status")

    async def detach(self, name: str) -> None:
        await self.store.delete(NETWORK_ATTACHMENT, "ns1", name)

    @property
    def lists(self) -> int:
        return self.store.operations["list", "ok"]

    @property
    def opened(self) -> int:
        return self.store.operations["watch", "ok"]


def follow(scenario: Callable[[Agent], Coroutine[Any, Any, None]], seed: int = 0) -> None:
    """Let node n1 follow a store with the Networks blue and red (vxlan) and green (ovn) through a scenario."""

    async def main() -> None:
        store = MeteredStore(memory())
        attachments = attachment_informer(store, "n1", random=Random(0))
        watches = NodeWatches(store, attachments, node="n1", random=Random(0))
        agent = Agent(store, watches)
        watches.on_remote.connect(agent.told)
        for name, fabric in (("blue", "vxlan"), ("red", "vxlan"), ("green", "ovn")):
            await agent.make(NETWORK, name, {"fabric": fabric})
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in (attachments.run(), watches.run())]
            await asyncio.sleep(5)
            await scenario(agent)
            for task in tasks:
                task.cancel()

    run(main(), seed=seed)


def test_an_attachment_that_was_made_again_in_another_network_while_nobody_listened_is_followed_there() -> None:
    async def view(agent: Agent, network: str) -> AttachmentView:
        await agent.attach("a", "elsewhere", network)
        stored = await agent.store.get(NETWORK_ATTACHMENT, "ns1", "a")
        return AttachmentView(stored.value(), stored)  # type: ignore[arg-type]  # of this kind it is

    async def scenario(agent: Agent) -> None:
        watches = agent.watches
        tell = watches._attachment_changed
        old = await view(agent, "blue")
        tell(Change(Key("ns1", "a"), None, old))
        await asyncio.sleep(5)
        assert watches.network(BLUE) is not None
        await agent.detach("a")
        new = await view(agent, "red")
        tell(Change(Key("ns1", "a"), old, new))
        await asyncio.sleep(5)
        assert watches.network(BLUE) is None
        assert watches.network(RED) is not None
        tell(Change(Key("ns1", "a"), new, None))
        await asyncio.sleep(5)
        assert watches.namespaces() == []

    follow(scenario)


def test_others_of_a_vxlan_network_are_known_while_one_is_here_and_once_they_have_a_host() -> None:
    async def scenario(agent: Agent) -> None:
        watches = agent.watches
        await agent.attach("far", "n2", host="192.0.2.2")
        await agent.attach("unplugged", "n2")
        await agent.attach("elsewhere", "n2", "red", host="192.0.2.2")
        await asyncio.sleep(5)
        assert watches.remotes(BLUE) is None
        await agent.attach("here", "n1", host="192.0.2.1")
        await asyncio.sleep(5)
        assert agent.names == ["far"]
        known = watches.remotes(BLUE)
        assert known is not None
        assert [view.value.status.host_ip for view in known] == ["192.0.2.2"]
        await agent.plug("unplugged", "192.0.2.2")
        await asyncio.sleep(5)
        assert agent.names == ["far", "unplugged"]
        await agent.detach("here")
        await asyncio.sleep(5)
        assert agent.names == []
        assert watches.remotes(BLUE) is None

    follow(scenario)


def test_others_are_kept_without_their_bytes_and_with_their_revision() -> None:
    async def scenario(agent: Agent) -> None:
        await agent.attach("far", "n2", host="192.0.2.2")
        await agent.attach("here", "n1")
        await asyncio.sleep(5)
        (far,) = agent.others.values()
        assert far.stored.raw == b""
        assert far.stored.revision == (await agent.store.get(NETWORK_ATTACHMENT, "ns1", "far")).revision
        assert far.network == BLUE

    follow(scenario)


def test_who_is_on_an_ovn_network_is_not_asked_for() -> None:
    async def scenario(agent: Agent) -> None:
        await agent.attach("far", "n2", "green", host="192.0.2.2")
        await agent.attach("here", "n1", "green")
        await asyncio.sleep(5)
        assert agent.names == []
        assert agent.watches.networks_with_remotes() == []
        assert agent.watches.profiles("ns1") is None
        # Our attachments, the Network, its Subnets, Mirrors, Shapings.
        assert agent.store.watches == 5

    follow(scenario)


def test_a_network_that_is_made_later_begins_to_concern_us_then() -> None:
    async def scenario(agent: Agent) -> None:
        await agent.attach("far", "n2", "late", host="192.0.2.2")
        await agent.attach("here", "n1", "late")
        await asyncio.sleep(5)
        assert agent.names == []
        await agent.make(NETWORK, "late", {"fabric": "vxlan"})
        await asyncio.sleep(5)
        assert agent.names == ["far"]
        await agent.store.delete(NETWORK, "ns1", "late")
        await agent.make(NETWORK, "late", {"fabric": "ovn"})
        await asyncio.sleep(5)
        assert agent.names == []

    follow(scenario)


def test_the_rest_is_neither_read_again_nor_interrupted_when_the_set_of_networks_changes() -> None:
    async def scenario(agent: Agent) -> None:
        await agent.attach("a", "n1")
        await asyncio.sleep(5)
        # Network, Subnets, others, EVPNNetworks; and of the namespace Mirrors, SecurityProfiles and Shapings.
        assert (agent.lists, agent.opened, agent.store.watches) == (8, 8, 8)
        await agent.attach("b", "n1", "red")
        await asyncio.sleep(5)
        assert (agent.lists, agent.opened, agent.store.watches) == (12, 12, 12)
        await agent.attach("c", "n1", "red")
        await agent.detach("b")
        await asyncio.sleep(5)
        assert (agent.lists, agent.opened, agent.store.watches) == (12, 12, 12)
        await agent.detach("c")
        await asyncio.sleep(LINGER + 5)
        assert (agent.lists, agent.opened, agent.store.watches) == (12, 12, 8)
        await agent.detach("a")
        await asyncio.sleep(LINGER + 5)
        assert (agent.lists, agent.opened, agent.store.watches) == (12, 12, 1)

    follow(scenario)


def test_a_network_that_is_left_for_a_moment_is_known_when_the_next_attachment_comes() -> None:
    async def scenario(agent: Agent) -> None:
        watches = agent.watches
        woken: list[Key] = []
        watches.on_network.connect(woken.extend)
        await agent.attach("a", "n1")
        await asyncio.sleep(5)
        await agent.detach("a")
        await asyncio.sleep(LINGER / 2)
        # Of the others, and of all else, nothing is heard any more.
        assert (watches.relevant(), watches.networks_with_remotes(), watches.network(BLUE)) == ([], [], None)
        assert (agent.lists, agent.opened, agent.store.watches) == (8, 8, 3)
        await agent.make(SUBNET, "v4", {"network": "blue", "cidr": "10.0.0.0/24"})
        woken.clear()
        await agent.attach("b", "n1")
        await asyncio.sleep(LINGER)
        found = watches.network(BLUE)
        assert found is not None
        assert [one.metadata.name for one in found[1]] == ["v4"]
        assert set(woken) == {Key("ns1", "b")}
        assert (agent.lists, agent.opened, agent.store.watches) == (13, 13, 8)

    follow(scenario)


def test_what_was_not_heard_of_a_network_that_was_left_is_read_anew() -> None:
    async def scenario(agent: Agent) -> None:
        await agent.attach("a", "n1")
        await asyncio.sleep(5)
        await agent.detach("a")
        await asyncio.sleep(1)
        for one in agent.watches.informers():
            one.following = False  # As when the server ends the watches.
        await agent.attach("b", "n1")
        await asyncio.sleep(LINGER)
        assert agent.watches.network(BLUE) is not None
        assert (agent.lists, agent.opened, agent.store.watches) == (15, 15, 8)

    follow(scenario)


def test_vteps_of_other_sites_are_followed_while_the_network_is_extended() -> None:
    async def scenario(agent: Agent) -> None:
        told: list[tuple[str, bool]] = []
        agent.watches.on_vtep.connect(lambda change: told.append((change.key.name, change.new is not None)))
        spec = {"evpnNetwork": "e", "node": "n2", "address": "198.51.100.1", "vni": 9, "localVNI": 9}
        await agent.make(REMOTE_VTEP, "east", {**spec, "network": "blue"})
        await agent.make(REMOTE_VTEP, "elsewhere", {**spec, "network": "red"})
        await agent.make(EVPN_NETWORK, "far", {"network": "red", "speaker": "s"})
        await agent.attach("here", "n1")
        await asyncio.sleep(5)
        assert (told, agent.store.watches) == ([], 8)
        await agent.make(EVPN_NETWORK, "e", {"network": "blue", "speaker": "s"})
        await asyncio.sleep(5)
        assert (told, agent.store.watches) == ([("east", True)], 9)
        await agent.store.delete(EVPN_NETWORK, "ns1", "e")
        await asyncio.sleep(5)
        assert (told, agent.store.watches) == ([("east", True), ("east", False)], 8)

    follow(scenario)


def test_profiles_and_shapings_of_the_namespace_are_known_and_gone_with_the_last_attachment() -> None:
    async def scenario(agent: Agent) -> None:
        told: list[tuple[str, bool]] = []
        agent.watches.on_profile.connect(lambda change: told.append((change.key.name, change.new is not None)))
        agent.watches.on_shaping.connect(lambda change: told.append((change.key.name, change.new is not None)))
        await agent.make(SECURITY_PROFILE, "web", {})
        await agent.make(SECURITY_PROFILE, "far", {}, namespace="ns2")
        await agent.make(SHAPING, "slow", {"from": {"network": "blue"}})
        await agent.attach("here", "n1")
        await asyncio.sleep(5)
        profiles = agent.watches.profiles("ns1")
        assert profiles is not None
        assert [one.metadata.name for one in profiles] == ["web"]
        assert sorted(told) == [("slow", True), ("web", True)]
        told.clear()
        await agent.detach("here")
        await asyncio.sleep(5)
        assert sorted(told) == [("slow", False), ("web", False)]
        assert agent.watches.profiles("ns1") is None

    follow(scenario)


def test_one_that_is_made_again_on_this_node_leaves_the_others_and_one_that_moves_away_joins_them() -> None:
    async def scenario(agent: Agent) -> None:
        await agent.attach("stays", "n1")
        await agent.attach("moves", "n2", host="192.0.2.2")
        await asyncio.sleep(5)
        assert agent.names == ["moves"]
        await agent.detach("moves")
        await agent.attach("moves", "n1", host="192.0.2.1")
        await asyncio.sleep(5)
        assert agent.names == []
        await agent.detach("moves")
        await agent.attach("moves", "n3", host="192.0.2.3")
        await asyncio.sleep(5)
        assert [view.value.status.host_ip for view in agent.others.values()] == ["192.0.2.3"]

    follow(scenario)


def test_whatever_comes_and_goes_in_whatever_order_what_is_followed_is_what_concerns_us() -> None:
    async def scenario(agent: Agent) -> None:
        chance = sim.current().random
        there: dict[str, tuple[str, str]] = {}
        for step in range(60):
            if there and chance.random() < 0.45:
                name = chance.choice(sorted(there))
                del there[name]
                await agent.detach(name)
            else:
                node, network = chance.choice(("n1", "n2")), chance.choice(("blue", "red", "green"))
                there[f"a{step}"] = node, network
                await agent.attach(f"a{step}", node, network, host="192.0.2.9")
            await asyncio.sleep(chance.choice((0, 0, 0.01, 5)))
        await asyncio.sleep(LINGER + 5)
        concern = {network for node, network in there.values() if node == "n1"}
        vxlan = concern - {"green"}
        assert {key.name for key in agent.watches.relevant()} == concern
        assert {key.name for key in agent.watches.networks_with_remotes()} == vxlan
        assert agent.names == sorted(name for name, (node, of) in there.items() if node == "n2" and of in vxlan)
        assert agent.store.watches == 1 + 2 * len(concern) + 2 * len(vxlan) + 2 * bool(concern) + bool(vxlan)

    for seed in range(20):
        follow(scenario, seed)
