"""The packet that one endpoint sends to another.  Pure.

An endpoint is an attachment or an address. The packet enters at the sender's port: that of an attachment or, for an
address that no attachment has, that of a physical network. Its destination MAC is that of the next hop: the receiver,
or the router port with the gateway's address.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from netloom.client.suggestions import nearest
from netloom.errors import Invalid, NotFound
from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import Network, Router, Subnet
from netloom.model.kinds.policy import LoadBalancer
from netloom.model.values import addresses
from netloom.plan import names
from netloom.plan.node.ports import gateway
from netloom.plan.ovn.desired import DesiredRows
from netloom.plan.ovn.layer2 import switches as switching
from netloom.plan.rows import Ref

EXTERNAL_MAC = "02:00:00:00:00:01"
SOURCE_PORT = 40000
_NO_ROUTE = "{} has no route to it (spec.defaultRoute is not set): this would be its path with one"


class Endpoint(Struct, frozen=True):
    """One end of a trace: an attachment, or an address."""

    text: str
    attachment: NetworkAttachment | None = None
    ip: str = ""
    """The address, if one was given instead of a name."""

    @property
    def port(self) -> str:
        """The logical port of the attachment, or ""."""
        one = self.attachment
        return names.port(one.metadata.namespace, one.metadata.name) if one is not None else ""


class Packet(Struct, frozen=True, kw_only=True):
    """One packet."""

    datapath: str
    inport: str
    eth_src: str
    eth_dst: str
    src: str
    dst: str
    protocol: str
    number: int = 0
    """The destination port."""
    remark: str = ""
    """What would keep the sender from sending it."""
    vlan: int | None = None
    """The VLAN tag with which it leaves the sender's device; None: untagged."""

    @property
    def microflow(self) -> str:
        """The packet in the syntax of ovn-trace."""
        version = addresses.family(self.dst)
        terms = [
            f'inport == "{self.inport}"',
            f"eth.src == {self.eth_src}",
            f"eth.dst == {self.eth_dst}",
            f"ip{version}.src == {self.src}",
            f"ip{version}.dst == {self.dst}",
            "ip.ttl == 64",
        ]
        if self.protocol == "icmp":
            terms.append("icmp4.type == 8" if version == 4 else "icmp6.type == 128")
        else:
            terms += [f"{self.protocol}.src == {SOURCE_PORT}", f"{self.protocol}.dst == {self.number}"]
        return " && ".join(terms)

    def openflow(self, device: str) -> str:
        """Return the packet from a device, in the syntax of ofproto/trace."""
        v6 = ":" in self.dst
        kind = {"icmp": "icmp6" if v6 else "icmp"}.get(self.protocol, self.protocol + ("6" if v6 else ""))
        ends = ("ipv6_src", "ipv6_dst") if v6 else ("nw_src", "nw_dst")
        terms = [f"in_port={device}", kind, f"dl_src={self.eth_src}", f"dl_dst={self.eth_dst}"]
        terms += [] if self.vlan is None else [f"dl_vlan={self.vlan}"]
        terms += [f"{ends[0]}={self.src}", f"{ends[1]}={self.dst}", "nw_ttl=64"]
        if self.protocol == "icmp":
            terms.append("icmpv6_type=128" if v6 else "icmp_type=8")
        else:
            terms += [f"{self.protocol}_src={SOURCE_PORT}", f"{self.protocol}_dst={self.number}"]
        return ",".join(terms)


def endpoint(text: str, namespace: str, resources: Iterable[Resource]) -> Endpoint:
    """Return the endpoint `alice`, `other/alice` or `10.0.0.9`; raise `NotFound`, with the nearest name, if unknown."""
    every = [one for one in resources if isinstance(one, NetworkAttachment)]
    if addresses.is_ip(text):
        ip = str(addresses.address(text))
        here = [one for one in every if ip in plain(one)]
        here.sort(key=lambda one: one.metadata.namespace != namespace)
        return Endpoint(text, here[0] if here else None, ip)
    space, slash, name = text.rpartition("/")
    wanted = space if slash else namespace
    known = {one.metadata.name: one for one in every if one.metadata.namespace == wanted}
    if name not in known:
        hint = nearest(name, known) or ": there are none"
        raise NotFound(f'networkattachment "{name}" not found in namespace {wanted}{hint}')
    return Endpoint(text, known[name])


