"""SecurityProfile: a stateful firewall; LoadBalancer: virtual IPs; RouterPolicy: policy-based routing."""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import field

from netloom.model.document import Document, Resource, Value
from netloom.model.schemas.rules import Rule, exactly_one, needs, only_when, required_when
from netloom.model.selection import LabelSelector
from netloom.model.status import Status
from netloom.model.values import addresses
from netloom.model.values.scalars import Cidr, Count, Ip, ObjectName, Port, Seconds, meta


class Protocol(StrEnum):
    """A transport protocol."""

    TCP = "tcp"
    UDP = "udp"
    SCTP = "sctp"


class RuleProtocol(StrEnum):
    """A protocol of a firewall rule or router policy."""

    TCP = "tcp"
    UDP = "udp"
    SCTP = "sctp"
    ICMP = "icmp"


class Action(StrEnum):
    """The action of a firewall rule."""

    ALLOW = "allow"
    DROP = "drop"
    REJECT = "reject"
    PASS = "pass"  # noqa: S105


class Tier(StrEnum):
    """The tier of a profile; tiers are evaluated in this order."""

    ADMIN = "admin"
    DEFAULT = "default"
    BASELINE = "baseline"


MAX_PRIORITY = 199_999
"""The priority of a profile that is evaluated last in its tier."""


def _exceptions_are_inside(peer: Document) -> bool:
    if "cidr" not in peer or not addresses.is_cidr(peer["cidr"]):
        return True
    return all(addresses.inside(e, peer["cidr"]) for e in peer.get("except", ()) if addresses.is_cidr(e))


class Peer(Value, frozen=True, kw_only=True):
    """The remote end: exactly one of an address block, the attachments of a profile, or a label selector."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        exactly_one("cidr", "profile", "selector"),
        needs("except", "cidr"),
        Rule(
            "!has(self.except) || !has(self.cidr) || !isCIDR(self.cidr)"
            # Not containsCIDR: in Kubernetes 1.32 it says no to a block that is inside another.
            " || self.except.all(e, !isCIDR(e) || (cidr(self.cidr).containsIP(cidr(e).ip())"
            " && cidr(e).prefixLength() >= cidr(self.cidr).prefixLength()))",
            _exceptions_are_inside,
            "must be blocks inside cidr",
            path=".except",
        ),
    )

    cidr: Annotated[Cidr, meta("An address block.")] = ""
    except_: Annotated[tuple[Cidr, ...], meta("Blocks inside cidr to exclude.", maxItems=16)] = field(
        default=(), name="except"
    )
    profile: Annotated[ObjectName, meta("The attachments to which this SecurityProfile applies.")] = ""
    selector: Annotated[LabelSelector | None, meta("The attachments with these labels.")] = None


class PortRange(Value, frozen=True, kw_only=True):
    """A protocol and a range of its ports."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        needs("endPort", "port"),
        Rule(
            "!has(self.endPort) || !has(self.port) || self.endPort >= self.port",
            lambda self: "endPort" not in self or "port" not in self or self["endPort"] >= self["port"],
            "must not be less than port",
            path=".endPort",
        ),
        Rule(
            "!has(self.port) || self.protocol != 'icmp'",
            lambda self: "port" not in self or self["protocol"] != "icmp",
            "must not be set when protocol is icmp, which has no ports",
            path=".port",
        ),
    )

    protocol: Annotated[RuleProtocol, meta("The protocol.", default="tcp")] = RuleProtocol.TCP
    port: Annotated[Port | None, meta("The port, or the first port of the range. All ports if absent.")] = None
    end_port: Annotated[Port | None, meta("The last port of the range.")] = None


_PASS_WITHOUT_LOG = Rule(
    "self.action != 'pass' || !self.log",
    lambda self: self.get("action") != Action.PASS or not self.get("log"),
    "must not be true when action is pass: what applies in a tier below can log",
    path=".log",
)


class IngressRule(Value, frozen=True, kw_only=True):
    """A rule for ingress traffic."""

    RULES: ClassVar[tuple[Rule, ...]] = (_PASS_WITHOUT_LOG,)

    from_: Annotated[tuple[Peer, ...], meta("The sources. Any source if absent or empty.", maxItems=32)] = field(
        default=(), name="from"
    )
    ports: Annotated[
        tuple[PortRange, ...], meta("The destination ports. All traffic if absent or empty.", maxItems=32)
    ] = ()
    action: Annotated[Action, meta("The action for matching traffic.", default="allow")] = Action.ALLOW
    log: Annotated[bool, meta("Whether to log matching traffic.", default=False)] = False


