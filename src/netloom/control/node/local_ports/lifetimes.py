"""Measures how long attachments take, from their creation to each later step, by the time of day.

    created ──► lock ──► address ──► interface on its node ──► Ready         the controller, then the node's agent
                                              └──► interface on other nodes  the agents of those

The uid holds the time of creation (`model/values/uids.py`), to the millisecond. The uids of Kubernetes do not, and
`creationTimestamp` has whole seconds: there the measurement starts when the first of our processes saw the attachment.
The node's own agent knows when that was; the agents of other nodes take the time when IPAM wrote the addresses, since
the times of conditions, which we write, have microseconds. The label `since` says which of the two it is.

The clocks of two machines differ. A difference that is not positive counts in the lowest bucket (`counters.LIFETIMES`).

Attachments that existed before this agent needed them are not measured: those that an earlier agent reconciled, and
those of other nodes that were plugged before their Network became relevant here. The time until everything of a newly
relevant Network is known is a metric of its own, `relevance`.

`Lifetimes` belongs to the agent. Its methods are called as events happen; calling one twice has no further effect.
"""

import asyncio

from netloom.control.runtime.cache import Key
from netloom.control.runtime.clock import Clock, now, parse
from netloom.control.runtime.conditions import TRUE
from netloom.control.runtime.counters import LIFETIMES, Histogram, Histograms, Timing
from netloom.control.runtime.creation import by_since, created_at, observe_since
from netloom.model.conditions import ADDRESSED, PLUGGED
from netloom.model.document import Condition, ObjectMeta
from netloom.model.kinds.attachments import NetworkAttachment


def since(condition: Condition | None) -> float | None:
    """Return since when a condition is true; None: it is not."""
    if condition is None or condition.status != TRUE:
        return None
    time = parse(condition.last_transition_time)
    return None if time is None else time.timestamp()


class Lifetimes:
    """The measurements of an agent: of its own attachments, and of those of other nodes."""

    def __init__(self, *, clock: Clock = now) -> None:
        self.to_interface = by_since()
        """From the creation to a port that works, on this node."""
        self.from_address = Histogram(LIFETIMES)
        """From the addresses to a port that works, on this node."""
        self.to_ready = by_since()
        """From the creation to a status that says so."""
        self.to_remote = by_since()
        """From the creation of another node's attachment to flows to it, on this node."""
        self.from_plugged = Histogram(LIFETIMES)
        """From the plugging of another node's attachment to flows to it, on this node."""
        self.relevance = Histogram()
        """From the time a Network became relevant to this node until all of it was known."""
        self.fabric = Histograms(("operation", "outcome"))
        """Operations on the switch and the devices."""
        self.hooks = Histograms(("hook", "outcome"))
        """Programs of attachments: postCreate, postDelete."""
        self.cni = Histograms(("command", "code"))
        """Calls of the CNI plugin."""
        self._clock = clock
        self._heard: dict[str, float] = {}
        """When this agent first saw attachments that no agent had reconciled before, by uid, until they are Ready."""
        self._plugged: set[str] = set()
        """Those of them whose ports work."""
        self._relevant: dict[Key, tuple[float, float]] = {}
        """Since when Networks are relevant: the time of day, and the loop's."""
        self._known: set[Key] = set()
        self._reached: set[str] = set()

    # Operations.

    def timing(self, operation: str) -> Timing:
        """Return a context manager that measures an operation: `with lifetimes.timing("plug"): …`."""
        return self.fabric.timing(operation, clock=asyncio.get_running_loop().time)

    # This node's attachments.

    def heard(self, value: NetworkAttachment) -> None:
        """Note that this agent saw an attachment of its node, with addresses or without."""
        if not value.status.host_ip:
            self._heard.setdefault(value.metadata.uid, self._now())

    def plugged(self, value: NetworkAttachment) -> None:
        """Note that an attachment's port works."""
        uid = value.metadata.uid
        if uid not in self._heard or uid in self._plugged:
            return
        self._plugged.add(uid)
        at = self._now()
        self._observe(self.to_interface, value.metadata, at)
        if (addressed := since(value.status.condition(ADDRESSED))) is not None:
            self.from_address.observe(at - addressed)

    def ready(self, value: NetworkAttachment) -> None:
        """Note that an attachment's status says that its port works."""
        self._observe(self.to_ready, value.metadata, self._now())
        self.gone(value.metadata.uid)

    def gone(self, uid: str) -> None:
        """Note that an attachment of this node is gone."""
        self._heard.pop(uid, None)
        self._plugged.discard(uid)

    # The relevant Networks.

    def relevant(self, network: Key) -> None:
        """Note that a Network became relevant to this node."""
        self._relevant.setdefault(network, (self._now(), asyncio.get_running_loop().time()))

    def known(self, network: Key) -> None:
        """Note that everything of a Network is known here."""
        began = self._relevant.get(network)
        if began is not None and network not in self._known:
            self._known.add(network)
            self.relevance.observe(asyncio.get_running_loop().time() - began[1])

    def irrelevant(self, network: Key) -> None:
        """Note that a Network is no longer relevant to this node."""
        self._relevant.pop(network, None)
        self._known.discard(network)

    # Other nodes' attachments.

    def reached(self, value: NetworkAttachment) -> None:
        """Note that the flows to an attachment of another node are in the switch."""
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
        created, addressed = created_at(meta.uid, meta.creation_timestamp), since(value.status.condition(ADDRESSED))
        observe_since(self.to_remote, at, created=created, seen=addressed)

    def lost(self, uid: str) -> None:
        """Note that an attachment of another node is gone, or no longer relevant."""
        self._reached.discard(uid)

    # Present numbers.

    @property
    def remotes(self) -> int:
        """The number of attachments of other nodes that are reached from here."""
        return len(self._reached)

    @property
    def networks(self) -> int:
        """The number of relevant Networks."""
        return len(self._relevant)

    @property
    def networks_known(self) -> int:
        """The number of relevant Networks of which everything is known."""
        return len(self._known)

    def _observe(self, histograms: Histograms, meta: ObjectMeta, at: float) -> None:
        heard = self._heard.get(meta.uid)
        if heard is not None:
            observe_since(histograms, at, created=created_at(meta.uid, meta.creation_timestamp), seen=heard)

    def _now(self) -> float:
        return self._clock().timestamp()