def plain(one: NetworkAttachment) -> list[str]:
    """Return an attachment's addresses without their prefix lengths."""
    return [ip.partition("/")[0] for ip in one.status.ips]


def packet(
    start: Endpoint,
    end: Endpoint,
    resources: list[Resource],
    wanted: DesiredRows,
    *,
    protocol: str,
    number: int,
    v6: bool,
) -> Packet:
    """Return the packet from one endpoint to another; raise `Invalid` with the reason if none can be sent."""
    for one in (start, end):
        if one.attachment is not None and not one.attachment.status.ips:
            raise Invalid(f"{one.text} has no address yet: see `netloom explain networkattachment/{one.text}`")
    src, dst = common_addresses(start, end, v6=v6)
    if start.attachment is None:
        return _from_outside(start, src, dst, resources, wanted, protocol=protocol, number=number)
    sender = start.attachment
    mac, remark = _next_hop(sender, src, dst, resources, wanted)
    return Packet(
        datapath=names.switch(sender.metadata.namespace, sender.spec.network),
        inport=start.port,
        eth_src=sender.status.mac,
        eth_dst=mac,
        src=src,
        dst=dst,
        protocol=protocol,
        number=number,
        remark=remark,
        vlan=sender.spec.port.vlan,
    )


def common_addresses(start: Endpoint, end: Endpoint, *, v6: bool) -> tuple[str, str]:
    """Return the addresses of both endpoints, of one family."""
    mine = [start.ip] if start.ip else plain(start.attachment) if start.attachment else []
    theirs = [end.ip] if end.ip else plain(end.attachment) if end.attachment else []
    for family in (6, 4) if v6 else (4, 6):
        from_ = [ip for ip in mine if addresses.family(ip) == family]
        to = [ip for ip in theirs if addresses.family(ip) == family]
        if from_ and to:
            return from_[0], to[0]
    raise Invalid(
        f"{start.text} ({', '.join(mine)}) and {end.text} ({', '.join(theirs)}) have no addresses of the same family"
    )


def _next_hop(
    sender: NetworkAttachment, src: str, dst: str, resources: list[Resource], wanted: DesiredRows
) -> tuple[str, str]:
    """Return the MAC of the next hop, and a remark if the sender has no route to it."""
    namespace, network = sender.metadata.namespace, sender.spec.network
    length = next(ip for ip in sender.status.ips if ip.partition("/")[0] == src)
    if addresses.within(dst, length):
        holder = _holder(dst, namespace, network, resources)
        mac = holder.status.mac if holder is not None else ""
        # The router that answers for a VIP does so with its own MAC, even if the VIP is not its address.
        mac = mac or _router_mac(wanted, namespace, network, dst, exact=not _is_vip(dst, namespace, resources))
        if not mac:
            raise Invalid(f"no port of Network {network} has {dst}: {sender.metadata.name} cannot resolve its MAC")
        return mac, ""
    hop, remark = _gateway(sender, src, dst, resources)
    mac = _router_mac(wanted, namespace, network, hop, exact=True) if hop else ""
    if not mac:
        holder = _holder(hop, namespace, network, resources) if hop else None
        mac = holder.status.mac if holder is not None else ""
    if not mac:
        raise Invalid(
            f"{dst} is outside of Network {network}, and no port has its gateway {hop or ''}".rstrip()
            + ": no Router joins the Network"
        )
    return mac, remark


