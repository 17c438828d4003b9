"""How long it takes from a wish to what comes of it: measured where it comes to be, by the time of day.

    wish ──► lock ──► address ──► interface on its node ──► Ready         the controller, then the node's agent
                                           └──► interface on other nodes  the agents of those

The wish's time is what its uid says (`model/uids.py`), to the millisecond. A Kubernetes gives uids that say nothing,
and `creationTimestamp` has whole seconds: there we begin with what the first of us saw. The node's own agent knows when
it first heard of the attachment; the agents of other nodes know when IPAM wrote its addresses, since the times of
conditions, which we write, have microseconds. The label `since` tells the two apart: "wish" or "seen".

Two machines' clocks differ. A difference that is not positive is counted in the lowest bucket (`counters.LIFETIMES`).

What was there before anybody here needed it is no news: an attachment that an agent had looked at before this one
started, or one of another node that was plugged before its Network concerned this one, is not counted. How long it
takes until everything of a Network that concerns this node from now on is known is a number of its own, `relevance`.

`Lifetimes` is the agent's: it is told what happens, and told twice is told once.
"""

import asyncio

from netloom.control.runtime.cache import Key
from netloom.control.runtime.clock import Clock, now, parse
from netloom.control.runtime.conditions import TRUE
from netloom.control.runtime.counters import LIFETIMES, Histogram, Histograms, Timing
from netloom.control.runtime.creation import CREATED, SEEN, by_since, created_at
from netloom.model.attachments import NetworkAttachment
from netloom.model.conditions import ADDRESSED, PLUGGED
from netloom.model.document import Condition, ObjectMeta


def since(condition: Condition | None) -> float | None:
    """Return since when a condition holds; None: it does not."""
    if condition is None or condition.status != TRUE:
        return None
    time = parse(condition.last_transition_time)
    return None if time is None else time.timestamp()


class Lifetimes:
    """What an agent measures of attachments, its own and those of other nodes."""

    def __init__(self, *, clock: Clock = now) -> None:
        self.to_interface = by_since()
        """From the wish to a port that works, here."""
        self.from_address = Histogram(LIFETIMES)
        """From its addresses to a port that works, here."""
        self.to_ready = by_since()
        """From the wish to a status that says so."""
        self.to_remote = by_since()
        """From the wish of another node's attachment to flows to it, here."""
        self.from_plugged = Histogram(LIFETIMES)
        """From another node's attachment's being plugged to flows to it, here."""
        self.relevance = Histogram()
        """From a Network's beginning to concern this node to all of it being known."""
        self.fabric = Histograms(("operation", "outcome"))
        """What is done to the switch and the devices."""
        self.hooks = Histograms(("hook", "outcome"))
        """Programs of attachments: postCreate, postDelete."""
        self._clock = clock
        self._heard: dict[str, float] = {}
        """When we first heard of attachments that no agent had looked at before, by uid, until they are Ready."""
        self._plugged: set[str] = set()
        """Those of them whose ports work."""
        self._relevant: dict[Key, tuple[float, float]] = {}
        """Since when Networks concern us: the time of day, and the loop's."""
        self._known: set[Key] = set()
        self._reached: set[str] = set()

    # What we do.

    def timing(self, operation: str) -> Timing:
        """Return a block that does something to the switch or a device: `with lifetimes.timing("plug"): …`."""
        return self.fabric.timing(operation, clock=asyncio.get_running_loop().time)

    # This node's attachments.

    def heard(self, value: NetworkAttachment) -> None:
        """Know of an attachment of this node; the earlier the better, addresses or not."""
        if not value.status.host_ip:
            self._heard.setdefault(value.metadata.uid, self._now())

    def plugged(self, value: NetworkAttachment) -> None:
        """Know that an attachment's port works."""
        uid = value.metadata.uid
        if uid not in self._heard or uid in self._plugged:
            return
        self._plugged.add(uid)
        at = self._now()
        self._observe(self.to_interface, value.metadata, at)
        if (addressed := since(value.status.condition(ADDRESSED))) is not None:
            self.from_address.observe(at - addressed)

    def ready(self, value: NetworkAttachment) -> None:
        """Know that an attachment's status says that its port works."""
        self._observe(self.to_ready, value.metadata, self._now())
        self.gone(value.metadata.uid)

    def gone(self, uid: str) -> None:
        """Know that an attachment of this node is gone."""
        self._heard.pop(uid, None)
        self._plugged.discard(uid)

    # The Networks that concern this node.

    def relevant(self, network: Key) -> None:
        """Know that a Network concerns this node from now on."""
        self._relevant.setdefault(network, (self._now(), asyncio.get_running_loop().time()))

    def known(self, network: Key) -> None:
        """Know that everything there is of a Network is known here."""
        began = self._relevant.get(network)
        if began is not None and network not in self._known:
            self._known.add(network)
            self.relevance.observe(asyncio.get_running_loop().time() - began[1])

    def irrelevant(self, network: Key) -> None:
        """Know that a Network concerns this node no longer."""
        self._relevant.pop(network, None)
        self._known.discard(network)

    # Other nodes' attachments.

    def reached(self, value: NetworkAttachment) -> None:
        """Know that the flows to an attachment of another node are in the switch."""
        meta = value.metadata
        if meta.uid in self._reached:
            return
        self._reached.add(meta.uid)
        began = self._relevant.get(Key(meta.namespace, value.spec.network))
        plugged = since(value.status.condition(PLUGGED))
        if began is None or plugged is None or plugged < began[0]:
            return
        at = self._now()
        self.from_plugged.observe(at - plugged)
        wish = self._wished(meta)
        begin = wish if wish is not None else since(value.status.condition(ADDRESSED))
        if begin is not None:
            self.to_remote.observe((SEEN if wish is None else CREATED,), at - begin)

    def lost(self, uid: str) -> None:
        """Know that an attachment of another node is gone, or concerns us no longer."""
        self._reached.discard(uid)

    # How many there are now.

    @property
    def remotes(self) -> int:
        """How many attachments of other nodes are reached from here."""
        return len(self._reached)

    @property
    def networks(self) -> int:
        """How many Networks concern this node."""
        return len(self._relevant)

    @property
    def networks_known(self) -> int:
        """Of how many of these everything is known."""
        return len(self._known)

    def _observe(self, histograms: Histograms, meta: ObjectMeta, at: float) -> None:
        heard = self._heard.get(meta.uid)
        if heard is not None:
            wish = self._wished(meta)
            histograms.observe((SEEN if wish is None else CREATED,), at - (heard if wish is None else wish))

    @staticmethod
    def _wished(meta: ObjectMeta) -> float | None:
        return created_at(meta.uid, meta.creation_timestamp)

    def _now(self) -> float:
        return self._clock().timestamp()
