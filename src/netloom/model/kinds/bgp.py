"""BGPSpeaker, BGPPeer, EVPNNetwork, RemoteVTEP: route exchange with other sites."""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import field

from netloom.model.document import Resource, Value
from netloom.model.schemas.rules import Rule, immutable
from netloom.model.status import Status
from netloom.model.values.scalars import (
    AbsolutePath,
    Asn,
    Cidr,
    Count,
    Ip,
    Ipv4,
    Line,
    Mac,
    ObjectName,
    Port,
    RouteDistinguisher,
    RouteTarget,
    Seconds,
    Timestamp,
    Vni,
    meta,
)

SPEAKER_HEARTBEAT_SECONDS = 5.0
SPEAKER_SILENT_SECONDS = 15.0
"""How long a speaker may send no heartbeat before another one forwards."""


class Listen(Value, frozen=True, kw_only=True):
    """Where a speaker listens."""

    address: Annotated[Ip, meta("The address to listen on. All addresses of the node if absent.")] = ""
    port: Annotated[Port, meta("The TCP port to listen on.", default=179)] = 179


class BGPSpeakerSpec(Value, frozen=True, kw_only=True):
    """Desired state of a speaker."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.routerID != '0.0.0.0'",
            lambda self: self["routerID"] != "0.0.0.0",  # noqa: S104 - Not an address to bind to.
            "must not be 0.0.0.0",
            path=".routerID",
        ),
    )

    asn: Annotated[Asn, meta("The autonomous system number of the speaker.")]
    router_id: Annotated[Ipv4, meta("The BGP identifier, and the next hop of advertised routes.")] = field(
        name="routerID"
    )
    node: Annotated[ObjectName, meta("The Node on which the speaker runs.")]
    listen: Annotated[
        Listen | None, meta("Where to accept connections. If absent, the speaker only initiates connections.")
    ] = None


class BGPSpeakerStatus(Status, frozen=True, kw_only=True):
    """Observed state of a speaker."""

    peers: Annotated[Count, meta("The number of configured sessions.")] = 0
    established: Annotated[Count, meta("The number of established sessions.")] = 0
    last_heartbeat: Annotated[Timestamp, meta("When the speaker last sent a heartbeat.")] = ""


class BGPSpeaker(Resource, frozen=True, kw_only=True):
    """A BGP speaker."""

    spec: BGPSpeakerSpec
    status: BGPSpeakerStatus = BGPSpeakerStatus()


class PasswordFrom(Value, frozen=True, kw_only=True):
    """The source of a password."""

    file: Annotated[AbsolutePath, meta("The path of a file on the speaker's node.")]


class AddressFamily(StrEnum):
    """An address family besides l2vpn-evpn."""

    IPV4 = "ipv4-unicast"
    IPV6 = "ipv6-unicast"
    ROUTE_TARGETS = "rt-constraint"


class BGPPeerSpec(Value, frozen=True, kw_only=True):
    """Desired state of a session."""

    speaker: Annotated[ObjectName, meta("The local BGPSpeaker.")]
    address: Annotated[Ip, meta("The address of the peer.")]
    port: Annotated[Port, meta("The TCP port of the peer.", default=179)] = 179
    remote_asn: Annotated[Asn, meta("The autonomous system number of the peer.")] = field(name="remoteASN")
    hold_seconds: Annotated[
        Seconds,
        meta(
            "The hold time in seconds: 0 to disable keepalives, or at least 3.",
            maximum=65535,
            default=90,
            rules=(Rule("self == 0 || self >= 3", lambda self: self == 0 or self >= 3, "must be 0, or at least 3"),),
        ),
    ] = 90
    passive: Annotated[
        bool, meta("Whether to wait for the peer to connect, instead of connecting to it.", default=False)
    ] = False
    password_from: Annotated[PasswordFrom | None, meta("The password for TCP MD5 signatures (RFC 2385).")] = None
    ttl_security: Annotated[
        bool, meta("Whether to accept packets from a directly connected peer only (RFC 5082).", default=False)
    ] = False
    route_reflector_client: Annotated[
        bool, meta("Whether the peer is a route reflector client (RFC 4456).", default=False)
    ] = False
    max_prefixes: Annotated[
        Count, meta("The maximum number of prefixes to accept from the peer. 0 means no limit.", default=0)
    ] = 0
    additional_families: Annotated[
        tuple[AddressFamily, ...],
        meta(
            "Address families to negotiate besides l2vpn-evpn, for peers that require them. Their routes are passed on "
            "to other peers that have the family, with the next hop unchanged; the speaker uses none of unicast. "
            "With rt-constraint (RFC 4684), each side sends only EVPN routes of targets that the other imports.",
            maxItems=3,
            list_type="set",
        ),
    ] = ()


class BGPState(StrEnum):
    """The states of RFC 4271."""

    IDLE = "Idle"
    CONNECT = "Connect"
    ACTIVE = "Active"
    OPEN_SENT = "OpenSent"
    OPEN_CONFIRM = "OpenConfirm"
    ESTABLISHED = "Established"


class BGPPeerStatus(Status, frozen=True, kw_only=True):
    """Observed state of a session."""

    state: Annotated[BGPState | None, meta("The state of the session (RFC 4271).")] = None
    received: Annotated[Count, meta("The number of routes received.")] = 0
    sent: Annotated[Count, meta("The number of routes sent.")] = 0
    since: Annotated[Timestamp, meta("When the session last came up, or went down.")] = ""
    capabilities: Annotated[
        tuple[Line, ...], meta("What the peer and the speaker have agreed on.", maxItems=64, list_type="set")
    ] = ()
    last_error: Annotated[Line, meta("Why the session last went down.")] = ""


class BGPPeer(Resource, frozen=True, kw_only=True):
    """A BGP session."""

    spec: BGPPeerSpec
    status: BGPPeerStatus = BGPPeerStatus()


class EVPNClient(Value, frozen=True, kw_only=True):
    """A machine that is advertised to other sites although it is not attached by Netloom."""

    mac: Annotated[Mac, meta("The MAC address.")]
    ip: Annotated[Ip, meta("The IP address.")] = ""
    port: Annotated[Line, meta("The logical port that the machine is connected to.")] = ""


class EVPNNetworkSpec(Value, frozen=True, kw_only=True):
    """Desired state of a Network that EVPN extends to other sites."""

    network: Annotated[ObjectName, meta("The Network to extend.")]
    speaker: Annotated[ObjectName, meta("The BGPSpeaker that advertises it.")]
    vni: Annotated[Vni | None, meta("The VNI between sites. The VNI of the Network if absent.")] = None
    rd: Annotated[
        RouteDistinguisher,
        meta(
            "The route distinguisher. auto means routerID:VNI; for a VNI above 65535, the number is another one.",
            default="auto",
        ),
    ] = "auto"
    import_targets: Annotated[
        tuple[RouteTarget, ...],
        meta("Route targets of the routes to import.", maxItems=64, list_type="set", default=["auto"]),
    ] = ("auto",)
    export_targets: Annotated[
        tuple[RouteTarget, ...],
        meta("Route targets of advertised routes.", maxItems=64, list_type="set", default=["auto"]),
    ] = ("auto",)
    rfc8365_targets: Annotated[
        bool, meta("Whether the route target auto has the form of RFC 8365, instead of ASN:VNI.", default=False)
    ] = field(default=False, name="rfc8365Targets")
    max_vteps: Annotated[
        int,
        meta(
            "How many VTEPs of other sites to accept. Broadcasts are sent to each of them.",
            format="int32",
            minimum=1,
            maximum=4096,
            default=1024,
        ),
    ] = field(default=1024, name="maxVTEPs")
    advertise_subnets: Annotated[
        bool,
        meta("Whether to advertise the Subnets behind the Routers of the Network as IP prefixes.", default=False),
    ] = False
    clients: Annotated[
        tuple[EVPNClient, ...],
        meta("Machines to advertise besides the attachments.", maxItems=1024, list_map_keys=("mac",)),
    ] = ()


class AdvertisedSubnet(Value, frozen=True, kw_only=True):
    """A Subnet behind a Router of an extended Network."""

    cidr: Annotated[Cidr, meta("The addresses.")]
    gateway: Annotated[Ip, meta("The address of the Router in the extended Network.")]
    mac: Annotated[Mac, meta("The MAC address of the Router there.")]


class EVPNNetworkStatus(Status, frozen=True, kw_only=True):
    """Observed state of a Network that EVPN extends to other sites."""

    vni: Annotated[Vni | None, meta("The VNI between sites.")] = None
    rd_number: Annotated[
        int | None,
        meta("The number in the route distinguisher auto.", format="int32", minimum=1, maximum=65535),
    ] = None
    forwarding: Annotated[
        bool, meta("Whether the speaker forwards for the Network. Of several speakers of a Network, one does.")
    ] = False
    turn: Annotated[
        Count,
        meta(
            "Of several speakers of a Network, the one with the highest turn forwards, or did last. The MAC mobility "
            "sequences that it advertises are higher than those of earlier turns."
        ),
    ] = 0
    node: Annotated[
        ObjectName, meta("The Node of the speaker. RemoteVTEPs that another Node has written are ignored.")
    ] = ""
    remote_vteps: Annotated[tuple[Ip, ...], meta("The VTEPs of other sites.", maxItems=4096)] = field(
        default=(), name="remoteVTEPs"
    )
    remote_macs: Annotated[Count, meta("The number of MAC addresses learned from other sites.")] = field(
        default=0, name="remoteMACs"
    )
    local_macs: Annotated[Count, meta("The number of MAC addresses advertised to other sites.")] = field(
        default=0, name="localMACs"
    )
    subnets: Annotated[
        tuple[AdvertisedSubnet, ...],
        meta("The Subnets that are advertised as IP prefixes.", maxItems=1024, list_map_keys=("cidr", "gateway")),
    ] = ()
    duplicate_macs: Annotated[
        tuple[Mac, ...], meta("MAC addresses advertised from several places at once.", maxItems=4096)
    ] = field(default=(), name="duplicateMACs")


class EVPNNetwork(Resource, frozen=True, kw_only=True):
    """A Network that EVPN extends to other sites."""

    spec: EVPNNetworkSpec
    status: EVPNNetworkStatus = EVPNNetworkStatus()


class RemoteMAC(Value, frozen=True, kw_only=True):
    """A machine of another site."""

    mac: Annotated[Mac, meta("The MAC address.")]
    ips: Annotated[tuple[Ip, ...], meta("The IP addresses.", maxItems=64, list_type="set")] = ()


MACS_OF_REMOTE_VTEP = 512
"""How many machines one RemoteVTEP names; a VTEP with more has several."""


class RemoteVTEPSpec(Value, frozen=True, kw_only=True):
    """A VTEP of another site, and machines behind it, as a speaker has learned them."""

    RULES: ClassVar[tuple[Rule, ...]] = tuple(
        immutable(name) for name in ("evpnNetwork", "network", "node", "address", "vni", "localVNI")
    )

    evpn_network: Annotated[ObjectName, meta("The EVPNNetwork by which it was learned.")] = field(name="evpnNetwork")
    network: Annotated[ObjectName, meta("The Network.")]
    node: Annotated[ObjectName, meta("The Node of the speaker that has learned it.")]
    address: Annotated[Ip, meta("The address of the VTEP.")]
    vni: Annotated[Vni, meta("The VNI of packets to the VTEP.")]
    local_vni: Annotated[Vni, meta("The VNI of packets from the VTEP.")] = field(name="localVNI")
    local_address: Annotated[
        Ip,
        meta("The source of packets to the VTEP: an address of the Node. Absent if other Nodes send to the VTEP, too."),
    ] = ""
    flood: Annotated[
        bool,
        meta("Whether the VTEP receives broadcasts. Of several objects of a VTEP, the first says it.", default=False),
    ] = False
    macs: Annotated[
        tuple[RemoteMAC, ...],
        meta("The machines behind the VTEP.", maxItems=MACS_OF_REMOTE_VTEP, list_map_keys=("mac",)),
    ] = ()


class RemoteVTEP(Resource, frozen=True, kw_only=True):
    """A VTEP of another site, and machines behind it.  The speaker creates the object."""

    spec: RemoteVTEPSpec
    status: Status = Status()
