"""BGPSpeaker, BGPPeer, EVPNNetwork: routes to and from other sites."""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import field

from netloom.model.document import Resource, Value
from netloom.model.rules import Rule
from netloom.model.scalars import (
    AbsolutePath,
    Asn,
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
    Vni,
    says,
)
from netloom.model.status import Status


class Listen(Value, frozen=True, kw_only=True):
    """Where a speaker listens."""

    address: Annotated[Ip, says("The address; absent: all of the node's.")] = ""
    port: Annotated[Port, says("The port.", default=179)] = 179


class BGPSpeakerSpec(Value, frozen=True, kw_only=True):
    """What is wanted of a speaker."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.routerID != '0.0.0.0'",
            lambda self: self["routerID"] != "0.0.0.0",  # noqa: S104 - Not an address to bind to.
            "must not be 0.0.0.0",
            path=".routerID",
        ),
    )

    asn: Annotated[Asn, says("Its autonomous system.")]
    router_id: Annotated[Ipv4, says("Its BGP identifier, and the next hop it announces.")] = field(name="routerID")
    node: Annotated[ObjectName, says("The Node it runs on.")]
    listen: Annotated[Listen | None, says("Where it listens; absent: it only connects.")] = None


class BGPSpeakerStatus(Status, frozen=True, kw_only=True):
    """What was seen of a speaker."""

    peers: Annotated[Count, says("Its sessions.")] = 0
    established: Annotated[Count, says("Those that are up.")] = 0


class BGPSpeaker(Resource, frozen=True, kw_only=True):
    """A BGP speaker."""

    spec: BGPSpeakerSpec
    status: BGPSpeakerStatus = BGPSpeakerStatus()


class PasswordFrom(Value, frozen=True, kw_only=True):
    """Where a password is read from."""

    file: Annotated[AbsolutePath, says("A file on the speaker's node.")]


class BGPPeerSpec(Value, frozen=True, kw_only=True):
    """What is wanted of a session."""

    speaker: Annotated[ObjectName, says("The BGPSpeaker whose session it is.")]
    address: Annotated[Ip, says("The peer's address.")]
    port: Annotated[Port, says("The peer's port.", default=179)] = 179
    remote_asn: Annotated[Asn, says("The peer's autonomous system.")] = field(name="remoteASN")
    hold_seconds: Annotated[
        Seconds,
        says(
            "The hold time: 0, or at least 3.",
            maximum=65535,
            default=90,
            rules=(Rule("self == 0 || self >= 3", lambda self: self == 0 or self >= 3, "must be 0, or at least 3"),),
        ),
    ] = 90
    passive: Annotated[bool, says("Whether to wait for the peer to connect.", default=False)] = False
    password_from: Annotated[PasswordFrom | None, says("The password of TCP-MD5.")] = None
    ttl_security: Annotated[bool, says("Whether only a direct neighbour is listened to (RFC 5082).", default=False)] = (
        False
    )
    route_reflector_client: Annotated[bool, says("Whether routes are reflected to it (RFC 4456).", default=False)] = (
        False
    )
    max_prefixes: Annotated[Seconds, says("How many routes it may send; 0: any number.", default=0)] = 0


class BGPState(StrEnum):
    """The states of RFC 4271."""

    IDLE = "Idle"
    CONNECT = "Connect"
    ACTIVE = "Active"
    OPEN_SENT = "OpenSent"
    OPEN_CONFIRM = "OpenConfirm"
    ESTABLISHED = "Established"


class BGPPeerStatus(Status, frozen=True, kw_only=True):
    """What was seen of a session."""

    state: Annotated[BGPState | None, says("The state of the session.")] = None
    received: Annotated[Count, says("Routes received.")] = 0
    sent: Annotated[Count, says("Routes sent.")] = 0
    last_error: Annotated[Line, says("Why the session last went down.")] = ""


class BGPPeer(Resource, frozen=True, kw_only=True):
    """A BGP session."""

    spec: BGPPeerSpec
    status: BGPPeerStatus = BGPPeerStatus()


class EVPNClient(Value, frozen=True, kw_only=True):
    """A machine announced to other sites though Netloom did not attach it."""

    mac: Annotated[Mac, says("Its MAC address.")]
    ip: Annotated[Ip, says("Its address.")] = ""
    port: Annotated[Line, says("The logical port it is behind.")] = ""


class EVPNNetworkSpec(Value, frozen=True, kw_only=True):
    """How a Network is stretched."""

    network: Annotated[ObjectName, says("The Network.")]
    speaker: Annotated[ObjectName, says("The BGPSpeaker that announces it.")]
    vni: Annotated[Vni | None, says("Its number on the wire between sites; absent: the Network's.")] = None
    rd: Annotated[RouteDistinguisher, says("The route distinguisher; auto: routerID and VNI.", default="auto")] = "auto"
    import_targets: Annotated[
        tuple[RouteTarget, ...],
        says("Routes with one of these are used.", maxItems=64, list_type="set", default=["auto"]),
    ] = ("auto",)
    export_targets: Annotated[
        tuple[RouteTarget, ...], says("What announced routes carry.", maxItems=64, list_type="set", default=["auto"])
    ] = ("auto",)
    clients: Annotated[
        tuple[EVPNClient, ...],
        says("Machines to announce besides the attachments.", maxItems=1024, list_map_keys=("mac",)),
    ] = ()


class EVPNNetworkStatus(Status, frozen=True, kw_only=True):
    """What was seen of a stretched network."""

    remote_vteps: Annotated[tuple[Ip, ...], says("The other sites' tunnel ends.", maxItems=4096)] = field(
        default=(), name="remoteVTEPs"
    )
    remote_macs: Annotated[Count, says("Machines learnt from other sites.")] = field(default=0, name="remoteMACs")
    local_macs: Annotated[Count, says("Machines announced to other sites.")] = field(default=0, name="localMACs")
    duplicate_macs: Annotated[tuple[Mac, ...], says("Machines seen in several places at once.", maxItems=4096)] = field(
        default=(), name="duplicateMACs"
    )


class EVPNNetwork(Resource, frozen=True, kw_only=True):
    """A Network stretched by EVPN."""

    spec: EVPNNetworkSpec
    status: EVPNNetworkStatus = EVPNNetworkStatus()
