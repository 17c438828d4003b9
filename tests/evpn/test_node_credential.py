"""A speaker with nothing but the credential of its node: the API's rules for nodes allow all that it asks for."""

import asyncio
from pathlib import Path
from typing import Any, cast

from netloom.errors import Conflict
from netloom.front.api.admission.admission import Write, WriteOperation
from netloom.front.api.admission.node_writes import NodeRestriction
from netloom.front.api.auth.identity import Attributes, Identity, forbidden
from netloom.front.api.auth.roles import RoleAuthorizer
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import EVPN_NETWORK, REMOTE_VTEP
from netloom.model.values.selectors import EVERYTHING, Selector
from netloom.store.base import Page, Store, Stored, Watch
from tests.evpn.sites import Site, eventually, sites

GATEWAY = Identity("gw", roles=("netloom:node:gw",))
MAC = "02:00:00:00:00:01"


class NodeStore:
    """A store as the API shows it to the node `gw`: it notes what is refused."""

    def __init__(self, store: Store) -> None:
        self.refused: list[str] = []
        self._store = store
        self._authorizer = RoleAuthorizer(store)
        self._restriction = NodeRestriction(lambda: 0.0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def _allow(self, what: Attributes, write: Write | None = None) -> None:
        try:
            if not await self._authorizer.allows(GATEWAY, what):
                raise forbidden(GATEWAY, what)
            if write is not None:
                await self._restriction.review(write, self._store)
        except Exception as error:
            self.refused.append(f"{what.verb} {what.namespace}/{what.name} {what.selector.field_text}: {error}")
            raise

    async def _write(self, verb: str, kind: Kind, document: Document, subresource: str = "") -> None:
        metadata = document["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        creates = verb == "create"
        what = Attributes(verb, kind, namespace, "" if creates else name, subresource)
        old = None if creates else await self._store.get(kind, namespace, name)
        if old is not None and metadata["resourceVersion"] != str(old.revision):
            raise Conflict("there is a newer revision")  # As the API has it, before admission.
        operation = WriteOperation.CREATE if creates else WriteOperation.UPDATE
        await self._allow(
            what,
            Write(
                operation=operation,
                kind=kind,
                namespace=namespace,
                name=name,
                who=GATEWAY,
                subresource=subresource,
                old=old,
                new=document,
            ),
        )

    async def create(self, kind: Kind, document: Document, *, dry_run: bool = False) -> Stored:
        await self._write("create", kind, document)
        return await self._store.create(kind, document, dry_run=dry_run)

    async def update(self, kind: Kind, document: Document, *, subresource: str = "", dry_run: bool = False) -> Stored:
        await self._write("update", kind, document, subresource)
        return await self._store.update(kind, document, subresource=subresource, dry_run=dry_run)

    async def delete(self, kind: Kind, namespace: str, name: str, **options: Any) -> Stored:
        await self._allow(Attributes("delete", kind, namespace, name))
        return await self._store.delete(kind, namespace, name, **options)

    async def get(self, kind: Kind, namespace: str, name: str, *, known: int = 0) -> Stored:
        await self._allow(Attributes("get", kind, namespace, name))
        return await self._store.get(kind, namespace, name, known=known)

    async def list(self, kind: Kind, namespace: str = "", *, selector: Selector = EVERYTHING, **options: Any) -> Page:
        await self._allow(Attributes("list", kind, namespace, selector=selector))
        return await self._store.list(kind, namespace, selector=selector, **options)

    async def watch(self, kind: Kind, namespace: str = "", *, selector: Selector = EVERYTHING, since: int) -> Watch:
        await self._allow(Attributes("watch", kind, namespace, selector=selector))
        return await self._store.watch(kind, namespace, selector=selector, since=since)


class RestrictedSite(Site):
    """A site whose speaker has the credential of its node."""

    shown: NodeStore

    def speak(self) -> None:
        """Run the speaker."""
        whole = self.store
        self.shown = NodeStore(whole)
        self.store = cast("Any", self.shown)
        try:
            super().speak()
        finally:
            self.store = whole


def test_a_speaker_needs_no_more_than_the_credential_of_its_node(tmp_path: Path) -> None:
    async def main() -> None:
        async with sites(tmp_path, kind=RestrictedSite) as found:
            one, two = (site for site in found if isinstance(site, RestrictedSite))
            for site in (one, two):
                await site.stretch()
            await one.attach("web", MAC, ["10.0.0.1"])

            async def arrived() -> bool:
                return await two.remote() == {MAC: [one.vtep, "10.0.0.1"]}

            await eventually(arrived, "the machine of site 1 at site 2")

            async def reported() -> bool:
                status = (await two.store.get(EVPN_NETWORK, "default", "blue")).document().get("status", {})
                return status.get("remoteMACs") == 1 and await two.established() == 1

            await eventually(reported, "the statuses")
            # A restart takes up what was written; a change of the machine updates it, its end removes it.
            await two.silence()
            two.speak()
            await one.attach("web", MAC, ["10.0.0.2"])

            async def changed() -> bool:
                return await two.remote() == {MAC: [one.vtep, "10.0.0.2"]}

            await eventually(changed, "the other address")
            await one.store.delete(EVPN_NETWORK, "default", "blue")

            async def empty() -> bool:
                return not (await two.store.list(REMOTE_VTEP)).items

            await eventually(empty, "no RemoteVTEP")
            assert [*one.shown.refused, *two.shown.refused] == []

    asyncio.run(main())
