"""EVPN updates as plain values, and three codecs for them: ours, os-ken's and ExaBGP's.

A codec turns an `Evpn` into the bytes of an UPDATE message and back. The values are numbers and the texts of addresses,
so nothing of one codec's classes is in what is compared with another's.
"""

# The two libraries have no types.
# mypy: disable-error-code="no-untyped-call"

from ipaddress import ip_address
from typing import Any, NamedTuple

from exabgp.bgp.message import Action
from exabgp.bgp.message.direction import Direction
from exabgp.bgp.message.open.asn import ASN
from exabgp.bgp.message.open.capability.negotiated import Negotiated
from exabgp.bgp.message.update import Update as ExaUpdate
from exabgp.bgp.message.update.attribute import Attributes as ExaAttributes
from exabgp.bgp.message.update.attribute.aspath import SEQUENCE as ExaSequence
from exabgp.bgp.message.update.attribute.aspath import ASPath
from exabgp.bgp.message.update.attribute.clusterlist import ClusterID, ClusterList
from exabgp.bgp.message.update.attribute.community.extended import ExtendedCommunities, ExtendedCommunity
from exabgp.bgp.message.update.attribute.community.extended.encapsulation import Encapsulation
from exabgp.bgp.message.update.attribute.community.extended.mac_mobility import MacMobility
from exabgp.bgp.message.update.attribute.community.extended.rt import (
    RouteTarget,
    RouteTargetASN2Number,
    RouteTargetASN4Number,
    RouteTargetIPNumber,
)
from exabgp.bgp.message.update.attribute.localpref import LocalPreference
from exabgp.bgp.message.update.attribute.med import MED
from exabgp.bgp.message.update.attribute.origin import Origin
from exabgp.bgp.message.update.attribute.originatorid import OriginatorID
from exabgp.bgp.message.update.attribute.pmsi import PMSI, PMSIIngressReplication
from exabgp.bgp.message.update.nlri.evpn.ethernetad import EthernetAD as ExaEthernetAd
from exabgp.bgp.message.update.nlri.evpn.mac import MAC as ExaMac
from exabgp.bgp.message.update.nlri.evpn.multicast import Multicast as ExaMulticast
from exabgp.bgp.message.update.nlri.evpn.prefix import Prefix as ExaPrefix
from exabgp.bgp.message.update.nlri.evpn.segment import EthernetSegment as ExaSegment
from exabgp.bgp.message.update.nlri.qualifier import ESI, EthernetTag, Labels, RouteDistinguisher
from exabgp.bgp.message.update.nlri.qualifier import MAC as ExaAddress
from exabgp.logger import log
from exabgp.protocol.family import AFI, SAFI
from exabgp.protocol.ip import IP
from os_ken.lib.packet import bgp as ken

from netloom.bgp import communities as ext
from netloom.bgp.attributes import SEQUENCE, AttributeCache, Attributes, Context, Pmsi
from netloom.bgp.messages import Framer
from netloom.bgp.nlri import (
    EVPN,
    EthernetAd,
    EthernetSegment,
    EvpnRoute,
    IpPrefix,
    MacIp,
    Multicast,
    decode_evpn,
    encode_evpn,
)
from netloom.bgp.update import announce, decode_update, withdraw

log.silence()

Plain = tuple[Any, ...]
"""The type of a route or of a community by its number, or its name, and its values."""


class Evpn(NamedTuple):
    """What one UPDATE says, of an internal peer."""

    next_hop: str
    routes: tuple[Plain, ...]
    """(1, RD, ESI, tag, label), (2, RD, ESI, tag, MAC, IP, labels), (3, RD, tag, IP), (4, RD, ESI, IP),
    (5, RD, ESI, tag, prefix, length, gateway, label)"""
    communities: tuple[Plain, ...] = ()
    """("target", text), ("encapsulation", type), ("mobility", sequence, sticky), ("mac", MAC), ("gateway",),
    ("esi-label", label, single-active), ("es-import", MAC)"""
    as_path: tuple[int, ...] = ()
    origin: int = 0
    med: int | None = None
    local_pref: int = 100
    originator: str | None = None
    clusters: tuple[str, ...] = ()
    pmsi: tuple[int, int | None, str] | None = None
    """Of ingress replication: flags, VNI, endpoint."""


# Ours ------------------------------------------------------------------------


