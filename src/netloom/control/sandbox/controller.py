"""Reconciles Sandboxes: creates, changes and deletes the objects that each one owns.

    Sandbox, Nodes ──► plan/sandbox, plan/linux ──► compare with the owned objects ──► writes ──► status (status.py)

An object is a Sandbox's if its controller reference has the Sandbox's uid. An object of another owner that has the name
of a planned one is not touched: it is a problem on the status. Only differences are written, so an edit of a Sandbox
leaves everything else as it is.

A Sandbox has a finalizer. When it is deleted, its objects are deleted first, those that refer to others before what
they refer to: an API server may refuse to delete an object in use. With the policy `orphan` they stay.

The owned objects are watched by their label. A cache may be behind our own writes: the Sandbox is not compared before
each cache has the last write to its kind, because otherwise it would be written twice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from netloom.control.runtime.cache import Cache, Change, Key
from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.gc import BY_OWNER, ORPHAN
from netloom.control.sandbox.status import StatusWriter
from netloom.errors import AlreadyExists, Conflict, NetloomError, NotFound
from netloom.model.document import Document, Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.cluster import Node
from netloom.model.kinds.sandbox import Backend, HostDocument, Sandbox
from netloom.model.references import deletion_order
from netloom.model.registry import HOST_DOCUMENT, SANDBOX
from netloom.model.registry import KINDS as REGISTRY
from netloom.model.schemas.validation import admit
from netloom.plan.linux.objects import places_of, plan_host_documents, vnis_of
from netloom.plan.object_changes import Changes
from netloom.plan.problem import Problem
from netloom.plan.sandbox.changes import changes, differs, labels, must_be_made_again, owner_uid
from netloom.plan.sandbox.names import HOST_LABEL, SANDBOX_LABEL, label_value
from netloom.plan.sandbox.objects import KINDS, SandboxPlan, plan_sandbox

FINALIZER = "netloom.dev/sandbox"
TOGETHER = 64
"""Writes that are made at a time."""
SOON = 0.05
"""Seconds to wait for a cache."""
AGAIN = 0.5
"""Seconds after which a deletion that was refused is repeated."""
LATER = 30.0
"""Seconds after which a problem with the object of another owner is checked again."""
NAME_TAKEN, REFUSED, IN_USE = "NameTaken", "Refused", "InUse"

T = TypeVar("T")


class SandboxReconciler:
    """Reconciles Sandboxes.  The keys are those of Sandboxes."""

    def __init__(
        self,
        client: Client,
        *,
        sandboxes: Cache[Sandbox],
        owned: Mapping[str, Cache[Any]],
        nodes: Cache[Node],
        recorder: Recorder,
        clock: Clock,
    ) -> None:
        """`owned` are the objects with the label of a Sandbox, by kind, indexed BY_OWNER."""
        self._client = client
        self._sandboxes = sandboxes
        self._owned = owned
        self._nodes = nodes
        self._recorder = recorder
        self._statuses = StatusWriter(client, recorder, clock=clock)
        self._expected: dict[Key, dict[str, int]] = {}
        """The revision of the last write to each kind, for each Sandbox."""
        self._plans: dict[Key, tuple[object, SandboxPlan]] = {}
        """The last plan of each Sandbox, and what it was made of."""
        self._order = deletion_order(KINDS)

    # What to reconcile.

    def all_keys(self) -> Iterable[Key]:
        """Return the keys of all Sandboxes."""
        return [key for key, _ in self._sandboxes.items()]

    def event_target(self, key: Key) -> Sandbox | None:
        """Return the Sandbox of a key, for Events."""
        return self._sandboxes.get(*key)

    def sandbox_changed(self, change: Change[Sandbox]) -> Iterable[Key]:
        """Return the Sandbox."""
        return (change.key,)

    def node_changed(self, change: Change[Node]) -> Iterable[Key]:
        """Return all Sandboxes if a Node came or went, or has another address."""
        before, now = (
            "" if one is None or one.metadata.deletion_timestamp else one.spec.underlay_ip
            for one in (change.old, change.new)
        )
        return self.all_keys() if before != now else ()

    def object_changed(self, change: Change[Any]) -> Iterable[Key]:
        """Return the Sandbox of an object, and one that waits for its name, if it matters to them."""
        if change.old is not None and change.new is not None and _matters(change.old) == _matters(change.new):
            return ()
        found: dict[Key, None] = {}
        for one in (change.old, change.new):
            if one is not None:
                owners = [ref.name for ref in one.metadata.owner_references if ref.kind == SANDBOX.name]
                found |= dict.fromkeys(Key(one.metadata.namespace, name) for name in owners)
                # The label has the name of nearly every Sandbox.
                found[Key(one.metadata.namespace, one.metadata.labels.get(SANDBOX_LABEL, ""))] = None
        return [key for key in found if self._sandboxes.get(*key) is not None]

    # Reconciling.

    async def reconcile(self, key: Key) -> float | None:
        """Write what differs, and the status; return when to look again."""
        try:
            return await self._reconcile(key)
        except NotFound:
            return AGAIN  # The Sandbox, or one of its objects, is gone, and a cache does not know yet.

    async def _reconcile(self, key: Key) -> float | None:
        sandbox = self._sandboxes.get(*key)
        if sandbox is None:
            self._expected.pop(key, None)
            self._plans.pop(key, None)
            return None
        expected = self._expected.get(key, {})
        if any(self._owned[kind].revision < revision for kind, revision in expected.items()):
            return SOON
        observed = self._of(sandbox)
        if sandbox.metadata.deletion_timestamp:
            return await self._finish(sandbox, observed)
        if FINALIZER not in sandbox.metadata.finalizers:
            await self._set_finalizer(sandbox, present=True)
            return None  # Its change enqueues it.
        plan = self._plan(key, sandbox, observed)
        wanted = changes(plan.objects, observed)
        problems, again = await self._write(key, sandbox, wanted)
        await self._statuses.write(sandbox, plan, observed, problems)
        return again

    def _of(self, sandbox: Sandbox) -> list[Resource]:
        """Return the objects that a Sandbox owns."""
        uid, namespace = sandbox.metadata.uid, sandbox.metadata.namespace
        return [
            one
            for cache in self._owned.values()
            for one in cache.indexed(BY_OWNER, uid)
            if one.metadata.namespace == namespace and owner_uid(one.metadata) == uid
        ]

    def _plan(self, key: Key, sandbox: Sandbox, observed: Iterable[Resource]) -> SandboxPlan:
        nodes = {one.metadata.name: one.spec.underlay_ip for one in self._nodes if not one.metadata.deletion_timestamp}
        if sandbox.spec.backend is Backend.LINUX:
            return self._plan_documents(key, sandbox, nodes, observed)
        placed = {
            one.metadata.labels.get(HOST_LABEL, ""): one.spec.node
            for one in observed
            if isinstance(one, NetworkAttachment)
        }
        hosts = {one.name: placed.get(label_value(one.name), "") for one in sandbox.spec.topology.hosts}
        made_of = (sandbox.metadata.uid, sandbox.spec, frozenset(nodes), hosts)
        last = self._plans.get(key)
        if last is None or last[0] != made_of:
            last = self._plans[key] = made_of, plan_sandbox(sandbox, nodes, hosts)
        return last[1]

    def _plan_documents(
        self, key: Key, sandbox: Sandbox, nodes: Mapping[str, str], observed: Iterable[Resource]
    ) -> SandboxPlan:
        """Return the plan of a Sandbox on the backend `linux`."""
        mine = [one for one in observed if isinstance(one, HostDocument)]
        taken = self._vnis(sandbox)
        # With a VNI that another Sandbox has as well, it is planned again.
        clash = taken & frozenset[int]().union(*map(vnis_of, mine))
        made_of = (sandbox.metadata.uid, sandbox.spec, nodes, places_of(mine), clash)
        last = self._plans.get(key)
        if last is None or last[0] != made_of:
            last = self._plans[key] = made_of, plan_host_documents(sandbox, nodes, mine, taken)
        return last[1]

    def _vnis(self, sandbox: Sandbox) -> frozenset[int]:
        """Return the VNIs of other Sandboxes."""
        cache: Cache[HostDocument] = self._owned[HOST_DOCUMENT.name]
        uid = sandbox.metadata.uid
        return frozenset[int]().union(*(vnis_of(one) for one in cache if owner_uid(one.metadata) != uid))

    # Writing.

    async def _write(self, key: Key, sandbox: Sandbox, wanted: Changes) -> tuple[list[Problem], float | None]:
        """Write what differs; return problems, and when to look again."""
        problems: list[Problem] = []

        async def update(one: Resource) -> None:
            problems.extend(await self._one(key, sandbox, one, self._update))

        async def create(one: Resource) -> None:
            problems.extend(await self._one(key, sandbox, one, self._create))

        # Others may refer to an object that is removed until they are changed.
        await _each(update, wanted.update)
        refused = await self._remove(wanted.remove)
        ready = [one for one in wanted.create if (one.kind, one.metadata.name) not in refused]
        for kind in KINDS:
            await _each(create, [one for one in ready if one.kind == kind.name])
        problems += refused.values()
        counts = [len(part) for part in (wanted.create, wanted.update, wanted.remove)]
        if any(counts) and not problems:
            text = "created {}, changed {} and deleted {} objects".format(*counts)
            self._recorder.normal(sandbox, "Deployed", text)
        return sorted(problems), AGAIN if refused else LATER if problems else None

    async def _one(
        self,
        key: Key,
        sandbox: Sandbox,
        one: Resource,
        write: Callable[[Sandbox, Resource], Awaitable[tuple[int, Problem | None]]],
    ) -> list[Problem]:
        """Write one object; a refusal costs this object only."""
        try:
            revision, problem = await write(sandbox, one)
        except NetloomError as error:
            if error.retry or isinstance(error, NotFound):
                raise
            return [Problem(REFUSED, f"{one.kind} {one.metadata.name}: {error.message}")]
        expected = self._expected.setdefault(key, {})
        expected[one.kind] = max(expected.get(one.kind, 0), revision)
        return [] if problem is None else [problem]

    async def _create(self, sandbox: Sandbox, one: Resource) -> tuple[int, Problem | None]:
        try:
            return (await self._client.create_document(REGISTRY.of(one), _document(one))).revision, None
        except AlreadyExists:
            return await self._update(sandbox, one)

    async def _update(self, sandbox: Sandbox, one: Resource) -> tuple[int, Problem | None]:
        """Change an object of ours to be as desired; another's is a problem."""
        kind = REGISTRY.of(one)
        stored = await self._client.read(kind, one.metadata.namespace, one.metadata.name)
        live = stored.value()
        if owner_uid(live.metadata) != sandbox.metadata.uid:
            text = f"{one.kind} {one.metadata.name} exists and is not of this Sandbox: delete or rename one of the two"
            return 0, Problem(NAME_TAKEN, text)
        if not differs(one, live):
            return 0, None
        if must_be_made_again(one, live):
            raise Conflict(f"{one.kind} {one.metadata.name} has changed: it is compared again")
        document = stored.document()
        document["spec"] = _document(one)["spec"]
        document["metadata"]["labels"] = labels(one, live.metadata)
        return (await self._client.replace(kind, document)).revision, None

    async def _remove(self, objects: Sequence[Resource]) -> dict[tuple[str, str], Problem]:
        """Delete objects, those that refer to others first; return those that are in use, which is refused."""
        refused: dict[tuple[str, str], Problem] = {}

        async def remove(one: Resource) -> None:
            meta, kind = one.metadata, REGISTRY.of(one)
            try:
                await self._client.delete(kind, meta.namespace, meta.name, uid=meta.uid)
            except Conflict as error:
                refused[one.kind, meta.name] = Problem(IN_USE, f"{one.kind} {meta.name}: {error.message}")

        for kind in self._order:
            await _each(remove, [one for one in objects if one.kind == kind.name])
        return refused

    # Deletion.

    async def _finish(self, sandbox: Sandbox, observed: Sequence[Resource]) -> float | None:
        """Delete the objects of a deleted Sandbox, then let it go."""
        if FINALIZER not in sandbox.metadata.finalizers:
            return None
        if observed and ORPHAN not in sandbox.metadata.finalizers:
            refused = await self._remove([one for one in observed if not one.metadata.deletion_timestamp])
            if refused:
                self._recorder.warning(sandbox, *next(iter(refused.values())))
            await self._statuses.write_removal(sandbox, observed)
            return AGAIN  # When they are gone; others may keep some of them, by finalizers of their own.
        await self._set_finalizer(sandbox, present=False)
        return None

    async def _set_finalizer(self, sandbox: Sandbox, *, present: bool) -> None:
        meta = sandbox.metadata
        document: Document = await self._client.document(SANDBOX, meta.namespace, meta.name)
        found = document["metadata"]
        if found["uid"] != meta.uid:
            return
        others = [one for one in found.get("finalizers") or () if one != FINALIZER]
        found["finalizers"] = [*others, FINALIZER] if present else others
        await self._client.replace(SANDBOX, document)


def _document(value: Resource) -> Document:
    """Return a planned object as a valid document, with defaults: controllers write to a store past the API."""
    kind = REGISTRY.of(value)
    document = kind.document(value)
    document.pop("status", None)
    admit(kind, document)
    return document


def _matters(value: Resource) -> object:
    """Return what a Sandbox depends on in one of its objects."""
    status: Any = getattr(value, "status", None)
    ready = None if status is None else status.condition("Ready")
    meta = value.metadata
    told = None if ready is None else (ready.status, ready.reason, ready.message, ready.observed_generation)
    return getattr(value, "spec", None), meta.labels, meta.owner_references, meta.deletion_timestamp, meta.uid, told


async def _each(work: Callable[[T], Awaitable[None]], items: Sequence[T]) -> None:
    """Do something with all items, many at a time; raise the first error once all were tried."""
    errors: list[NetloomError] = []

    async def one(item: T) -> None:
        try:
            await work(item)
        except NetloomError as error:
            errors.append(error)

    for at in range(0, len(items), TOGETHER):
        async with asyncio.TaskGroup() as group:
            for item in items[at : at + TOGETHER]:
                group.create_task(one(item))
    if errors:
        raise errors[0]
