"""The Node object of this machine: created when the agent first starts, kept current, with a heartbeat.

The heartbeat is one small status write every ten seconds. Controllers that plan from Nodes read the spec and the
labels, so it triggers none of them. Other changes (the datapath, the kernel's capabilities, Ready) are written with the
next heartbeat, and at once when Ready changes.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import NoReturn

import msgspec
from msgspec import Struct

from netloom import __version__
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock, stamp
from netloom.control.runtime.conditions import FALSE, READY, TRUE, with_condition
from netloom.errors import AlreadyExists, NetloomError
from netloom.model.document import Condition, ObjectMeta
from netloom.model.kinds.cluster import Datapath, Node, NodeSpec, NodeStatus
from netloom.model.registry import NODE
from netloom.plan.problem import Problem
from netloom.signals import Signal

log = logging.getLogger(__name__)

SECURE = "OVNConnectionSecure"
"""The condition that ovn-controller's connection to the southbound is secure; written once it was not."""
CLUSTER_NETWORK = "ClusterNetwork"
"""The condition that the node connects the pods of a Kubernetes cluster with everything outside."""
HEARTBEAT = 10.0
"""Seconds between two heartbeats."""
RETRY = 1.0


class PartState(Struct, frozen=True, kw_only=True):
    """The state of a part of the agent that only some nodes have."""

    problem: Problem | None = None
    """What prevents its work; None: it works."""
    remark: str = ""
    """The message of the condition while there is no problem."""


class Facts(Struct, frozen=True, kw_only=True):
    """The present state of the machine."""

    datapath: Datapath | None = None
    capabilities: Mapping[str, bool] = {}
    problem: Problem | None = None
    """Why attachments cannot be plugged here; None: they can."""
    remark: str = ""
    """The message of Ready while there is no problem."""
    exposed: str | None = None
    """Why the connection to OVN's southbound is not secure; "": it is, or there is none; None: not known."""
    parts: Mapping[str, PartState | None] = {}
    """The parts that only some nodes have, by the condition that each has; None: this node does not have it."""


class PartStates:
    """The present states of parts."""

    def __init__(self) -> None:
        self.on_change: Signal[[]] = Signal()
        self.current: dict[str, PartState | None] = {}

    def set(self, condition: str, state: PartState | None) -> None:
        """Set the state of a part, by its condition; None: the node does not have the part."""
        if condition not in self.current or self.current[condition] != state:
            self.current[condition] = state
            self.on_change()


class NodeReconciler:
    """The Node of this machine."""

    def __init__(
        self, client: Client, name: str, underlay_ip: str, *, facts: Callable[[], Facts], clock: Clock, random: Random
    ) -> None:
        self._client = client
        self._name = name
        self._underlay_ip = underlay_ip
        self._facts = facts
        self._clock = clock
        self._random = random
        self._node: Node | None = None
        self._due = asyncio.Event()

    def check(self) -> None:
        """Write the status at once if a condition is no longer true; called when the switch changed."""
        if self._node is None:
            return
        facts, status = self._facts(), self._node.status
        exposed = facts.exposed is not None and _is(status, SECURE, FALSE) != bool(facts.exposed)
        parts = any(part and _is(status, kind, TRUE) != (part.problem is None) for kind, part in facts.parts.items())
        if exposed or parts or _is(status, READY, TRUE) != (facts.problem is None):
            self._due.set()

    async def register(self) -> None:
        """Create the Node, or correct its spec; return when that is done."""
        while True:
            try:
                self._node = await self._registered()
                return
            except NetloomError as error:
                log.warning("cannot write Node %s yet: %s", self._name, error)
            await asyncio.sleep(RETRY)

    async def run(self) -> NoReturn:
        """Write heartbeats until cancelled."""
        while True:
            rest = HEARTBEAT * self._random.uniform(0.9, 1.1)
            try:
                await self._beat()
                self.check()  # The switch may have changed during the write.
            except NetloomError as error:
                log.info("the heartbeat failed: %s", error)
                self._node = None
                rest = RETRY
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._due.wait()
            self._due.clear()

    async def _registered(self) -> Node:
        spec = NodeSpec(underlay_ip=self._underlay_ip)
        node = await self._client.find(Node, "", self._name)
        if node is None:
            made = Node(api_version=NODE.api_version, kind=NODE.name, metadata=ObjectMeta(name=self._name), spec=spec)
            try:
                return await self._client.create(made)
            except AlreadyExists:
                node = await self._client.get(Node, "", self._name)
        if node.spec == spec:
            return node
        document = await self._client.document(NODE, "", self._name)
        document["spec"]["underlayIP"] = self._underlay_ip
        await self._client.replace(NODE, document)
        return await self._client.get(Node, "", self._name)

    async def _beat(self) -> None:
        node = self._node or await self._registered()
        facts, now = self._facts(), self._clock()
        problem = facts.problem
        ready = Condition(
            type=READY,
            status=TRUE if problem is None else FALSE,
            observed_generation=node.metadata.generation,
            reason=READY if problem is None else problem.reason,
            message=facts.remark if problem is None else problem.message,
        )
        conditions = with_condition(node.status.conditions, ready, now)
        if facts.exposed or (facts.exposed is not None and _is(node.status, SECURE, FALSE)):
            secure = Condition(
                type=SECURE,
                status=FALSE if facts.exposed else TRUE,
                observed_generation=node.metadata.generation,
                reason="PlainTCP" if facts.exposed else "Secured",
                message=facts.exposed,
            )
            conditions = with_condition(conditions, secure, now)
        for kind, part in facts.parts.items():
            if part is None:
                conditions = tuple(one for one in conditions if one.type != kind)
            else:
                conditions = with_condition(conditions, _of_part(kind, part, node.metadata.generation), now)
        status = msgspec.structs.replace(
            node.status,
            agent_version=__version__,
            datapath=facts.datapath or node.status.datapath,
            capabilities=dict(facts.capabilities) or node.status.capabilities,
            last_heartbeat=stamp(now),
            observed_generation=node.metadata.generation,
            conditions=conditions,
        )
        self._node = await self._client.update_status(node, status)


def _of_part(kind: str, part: PartState, generation: int) -> Condition:
    problem = part.problem
    return Condition(
        type=kind,
        status=TRUE if problem is None else FALSE,
        observed_generation=generation,
        reason="Programmed" if problem is None else problem.reason,
        message=part.remark if problem is None else problem.message,
    )


def _is(status: NodeStatus, kind: str, value: str) -> bool:
    found = status.condition(kind)
    return found is not None and found.status == value