class Ours:
    """The codec of this project."""

    name = "netloom"

    def encode(self, value: Evpn, longest: int = 65535) -> bytes:
        """Return an UPDATE message."""
        attributes = Attributes(
            origin=value.origin,
            as_path=((SEQUENCE, value.as_path),) if value.as_path else (),
            next_hop=ip_address(value.next_hop),
            med=value.med,
            local_pref=value.local_pref,
            originator_id=_four(value.originator),
            cluster_list=tuple(found for one in value.clusters if (found := _four(one)) is not None),
            extended=tuple(map(self._community, value.communities)),
            pmsi=value.pmsi and Pmsi(value.pmsi[1] or 0, ip_address(value.pmsi[2]).packed, flags=value.pmsi[0]),
        )
        routes = [encode_evpn(self._route(one)) for one in value.routes]
        [message] = announce(EVPN, routes, attributes, Context(internal=True), longest)
        return message

    def withdraw(self, routes: tuple[Plain, ...]) -> bytes:
        """Return an UPDATE message that withdraws routes."""
        [message] = withdraw(EVPN, [encode_evpn(self._route(one)) for one in routes], 65535)
        return message

    def decode(self, data: bytes) -> Evpn:
        """Return what an UPDATE message says."""
        [(_, body)] = _framed(data)
        found = decode_update(body, Context(internal=True), (EVPN,), AttributeCache())
        assert not found.malformed, found.malformed
        attributes, routes = found.announced[EVPN]
        pmsi = attributes.pmsi
        assert all(kind == SEQUENCE for kind, _ in attributes.as_path)
        assert attributes.local_pref is not None
        return Evpn(
            str(attributes.next_hop),
            tuple(self._plain(decode_evpn(route)) for route in routes.values()),
            tuple(map(self._named, attributes.extended)),
            tuple(asn for _, asns in attributes.as_path for asn in asns),
            attributes.origin,
            attributes.med,
            attributes.local_pref,
            None if attributes.originator_id is None else str(attributes.originator_id),
            tuple(map(str, attributes.cluster_list)),
            None if pmsi is None else (pmsi.flags, pmsi.label, str(ip_address(pmsi.endpoint))),
        )

    def withdrawn(self, data: bytes) -> tuple[Plain, ...]:
        """Return the routes that an UPDATE message withdraws."""
        [(_, body)] = _framed(data)
        found = decode_update(body, Context(internal=True), (EVPN,), AttributeCache())
        assert not found.announced
        return tuple(self._plain(decode_evpn(route)) for route in found.withdrawn[EVPN].values())

    @staticmethod
    def _community(plain: Plain) -> bytes:
        match plain:
            case ("target", text):
                return ext.route_target(text)
            case ("encapsulation", kind):
                return ext.encapsulation(kind)
            case ("mobility", sequence, sticky):
                return ext.mac_mobility(ext.Mobility(sequence, sticky))
            case ("mac", mac):
                return ext.routers_mac(_mac(mac))
            case ("esi-label", label, single):
                return ext.esi_label(label, single_active=single)
            case ("es-import", mac):
                return ext.es_import(_mac(mac))
        return ext.DEFAULT_GATEWAY

    @staticmethod
    def _named(community: bytes) -> Plain:
        name, _, rest = ext.community_text(community).partition(":")
        match name:
            case "RT":
                return ("target", rest)
            case "ET":
                return ("encapsulation", ext.encapsulation_of((community,)))
            case "MM":
                moved = ext.mobility_of((community,))
                return ("mobility", moved.sequence, moved.sticky)
            case "Rmac":
                found = ext.routers_mac_of((community,))
                assert found is not None
                return ("mac", found.hex(":"))
            case "ESI-label":
                label, _, single = rest.partition(" ")
                return ("esi-label", int(label), bool(single))
            case "ES-Import-Rt":
                return ("es-import", rest)
        assert name == "Default Gateway", name
        return ("gateway",)

    @staticmethod
    def _route(plain: Plain) -> EvpnRoute:
        kind, rd, *rest = plain
        rd = ext.route_distinguisher(rd)
        match kind, rest:
            case 1, (esi, tag, label):
                return EthernetAd(rd, _octets(esi), tag, label)
            case 2, (esi, tag, mac, ip, (label, *more)):
                second = more[0] if more else None
                return MacIp(rd, _mac(mac), ip and ip_address(ip), label, second, tag, _octets(esi))
            case 3, (tag, ip):
                return Multicast(rd, ip_address(ip), tag)
            case 4, (esi, ip):
                return EthernetSegment(rd, _octets(esi), ip_address(ip))
            case _, (esi, tag, prefix, length, gateway, label):
                return IpPrefix(rd, ip_address(prefix), length, ip_address(gateway), label, tag, _octets(esi))
        raise ValueError(plain)

    @staticmethod
    def _plain(route: EvpnRoute) -> Plain:
        rd = ext.route_distinguisher_text(route.rd)
        match route:
            case EthernetAd():
                return (1, rd, route.esi.hex(), route.tag, route.label)
            case MacIp():
                ip = None if route.ip is None else str(route.ip)
                labels = (route.label,) if route.label2 is None else (route.label, route.label2)
                return (2, rd, route.esi.hex(), route.tag, route.mac.hex(":"), ip, labels)
            case Multicast():
                return (3, rd, route.tag, str(route.originator))
            case EthernetSegment():
                return (4, rd, route.esi.hex(), str(route.originator))
            case IpPrefix():
                address, gateway = str(route.address), str(route.gateway)
                return (5, rd, route.esi.hex(), route.tag, address, route.length, gateway, route.label)


