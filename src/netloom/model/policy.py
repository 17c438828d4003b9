"""SecurityProfile: who may talk to whom; LoadBalancer: one address for many; what a Router does beside routing."""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import field

from netloom.model import addresses
from netloom.model.document import Document, Resource, Value
from netloom.model.rules import Rule, exactly_one, needs, only_when, required_when
from netloom.model.scalars import Cidr, Count, Ip, ObjectName, Port, Seconds, says
from netloom.model.selection import LabelSelector
from netloom.model.status import Status


class Protocol(StrEnum):
    """What ports belong to."""

    TCP = "tcp"
    UDP = "udp"
    SCTP = "sctp"


class RuleProtocol(StrEnum):
    """What a rule may be about."""

    TCP = "tcp"
    UDP = "udp"
    SCTP = "sctp"
    ICMP = "icmp"


class Action(StrEnum):
    """What happens to a packet."""

    ALLOW = "allow"
    DROP = "drop"
    REJECT = "reject"


def _exceptions_are_inside(peer: Document) -> bool:
    if "cidr" not in peer or not addresses.is_cidr(peer["cidr"]):
        return True
    return all(addresses.inside(e, peer["cidr"]) for e in peer.get("except", ()) if addresses.is_cidr(e))


class Peer(Value, frozen=True, kw_only=True):
    """The other end: a block, the attachments a profile covers, or those with some labels.  Exactly one of them."""

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

    cidr: Annotated[Cidr, says("An address block.")] = ""
    except_: Annotated[tuple[Cidr, ...], says("Blocks inside cidr that are left out.", maxItems=16)] = field(
        default=(), name="except"
    )
    profile: Annotated[ObjectName, says("The attachments this SecurityProfile covers.")] = ""
    selector: Annotated[LabelSelector | None, says("The attachments with these labels.")] = None


class PortRange(Value, frozen=True, kw_only=True):
    """A protocol, and which of its ports."""

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
            "icmp has no ports",
            path=".port",
        ),
    )

    protocol: Annotated[RuleProtocol, says("The protocol.", default="tcp")] = RuleProtocol.TCP
    port: Annotated[Port | None, says("The port, or the first; absent: all.")] = None
    end_port: Annotated[Port | None, says("The last port.")] = None


class IngressRule(Value, frozen=True, kw_only=True):
    """What is done with some of the traffic that comes in."""

    from_: Annotated[tuple[Peer, ...], says("Where from; absent or empty: anywhere.", maxItems=32)] = field(
        default=(), name="from"
    )
    ports: Annotated[tuple[PortRange, ...], says("To which ports; absent or empty: all traffic.", maxItems=32)] = ()
    action: Annotated[Action, says("What happens to it.", default="allow")] = Action.ALLOW
    log: Annotated[bool, says("Whether it is logged.", default=False)] = False


class EgressRule(Value, frozen=True, kw_only=True):
    """What is done with some of the traffic that goes out."""

    to: Annotated[tuple[Peer, ...], says("Where to; absent or empty: anywhere.", maxItems=32)] = ()
    ports: Annotated[tuple[PortRange, ...], says("To which ports; absent or empty: all traffic.", maxItems=32)] = ()
    action: Annotated[Action, says("What happens to it.", default="allow")] = Action.ALLOW
    log: Annotated[bool, says("Whether it is logged.", default=False)] = False


class SecurityProfileSpec(Value, frozen=True, kw_only=True):
    """What is wanted of a profile."""

    selector: Annotated[
        LabelSelector | None, says("Covers attachments with these labels, besides those that name it.")
    ] = None
    ingress: Annotated[
        tuple[IngressRule, ...] | None,
        says("With this list, even empty, ingress that nothing allows is dropped.", maxItems=64),
    ] = None
    egress: Annotated[
        tuple[EgressRule, ...] | None,
        says("With this list, even empty, egress that nothing allows is dropped.", maxItems=64),
    ] = None


class SecurityProfileStatus(Status, frozen=True, kw_only=True):
    """What was seen of a profile."""

    ports: Annotated[Count, says("How many attachments it covers.")] = 0


class SecurityProfile(Resource, frozen=True, kw_only=True):
    """A firewall profile, stateful.

    A port covered by a profile with an ingress list drops ingress that no such profile allows; egress likewise.
    """

    spec: SecurityProfileSpec
    status: SecurityProfileStatus = SecurityProfileStatus()


class PolicyAction(StrEnum):
    """What a router does with a packet."""

    ALLOW = "allow"
    DROP = "drop"
    REROUTE = "reroute"