class EgressRule(Value, frozen=True, kw_only=True):
    """A rule for egress traffic."""

    RULES: ClassVar[tuple[Rule, ...]] = (_PASS_WITHOUT_LOG,)

    to: Annotated[tuple[Peer, ...], meta("The destinations. Any destination if absent or empty.", maxItems=32)] = ()
    ports: Annotated[
        tuple[PortRange, ...], meta("The destination ports. All traffic if absent or empty.", maxItems=32)
    ] = ()
    action: Annotated[Action, meta("The action for matching traffic.", default="allow")] = Action.ALLOW
    log: Annotated[bool, meta("Whether to log matching traffic.", default=False)] = False


_PASSES = " || ".join(f"(has(self.{way}) && self.{way}.exists(r, r.action == 'pass'))" for way in ("ingress", "egress"))


def _passes(spec: Document) -> bool:
    return any(rule.get("action") == Action.PASS for way in ("ingress", "egress") for rule in spec.get(way, ()))


class SecurityProfileSpec(Value, frozen=True, kw_only=True):
    """Desired state of a profile."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.tier != 'default') == has(self.priority)",
            lambda self: (self.get("tier", Tier.DEFAULT) != Tier.DEFAULT) == ("priority" in self),
            "must be set when tier is admin or baseline, and only then",
            path=".priority",
        ),
        Rule(
            f"self.tier != 'default' || !({_PASSES})",
            lambda self: self.get("tier", Tier.DEFAULT) != Tier.DEFAULT or not _passes(self),
            "a rule may have the action pass only when tier is admin or baseline",
            path=".tier",
        ),
    )

    selector: Annotated[
        LabelSelector | None, meta("The profile applies to attachments with these labels, and to those that name it.")
    ] = None
    tier: Annotated[
        Tier,
        meta(
            "When the rules are evaluated. admin and baseline: rules in order, the first that matches applies; admin"
            " before all profiles of tier default, baseline only for attachments and directions without a list of such"
            " a profile.",
            default="default",
        ),
    ] = Tier.DEFAULT
    priority: Annotated[
        int | None,
        meta(
            "Of the profiles of tier admin, and of those of tier baseline, the lowest is evaluated first.",
            format="int32",
            minimum=0,
            maximum=MAX_PRIORITY,
        ),
    ] = None
    ingress: Annotated[
        tuple[IngressRule, ...] | None,
        meta(
            "Ingress rules. If present in tier default, even if empty, ingress traffic that no rule allows is dropped.",
            maxItems=64,
        ),
    ] = None
    egress: Annotated[
        tuple[EgressRule, ...] | None,
        meta(
            "Egress rules. If present in tier default, even if empty, egress traffic that no rule allows is dropped.",
            maxItems=64,
        ),
    ] = None


class SecurityProfileStatus(Status, frozen=True, kw_only=True):
    """Observed state of a profile."""

    ports: Annotated[Count, meta("The number of attachments to which the profile applies.")] = 0


class SecurityProfile(Resource, frozen=True, kw_only=True):
    """A stateful firewall profile.

    An attachment with a profile that has an ingress list drops ingress that no such profile allows; egress likewise.
    Profiles of the tiers admin and baseline have precedence over such profiles, or apply where there is none.
    """

    spec: SecurityProfileSpec
    status: SecurityProfileStatus = SecurityProfileStatus()


class PolicyAction(StrEnum):
    """The action of a router policy."""

    ALLOW = "allow"
    DROP = "drop"
    REROUTE = "reroute"


_ANY = " || ".join(f"(has(self.{name}) && self.{name}.exists(a, %s))" for name in ("from", "to", "via"))
"""In CEL: some address of a policy matches."""
_V6, _V4 = _ANY.replace("%s", "a.contains(':')"), _ANY.replace("%s", "!a.contains(':')")


def _one_family(policy: Document) -> bool:
    return len({addresses.family(one) for name in ("from", "to", "via") for one in policy.get(name, ())}) <= 1


class RouterPolicy(Value, frozen=True, kw_only=True):
    """A router policy: an action for packets that match."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        required_when("via", "action", "reroute"),
        only_when("via", "action", "reroute"),
        Rule(
            f"!({_V6}) || !({_V4})",
            _one_family,
            "from, to and via must be of one family: write one policy for IPv4 and another for IPv6",
        ),
    )

    priority: Annotated[
        int,
        meta(
            "Of the policies that match a packet, the one with the highest priority applies.",
            format="int32",
            minimum=1,
            maximum=32767,
        ),
    ]
    from_: Annotated[
        tuple[Cidr, ...], meta("The source blocks. Any source if absent or empty.", maxItems=32, list_type="set")
    ] = field(default=(), name="from")
    to: Annotated[
        tuple[Cidr, ...],
        meta("The destination blocks. Any destination if absent or empty.", maxItems=32, list_type="set"),
    ] = ()
    ports: Annotated[
        tuple[PortRange, ...], meta("The destination ports. All traffic if absent or empty.", maxItems=32)
    ] = ()
    action: Annotated[
        PolicyAction,
        meta(
            "allow: route the packet normally. drop: drop it. reroute: send it to the next hops in via.",
            default="allow",
        ),
    ] = PolicyAction.ALLOW
    via: Annotated[
        tuple[Ip, ...],
        meta("The next hops for reroute. Several next hops share the load.", minItems=1, maxItems=16, list_type="set"),
    ] = ()


