"""Which attachment should have which address when IPAM has settled: a small, slow second implementation, to check it.

All sets are spelt out, so blocks must be small. `complaints` returns what is not right yet, in sentences; when there
are none, the world is at rest as it should be. It knows one choice that IPAM makes, not which: a chosen address may be
any that may be given away.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address, ip_interface, ip_network

from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import IPLock, Network, Subnet


class State:
    """All there is."""

    def __init__(
        self,
        *,
        networks: Sequence[Network],
        subnets: Sequence[Subnet],
        attachments: Sequence[NetworkAttachment],
        locks: Sequence[IPLock],
    ) -> None:
        self.networks = networks
        self.subnets = subnets
        self.attachments = attachments
        self.locks = locks
        self.locked = {(lock.spec.vni, canonical(lock.spec.ip)) for lock in locks}
        self.givable = {subnet.metadata.uid: givable(subnet) for subnet in subnets}

    def network(self, namespace: str, name: str) -> Network | None:
        """Return one Network."""
        return next((n for n in self.networks if (n.metadata.namespace, n.metadata.name) == (namespace, name)), None)


def canonical(ip: str) -> str:
    """Return an address as it is compared."""
    return str(ip_address(ip))


def givable(subnet: Subnet) -> set[str]:
    """Return every address of a Subnet that may be given away."""
    block = ip_network(subnet.spec.cidr)
    everything = [str(ip) for ip in block]
    usable = everything[2:-1] if len(everything) >= 5 else everything
    taken = {canonical(subnet.spec.gateway)} if subnet.spec.gateway else set(everything[1:2] * (len(everything) > 2))
    for text in subnet.spec.exclude:
        first, _, last = text.partition("-")
        low, high = sorted((int(ip_address(first)), int(ip_address(last or first))))
        taken |= {ip for ip in everything if low <= int(ip_address(ip)) <= high}
    return set(usable) - taken


def selected(state: State, attachment: NetworkAttachment) -> list[Subnet]:
    """Return the Subnets an attachment's addresses may come from."""
    of = (attachment.metadata.namespace, attachment.spec.network)
    return [
        subnet
        for subnet in state.subnets
        if (subnet.metadata.namespace, subnet.spec.network) == of
        and subnet.status.validated
        and (not attachment.spec.subnets or subnet.metadata.name in attachment.spec.subnets)
    ]


def complaints(state: State) -> list[str]:
    """Return what is not as it should be when all is at rest."""
    return [
        *_networks(state),
        *_locks(state),
        *(text for attachment in state.attachments for text in _attachment(state, attachment)),
        *_macs(state),
        *_use(state),
    ]


def _networks(state: State) -> Iterator[str]:
    asked = Counter(n.spec.vni for n in state.networks if n.spec.vni)
    for network in state.networks:
        meta, vni = network.metadata, network.status.vni
        if vni is None and asked[network.spec.vni or 0] <= 1:
            yield f"Network {meta.namespace}/{meta.name} has no VNI"
        if vni is not None and network.spec.vni not in (None, vni):
            yield f"Network {meta.namespace}/{meta.name} asked for VNI {network.spec.vni} and shows {vni}"
    shown = Counter(n.status.vni for n in state.networks if n.status.vni)
    for vni in asked:
        if vni and not shown[vni]:
            yield f"VNI {vni} is asked for and nobody has it"


def _locks(state: State) -> Iterator[str]:
    living = {a.metadata.uid: a for a in state.attachments}
    for lock in state.locks:
        owner = living.get(lock.metadata.owner_references[0].uid)
        if lock.metadata.deletion_timestamp:
            yield f"lock {lock.metadata.name} is still on its way out"
        elif owner is None:
            yield f"lock {lock.metadata.name} has no owner: {lock.metadata.owner_references[0].name}"
        elif lock.metadata.uid not in [named.uid for named in owner.status.locks]:
            yield f"lock {lock.metadata.name} is held by {owner.metadata.name} and not named by it"