def _gateway(sender: NetworkAttachment, src: str, dst: str, resources: list[Resource]) -> tuple[str, str]:
    """Return the next hop from a sender to an address, and a remark if the sender has no such route."""
    via = [route.via for route in sender.spec.routes if addresses.within(dst, route.to)]
    if via:
        return via[0], ""
    mine = (sender.metadata.namespace, sender.spec.network)
    subnets = [one for one in resources if isinstance(one, Subnet)]
    for one in subnets:
        if (one.metadata.namespace, one.spec.network) == mine and addresses.within(src, one.spec.cidr):
            return gateway(one), "" if sender.spec.default_route else _NO_ROUTE.format(sender.metadata.name)
    return "", ""


def _is_vip(ip: str, namespace: str, resources: list[Resource]) -> bool:
    balancers = (one for one in resources if isinstance(one, LoadBalancer) and one.metadata.namespace == namespace)
    return any(str(addresses.address(vip.ip)) == ip for one in balancers for vip in one.spec.vips)


def _holder(ip: str, namespace: str, network: str, resources: list[Resource]) -> NetworkAttachment | None:
    for one in resources:
        if not isinstance(one, NetworkAttachment) or ip not in plain(one):
            continue
        if (one.metadata.namespace, one.spec.network) == (namespace, network):
            return one
    return None


def _router_mac(wanted: DesiredRows, namespace: str, network: str, ip: str, *, exact: bool) -> str:
    """Return the MAC of the router port in a Network that has an address, or (not exact) has it in its subnet."""
    near = ""
    for mac, networks in _router_ports(wanted, namespace, network):
        for written in networks:
            if written.partition("/")[0] == ip:
                return mac
            if addresses.within(ip, written):
                near = near or mac
    return "" if exact else near


def _router_ports(wanted: DesiredRows, namespace: str, network: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the MAC and the addresses of each router port in a Network."""
    for ref in sorted(wanted.members(switching.switch(namespace, network)).get("ports", {}), key=str):
        row = wanted.rows.get(ref) if isinstance(ref, Ref) else None
        options = row.columns.get("options") if row is not None else None
        name = options.get("router-port") if isinstance(options, dict) else None
        port = wanted.rows.get(Ref("Logical_Router_Port", str(name))) if name else None
        if port is not None:
            networks = port.columns["networks"]
            yield str(port.columns["mac"]), sorted(map(str, networks)) if isinstance(networks, frozenset) else []


def _from_outside(
    start: Endpoint, src: str, dst: str, resources: list[Resource], wanted: DesiredRows, *, protocol: str, number: int
) -> Packet:
    """Return a packet that arrives from a physical network at a router's gateway port."""
    ways = [one for one in resources if isinstance(one, Router) and one.spec.gateway is not None]
    ways.sort(key=lambda one: not _serves(one, src, dst))
    for router in ways:
        assert router.spec.gateway is not None
        namespace, network = router.metadata.namespace, router.spec.gateway.network
        row = wanted.rows.get(Ref("Logical_Router_Port", names.router_port(namespace, router.metadata.name, network)))
        if row is None or not any(
            isinstance(one, Network) and (one.metadata.namespace, one.metadata.name) == (namespace, network)
            for one in resources
        ):
            continue
        return Packet(
            datapath=names.switch(namespace, network),
            inport=names.localnet(namespace, network),
            eth_src=EXTERNAL_MAC,
            eth_dst=str(row.columns["mac"]),
            src=src,
            dst=dst,
            protocol=protocol,
            number=number,
        )
    raise Invalid(f"no attachment has {start.text}, and no Router has a gateway through which it could arrive")


def _serves(router: Router, src: str, dst: str) -> bool:
    """Whether an external sender would send to this router."""
    gateway_ = router.spec.gateway
    assert gateway_ is not None
    outside = {ip.partition("/")[0] for ip in gateway_.ips} | {nat.external for nat in router.spec.nat}
    return dst in outside or any(addresses.within(src, ip) for ip in gateway_.ips)