class Vip(Value, frozen=True, kw_only=True):
    """A virtual IP address and port."""

    ip: Annotated[Ip, meta("The address.")]
    port: Annotated[Port, meta("The port.")]
    protocol: Annotated[Protocol, meta("The protocol.", default="tcp")] = Protocol.TCP
    target_port: Annotated[Port | None, meta("The port of the endpoints. The same as port if absent.")] = None
    node_port: Annotated[
        Port | None,
        meta("The port on the addresses of every node of a cluster at which the VIP is reachable from outside."),
    ] = None


class ExternalAddress(Value, frozen=True, kw_only=True):
    """An address outside the Networks at which the nodes of a cluster accept connections for the VIPs."""

    ip: Annotated[Ip, meta("The address. Something outside brings its packets to a node.")]
    source_ranges: Annotated[
        tuple[Cidr, ...],
        meta("The blocks of the clients. All other clients are dropped. Any if absent.", maxItems=64, list_type="set"),
    ] = ()


class ExternalTrafficPolicy(StrEnum):
    """Where connections that arrive at a node from outside go."""

    CLUSTER = "cluster"
    LOCAL = "local"


def _reachable_from_outside(spec: Document) -> bool:
    return bool(spec.get("externalAddresses")) or any("nodePort" in vip for vip in spec.get("vips", ()))


class InternalTrafficPolicy(StrEnum):
    """Where connections from the Networks go."""

    CLUSTER = "cluster"
    LOCAL = "local"


class Endpoint(Value, frozen=True, kw_only=True):
    """An endpoint of a load balancer."""

    ip: Annotated[Ip, meta("The address.")]
    port: Annotated[Port | None, meta("The port. The targetPort of the VIP if absent.")] = None
    node: Annotated[
        ObjectName,
        meta(
            "The Node whose clients use it, for internalTrafficPolicy local. By default, that of the attachment with "
            "its address. An endpoint that clients of several Nodes use is listed once for each."
        ),
    ] = ""


class HealthCheck(Value, frozen=True, kw_only=True):
    """The health check of endpoints."""

    interval_seconds: Annotated[
        Seconds, meta("The interval between two probes, in seconds.", minimum=1, maximum=3600, default=5)
    ] = 5
    timeout_seconds: Annotated[
        Seconds, meta("The time to wait for an answer, in seconds.", minimum=1, maximum=3600, default=20)
    ] = 20
    success_count: Annotated[
        int, meta("Consecutive successes until an endpoint is up.", format="int32", minimum=1, maximum=100, default=3)
    ] = 3
    failure_count: Annotated[
        int, meta("Consecutive failures until an endpoint is down.", format="int32", minimum=1, maximum=100, default=3)
    ] = 3


_V6_VIP, _V4_VIP = "self.vips.exists(v, v.ip.contains(':'))", "self.vips.exists(v, !v.ip.contains(':'))"
"""In CEL: some VIP is of a family."""


def _is_local(spec: Document) -> bool:
    return bool(spec.get("internalTrafficPolicy") == "local")


_FROM_OUTSIDE = (
    "((has(self.externalAddresses) && size(self.externalAddresses) > 0) || self.vips.exists(v, has(v.nodePort)))"
)
"""In CEL: some way leads from outside through the nodes to a VIP."""


