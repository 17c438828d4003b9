"""The BGPSpeakers that each node runs, and the Networks that it extends to other sites by them.

   BGPSpeakers   ──► node ──► namespace ──► names
   EVPNNetworks  ──► namespace ──► Network ──► speaker ──► count
   RemoteVTEPs   ──► node ──► count

A node runs a BGPSpeaker whose `spec.node` it is, and extends the Networks that the EVPNNetworks of its speakers name.
As in node_networks.py, the indexes may answer "yes", and only the store "no". Unlike an attachment, a BGPSpeaker and an
EVPNNetwork can change: a change ends the version of the node that ran the speaker before it.

What is asked about one object is decided by that object, without an index: see roles.py.
"""

from collections import Counter
from typing import NoReturn

from netloom.errors import NotFound
from netloom.front.api.auth.following import Follower, Versions, selecting, together
from netloom.model.registry import BGP_SPEAKER, EVPN_NETWORK, REMOTE_VTEP
from netloom.store.base import Event, EventType, Store, Stored

_Place = tuple[str, str]
_LARGE_PAGE = 50
"""How many RemoteVTEPs to list at a time: one can have some hundred KiB."""


class NodeSpeakers:
    """An index of BGPSpeakers and extended Networks by node."""

    def __init__(self, store: Store, versions: Versions | None = None) -> None:
        self._versions = versions or Versions()
        self._store = store
        self._nodes: dict[_Place, str] = {}
        """The node of each BGPSpeaker, by namespace and name."""
        self._speakers: dict[_Place, set[str]] = {}
        """The BGPSpeakers by node and namespace."""
        self._evpn_networks: dict[_Place, _Place] = {}
        """Network and speaker of each EVPNNetwork, by namespace and name."""
        self._extended: dict[_Place, Counter[str]] = {}
        """The speakers of each Network, by namespace and name of the Network."""
        self._vteps: Counter[str] = Counter()
        self._followers = (
            Follower(store, BGP_SPEAKER, take=self._take_speaker, clear=self._clear_speakers),
            Follower(store, EVPN_NETWORK, take=self._take_evpn_network, clear=self._clear_evpn_networks),
            Follower(store, REMOTE_VTEP, take=self._take_vtep, clear=self._vteps.clear, page=_LARGE_PAGE),
        )

    async def run(self) -> NoReturn:
        """Maintain the indexes until cancelled."""
        await together(*(follower.run for follower in self._followers))

    async def known(self) -> None:
        """Wait until all indexes are maintained."""
        for follower in self._followers:
            await follower.known.wait()

    def is_known(self) -> bool:
        """Whether all indexes are maintained."""
        return all(follower.known.is_set() for follower in self._followers)

    def remote_vteps(self, node: str) -> int | None:
        """Return how many RemoteVTEPs have a node as their `spec.node`; None while they are not counted."""
        return self._vteps[node] if self._followers[2].known.is_set() else None

    async def runs(self, node: str, namespace: str, speaker: str) -> bool:
        """Whether a node runs a BGPSpeaker."""
        if not namespace or not speaker:
            return False
        if self.is_known() and self._nodes.get((namespace, speaker)) == node:
            return True
        try:
            found = await self._store.get(BGP_SPEAKER, namespace, speaker)
        except NotFound:
            return False
        return found.facets().fields["spec.node"] == node

    async def runs_any(self, node: str, namespace: str) -> bool:
        """Whether a node runs a BGPSpeaker of a namespace."""
        if not namespace:
            return False
        if self.is_known() and self._speakers.get((node, namespace)):
            return True
        return bool(await self._run_by(node, namespace))

    def counted(self, node: str, namespace: str, network: str) -> bool:
        """Whether a node extends a Network according to the indexes.  If not, it may according to the store."""
        if not self.is_known() or (node, namespace) not in self._speakers:
            return False
        speakers = self._extended.get((namespace, network), ())
        return any(self._nodes.get((namespace, speaker)) == node for speaker in speakers)

    async def extends(self, node: str, namespace: str, network: str) -> bool:
        """Whether a node extends a Network."""
        if not namespace or not network:
            return False
        if self.counted(node, namespace, network):
            return True
        speakers = await self._run_by(node, namespace)
        if not speakers:
            return False
        page = await self._store.list(EVPN_NETWORK, namespace, selector=selecting({"spec.network": network}))
        return any(one.facets().fields["spec.speaker"] in speakers for one in page.items)

    async def _run_by(self, node: str, namespace: str) -> set[str]:
        """Return the names of the BGPSpeakers of a namespace that a node runs, as the store has them."""
        page = await self._store.list(BGP_SPEAKER, namespace, selector=selecting({"spec.node": node}))
        return {one.name for one in page.items}

    # The indexes.

    def _take_speaker(self, event: Event) -> None:
        place = event.object.namespace, event.object.name
        before = self._nodes.pop(place, "")
        after = "" if event.type is EventType.DELETED else event.object.facets().fields["spec.node"]
        if after:
            self._nodes[place] = after
        if before == after:
            return
        if before:
            _remove(self._speakers, (before, place[0]), place[1])
            self._versions.end(before)
        if after:
            self._speakers.setdefault((after, place[0]), set()).add(place[1])

    def _clear_speakers(self) -> None:
        self._nodes.clear()
        self._speakers.clear()
        self._versions.clear()

    def _take_evpn_network(self, event: Event) -> None:
        stored = event.object
        before = self._evpn_networks.pop((stored.namespace, stored.name), None)
        after = None if event.type is EventType.DELETED else _names_of(stored)
        if after is not None:
            self._evpn_networks[stored.namespace, stored.name] = after
        if before == after:
            return
        if before is not None:
            self._count(stored.namespace, before, -1)
            self._versions.end(self._nodes.get((stored.namespace, before[1]), ""))
        if after is not None:
            self._count(stored.namespace, after, 1)

    def _clear_evpn_networks(self) -> None:
        self._evpn_networks.clear()
        self._extended.clear()
        self._versions.clear()

    def _count(self, namespace: str, names: _Place, more: int) -> None:
        network, speaker = names
        speakers = self._extended.setdefault((namespace, network), Counter())
        speakers[speaker] += more
        if not speakers[speaker]:
            del speakers[speaker]
        if not speakers:
            del self._extended[namespace, network]

    def _take_vtep(self, event: Event) -> None:
        if event.type is EventType.MODIFIED:
            return  # `spec.node` is immutable.
        node = event.object.facets().fields["spec.node"]
        self._vteps[node] += 1 if event.type is EventType.ADDED else -1
        if not self._vteps[node]:
            del self._vteps[node]


def _names_of(evpn_network: Stored) -> _Place:
    fields = evpn_network.facets().fields
    return fields["spec.network"], fields["spec.speaker"]


def _remove(sets: dict[_Place, set[str]], place: _Place, name: str) -> None:
    sets[place].discard(name)
    if not sets[place]:
        del sets[place]
