"""The objects of a run: creating, decoding and deleting them.

Each carries the run's label: the label alone identifies a run's leftovers, whatever created them and however the run
ended.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from netloom.errors import Conflict, NetloomError, NotFound, TimedOut
from netloom.load.plan import Load, PlannedNetwork, Slot
from netloom.load.testers import Trial
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT, NODE, SUBNET
from netloom.model.values.selectors import EVERYTHING, Selector, selector
from netloom.store.base import Store, Stored

T = TypeVar("T")

KINDS = (NETWORK_ATTACHMENT, SUBNET, NETWORK, NODE)
"""The kinds that a run may create; users before what they use."""
LABEL = "netloom.dev/bench-run"
WRITERS = 32
PAGE = 500
AGAIN = 0.5
CLEAN_SECONDS = 120.0


class Seen(Struct, frozen=True):
    """The observed state of an attachment."""

    uid: str
    ips: tuple[str, ...]
    ready: bool
    errors: tuple[str, ...]


class _Condition(Struct):
    type: str
    status: str


class _Errors(Struct, frozen=True):
    ipam: tuple[str, ...] = ()
    host: tuple[str, ...] = ()


class _Status(Struct, frozen=True):
    ips: tuple[str, ...] = ()
    conditions: tuple[_Condition, ...] = ()
    errors: _Errors = _Errors()
    validated: bool = False

    def holds(self, name: str) -> bool:
        return any(one.type == name and one.status == "True" for one in self.conditions)


class _Meta(Struct):
    uid: str = ""


class _Object(Struct):
    metadata: _Meta
    status: _Status = _Status()


_object = msgspec.json.Decoder(_Object).decode


def seen(stored: Stored) -> Seen:
    """Return the observed state of an attachment."""
    found = _object(stored.raw)
    status = found.status
    return Seen(found.metadata.uid, status.ips, status.holds("Ready"), status.errors.ipam + status.errors.host)


def of_run(run: str) -> Selector:
    """Return the selector of a run's objects."""
    return selector(f"{LABEL}={run}")


def document(kind: Kind, run: str, namespace: str, name: str, spec: Document) -> Document:
    """Return an object of a run."""
    metadata: Document = {"name": name, "labels": {LABEL: run}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}


def attachment(load: Load, namespace: str, name: str, slot: Slot, trial: Trial | None) -> Document:
    """Return an attachment of a run."""
    spec: Document = {"node": slot.node, "network": slot.network, "subnets": list(slot.subnets)}
    if trial is not None:
        spec["port"] = trial.port
    return document(NETWORK_ATTACHMENT, load.run, namespace, name, spec)


async def ready_nodes(store: Store, labels: str = "", *, only: str = "") -> list[str]:
    """Return the names of the selected nodes that are Ready."""
    if only:
        await store.get(NODE, "", only)
        return [only]
    chosen = selector(labels) if labels else EVERYTHING
    found = [one.name for one in await every(store, NODE, chosen) if _object(one.raw).status.holds("Ready")]
    if not found:
        which = f" with the labels {labels}" if labels else ""
        raise NotFound(f"no Node{which} is Ready: see `netloom get nodes`")
    return found


async def prepare(
    store: Store, load: Load, namespace: str, networks: Sequence[PlannedNetwork], *, seconds: float
) -> None:
    """Create the Networks and their Subnets, and return when addresses are available in all of them."""

    def net(one: PlannedNetwork) -> Document:
        return document(NETWORK, load.run, namespace, one.name, {"fabric": load.fabric.value})

    blocks = [
        document(SUBNET, load.run, namespace, subnet.name, {"network": network.name, "cidr": subnet.cidr})
        for network in networks
        for part in network.parts
        for subnet in part.subnets
    ]
    await _all(store.create(NETWORK, net(one)) for one in networks)
    await _all(store.create(SUBNET, one) for one in blocks)
    try:
        async with asyncio.timeout(seconds):
            await _validated(store, load.run, namespace, len(blocks))
    except TimeoutError:
        raise TimedOut(
            f"not all of {len(blocks)} Subnets were validated within {seconds:g} s: is a controller running?"
        ) from None


async def _validated(store: Store, run: str, namespace: str, count: int) -> None:
    """Return when all Subnets of a run are validated."""
    page = await store.list(SUBNET, namespace, selector=of_run(run))
    left = {one.name for one in page.items if not _object(one.raw).status.validated}
    if len(page.items) != count:
        raise Conflict(f"{len(page.items)} subnets have the label {LABEL}={run}, expected {count}")
    watch = await store.watch(SUBNET, namespace, selector=of_run(run), since=page.revision)
    try:
        while left:
            left -= {one.object.name for one in await watch.next() if _object(one.object.raw).status.validated}
    finally:
        await watch.close()


async def every(store: Store, kind: Kind, chosen: Selector) -> list[Stored]:
    """Return all selected objects, of all namespaces."""
    page = await store.list(kind, selector=chosen, limit=PAGE)
    items = list(page.items)
    while page.token:
        page = await store.list(kind, selector=chosen, limit=PAGE, token=page.token)
        items += page.items
    return items


async def clean(store: Store, run: str, kinds: Sequence[Kind] = KINDS) -> int:
    """Delete all objects of a run, users before what they use; return how many there were."""
    count = 0
    try:
        async with asyncio.timeout(CLEAN_SECONDS):
            for kind in kinds:
                count += await _clean(store, run, kind)
    except TimeoutError:
        raise TimedOut(f"objects of run {run} remain after {CLEAN_SECONDS:g} s: is a controller running?") from None
    return count


async def _clean(store: Store, run: str, kind: Kind) -> int:
    count = 0
    while found := await every(store, kind, of_run(run)):
        gone = sum(await _all(_removed(store, kind, one) for one in found))
        count += gone
        if gone < len(found):  # Its users are deleted in a moment.
            await asyncio.sleep(AGAIN)
    return count


async def _removed(store: Store, kind: Kind, one: Stored) -> bool:
    try:
        await store.delete(kind, one.namespace, one.name)
    except NotFound:
        return False
    except NetloomError as error:
        if not error.retry and not isinstance(error, Conflict):
            raise
        return False
    return True


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run many coroutines, some at a time; the first error ends all."""
    limit = asyncio.Semaphore(WRITERS)

    async def one(thing: Coroutine[Any, Any, T]) -> T:
        async with limit:
            return await thing

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(thing)) for thing in work]
    return [task.result() for task in tasks]


async def protected(work: Coroutine[Any, Any, object]) -> None:
    """Run something to its end despite a cancellation; a second cancellation ends it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        raise