class LoadBalancerSpec(Value, frozen=True, kw_only=True):
    """Desired state of a load balancer."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        exactly_one("endpoints", "selector"),
        Rule(
            "(has(self.networks) && size(self.networks) > 0) || (has(self.routers) && size(self.routers) > 0)",
            lambda self: bool(self.get("networks") or self.get("routers")),
            "at least one of networks and routers must be set: the VIPs are served there",
            reason="FieldValueRequired",
        ),
        Rule(
            f"!({_FROM_OUTSIDE}) || has(self.externalTrafficPolicy)",
            lambda self: not _reachable_from_outside(self) or "externalTrafficPolicy" in self,
            "must be set together with externalAddresses or the nodePort of a VIP",
            path=".externalTrafficPolicy",
            reason="FieldValueRequired",
        ),
        Rule(
            f"!has(self.externalTrafficPolicy) || {_FROM_OUTSIDE}",
            lambda self: "externalTrafficPolicy" not in self or _reachable_from_outside(self),
            "may be set only together with externalAddresses or the nodePort of a VIP",
            path=".externalTrafficPolicy",
            reason="FieldValueForbidden",
        ),
        Rule(
            "!has(self.externalTrafficPolicy) || self.externalTrafficPolicy != 'local' || has(self.endpoints)",
            lambda self: self.get("externalTrafficPolicy") != "local" or "endpoints" in self,
            "may be local only with endpoints: a node does not know what a selector selects",
            path=".externalTrafficPolicy",
        ),
        Rule(
            "!has(self.internalTrafficPolicy) || self.internalTrafficPolicy != 'local'"
            " || (!has(self.healthCheck) && (!has(self.affinitySeconds) || self.affinitySeconds == 0))",
            lambda self: not _is_local(self) or not ("healthCheck" in self or self.get("affinitySeconds")),
            "may be local only without healthCheck and affinitySeconds, which OVN does not have for one node",
            path=".internalTrafficPolicy",
        ),
        Rule(
            "!has(self.internalTrafficPolicy) || self.internalTrafficPolicy != 'local'"
            f" || !({_V6_VIP}) || !({_V4_VIP})",
            lambda self: not _is_local(self) or len({addresses.family(vip["ip"]) for vip in self.get("vips", ())}) <= 1,
            "may be local only with VIPs of one family: write one LoadBalancer for IPv4 and another for IPv6",
            path=".internalTrafficPolicy",
        ),
    )

    networks: Annotated[
        tuple[ObjectName, ...], meta("The Networks in which the VIPs are served.", maxItems=128, list_type="set")
    ] = ()
    routers: Annotated[
        tuple[ObjectName, ...], meta("The Routers on which the VIPs are served.", maxItems=128, list_type="set")
    ] = ()
    vips: Annotated[
        tuple[Vip, ...],
        meta(
            "The virtual IP addresses and ports.",
            minItems=1,
            maxItems=64,
            list_map_keys=("ip", "port", "protocol"),
        ),
    ]
    endpoints: Annotated[
        tuple[Endpoint, ...] | None, meta("The endpoints. Either endpoints or selector must be set.", maxItems=8192)
    ] = None
    selector: Annotated[LabelSelector | None, meta("The attachments with these labels are the endpoints.")] = None
    affinity_seconds: Annotated[
        Seconds,
        meta(
            "Session affinity: how long a client keeps its endpoint, in seconds. 0 disables it.",
            maximum=65535,
            default=0,
        ),
    ] = 0
    health_check: Annotated[
        HealthCheck | None, meta("The health check of endpoints. If absent, all endpoints are considered up.")
    ] = None
    internal_traffic_policy: Annotated[
        InternalTrafficPolicy,
        meta(
            "Where connections from the Networks go. cluster: to any endpoint. local: to an endpoint on the client's "
            "own node; they are dropped where there is none.",
            default="cluster",
        ),
    ] = InternalTrafficPolicy.CLUSTER
    external_addresses: Annotated[
        tuple[ExternalAddress, ...],
        meta(
            "Addresses at which the nodes of a cluster accept connections for the ports of the VIPs.",
            maxItems=64,
            list_map_keys=("ip",),
        ),
    ] = ()
    external_traffic_policy: Annotated[
        ExternalTrafficPolicy | None,
        meta(
            "Where connections from outside to a nodePort or an external address go. cluster: to the VIP, from the "
            "node's own address. local: to an endpoint on the node that they arrive at, from the client's address; "
            "they are dropped where there is none."
        ),
    ] = None


class LoadBalancerStatus(Status, frozen=True, kw_only=True):
    """Observed state of a load balancer."""

    endpoints_up: Annotated[Count, meta("The number of endpoints that are up.")] = 0
    endpoints_down: Annotated[Count, meta("The number of endpoints that are down.")] = 0


class LoadBalancer(Resource, frozen=True, kw_only=True):
    """A load balancer: virtual IP addresses and their endpoints."""

    spec: LoadBalancerSpec
    status: LoadBalancerStatus = LoadBalancerStatus()