# os-ken ----------------------------------------------------------------------


class OsKen:
    """os-ken's codec."""

    name = "os-ken"

    def encode(self, value: Evpn) -> bytes:
        """Return an UPDATE message."""
        attributes: list[Any] = [
            ken.BGPPathAttributeOrigin(value=value.origin),
            ken.BGPPathAttributeAsPath(value=[list(value.as_path)] if value.as_path else [], as_pack_str="!I"),
            ken.BGPPathAttributeLocalPref(value=value.local_pref),
        ]
        if value.med is not None:
            attributes.append(ken.BGPPathAttributeMultiExitDisc(value=value.med))
        if value.originator is not None:
            attributes.append(ken.BGPPathAttributeOriginatorId(value=value.originator))
        if value.clusters:
            attributes.append(ken.BGPPathAttributeClusterList(value=list(value.clusters)))
        if value.communities:
            listed = list(map(self._community, value.communities))
            attributes.append(ken.BGPPathAttributeExtendedCommunities(communities=listed))
        if value.pmsi is not None:
            flags, vni, endpoint = value.pmsi
            attributes.append(
                ken.BGPPathAttributePmsiTunnel(
                    pmsi_flags=flags,
                    tunnel_type=ken.BGPPathAttributePmsiTunnel.TYPE_INGRESS_REPLICATION,
                    vni=vni,
                    tunnel_id=ken.PmsiTunnelIdIngressReplication(tunnel_endpoint_ip=endpoint),
                )
            )
        routes = list(map(self._route, value.routes))
        attributes.append(ken.BGPPathAttributeMpReachNLRI(afi=25, safi=70, next_hop=value.next_hop, nlri=routes))
        return bytes(ken.BGPUpdate(path_attributes=attributes).serialize())

    def withdraw(self, routes: tuple[Plain, ...]) -> bytes:
        """Return an UPDATE message that withdraws routes."""
        listed = list(map(self._route, routes))
        attribute = ken.BGPPathAttributeMpUnreachNLRI(afi=25, safi=70, withdrawn_routes=listed)
        return bytes(ken.BGPUpdate(path_attributes=[attribute]).serialize())

    def decode(self, data: bytes) -> Evpn:
        """Return what an UPDATE message says."""
        message, _, rest = ken.BGPMessage.parser(data)
        assert not rest
        found = {type(one).__name__.removeprefix("BGPPathAttribute"): one for one in message.path_attributes}
        reach, pmsi = found["MpReachNLRI"], found.get("PmsiTunnel")
        extended = found.get("ExtendedCommunities")
        originator, clusters, med = found.get("OriginatorId"), found.get("ClusterList"), found.get("MultiExitDisc")
        return Evpn(
            str(ip_address(reach.next_hop)),
            tuple(map(self._plain, reach.nlri)),
            tuple(map(self._named, extended.communities)) if extended else (),
            tuple(asn for segment in found["AsPath"].value for asn in segment),
            found["Origin"].value,
            med.value if med else None,
            found["LocalPref"].value,
            originator.value if originator else None,
            tuple(clusters.value) if clusters else (),
            (pmsi.pmsi_flags, pmsi.vni, str(ip_address(pmsi.tunnel_id.tunnel_endpoint_ip))) if pmsi else None,
        )

    def withdrawn(self, data: bytes) -> tuple[Plain, ...]:
        """Return the routes that an UPDATE message withdraws."""
        message, _, _ = ken.BGPMessage.parser(data)
        [attribute] = message.path_attributes
        return tuple(map(self._plain, attribute.withdrawn_routes))

    @staticmethod
    def is_guessed_wrong(path: tuple[int, ...]) -> bool:
        """Whether an AS path of four octets is taken for one of two."""
        data = bytes((SEQUENCE, len(path))) + b"".join(asn.to_bytes(4, "big") for asn in path) if path else b""
        return bool(path) and bool(ken.BGPPathAttributeAsPath._is_valid_16bit_as_path(data))

    @staticmethod
    def _community(plain: Plain) -> Any:
        match plain:
            case ("target", text):
                administrator, _, number = text.rpartition(":")
                if "." in administrator:
                    return ken.BGPIPv4AddressSpecificExtendedCommunity(
                        subtype=2, ipv4_address=administrator, local_administrator=int(number)
                    )
                wide = int(administrator) > 0xFFFF
                kind = (
                    ken.BGPFourOctetAsSpecificExtendedCommunity if wide else ken.BGPTwoOctetAsSpecificExtendedCommunity
                )
                return kind(subtype=2, as_number=int(administrator), local_administrator=int(number))
            case ("encapsulation", tunnel):
                return ken.BGPEncapsulationExtendedCommunity(subtype=12, tunnel_type=tunnel)
            case ("mobility", sequence, sticky):
                return ken.BGPEvpnMacMobilityExtendedCommunity(subtype=0, flags=int(sticky), sequence_number=sequence)
            case ("mac", mac):
                return ken.BGPUnknownExtendedCommunity(type_=6, value=b"\3" + _mac(mac))
            case ("esi-label", label, single):
                return ken.BGPEvpnEsiLabelExtendedCommunity(subtype=1, flags=int(single), vni=label)
            case ("es-import", mac):
                return ken.BGPEvpnEsImportRTExtendedCommunity(subtype=2, es_import=mac)
        return ken.BGPOpaqueExtendedCommunity(subtype=13, opaque=bytes(6))

    @staticmethod
    def _named(found: Any) -> Plain:
        match type(found).__name__.removeprefix("BGP").removesuffix("ExtendedCommunity"):
            case "TwoOctetAsSpecific" | "FourOctetAsSpecific" if found.subtype == 2:
                return ("target", f"{found.as_number}:{found.local_administrator}")
            case "IPv4AddressSpecific" if found.subtype == 2:
                return ("target", f"{found.ipv4_address}:{found.local_administrator}")
            case "Encapsulation":
                return ("encapsulation", found.tunnel_type)
            case "EvpnMacMobility":
                return ("mobility", found.sequence_number, bool(found.flags & 1))
            case "EvpnEsiLabel":
                return ("esi-label", found.vni, bool(found.flags & found.SINGLE_ACTIVE_BIT))
            case "EvpnEsImportRT":
                return ("es-import", found.es_import)
            case "Unknown" if found.type == 6 and found.value[0] == 3:
                return ("mac", bytes(found.value[1:7]).hex(":"))
        assert (found.subtype, found.opaque) == (13, bytes(6)), found
        return ("gateway",)

    @staticmethod
    def _route(plain: Plain) -> Any:
        kind, rd, *rest = plain
        match kind, rest:
            case 1, (esi, tag, label):
                return ken.EvpnEthernetAutoDiscoveryNLRI(rd, ken.EvpnEsi.parser(_octets(esi)), tag, vni=label)
            case 2, (esi, tag, mac, ip, labels):
                # A second VNI can be given only as the bytes of both.
                packed = b"".join(label.to_bytes(3, "big") for label in labels)
                return ken.EvpnMacIPAdvertisementNLRI(
                    rd, tag, mac, ip, esi=ken.EvpnEsi.parser(_octets(esi)), labels=packed
                )
            case 3, (tag, ip):
                return ken.EvpnInclusiveMulticastEthernetTagNLRI(rd, tag, ip)
            case 4, (esi, ip):
                return ken.EvpnEthernetSegmentNLRI(rd, ken.EvpnEsi.parser(_octets(esi)), ip)
            case _, (esi, tag, prefix, length, gateway, label):
                return ken.EvpnIpPrefixNLRI(
                    rd,
                    tag,
                    f"{prefix}/{length}",
                    esi=ken.EvpnEsi.parser(_octets(esi)),
                    gw_ip_addr=gateway,
                    vni=label,
                )
        raise ValueError(plain)

    @staticmethod
    def _plain(found: Any) -> Plain:
        rd = found.route_dist
        match found.type:
            case 1:
                return (1, rd, found.esi.serialize().hex(), found.ethernet_tag_id, found.vni)
            case 2:
                ip = found.ip_addr and str(ip_address(found.ip_addr))
                esi = found.esi.serialize().hex()
                return (2, rd, esi, found.ethernet_tag_id, found.mac_addr, ip, (found.vni,))
            case 3:
                return (3, rd, found.ethernet_tag_id, str(ip_address(found.ip_addr)))
            case 4:
                return (4, rd, found.esi.serialize().hex(), str(ip_address(found.ip_addr)))
        prefix, _, length = found.ip_prefix.partition("/")
        gateway = str(ip_address(found.gw_ip_addr))
        esi, prefix = found.esi.serialize().hex(), str(ip_address(prefix))
        return (5, rd, esi, found.ethernet_tag_id, prefix, int(length), gateway, found.vni)


