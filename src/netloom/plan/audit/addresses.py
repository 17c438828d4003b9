"""Audit of addresses: each is allocated once, and none is lost.  Pure.

`audit` compares the addresses of attachments with the locks, and the locks with their owners. Its input must be of one
moment: between the creation of a lock and the status that names it, a lock is spare for a good reason. So an audit of a
running system runs twice and keeps what it found both times. `Check.DUPLICATE_ADDRESS`, `Check.DUPLICATE_LOCK` and
`Check.DUPLICATE_VNI` are errors at any moment.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from netloom.model.document import OwnerReference, Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import IPLock, Network, Subnet, VNILock
from netloom.plan.addresses import macs
from netloom.plan.addresses.blocks import Address, Pool, address, lock_name, pool, vni_lock_name
from netloom.plan.audit.finding import Check, Finding

ATTACHMENT = "NetworkAttachment"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "netloom-controller"
"""The label of objects that the controllers created; they leave objects of users alone."""


def audit(
    networks: Sequence[Network],
    subnets: Iterable[Subnet],
    attachments: Sequence[NetworkAttachment],
    locks: Sequence[IPLock],
    vnilocks: Sequence[VNILock],
) -> list[Finding]:
    """Return all findings, sorted."""
    pools: dict[tuple[str, str], list[Pool]] = defaultdict(list)
    for one in subnets:
        with suppress(ValueError):  # Such a Subnet contains no address.
            found = pool(one.metadata.name, one.spec.network, one.spec.cidr)
            pools[one.metadata.namespace, one.spec.network].append(found)
    network_of, lock_of = {_key(one): one for one in networks}, {_key(one): one for one in locks}
    return sorted(
        [
            *_duplicates(attachments),
            *_duplicate_locks(locks),
            *_duplicate_macs(attachments),
            *_locks(locks, attachments),
            *(finding for one in attachments for finding in _attachment(one, network_of, lock_of, pools)),
            *_vnis(networks, locks, vnilocks),
        ]
    )


def owner(lock: IPLock) -> OwnerReference | None:
    """Return the attachment that owns a lock, or None where a user created it."""
    return next((one for one in lock.metadata.owner_references if one.kind == ATTACHMENT), None)


def _key(one: Resource) -> tuple[str, str]:
    return one.metadata.namespace, one.metadata.name


def _full(one: Resource) -> str:
    return f"{one.metadata.namespace}/{one.metadata.name}" if one.metadata.namespace else one.metadata.name


def _finding(check: Check, about: Resource, message: str) -> Finding:
    meta = about.metadata
    return Finding(check, about.kind, meta.namespace, meta.name, message, uid=meta.uid)


def _addresses(one: NetworkAttachment) -> list[Address]:
    """Return the addresses in an attachment's status, from its addresses and its locks."""
    written = [*(ip.partition("/")[0] for ip in one.status.ips), *(lock.ip for lock in one.status.locks)]
    return list(dict.fromkeys(found for ip in written if (found := address(ip)) is not None))


def _duplicates(attachments: Iterable[NetworkAttachment]) -> Iterator[Finding]:
    users: dict[tuple[int, Address], list[NetworkAttachment]] = defaultdict(list)
    for one in attachments:
        for has in _addresses(one) if one.status.vni else ():
            users[one.status.vni or 0, has].append(one)
    for (vni, has), sharing in users.items():
        yield from _shared(Check.DUPLICATE_ADDRESS, sharing, f"{has} of VNI {vni}")


def _duplicate_locks(locked: Iterable[IPLock]) -> Iterator[Finding]:
    users: dict[tuple[int, Address], list[IPLock]] = defaultdict(list)
    for lock in locked:
        locks = address(lock.spec.ip)
        if locks is not None and lock.metadata.name == lock_name(lock.spec.vni, locks):
            users[lock.spec.vni, locks].append(lock)
    for (vni, locks), sharing in users.items():
        yield from _shared(Check.DUPLICATE_LOCK, sharing, f"{locks} of VNI {vni}")


def _duplicate_macs(attachments: Iterable[NetworkAttachment]) -> Iterator[Finding]:
    users: dict[tuple[str, str, int], list[NetworkAttachment]] = defaultdict(list)
    for one in attachments:
        if one.status.mac:
            users[one.metadata.namespace, one.spec.network, macs.number(one.status.mac)].append(one)
    for (_, network, _), sharing in users.items():
        yield from _shared(Check.DUPLICATE_MAC, sharing, f"{sharing[0].status.mac} on Network {network}")


