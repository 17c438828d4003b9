"""The doctor's section on addresses: every address and every VNI is allocated once, and none is lost.

The checks are in plan/audit/addresses.py, over all objects at once. Here the objects are read through the API, in all
namespaces. The lists are of different moments, and a running system is briefly inconsistent, so a finding counts only
when a second check some seconds later makes it again.

*Repairs* are limited to what cannot take an address from an attachment. A lock is deleted if its owner, read again, is
gone or is another object of the same name. A missing lock of a VNI is created. Every deletion names the uid and the
revision that was read, so an object that changed meanwhile stays. Everything else is the controller's work: what it has
not done within seconds needs a person, and the advice says where to look.
"""

import time
from collections.abc import Callable

import msgspec

from netloom.client import lists
from netloom.client.http import Client
from netloom.client.lists import Scope
from netloom.client.resources import Target, of_kind
from netloom.diagnose import snapshot
from netloom.diagnose.doctor.report import Complaint, Report, Settle, complaint, confirmed
from netloom.errors import AlreadyExists, Conflict, NetloomError, NotFound
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import IPLock, Network, Subnet, VNILock
from netloom.model.registry import IP_LOCK, NETWORK, NETWORK_ATTACHMENT, VNI_LOCK
from netloom.plan.addresses.blocks import vni_lock_name
from netloom.plan.audit.addresses import MANAGED_BY, MANAGER, audit, owner
from netloom.plan.audit.finding import Check, Finding

_CONTROLLER = "The controller repairs this: check that one runs (`netloom get leases -A`), its log and its readiness."
_REPORT = "Netloom does not cause this by itself: please report it."
ADVICE = {
    Check.DUPLICATE_ADDRESS: (
        "Two workloads use the same address: delete one of these attachments, or request another address in its"
        f" spec.ips. {_REPORT}"
    ),
    Check.DUPLICATE_LOCK: (
        "Two namespaces use the same address of a VNI: delete the lock and its owner in the namespace that does not own"
        f" the VNI (`netloom get vnilocks`). {_REPORT}"
    ),
    Check.DUPLICATE_MAC: (
        "Two workloads use the same MAC: remove spec.mac from one of the attachments, or delete and re-create it."
    ),
    Check.DUPLICATE_VNI: (
        f"Two Networks share a segment: delete one of them, and create it again without spec.vni. {_REPORT}"
    ),
    Check.ORPHANED_LOCK: (
        "The address is unavailable until the lock is deleted, by the garbage collector or `netloom doctor --repair`."
    ),
    Check.SPARE_LOCK: f"The address is unavailable until the lock is deleted. {_CONTROLLER}",
    Check.MISNAMED_LOCK: (
        "It locks nothing, and was not created by Netloom: delete it; to lock the address, use the right name."
    ),
    Check.LOST_LOCK: f"The address may be allocated a second time. {_CONTROLLER}",
    Check.OUTSIDE: f"Its Subnet was deleted, or never existed: create one that contains the address. {_CONTROLLER}",
    Check.STALE_VNI: f"Its Network was deleted and created again. {_CONTROLLER}",
    Check.UNHELD_VNI: "Another Network may get the same VNI: `netloom doctor --repair` creates the missing lock.",
    Check.ORPHANED_VNI: (
        "The VNI is unavailable until the lock is deleted, by the controller or `netloom doctor --repair`."
    ),
}


