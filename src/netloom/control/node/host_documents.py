"""Applies the HostDocuments of this node, repairs what others change, and removes what has no HostDocument any more.

    HostDocument (spec.node=NODE) ──► may this node have it? ──► apply  ──► status
                         deleted  ──────────────────────────► remove ──► condition `Removed`
                            gone  ──────────────────────────► remove

The keys are owners: the names under which this node keeps the state of each HostDocument (plan/linux/names.py). So what
a HostDocument that is gone has left, also while the agent was not running, has a key as well. Owners of others, who use
the same program, are not among them (drivers/linux/host.py).

A run compares everything, and changes nothing if nothing differs. It is repeated now and then; the larger the document,
the more seldom.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable
from random import Random
from typing import NoReturn, Protocol

import msgspec
from msgspec import structs

from netloom.control.node.views import where
from netloom.control.runtime.cache import Cache, Change
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.conditions import FALSE, READY, TRUE, with_condition
from netloom.control.runtime.informer import Informer, informer
from netloom.drivers.remote.protocol import Result
from netloom.model.document import Condition
from netloom.model.kinds.sandbox import REMOVED, HostDocument, HostDocumentStatus
from netloom.plan.linux import names
from netloom.plan.node.grants import NodeGrants
from netloom.plan.problem import Problem
from netloom.store.base import Store

log = logging.getLogger(__name__)

WORKERS = 2
"""Runs at a time: each starts programs."""
NETNS = "/run/netns"
BY_NAME = "owner"
AFTER_FAILURE = 15.0
"""Seconds after which a run that failed, or that could not do everything, is repeated."""
SWEEP = 60.0
"""Seconds between two comparisons of a small document."""
SHARE = 100
"""A comparison that takes a second is repeated after so many."""
TIDY = 30.0
"""Seconds between two searches for what has no HostDocument."""
APPLIED, APPLY_FAILED, INCOMPLETE, REMOVE_FAILED = "Applied", "ApplyFailed", "Incomplete", "RemoveFailed"
MOST_PROBLEMS = 100
LONGEST_PROBLEM = 1000
SHOWN = 3


class AppliedOwners(Protocol):
    """What this node has, by owner (drivers/linux/host.py)."""

    def owners(self) -> set[str]:
        """Return the owners that this node has something of."""
        ...

    async def apply(self, owner: str, document: bytes) -> Result:
        """Turn this node into what a document says."""
        ...

    async def remove(self, owner: str) -> Result:
        """Remove everything of an owner."""
        ...


def owner_of(document: HostDocument) -> str:
    """Return the owner of what a node has of a HostDocument."""
    return names.owner(document.metadata.namespace, document.metadata.name)


def host_documents_informer(store: Store, node: str, *, random: Random) -> Informer[HostDocument]:
    """Return an informer of the HostDocuments of a node."""
    indexes = {BY_NAME: lambda one: (owner_of(one),)}
    return informer(store, HostDocument, random=random, selector=where("spec.node", node), indexes=indexes)


class HostDocumentApplier:
    """Reconciles the HostDocuments of a node.  The keys are owners."""

    def __init__(
        self,
        client: Client,
        *,
        documents: Cache[HostDocument],
        host: AppliedOwners,
        grants: NodeGrants,
        clock: Clock,
        time: Callable[[], float],
    ) -> None:
        """`time` is monotonic."""
        self.applied = self.changes = self.failures = 0
        self._client = client
        self._documents = documents
        self._host = host
        self._grants = grants
        self._clock = clock
        self._time = time

    def all_keys(self) -> Iterable[str]:
        """Return the owners that there are, or should be."""
        return {owner_of(one) for one in self._documents} | self._host.owners()

    def document_changed(self, change: Change[HostDocument]) -> Iterable[str]:
        """Return the owner of a HostDocument whose spec has changed, or that was deleted."""
        found = change.new or change.old
        if found is None or (change.old is not None and change.new is not None and _same(change.old, change.new)):
            return ()
        return (owner_of(found),)

    async def tidy(self, enqueue: Callable[[Iterable[str]], None]) -> NoReturn:
        """Enqueue what has no HostDocument now and then, until cancelled."""
        while True:
            await asyncio.sleep(TIDY)
            enqueue(self._host.owners() - {owner_of(one) for one in self._documents})

    async def reconcile(self, owner: str) -> float | None:
        """Apply a HostDocument, or remove what there is of it; return when to look again."""
        found = next(iter(self._documents.indexed(BY_NAME, owner)), None)
        if found is None or found.metadata.deletion_timestamp:
            return await self._remove(owner, found)
        began = self._time()
        refusal = self._refusal(found)
        if refusal is not None:
            return await self._write(found, _ready(FALSE, refusal.reason, refusal.message))
        document = msgspec.json.encode(found.spec.document, order="sorted")
        result = await self._host.apply(owner, document)
        took = self._time() - began
        self.applied += 1
        self.changes += result.changes
        if result.error:
            self.failures += 1
            log.warning("cannot apply HostDocument %s: %s", owner, result.error)
            return await self._write(found, _ready(FALSE, APPLY_FAILED, result.error))
        if result.changes and found.status.applied_generation == found.metadata.generation:
            log.info("HostDocument %s: %d changes that others made were undone", owner, result.changes)
        if result.problems:
            more = f"; and {len(result.problems) - SHOWN} more" if len(result.problems) > SHOWN else ""
            ready = _ready(FALSE, INCOMPLETE, "; ".join(result.problems[:SHOWN]) + more)
        else:
            ready = _ready(TRUE, APPLIED)
        again = await self._write(found, ready, document=document, problems=result.problems)
        return again if result.problems else max(SWEEP, took * SHARE)

    def _refusal(self, found: HostDocument) -> Problem | None:
        """Return why this node may not have the namespaces of a document; None: it may."""
        spaces = found.spec.document.get("namespaces")
        for one in spaces if isinstance(spaces, list) else ():
            name = one.get("name") if isinstance(one, dict) else None
            # The program refuses a name that is none.
            if isinstance(name, str):
                granted = self._grants.folder(found.metadata.namespace, f"{NETNS}/{name}")
                if isinstance(granted, Problem):
                    return granted
        return None

    async def _remove(self, owner: str, found: HostDocument | None) -> float | None:
        if owner in self._host.owners():
            result = await self._host.remove(owner)
            self.changes += result.changes
            if result.error:
                self.failures += 1
                log.warning("cannot remove HostDocument %s: %s", owner, result.error)
                if found is not None:
                    await self._write(found, _ready(FALSE, REMOVE_FAILED, result.error))
                return AFTER_FAILURE
        if found is not None:
            await self._write(found, Condition(type=REMOVED, status=TRUE, reason=REMOVED), document=b"{}")
        return None

    async def _write(
        self, found: HostDocument, condition: Condition, *, document: bytes = b"", problems: tuple[str, ...] = ()
    ) -> float:
        """Write the status; `document` is the one that the node has now, if there was a change."""
        generation = found.metadata.generation
        condition = structs.replace(condition, observed_generation=generation)
        status = structs.replace(
            found.status,
            observed_generation=generation,
            conditions=with_condition(found.status.conditions, condition, self._clock()),
            problems=tuple(one[:LONGEST_PROBLEM] for one in problems[:MOST_PROBLEMS]),
        )
        if document:
            status = _reached(status, document, generation)
        await self._client.update_status(found, status)
        return AFTER_FAILURE


def _reached(status: HostDocumentStatus, document: bytes, generation: int) -> HostDocumentStatus:
    """Return a status that says that the node has a document."""
    value = msgspec.json.decode(document)
    return structs.replace(
        status,
        applied_generation=generation if value else 0,
        digest=hashlib.sha256(document).hexdigest() if value else "",
        namespaces=len(value.get("namespaces") or ()),
        networks=len(value.get("bridges") or ()),
        interfaces=len(value.get("members") or ()),
    )


def _ready(status: str, reason: str, message: str = "") -> Condition:
    return Condition(type=READY, status=status, reason=reason, message=message)


def _same(before: HostDocument, now: HostDocument) -> bool:
    """Whether nothing of a HostDocument has changed that this node acts on."""
    return (before.metadata.uid, before.spec, before.metadata.deletion_timestamp) == (
        now.metadata.uid,
        now.spec,
        now.metadata.deletion_timestamp,
    )