_ANY = " || ".join(f"(has(self.{name}) && self.{name}.exists(a, %s))" for name in ("from", "to", "via"))
"""In CEL: some address of a policy is such a one."""
_V6, _V4 = _ANY.replace("%s", "a.contains(':')"), _ANY.replace("%s", "!a.contains(':')")


def _one_family(policy: Document) -> bool:
    return len({addresses.family(one) for name in ("from", "to", "via") for one in policy.get(name, ())}) <= 1


class RouterPolicy(Value, frozen=True, kw_only=True):
    """What a router does with some of the packets it routes."""

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
        int, says("Of policies that fit a packet, the highest is done.", format="int32", minimum=1, maximum=32767)
    ]
    from_: Annotated[tuple[Cidr, ...], says("The sources; absent or empty: any.", maxItems=32, list_type="set")] = (
        field(default=(), name="from")
    )
    to: Annotated[tuple[Cidr, ...], says("The destinations; absent or empty: any.", maxItems=32, list_type="set")] = ()
    ports: Annotated[tuple[PortRange, ...], says("To which ports; absent or empty: all traffic.", maxItems=32)] = ()
    action: Annotated[PolicyAction, says("Routed as usual, dropped, or sent to other next hops.", default="allow")] = (
        PolicyAction.ALLOW
    )
    via: Annotated[
        tuple[Ip, ...],
        says("The next hops of reroute; several share the load.", minItems=1, maxItems=16, list_type="set"),
    ] = ()


class Vip(Value, frozen=True, kw_only=True):
    """One address and port that stands for many."""

    ip: Annotated[Ip, says("The address.")]
    port: Annotated[Port, says("The port.")]
    protocol: Annotated[Protocol, says("The protocol.", default="tcp")] = Protocol.TCP
    target_port: Annotated[Port | None, says("The endpoints' port; absent: the same.")] = None


class Endpoint(Value, frozen=True, kw_only=True):
    """One of the many."""

    ip: Annotated[Ip, says("The address.")]
    port: Annotated[Port | None, says("The port; absent: the VIP's targetPort.")] = None


class HealthCheck(Value, frozen=True, kw_only=True):
    """How endpoints are watched."""

    interval_seconds: Annotated[Seconds, says("Between two probes.", minimum=1, maximum=3600, default=5)] = 5
    timeout_seconds: Annotated[Seconds, says("How long an answer may take.", minimum=1, maximum=3600, default=20)] = 20
    success_count: Annotated[
        int, says("Answers until it is up.", format="int32", minimum=1, maximum=100, default=3)
    ] = 3
    failure_count: Annotated[
        int, says("Failures until it is down.", format="int32", minimum=1, maximum=100, default=3)
    ] = 3


class LoadBalancerSpec(Value, frozen=True, kw_only=True):
    """What is wanted of a load balancer."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        exactly_one("endpoints", "selector"),
        Rule(
            "(has(self.networks) && size(self.networks) > 0) || (has(self.routers) && size(self.routers) > 0)",
            lambda self: bool(self.get("networks") or self.get("routers")),
            "at least one of networks and routers must be given: where the VIPs are served",
            reason="FieldValueRequired",
        ),
    )

    networks: Annotated[
        tuple[ObjectName, ...], says("The Networks where the VIPs are served.", maxItems=128, list_type="set")
    ] = ()
    routers: Annotated[
        tuple[ObjectName, ...], says("The Routers where the VIPs are served.", maxItems=128, list_type="set")
    ] = ()
    vips: Annotated[
        tuple[Vip, ...],
        says(
            "The addresses and ports that stand for many.",
            minItems=1,
            maxItems=64,
            list_map_keys=("ip", "port", "protocol"),
        ),
    ]
    endpoints: Annotated[tuple[Endpoint, ...] | None, says("The many.", maxItems=1024)] = None
    selector: Annotated[LabelSelector | None, says("Or: the addresses of the attachments with these labels.")] = None
    affinity_seconds: Annotated[
        Seconds, says("How long a client stays with its endpoint; 0: not.", maximum=65535, default=0)
    ] = 0
    health_check: Annotated[HealthCheck | None, says("How endpoints are watched; absent: all are taken to be up.")] = (
        None
    )


class LoadBalancerStatus(Status, frozen=True, kw_only=True):
    """What was seen of a load balancer."""

    endpoints_up: Annotated[Count, says("Endpoints that answer.")] = 0
    endpoints_down: Annotated[Count, says("Endpoints that do not.")] = 0


class LoadBalancer(Resource, frozen=True, kw_only=True):
    """A virtual address and its endpoints."""

    spec: LoadBalancerSpec
    status: LoadBalancerStatus = LoadBalancerStatus()