class AddressSection:
    """The section."""

    def __init__(self, client: Client, *, settle: Settle = time.sleep) -> None:
        self._client = client
        self._settle = settle
        self._counts: dict[str, int] = {}

    def examine(self, *, repair: bool) -> Report:
        """Check twice, and repair if asked to."""
        findings = confirmed(self._check, self._settle)
        repaired: list[Complaint] = []
        failures: dict[Finding, str] = {}
        for finding in findings if repair else ():
            done, words = _repair(self._client, finding)
            if done:
                repaired.append(complaint(finding, ADVICE[finding.check], words))
            elif words:
                failures[finding] = words
        if repaired:
            findings = confirmed(self._check, self._settle)
        complaints = tuple(complaint(one, ADVICE[one.check], failures.get(one, "")) for one in findings)
        return Report(section="addresses", checked=self._counts, repaired=tuple(repaired), complaints=complaints)

    def _check(self) -> list[Finding]:
        # Owners are listed after what they own: an owner that is missing then is gone, and not just new.
        found = snapshot.load(self._client, (VNILock, Network, IPLock, NetworkAttachment, Subnet))
        networks, subnets = snapshot.of_type(found, Network), snapshot.of_type(found, Subnet)
        attachments = snapshot.of_type(found, NetworkAttachment)
        locks, vnilocks = snapshot.of_type(found, IPLock), snapshot.of_type(found, VNILock)
        self._counts = {
            "Networks": len(networks),
            "Subnets": len(subnets),
            "attachments": len(attachments),
            "address locks": len(locks),
            "VNI locks": len(vnilocks),
        }
        return audit(networks, subnets, attachments, locks, vnilocks)


def _repair(client: Client, finding: Finding) -> tuple[bool, str]:
    """Return whether a finding was repaired, and how or why not; "" if there is no repair for it."""
    action = _REPAIRS.get(finding.check)
    if action is None:
        return False, ""
    try:
        return action(client, finding)
    except NotFound:
        return True, "it is gone already"
    except Conflict:
        return False, "it changed during the check"
    except NetloomError as error:
        return False, error.message


def _delete_lock(client: Client, finding: Finding) -> tuple[bool, str]:
    """Delete a lock whose attachment, read again, is gone."""
    document = client.get(IP_LOCK.path(finding.namespace, finding.name))
    lock = msgspec.convert(document, IPLock)
    attachment = owner(lock)
    if lock.metadata.uid != finding.uid or attachment is None:
        return False, "it is another lock now"
    if _exists(client, NETWORK_ATTACHMENT, finding.namespace, attachment.name, attachment.uid):
        return False, f"its owner {attachment.name} exists"
    _delete(client, IP_LOCK, document)
    return True, f"deleted; {lock.spec.ip} is free after its quarantine"


def _delete_vni_lock(client: Client, finding: Finding) -> tuple[bool, str]:
    """Delete the lock of a VNI whose Network, read again, is gone."""
    document = client.get(VNI_LOCK.path("", finding.name))
    lock = msgspec.convert(document, VNILock)
    holder = lock.spec.network
    if lock.metadata.uid != finding.uid:
        return False, "it is another lock now"
    if _exists(client, NETWORK, holder.namespace, holder.name, holder.uid):
        return False, f"its Network {holder.namespace}/{holder.name} exists"
    of_it = Scope(holder.namespace, {"fieldSelector": f"spec.vni={lock.spec.vni}"})
    if lists.objects(client, Target(of_kind(IP_LOCK)), of_it)[0]:
        return False, "some of its addresses are still locked"
    _delete(client, VNI_LOCK, document)
    return True, f"deleted; VNI {lock.spec.vni} is free" + (" after its quarantine" if lock.metadata.finalizers else "")


def _create_vni_lock(client: Client, finding: Finding) -> tuple[bool, str]:
    """Create the lock of a Network's VNI, unless there is one."""
    network = msgspec.convert(client.get(NETWORK.path(finding.namespace, finding.name)), Network)
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
        return False, "another Network has the lock"
    return True, f"created the lock of VNI {vni}"


_REPAIRS: dict[Check, Callable[[Client, Finding], tuple[bool, str]]] = {
    Check.ORPHANED_LOCK: _delete_lock,
    Check.ORPHANED_VNI: _delete_vni_lock,
    Check.UNHELD_VNI: _create_vni_lock,
}


def _exists(client: Client, kind: Kind, namespace: str, name: str, uid: str) -> bool:
    """Whether the object with this uid exists."""
    try:
        return bool(client.get(kind.path(namespace, name))["metadata"]["uid"] == uid)
    except NotFound:
        return False


def _delete(client: Client, kind: Kind, document: Document) -> None:
    """Delete an object unless it changed since it was read."""
    metadata = document["metadata"]
    preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
    client.call("DELETE", kind.path(metadata.get("namespace", ""), metadata["name"]), body=options)
