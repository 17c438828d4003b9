"""Writes the objects that are made for a cluster: the differences, and never an object of others.

An object is the controller's if it has the label `kube.netloom.dev/managed`. One without it that has the name of a
planned object is a problem, and stays as it is. A refusal by the store costs the object that is refused, and no other.
"""

from collections.abc import Iterable

from netloom.control.kube.views import MADE
from netloom.control.runtime.client import Client
from netloom.control.runtime.documents import document_of
from netloom.errors import AlreadyExists, Conflict, NetloomError, NotFound
from netloom.model.document import Resource
from netloom.model.references import deletion_order
from netloom.model.registry import KINDS
from netloom.plan.kube.changes import differs, must_be_made_again, ours
from netloom.plan.kube.names import MANAGED, PREFIX
from netloom.plan.object_changes import Changes
from netloom.plan.problem import Problem

NAME_TAKEN, REFUSED, IN_USE = "NameTaken", "Refused", "InUse"


class Writer:
    """Writes the objects of a cluster network."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._order = deletion_order(MADE)

    async def write(self, wanted: Changes) -> list[Problem]:
        """Write what differs; return problems."""
        problems: list[Problem] = []
        for one in wanted.update:
            problems += await self._attempt(one, update=True)
        refused = await self._remove(wanted.remove)
        problems += refused.values()
        for kind in MADE:
            for one in wanted.create:
                if one.kind == kind.name and (one.kind, one.metadata.name) not in refused:
                    problems += await self._attempt(one, update=False)
        return sorted(problems)

    async def _attempt(self, one: Resource, *, update: bool) -> list[Problem]:
        """Write one object; return why it was refused."""
        try:
            problem = await (self._update(one) if update else self._create(one))
        except NetloomError as error:
            if error.retry or isinstance(error, NotFound):
                raise  # NotFound: there is no such namespace.
            return [Problem(REFUSED, f"{one.kind} {one.metadata.name}: {error.message}")]
        return [] if problem is None else [problem]

    async def _create(self, one: Resource) -> Problem | None:
        try:
            await self._client.create_document(KINDS.of(one), document_of(one))
        except AlreadyExists:  # It is another's, or was created moments ago.
            return await self._update(one)
        return None

    async def _update(self, one: Resource) -> Problem | None:
        """Change an object of ours to be as desired; another's is a problem."""
        kind = KINDS.of(one)
        try:
            stored = await self._client.read(kind, one.metadata.namespace, one.metadata.name)
        except NotFound:
            raise Conflict(f"{one.kind} {one.metadata.name} is gone: it is compared again") from None
        live = stored.value()
        if live.metadata.labels.get(MANAGED) != "true":
            text = f"{one.kind} {one.metadata.name} in namespace {one.metadata.namespace} exists, and is not made for"
            return Problem(NAME_TAKEN, f"{text} the cluster: delete it")
        if not differs(one, live):
            return None
        if live.metadata.deletion_timestamp or must_be_made_again(one, live):
            raise Conflict(f"{one.kind} {one.metadata.name} has changed: it is compared again")
        document = stored.document()
        desired = document_of(one)
        document["spec"] = desired["spec"]
        metadata = document["metadata"]
        metadata["labels"] = dict(one.metadata.labels)
        others = {key: value for key, value in live.metadata.annotations.items() if not key.startswith(PREFIX)}
        metadata["annotations"] = others | ours(one.metadata.annotations)
        await self._client.replace(kind, document)
        return None

    async def _remove(self, objects: Iterable[Resource]) -> dict[tuple[str, str], Problem]:
        """Delete objects, those that refer to others first; return those that are in use, which is refused."""
        refused: dict[tuple[str, str], Problem] = {}
        for kind in self._order:
            for one in objects:
                if one.kind != kind.name:
                    continue
                meta = one.metadata
                try:
                    await self._client.delete(KINDS.of(one), meta.namespace, meta.name, uid=meta.uid)
                except Conflict as error:
                    refused[one.kind, meta.name] = Problem(IN_USE, f"{one.kind} {meta.name}: {error.message}")
        return refused
