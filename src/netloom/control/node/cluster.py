"""Keeps the nftables table of a node of a Kubernetes cluster, and has the kernel forward packets.  There is one key.

    attachments: node.NODE, hostPorts of pods ─┐
    LoadBalancers with ways from outside ──────┴─► plan/kube/node/table.py ─► drivers/nft

While the node has no such attachment it is no part of the cluster, and the table does not exist. Nothing is written
before all LoadBalancers are known: the table of the previous agent stays as it is. Every minute the table is read back,
since nothing announces that others changed it (`nft flush ruleset`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from random import Random
from typing import NamedTuple, NoReturn

from netloom.control.node.node import CLUSTER_NETWORK, PartState
from netloom.control.node.views import AttachmentView
from netloom.control.runtime.cache import Cache, Change
from netloom.control.runtime.informer import informer
from netloom.drivers.nft.tracking import Targets, targets
from netloom.drivers.shapes import ReconciledSet
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.policy import LoadBalancer
from netloom.model.values.selectors import Operator, Requirement, Selector
from netloom.plan.kube import names
from netloom.plan.kube.node.host_ports import host_ports
from netloom.plan.kube.node.nftables import Table
from netloom.plan.kube.node.table import ClusterNode, cluster_node, is_host, plan_table
from netloom.plan.problem import Problem, ProblemError, Unit
from netloom.store.base import Store

log = logging.getLogger(__name__)

KEY = "cluster"
COMPARE = 60.0
"""Seconds between two comparisons."""
OUTWARD = Selector((), (Requirement("spec.externalTrafficPolicy", Operator.NOT_IN, frozenset(("",))),))
"""LoadBalancers that are reachable from outside through nodes."""


class ClusterDrivers(NamedTuple):
    """What writes the table; has the kernel forward packets, and returns the settings that it changed."""

    table: ReconciledSet[str, str, Table | None, Table | None]
    forward: Callable[[str, Collection[int]], Sequence[str]]
    forget: Callable[[Targets, Targets], Awaitable[int]]
    """Has the kernel forget flows of UDP that lead to where nothing leads now."""


class ClusterReconciler:
    """The table of this node."""

    def __init__(
        self,
        store: Store,
        attachments: Cache[AttachmentView],
        drivers: ClusterDrivers,
        *,
        node: str,
        namespace: str,
        underlay: str,
        report: Callable[[str, PartState], None],
        random: Random,
    ) -> None:
        """`report` sets a condition of the Node."""
        self.balancers = informer(store, LoadBalancer, random=random, namespace=namespace, selector=OUTWARD)
        self.balancers.wanted.clear()  # Its watch is allowed only while the node has an attachment.
        self._attachments = attachments
        self._table, self._forward, self._forget = drivers
        self._targets: Targets = {}
        self._name = names.node(node)
        self._namespace = namespace
        self._underlay = underlay
        self._report = report
        self._random = random
        self._due = True
        """Whether what nothing announces must be looked at: settings of the kernel, and old flows."""
        self._problems: Sequence[tuple[Unit, Problem]] = ()

    def all_keys(self) -> Collection[str]:
        """Return the one key."""
        return (KEY,)

    def attachment_changed(self, change: Change[AttachmentView]) -> Collection[str]:
        """Return the key if the attachment of the node itself changed, or one that has ports of the node."""
        if change.key.namespace != self._namespace:
            return ()
        has_ports = any(view is not None and _has_ports(view) for view in (change.old, change.new))
        return (KEY,) if has_ports or change.key.name == self._name else ()

    def balancer_changed(self, change: Change[LoadBalancer]) -> Collection[str]:
        """Return the key if something changed that the table follows from."""
        return (
            () if change.old is not None and change.new is not None and change.old.spec == change.new.spec else (KEY,)
        )

    async def reconcile(self, key: str) -> None:
        """Write the table."""
        try:
            remark = await self._reconcile()
        except ProblemError as error:
            self._report(CLUSTER_NETWORK, PartState(problem=error.problem))
            raise
        if remark is not None:
            self._report(CLUSTER_NETWORK, PartState(remark=remark))

    async def run(self, enqueue: Callable[[str], None]) -> NoReturn:
        """Read the table back every minute, and once all LoadBalancers are known, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.balancers.run())
            await self.balancers.synced.wait()
            while True:
                enqueue(KEY)
                await asyncio.sleep(COMPARE * self._random.uniform(0.75, 1.25))
                self._table.invalidate()
                self._due = True
        raise AssertionError  # The group ends only by being cancelled.

    async def _reconcile(self) -> str | None:
        """Write the table; return a remark, or None while nothing is known."""
        view = self._attachments.get(self._namespace, self._name)
        if view is None or view.going or not is_host(view.value):
            self.balancers.wanted.clear()
            await self._table.apply(None)
            await self._forget_flows(None)
            said = f"there is no NetworkAttachment {self._namespace}/{self._name} with the label {names.HOST}"
            raise ProblemError("NotInCluster", said)
        self.balancers.wanted.set()
        node = cluster_node(view.value, self._underlay)
        if node is None:
            raise ProblemError("NotAddressed", f"NetworkAttachment {self._namespace}/{self._name} has no address yet")
        if not self.balancers.synced.is_set():
            return None
        planned = plan_table(node, self.balancers.cache, host_ports(self._with_ports()))
        if planned.problems != self._problems:
            self._problems = planned.problems
            for unit, problem in planned.problems:
                log.warning("%s: %s", unit, problem.message, extra={"reason": problem.reason})
        due = self._due
        await self._table.apply(planned.table)
        await self._forget_flows(planned.table)
        if due:
            self._enable(node)
        return "; ".join(f"{unit}: {problem.message}" for unit, problem in planned.problems[:3])

    def _with_ports(self) -> Iterator[NetworkAttachment]:
        for view in self._attachments:
            if view.stored.namespace == self._namespace and not view.going and _has_ports(view):
                yield view.value

    def _enable(self, node: ClusterNode) -> None:
        for setting in self._forward(node.device, node.families):
            log.info("set %s", setting)
        self._due = False

    async def _forget_flows(self, table: Table | None) -> None:
        now = targets(table)
        if now == self._targets and not self._due:
            return
        try:
            if count := await self._forget(now, self._targets):
                log.info("forgot %d flows of UDP that led to where nothing leads now", count)
        except OSError as error:
            log.info("cannot forget flows of UDP: %s", error)
        self._targets = now


def _has_ports(view: AttachmentView) -> bool:
    return names.HOST_PORTS in view.value.metadata.annotations
