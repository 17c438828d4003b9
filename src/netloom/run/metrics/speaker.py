"""The metrics of a node's BGP speakers: sessions, routes, and what was learned and written for each EVPNNetwork.

The labels `peer` and `evpn_network` have the values of objects that exist; beyond the first `MOST` the rest is added up
as `other`, so that no number of objects makes a scrape larger than that.
"""

import asyncio
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from netloom.control.runtime.counters import Histogram
from netloom.model.kinds.bgp import BGPState
from netloom.run.metrics.exposition import Counter, Families, Gauge, counted, histogram

if TYPE_CHECKING:  # An agent without a speaker imports nothing that speaks BGP.
    from netloom.control.evpn.host import SpeakerHost
    from netloom.control.evpn.speaker import RunningSpeaker
    from netloom.control.evpn.stretched import Stretched

MOST = 256
"""How many peers, and how many EVPNNetworks, have numbers of their own."""
OTHER = "other"
Pair = tuple[str, str]


def speakers(find: "Callable[[], SpeakerHost | None]") -> Families:
    """Yield the metrics of a node's speakers; `find` returns None where none runs."""
    host = find()
    running = list(host.running.values()) if host is not None else []
    yield from _peers(running)
    routes = sum(len(table) for one in running for table in one.speaker.rib.best.values())
    yield Gauge("netloom_bgp_routes", "Routes with a best path.", value=routes)
    text = "Routes of peers that were not accepted, because of a loop."
    yield Counter("netloom_bgp_routes_refused", text, value=sum(one.speaker.rib.refused for one in running))
    yield from _networks(running)
    writes = sum((one.counters.writes for one in running), Tally[str]())
    yield counted(Counter("netloom_evpn_vtep_writes", "RemoteVTEPs written, by change.", labels=["change"]), writes)
    lag = Histogram()
    for one in running:
        lag.counts = [a + b for a, b in zip(lag.counts, one.counters.import_lag.counts, strict=True)]
        lag.total += one.counters.import_lag.total
    text = "From routes of a peer to the RemoteVTEPs that follow from them."
    yield histogram("netloom_evpn_import_lag_seconds", text, lag)


def _peers(running: "list[RunningSpeaker]") -> Families:
    states = Tally[str]({state.value: 0 for state in BGPState})
    numbers: dict[str, dict[Pair, float]] = {name: {} for name in (*_PEER_GAUGES, *_PEER_COUNTERS)}
    for one in running:
        for address in one.speaker.configs():
            neighbor, key = one.speaker.neighbor(address), (str(one.key), address)
            states[neighbor.peer.state.value] += 1
            numbers["session_up"][key] = float(neighbor.up is not None)
            numbers["routes_received"][key] = one.speaker.received(address)
            numbers["routes_sent"][key] = neighbor.out.count() if neighbor.out is not None else 0
            numbers["updates"][key] = neighbor.updates
            numbers["malformed"][key] = neighbor.malformed
            numbers["session_flaps"][key] = one.counters.flaps[address]
    yield counted(Gauge("netloom_bgp_sessions", "Configured sessions, by state.", labels=["state"]), states)
    labels = ["speaker", "peer"]
    for name, text in _PEER_GAUGES.items():
        yield counted(Gauge(f"netloom_bgp_{name}", text, labels=labels), bounded(numbers[name]))
    for name, text in _PEER_COUNTERS.items():
        yield counted(Counter(f"netloom_bgp_{name}", text, labels=labels), bounded(numbers[name]))


_PEER_GAUGES: Mapping[str, str] = {
    "session_up": "Whether the session with a peer is established.",
    "routes_received": "Routes that a peer has announced.",
    "routes_sent": "Routes announced to a peer.",
}
_PEER_COUNTERS: Mapping[str, str] = {
    "updates": "UPDATE messages of a peer.",
    "malformed": "Malformed attributes in UPDATE messages of a peer.",
    "session_flaps": "Established sessions that have ended.",
}


def _networks(running: "list[RunningSpeaker]") -> Families:
    numbers: dict[str, dict[Pair, float]] = {name: {} for name in _NETWORKS}
    for one in running:
        for key, evpn in one.evpns.items():
            for name, value in _of_network(evpn.stretched):
                numbers[name][str(one.key), str(key)] = value
    for name, text in _NETWORKS.items():
        yield counted(Gauge(f"netloom_evpn_{name}", text, labels=["speaker", "evpn_network"]), bounded(numbers[name]))


def _of_network(stretched: "Stretched | None") -> Iterator[tuple[str, float]]:
    if stretched is None:
        yield from ((name, 0) for name in _NETWORKS)
        return
    yield "forwarding", float(stretched.is_forwarding)
    yield "local_macs", len(stretched.exports)
    yield "remote_macs", stretched.imports.macs
    yield "remote_vteps", len(stretched.imports.places())
    yield "duplicate_macs", len(stretched.duplicates(asyncio.get_running_loop().time()))


_NETWORKS: Mapping[str, str] = {
    "forwarding": "Whether the speaker forwards for an EVPNNetwork.",
    "local_macs": "MAC addresses of this site.",
    "remote_macs": "MAC addresses learned from other sites.",
    "remote_vteps": "VTEPs of other sites.",
    "duplicate_macs": "MAC addresses that are attached here and announced by another site.",
}


def bounded(values: Mapping[Pair, float]) -> Mapping[Pair, float]:
    """Return the first values by their labels, and the sum of the others."""
    if len(values) <= MOST:
        return values
    keys = sorted(values)
    return {key: values[key] for key in keys[:MOST]} | {(OTHER, OTHER): sum(values[key] for key in keys[MOST:])}
