"""The doctor's chapter on addresses: is every address and every VNI given once, and is none lost?

What is wrong is for plan/audit/addresses.py to say, from all objects at once. Here they are read, through the API and
in all namespaces. The lists are of different moments, and a system at work is rightly untidy for a moment, so a
finding counts only when it is made twice, some seconds apart.

*Mending.* Only what cannot take an address from anybody: a lock is deleted when its owner, asked for once more, is gone
or is another by the same name; a lock that is missing for a VNI is made. Every deletion names the uid and the revision
that was looked at, so what changed meanwhile stays. Everything else is the controller's work, which does it by itself;
what it has not done within seconds is worth a person's look, and the advice says where.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from netloom.cli.diagnosis.doctor import Complaint, Report
from netloom.cli.options import Session
from netloom.client import lists as reading
from netloom.client.http import Client
from netloom.client.lists import Scope
from netloom.client.resources import Target, of_kind
from netloom.errors import AlreadyExists, Conflict, NetloomError, NotFound
from netloom.model.attachments import NetworkAttachment
from netloom.model.document import Document, Resource
from netloom.model.kind import Kind
from netloom.model.networks import IPLock, Network, Subnet, VNILock
from netloom.model.registry import IP_LOCK, KINDS, NETWORK, NETWORK_ATTACHMENT, VNI_LOCK
from netloom.plan.addresses.blocks import vni_lock_name
from netloom.plan.audit.addresses import MANAGED_BY, MANAGER, Check, Finding, audit, owner

R = TypeVar("R", bound=Resource)

SETTLE_SECONDS = 3.0
"""How long what is found must stay so to be believed."""

_CONTROLLER = (
    "The controller mends this by itself: see that one runs (`netloom get leases -A`, its log, its readiness)."
)
ADVICE = {
    Check.DUPLICATE_ADDRESS: (
        "Two machines answer to one address: delete one of these attachments, or ask for another address in its"
        " spec.ips. Netloom does not do this by itself: please report it."
    ),
    Check.DUPLICATE_LOCK: (
        "Two namespaces take one address of a VNI for theirs: delete what has it where the VNI does not belong"
        " (`netloom get vnilocks`). Netloom does not do this by itself: please report it."
    ),
    Check.DUPLICATE_MAC: (
        "Two machines answer to one MAC: take spec.mac away from one of them, or delete and re-create it."
    ),
    Check.DUPLICATE_VNI: (
        "Two Networks share a segment: delete one of them, and make it again without spec.vni. Netloom does not do this"
        " by itself: please report it."
    ),
    Check.ORPHANED_LOCK: (
        "The address is lost to others until the lock goes: the garbage collector takes it away, or --repair."
    ),
    Check.SPARE_LOCK: f"The address is lost to others until the lock goes. {_CONTROLLER}",
    Check.MISNAMED_LOCK: (
        "It locks nothing, and was not made by Netloom: delete it, and if need be lock the address by its right name."
    ),
    Check.LOST_LOCK: f"The address may be given to somebody else. {_CONTROLLER}",
    Check.OUTSIDE: f"Its Subnet was deleted, or never was: make one with that address in it. {_CONTROLLER}",
    Check.STALE_VNI: f"Its Network was deleted and made anew. {_CONTROLLER}",
    Check.UNHELD_VNI: "Another Network may get the same VNI: --repair makes the lock where it is missing.",
    Check.ORPHANED_VNI: "The VNI is lost to others until the lock goes: the controller takes it away, or --repair.",
}


class Addresses:
    """The chapter."""

    def __init__(self, *, settle: Callable[[float], object] = time.sleep) -> None:
        self._settle = settle

    def examine(self, session: Session, *, repair: bool) -> Report:
        """Look twice, and mend if told to."""
        findings, counts = self._believed(session.client)
        mended: list[Complaint] = []
        failures: dict[Finding, str] = {}
        for finding in findings if repair else ():
            done, words = _mend(session.client, finding)
            if done:
                mended.append(_complaint(finding, words))
            elif words:
                failures[finding] = words
        if mended:
            findings, counts = self._believed(session.client)
        complaints = tuple(_complaint(finding, failures.get(finding, "")) for finding in findings)
        return Report(chapter="addresses", looked_at=counts, mended=tuple(mended), complaints=complaints)

    def _believed(self, client: Client) -> tuple[list[Finding], dict[str, int]]:
        """Return what is found now and was found a while ago, and how much was looked at."""
        findings, counts = _look(client)
        if not findings:
            return findings, counts
        self._settle(SETTLE_SECONDS)
        again, counts = _look(client)
        before = set(findings)
        return [finding for finding in again if finding in before], counts


def _look(client: Client) -> tuple[list[Finding], dict[str, int]]:
    # Owners after what they own: an owner that is not there then is gone, and not just new.
    vnilocks, networks = _all(client, VNILock), _all(client, Network)
    locks, attachments = _all(client, IPLock), _all(client, NetworkAttachment)
    subnets = _all(client, Subnet)
    counts = {
        "Networks": len(networks),
        "Subnets": len(subnets),
        "attachments": len(attachments),
        "address locks": len(locks),
        "VNI locks": len(vnilocks),
    }
    return audit(networks, subnets, attachments, locks, vnilocks), counts


def _all(client: Client, type_: type[R]) -> list[R]:
    documents, _ = reading.objects(client, Target(of_kind(KINDS.of(type_))), Scope(""))
    return [msgspec.convert(document, type_) for document in documents]


def _complaint(finding: Finding, repair: str) -> Complaint:
    return Complaint(
        check=finding.check,
        kind=finding.kind,
        namespace=finding.namespace,
        name=finding.name,
        uid=finding.uid,
        message=finding.message,
        advice=ADVICE[finding.check],
        repair=repair,
    )


def _mend(client: Client, finding: Finding) -> tuple[bool, str]:
    """Return whether a finding was mended, and how; or why it could not be; or "" where nobody would try."""
    mending = _MENDED.get(finding.check)
    if mending is None:
        return False, ""
    try:
        return mending(client, finding)
    except NotFound:
        return True, "it is gone already"
    except Conflict:
        return False, "it was changed while it was looked at"
    except NetloomError as error:
        return False, error.message


def _delete_lock(client: Client, finding: Finding) -> tuple[bool, str]:
    """Delete a lock whose attachment, asked for now, is gone."""
    document = _get(client, IP_LOCK, finding.namespace, finding.name)
    lock = msgspec.convert(document, IPLock)
    whose = owner(lock)
    if lock.metadata.uid != finding.uid or whose is None:
        return False, "it is another lock now"
    if _lives(client, NETWORK_ATTACHMENT, finding.namespace, whose.name, whose.uid):
        return False, f"its owner {whose.name} is there"
    _delete(client, IP_LOCK, document)
    return True, f"deleted; {lock.spec.ip} is free after its quarantine"


def _delete_vni_lock(client: Client, finding: Finding) -> tuple[bool, str]:
    """Delete the lock of a VNI whose Network, asked for now, is gone."""
    document = _get(client, VNI_LOCK, "", finding.name)
    lock = msgspec.convert(document, VNILock)
    holder = lock.spec.network
    if lock.metadata.uid != finding.uid:
        return False, "it is another lock now"
    if _lives(client, NETWORK, holder.namespace, holder.name, holder.uid):
        return False, f"its Network {holder.namespace}/{holder.name} is there"
    of_it = Scope(holder.namespace, {"fieldSelector": f"spec.vni={lock.spec.vni}"})
    if reading.objects(client, Target(of_kind(IP_LOCK)), of_it)[0]:
        return False, "addresses of it are still locked"
    _delete(client, VNI_LOCK, document)
    return True, f"deleted; VNI {lock.spec.vni} is free" + (" after its rest" if lock.metadata.finalizers else "")


def _make_vni_lock(client: Client, finding: Finding) -> tuple[bool, str]:
    """Lock the VNI of a Network, if nobody has."""
    network = msgspec.convert(_get(client, NETWORK, finding.namespace, finding.name), Network)
    if network.metadata.uid != finding.uid or not network.status.vni or network.metadata.deletion_timestamp:
        return False, "it is another Network now"
    vni = network.status.vni
    metadata = {"name": vni_lock_name(vni), "labels": {MANAGED_BY: MANAGER}}
    holder = {"namespace": finding.namespace, "name": finding.name, "uid": finding.uid}
    lock = {
        "apiVersion": VNI_LOCK.api_version,
        "kind": VNI_LOCK.name,
        "metadata": metadata,
        "spec": {"vni": vni, "network": holder},
    }
    try:
        client.call("POST", VNI_LOCK.path(), body=lock)
    except AlreadyExists:
        return False, "somebody else has the lock"
    return True, f"locked VNI {vni} for it"


_MENDED: dict[Check, Callable[[Client, Finding], tuple[bool, str]]] = {
    Check.ORPHANED_LOCK: _delete_lock,
    Check.ORPHANED_VNI: _delete_vni_lock,
    Check.UNHELD_VNI: _make_vni_lock,
}


def _get(client: Client, kind: Kind, namespace: str, name: str) -> Document:
    return client.get(kind.path(namespace, name))


def _lives(client: Client, kind: Kind, namespace: str, name: str, uid: str) -> bool:
    """Whether the very object is there."""
    try:
        return bool(_get(client, kind, namespace, name)["metadata"]["uid"] == uid)
    except NotFound:
        return False


def _delete(client: Client, kind: Kind, document: Document) -> None:
    """Delete an object if it is as it was read."""
    metadata = document["metadata"]
    preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
    client.call("DELETE", kind.path(metadata.get("namespace", ""), metadata["name"]), body=options)
