"""Reads the objects that an attachment's timeline is made from."""

from collections.abc import Iterator

from netloom.client import lists
from netloom.client.http import Client
from netloom.client.lists import Scope
from netloom.client.resources import Target, named
from netloom.diagnose.explain.timeline import Sources
from netloom.errors import NetloomError, NotFound
from netloom.model.document import Document
from netloom.plan.addresses.blocks import address, lock_name


def read(client: Client, document: Document) -> Sources:
    """Return an attachment with its locks, Events, Network, Subnets and Node, as far as they can be read."""
    metadata, spec = document["metadata"], document.get("spec") or {}
    namespace = str(metadata.get("namespace") or "")
    network = str(spec.get("network") or "")
    concerning = f"involvedObject.uid={metadata.get('uid', '')},involvedObject.name={metadata['name']}"
    unseen: list[str] = []
    subnets = _many(client, "subnets", namespace, f"spec.network={network}", unseen)
    return Sources(
        attachment=document,
        locks=tuple(_locks(client, document, namespace, unseen)),
        events=tuple(_many(client, "events", namespace, concerning, unseen)),
        network=_one(client, "networks", namespace, network),
        subnets=tuple(one for one in subnets if not spec.get("subnets") or one["metadata"]["name"] in spec["subnets"]),
        node=_one(client, "nodes.netloom.dev", "", str(spec.get("node") or "")),
        unseen=tuple(unseen),
    )


def _locks(client: Client, document: Document, namespace: str, unseen: list[str]) -> Iterator[Document]:
    """Yield the locks that an attachment's status names; if it names none, those that the attachment owns."""
    status, uid = document.get("status") or {}, document["metadata"].get("uid")
    ips = [one for lock in status.get("locks") or () if (one := address(str(lock.get("ip")))) is not None]
    if not ips and not status.get("vni"):
        return
    found = (_one(client, "iplocks", namespace, lock_name(int(status.get("vni") or 0), one)) for one in ips)
    every = found if ips else _many(client, "iplocks", namespace, f"spec.vni={status['vni']}", unseen)
    for lock in every:
        if lock is not None and any(owner.get("uid") == uid for owner in lock["metadata"].get("ownerReferences") or ()):
            yield lock


def _one(client: Client, resource: str, namespace: str, name: str) -> Document | None:
    if not name:
        return None
    try:
        return lists.one(client, Target(named(client, resource), name), Scope(namespace))
    except NotFound:
        return None


def _many(client: Client, resource: str, namespace: str, fields: str, unseen: list[str]) -> list[Document]:
    where = Scope(namespace, {"fieldSelector": fields})
    try:
        return lists.objects(client, Target(named(client, resource)), where)[0]
    except NetloomError as error:
        unseen.append(f"{resource}: {error.message}")
        return []