def _attachment(state: State, attachment: NetworkAttachment) -> Iterator[str]:
    name = f"{attachment.metadata.namespace}/{attachment.metadata.name}"
    network = state.network(attachment.metadata.namespace, attachment.spec.network)
    status = attachment.status
    held = {canonical(named.ip) for named in status.locks}
    if {str(ip_interface(text).ip) for text in status.ips} != held:
        yield f"{name} shows {status.ips} and names locks of {sorted(held)}"
    if network is None or network.status.vni is None:
        if held or not status.errors.ipam:
            yield f"{name} has no Network, and says {status.errors.ipam}, and holds {sorted(held)}"
        return
    if held and (status.vni != network.status.vni or not (status.mac or _mac_taken(state, attachment))):
        yield f"{name} shows VNI {status.vni} and MAC {status.mac!r}"
    lacking = list(_lacking(state, attachment, network.status.vni, held))
    yield from (f"{name} {text}" for text, wrong in lacking if wrong)
    addressed = status.condition("Addressed")
    happy = bool(held) and not lacking
    if (addressed is not None and addressed.status == "True") != happy:
        yield f"{name} says Addressed: {addressed and addressed.status}, and lacks {[text for text, _ in lacking]}"
    if bool(status.errors.ipam) == happy:
        yield f"{name} says {status.errors.ipam}, and lacks {[text for text, _ in lacking]}"


def _lacking(state: State, attachment: NetworkAttachment, vni: int, held: set[str]) -> Iterator[tuple[str, bool]]:
    """Yield what an attachment has not got, and whether it is wrong that it has not."""
    subnets = selected(state, attachment)
    asked = [canonical(ip) for ip in attachment.spec.ips]
    wanted = set(asked)
    for ip in asked:
        if ip in held:
            continue
        allowed = any(ip in state.givable[subnet.metadata.uid] for subnet in subnets)
        yield f"lacks {ip}, asked for", allowed and (vni, ip) not in state.locked
    if len(subnets) < len(attachment.spec.subnets):
        yield "names a Subnet that cannot be used", False
    families = {ip_network(subnet.spec.cidr).version for subnet in subnets}
    if not families:
        yield "has no Subnet", False
    if _mac_taken(state, attachment):
        yield "asks for a MAC that another has", False
    for family in families - {ip_address(ip).version for ip in asked}:
        of = [subnet for subnet in subnets if ip_network(subnet.spec.cidr).version == family]
        have = {ip for ip in held if any(ip_address(ip) in ip_network(subnet.spec.cidr) for subnet in of)}
        wanted |= have
        free = sorted(ip for subnet in of for ip in state.givable[subnet.metadata.uid] if (vni, ip) not in state.locked)
        if len(have) > 1:
            yield f"has {sorted(have)} where one would do", True
        if not have:
            yield f"waits for an IPv{family} address while {free} are free", bool(free)
    if held - wanted:
        yield f"holds {sorted(held - wanted)}, which it did not request", True


def _mac_taken(state: State, attachment: NetworkAttachment) -> bool:
    return bool(attachment.spec.mac) and any(
        attachment.spec.mac in (other.spec.mac, other.status.mac)
        for other in state.attachments
        if other.metadata.uid != attachment.metadata.uid
        and (other.metadata.namespace, other.spec.network) == (attachment.metadata.namespace, attachment.spec.network)
        and attachment.status.mac != attachment.spec.mac
    )


def _macs(state: State) -> Iterator[str]:
    shown = Counter(
        (a.metadata.namespace, a.spec.network, a.status.mac) for a in state.attachments if a.status.mac and a.status.ips
    )
    for (namespace, network, mac), number in shown.items():
        if number > 1:
            yield f"MAC {mac} of Network {namespace}/{network} is shown {number} times"


def _use(state: State) -> Iterator[str]:
    for subnet in state.subnets:
        meta = subnet.metadata
        network = state.network(meta.namespace, subnet.spec.network)
        if not subnet.status.validated and not subnet.status.errors:
            yield f"Subnet {meta.namespace}/{meta.name} has not been looked at"
        if not subnet.status.validated or network is None:
            continue
        used = sum((network.status.vni, ip) in state.locked for ip in state.givable[meta.uid])
        if (subnet.status.used or 0) != used:
            yield f"Subnet {meta.namespace}/{meta.name} says that {subnet.status.used} are used, and {used} are"


def in_line(attachments: Iterable[NetworkAttachment]) -> list[NetworkAttachment]:
    """Return attachments in the order in which they are served: by age, then by uid."""
    return sorted(attachments, key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.uid))