def _shared(check: Check, sharing: Sequence[Resource], what: str) -> Iterator[Finding]:
    if len(sharing) < 2:
        return
    for one in sharing:
        others = ", ".join(sorted(_full(other) for other in sharing if other is not one))
        yield _finding(check, one, f"has {what}, and so has {others}")


def _locks(locked: Iterable[IPLock], attachments: Iterable[NetworkAttachment]) -> Iterator[Finding]:
    by_uid = {one.metadata.uid: one for one in attachments}
    for lock in locked:
        locks = address(lock.spec.ip)
        if locks is None or lock.metadata.name != lock_name(lock.spec.vni, locks):
            yield _finding(Check.MISNAMED_LOCK, lock, f"is not the name of {lock.spec.ip} of VNI {lock.spec.vni}")
        whose = owner(lock)
        if whose is None or lock.metadata.deletion_timestamp:
            continue
        attachment = by_uid.get(whose.uid)
        if attachment is None:
            yield _finding(Check.ORPHANED_LOCK, lock, f"its owner {whose.name} ({whose.uid}) is deleted")
        elif lock.metadata.uid not in {named.uid for named in attachment.status.locks}:
            yield _finding(Check.SPARE_LOCK, lock, f"its owner {whose.name} does not have {lock.spec.ip}")


def _attachment(
    one: NetworkAttachment,
    networks: Mapping[tuple[str, str], Network],
    locks: Mapping[tuple[str, str], IPLock],
    pools: Mapping[tuple[str, str], Iterable[Pool]],
) -> Iterator[Finding]:
    named = {address(lock.ip): lock.uid for lock in one.status.locks}
    vni = one.status.vni or 0
    network = networks.get((one.metadata.namespace, one.spec.network))
    around = pools.get((one.metadata.namespace, one.spec.network), ())
    for has in _addresses(one):
        lock = locks.get((one.metadata.namespace, lock_name(vni, has)))
        if problem := _lost(one, has, lock, named.get(has, "")):
            yield _finding(Check.LOST_LOCK, one, problem)
        if not any(subnet.holds(has) for subnet in around):
            yield _finding(Check.OUTSIDE, one, f"{has} is in no Subnet of Network {one.spec.network}")
    if one.status.locks and network is not None and network.status.vni not in (None, vni):
        yield _finding(Check.STALE_VNI, one, f"has addresses of VNI {vni}, its Network has {network.status.vni}")


def _lost(one: NetworkAttachment, has: Address, lock: IPLock | None, uid: str) -> str:
    if not uid:
        return f"has {has} and its status names no lock of it"
    if lock is None:
        return f"has {has}, which is not locked"
    if lock.metadata.uid != uid:
        return f"has {has} by a lock that is deleted"
    if lock.metadata.deletion_timestamp:
        return f"has {has} by a lock that is being deleted"
    whose = owner(lock)
    if whose is None or whose.uid != one.metadata.uid:
        return f"has {has}, which is locked for {whose.name if whose else 'nobody'}"
    return ""


def _vnis(networks: Sequence[Network], locked: Iterable[IPLock], vnilocks: Iterable[VNILock]) -> Iterator[Finding]:
    users: dict[int, list[Network]] = defaultdict(list)
    locks = {lock.metadata.name: lock for lock in vnilocks}
    for network in networks:
        if not (vni := network.status.vni):
            continue
        users[vni].append(network)
        lock = locks.get(vni_lock_name(vni))
        if problem := _unheld(network, lock):
            yield _finding(Check.UNHELD_VNI, network, f"has VNI {vni}, which is {problem}")
    for vni, sharing in users.items():
        yield from _shared(Check.DUPLICATE_VNI, sharing, f"VNI {vni}")
    living = {network.metadata.uid for network in networks}
    # A VNI is released after its addresses, which may be in quarantine; then it is in quarantine itself.
    addressed = {(lock.metadata.namespace, lock.spec.vni) for lock in locked}
    for lock in vnilocks:
        holder = lock.spec.network
        if lock.metadata.labels.get(MANAGED_BY) != MANAGER or (holder.namespace, lock.spec.vni) in addressed:
            continue
        if holder.uid not in living and not lock.metadata.deletion_timestamp:
            yield _finding(Check.ORPHANED_VNI, lock, f"its Network {holder.namespace}/{holder.name} is deleted")


def _unheld(network: Network, lock: VNILock | None) -> str:
    if lock is None:
        return "not locked"
    if lock.spec.network.uid != network.metadata.uid:
        return f"locked for {lock.spec.network.namespace}/{lock.spec.network.name}"
    return "locked by a lock that is being deleted" if lock.metadata.deletion_timestamp else ""
