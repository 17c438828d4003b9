"""Policies at random: the profiles allow exactly the connections that the API reference of NetworkPolicy allows."""

from ipaddress import ip_network
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from netloom.plan import names as ovn
from netloom.plan.kube import names
from netloom.plan.world.world import Port
from tests.plan.acls import Packet, Reader
from tests.plan.kube_world import Cluster, Judge, PodAt, Probe
from tests.plan.planning import planned

Json = dict[str, Any]
KEYS, VALUES = ("app", "tier"), ("x", "y")
NAMES, NUMBERS = ("http", "dns"), (53, 80, 81, 8080)
PROTOCOLS = ("TCP", "UDP", "SCTP")
OUTSIDE = ("192.0.2.1", "198.51.100.7", "10.1.0.77", "2001:db8::1")
BLOCKS = (
    "0.0.0.0/0",
    "::/0",
    "192.0.2.0/24",
    "10.1.0.0/16",
    "10.1.0.0/30",
    "10.1.0.4/32",
    "2001:db8::/64",
    "fd01::/64",
)

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
values = st.lists(st.sampled_from(VALUES), min_size=1, max_size=2)
expression = st.sampled_from(KEYS).flatmap(
    lambda key: st.one_of(
        values.flatmap(
            lambda some: st.sampled_from([{"key": key, "operator": o, "values": some} for o in ("In", "NotIn")])
        ),
        st.sampled_from([{"key": key, "operator": o} for o in ("Exists", "DoesNotExist")]),
    )
)
selector = st.fixed_dictionaries(
    {}, optional={"matchLabels": labels, "matchExpressions": st.lists(expression, max_size=2)}
)
named = st.tuples(st.sampled_from(PROTOCOLS), st.sampled_from(NAMES), st.sampled_from(NUMBERS))


@st.composite
def block(draw: st.DrawFn) -> Json:
    cidr = draw(st.sampled_from(BLOCKS))
    inside = [one for one in BLOCKS if one != cidr and (":" in one) == (":" in cidr) and _inside(one, cidr)]
    exceptions = draw(st.lists(st.sampled_from(inside), unique=True)) if inside else []
    return {"ipBlock": {"cidr": cidr, **({"except": exceptions} if exceptions else {})}}


def _inside(small: str, big: str) -> bool:
    return bool(ip_network(small).subnet_of(ip_network(big)))  # type: ignore[arg-type]


pods_peer = st.fixed_dictionaries({}, optional={"podSelector": selector, "namespaceSelector": selector}).filter(bool)
peers = st.lists(st.one_of(pods_peer, block()), max_size=3)
number = st.sampled_from(NUMBERS)
port = st.one_of(
    st.fixed_dictionaries({}, optional={"protocol": st.sampled_from(PROTOCOLS)}),
    st.fixed_dictionaries({"port": number}, optional={"protocol": st.sampled_from(PROTOCOLS)}),
    st.fixed_dictionaries({"port": st.sampled_from(NAMES)}, optional={"protocol": st.sampled_from(PROTOCOLS)}),
    st.tuples(number, number).map(lambda two: {"port": min(two), "endPort": max(two)}),
)
ports = st.lists(port, max_size=3)
ingress = st.fixed_dictionaries({}, optional={"from": peers, "ports": ports})
egress = st.fixed_dictionaries({}, optional={"to": peers, "ports": ports})
policies = st.lists(
    st.fixed_dictionaries(
        {"namespace": st.sampled_from("abc"), "podSelector": selector},
        optional={
            "policyTypes": st.sampled_from([[], ["Ingress"], ["Egress"], ["Ingress", "Egress"]]),
            "ingress": st.lists(ingress, max_size=3),
            "egress": st.lists(egress, max_size=3),
        },
    ),
    max_size=4,
).map(lambda found: [{**one, "name": f"p{number}"} for number, one in enumerate(found)])


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    namespaces = {name: draw(labels) for name in "abc"}
    pods = [
        PodAt(
            draw(st.sampled_from("abc")),
            f"pod{number}",
            f"fd01::{number + 1}" if draw(st.booleans()) else f"10.1.0.{number + 1}",
            draw(labels),
            tuple({(p, n): (p, n, one) for p, n, one in draw(st.lists(named, max_size=2))}.values()),
        )
        for number in range(draw(st.integers(1, 5)))
    ]
    return Cluster(namespaces, [*pods, PodAt("", "host", "10.1.0.200")], *draw(policies))


def probes(cluster: Cluster) -> list[Probe]:
    ends: list[PodAt | str] = [*cluster.pods, *OUTSIDE]
    return [
        Probe(source, target, protocol, number)
        for source in ends
        for target in ends
        if source is not target
        and (isinstance(source, PodAt) or isinstance(target, PodAt))
        and (":" in ip_of(source)) == (":" in ip_of(target))
        for protocol in PROTOCOLS
        for number in (*NUMBERS, 9999)
    ]


def ip_of(end: PodAt | str) -> str:
    return end if isinstance(end, str) else end.ip


@given(clusters())
@settings(max_examples=300, deadline=None)
def test_profiles_allow_what_the_api_reference_allows_and_nothing_else(cluster: Cluster) -> None:
    judge = Judge(cluster.profiles)
    assert {problem.reason for problem in cluster.problems} <= {"PortUnknown"}
    for probe in probes(cluster):
        assert judge.allows(probe) == cluster.wanted(probe), probe


NETWORK = f"{{kind: Network, metadata: {{name: pods, namespace: {names.NAMESPACE}}}, spec: {{}}, status: {{vni: 7}}}}"


def _port(number: int, pod: PodAt) -> Port:
    ip, mac = f"{pod.ip}/{64 if ':' in pod.ip else 24}", f"02:00:00:00:00:{number:02x}"
    return Port(names.NAMESPACE, pod.name, "n1", names.NETWORK, (ip,), mac, 7, pod.attached)


@given(clusters())
@settings(max_examples=40, deadline=None)
def test_so_do_the_acls_in_ovn(cluster: Cluster) -> None:
    ports = [_port(number, pod) for number, pod in enumerate(cluster.pods)]
    reader = Reader(planned(NETWORK, *cluster.profiles, *ports).desired)

    def allows(probe: Probe) -> bool:
        ends = {"inport": probe.source, "outport": probe.target}
        at = {way: ovn.port(names.NAMESPACE, end.name) for way, end in ends.items() if isinstance(end, PodAt)}
        packet = Packet(
            inport=at.get("inport", ""),
            outport=at.get("outport", ""),
            src=ip_of(probe.source),
            dst=ip_of(probe.target),
            protocol=probe.protocol.lower(),
            dport=probe.port,
        )
        said = {reader.verdict(packet, way)[0] for way in ("from-lport", "to-lport")}
        return said <= {"", "allow", "allow-related"}

    for probe in probes(cluster):
        if probe.port != 81:
            assert allows(probe) == cluster.wanted(probe), probe