# ExaBGP ----------------------------------------------------------------------


class ExaBgp:
    """ExaBGP's codec."""

    name = "ExaBGP"

    def __init__(self) -> None:
        self._session = Negotiated({"capability": {"aigp": False}})
        self._session.asn4 = True
        self._session.families = [(AFI.l2vpn, SAFI.evpn)]
        self._session.local_as = self._session.peer_as = ASN(65001)
        self._session.msg_size = 65535

    def unpack(self, body: bytes) -> Any:
        """Return the body of an UPDATE message as ExaBGP has it."""
        return ExaUpdate.unpack_message(body, Direction.IN, self._session)

    def encode(self, value: Evpn) -> bytes:
        """Return an UPDATE message."""
        attributes = ExaAttributes()
        attributes.add(Origin(value.origin))
        attributes.add(ASPath([ExaSequence(map(ASN, value.as_path))] if value.as_path else []))
        attributes.add(LocalPreference(value.local_pref))
        if value.med is not None:
            attributes.add(MED(value.med))
        if value.originator is not None:
            attributes.add(OriginatorID(value.originator))
        if value.clusters:
            attributes.add(ClusterList(list(map(ClusterID, value.clusters))))
        if value.communities:
            extended = ExtendedCommunities()
            for one in value.communities:
                extended.add(self._community(one))
            attributes.add(extended)
        if value.pmsi is not None:
            flags, vni, endpoint = value.pmsi
            attributes.add(PMSIIngressReplication(endpoint, flags=flags, raw_label=vni))
        return self._message([self._route(one, value.next_hop) for one in value.routes], attributes, Action.ANNOUNCE)

    def withdraw(self, routes: tuple[Plain, ...]) -> bytes:
        """Return an UPDATE message that withdraws routes."""
        return self._message([self._route(one, None) for one in routes], ExaAttributes(), Action.WITHDRAW)

    def _message(self, routes: list[Any], attributes: ExaAttributes, action: int) -> bytes:
        for route in routes:
            route.action = action
        [message] = ExaUpdate(routes, attributes).messages(self._session)
        return bytes(message)

    def decode(self, data: bytes) -> Evpn:
        """Return what an UPDATE message says."""
        [(_, body)] = _framed(data)
        update = self.unpack(body)
        found = {type(one).__name__: one for one in update.attributes.values()}
        [hop] = {str(route.nexthop) for route in update.nlris}
        pmsi = next((one for one in found.values() if isinstance(one, PMSI)), None)
        extended, clusters, med = (found.get(name) for name in ("ExtendedCommunities", "ClusterList", "MED"))
        originator, path = found.get("OriginatorID"), found.get("ASPath")
        return Evpn(
            str(ip_address(hop)),
            tuple(map(self._plain, update.nlris)),
            tuple(map(self._named, extended.communities)) if extended else (),
            tuple(int(asn) for segment in path.aspath for asn in segment) if path is not None else (),
            found["Origin"].origin,
            med.med if med else None,
            found["LocalPreference"].localpref,
            str(originator) if originator else None,
            tuple(str(one) for one in clusters.clusters) if clusters else (),
            (pmsi.flags, pmsi.raw_label, str(ip_address(pmsi.tunnel))) if pmsi else None,
        )

    def withdrawn(self, data: bytes) -> tuple[Plain, ...]:
        """Return the routes that an UPDATE message withdraws."""
        [(_, body)] = _framed(data)
        update = self.unpack(body)
        assert {route.action for route in update.nlris} == {Action.WITHDRAW}
        return tuple(map(self._plain, update.nlris))

    @staticmethod
    def _community(plain: Plain) -> Any:
        match plain:
            case ("target", text):
                administrator, _, number = text.rpartition(":")
                if "." in administrator:
                    return RouteTargetIPNumber(administrator, int(number))
                kind = RouteTargetASN4Number if int(administrator) > 0xFFFF else RouteTargetASN2Number
                return kind(ASN(int(administrator)), int(number))
            case ("encapsulation", tunnel):
                return Encapsulation(tunnel)
            case ("mobility", sequence, sticky):
                return MacMobility(sequence, sticky)
            case ("mac", mac):
                return ExtendedCommunity(b"\6\3" + _mac(mac))
            case ("esi-label", label, single):
                return ExtendedCommunity(b"\6\1" + bytes((single, 0, 0)) + label.to_bytes(3, "big"))
            case ("es-import", mac):
                return ExtendedCommunity(b"\6\2" + _mac(mac))
        return ExtendedCommunity(b"\3\x0d" + bytes(6))

    @staticmethod
    def _named(found: Any) -> Plain:
        match found:
            case RouteTarget():
                return ("target", repr(found).removeprefix("target:"))
            case Encapsulation():
                return ("encapsulation", found.tunnel_type)
            case MacMobility():
                return ("mobility", found.sequence, found.sticky)
        data = found.community
        match data[:2]:
            case b"\6\3":
                return ("mac", data[2:].hex(":"))
            case b"\6\1":
                return ("esi-label", int.from_bytes(data[5:], "big"), bool(data[2] & 1))
            case b"\6\2":
                return ("es-import", data[2:].hex(":"))
        assert data == b"\3\x0d" + bytes(6), data
        return ("gateway",)

    @staticmethod
    def _route(plain: Plain, hop: str | None) -> Any:
        kind, rd, *rest = plain
        prefix, _, suffix = rd.rpartition(":")
        rd = RouteDistinguisher.fromElements(prefix, int(suffix))
        next_hop = IP.create(hop) if hop else None
        match kind, rest:
            case 1, (esi, tag, label):
                return ExaEthernetAd(rd, ESI(_octets(esi)), EthernetTag(tag), _raw(label), nexthop=next_hop)
            case 2, (esi, tag, mac, ip, labels):
                where = IP.create(ip) if ip else None
                return ExaMac(
                    rd,
                    ESI(_octets(esi)),
                    EthernetTag(tag),
                    ExaAddress(mac),
                    48,
                    _raw(*labels),
                    where,
                    nexthop=next_hop,
                )
            case 3, (tag, ip):
                return ExaMulticast(rd, EthernetTag(tag), IP.create(ip), nexthop=next_hop)
            case 4, (esi, ip):
                return ExaSegment(rd, ESI(_octets(esi)), IP.create(ip), nexthop=next_hop)
            case _, (esi, tag, address, length, gateway, label):
                return ExaPrefix(
                    rd,
                    ESI(_octets(esi)),
                    EthernetTag(tag),
                    _raw(label),
                    IP.create(address),
                    length,
                    IP.create(gateway),
                    nexthop=next_hop,
                )
        raise ValueError(plain)

    @staticmethod
    def _plain(found: Any) -> Plain:
        rd = found.rd._str()
        match found.CODE:
            case 1:
                return (1, rd, found.esi.pack().hex(), found.etag.tag, *found.label.raw_labels)
            case 2:
                ip = found.ip and str(ip_address(str(found.ip)))
                mac = found.mac.pack().hex(":")
                return (2, rd, found.esi.pack().hex(), found.etag.tag, mac, ip, tuple(found.label.raw_labels))
            case 3:
                return (3, rd, found.etag.tag, str(ip_address(str(found.ip))))
            case 4:
                return (4, rd, found.esi.pack().hex(), str(ip_address(str(found.ip))))
        address, gateway = (str(ip_address(str(one))) for one in (found.ip, found.gwip))
        esi, tag = found.esi.pack().hex(), found.etag.tag
        return (5, rd, esi, tag, address, found.iplen, gateway, *found.label.raw_labels)


def _raw(*labels: int) -> Labels:
    return Labels([], raw_labels=list(labels))


def _framed(data: bytes) -> list[Any]:
    framer = Framer()
    framer.longest = 65535
    return list(framer.feed(data))


def _four(text: str | None) -> Any:
    return None if text is None else ip_address(text)


def _octets(text: str) -> bytes:
    return bytes.fromhex(text)


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
