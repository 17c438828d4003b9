"""Random resources of all kinds that are planned, from so few names that they have to do with each other."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from netloom.model.document import Resource
from netloom.model.registry import KINDS

SPACES = st.sampled_from(["default", "default", "other"])
NETWORKS = st.sampled_from(["blue", "red", "out"])
NAMES = st.sampled_from(["a", "b", "c"])
NODES = st.sampled_from(["n1", "n2"])
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["web", "db"]), max_size=2)
SELECTORS = st.one_of(
    st.builds(lambda labels: {"matchLabels": labels}, LABELS),
    st.just({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
    st.just({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}),
)
MAYBE = st.booleans()
BLOCKS = {"blue": "10.1", "red": "10.2", "out": "192.0"}


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def _all(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(fields)


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return one | other


NETWORK_SPECS = st.one_of(
    _some(mtu=st.sampled_from([1400, 9000])),
    st.just({"fabric": "vxlan"}),
    _all(
        provider=st.builds(
            _both, st.just({"physicalNetwork": "phys"}), _some(vlan=st.sampled_from([7, 8]), nodes=SELECTORS)
        )
    ),
)
DHCP = _some(
    enabled=MAYBE,
    domainName=st.sampled_from(["lab", "x.lab"]),
    dnsServers=st.sampled_from([["10.1.0.53"], ["fd00::53"]]),
    options=st.sampled_from([{"router": ""}, {"mtu": "1300"}, {"mtx": "1"}]),
)


@st.composite
def subnets(draw: st.DrawFn) -> dict[str, Any]:
    network = draw(NETWORKS)
    cidr = draw(
        st.sampled_from([f"{BLOCKS[network]}.0.0/24", f"{BLOCKS[network]}.1.0/24", f"fd00:{len(network)}::/64"])
    )
    return {"network": network, "cidr": cidr, **draw(_some(dhcp=DHCP))}


@st.composite
def attachments(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    network, host = draw(NETWORKS), draw(st.integers(5, 8))
    spec: dict[str, Any] = {"node": draw(NODES), "network": network}
    spec |= draw(
        _some(securityProfiles=st.lists(NAMES, max_size=2, unique=True), allowedAddresses=st.just(["10.9.0.9"]))
    )
    ips = draw(
        st.sampled_from(
            [
                [],
                [f"{BLOCKS[network]}.0.{host}/24"],
                [f"{BLOCKS[network]}.1.{host}/24", f"fd00:{len(network)}::{host}/64"],
            ]
        )
    )
    if draw(st.integers(0, 2)) == 0:
        spec["port"] = {"type": "child", "parent": draw(NAMES), "vlan": draw(st.sampled_from([7, 8]))}
    return spec, {"ips": ips, "mac": f"02:00:00:00:00:0{host}", "vni": 5000} if ips else {}


POLICIES = st.builds(
    _both,
    _all(priority=st.sampled_from([100, 200])),
    st.one_of(
        _some(action=st.sampled_from(["allow", "drop"]), ports=st.just([{"protocol": "tcp", "port": 80}])),
        _some(action=st.just("drop"), to=st.sampled_from([["10.2.0.0/24"], ["fd00:4::/64"], ["10.0.0.0/8"]])),
        _all(action=st.just("reroute"), via=st.sampled_from([["10.2.0.7"], ["10.1.0.7", "10.2.0.7"], ["fd00:4::7"]])),
    ),
)


@st.composite
def routers(draw: st.DrawFn) -> dict[str, Any]:
    spec: dict[str, Any] = {"networks": [{"network": "blue"}, *draw(st.sampled_from([[], [{"network": "red"}]]))]}
    if draw(MAYBE):
        spec["networks"][0]["ips"] = ["10.1.0.2/24"]
    if draw(MAYBE):
        nodes = draw(st.lists(NODES, max_size=2, unique=True))
        spec["gateway"] = {"network": "out", "ips": ["192.0.0.10/24"], "nextHop": "192.0.0.1", "nodes": nodes}
        spec["gateway"]["snat"] = draw(MAYBE)
        if draw(MAYBE):
            spec["nat"] = [{"type": "dnat_and_snat", "external": "192.0.0.20", "logical": "10.1.0.5"}]
    if draw(MAYBE):
        spec["routes"] = [{"to": "10.99.0.0/16", "via": draw(st.sampled_from(["10.1.0.7", "10.77.0.7"]))}]
    if draw(MAYBE):
        spec["policies"] = draw(st.lists(POLICIES, max_size=3))
    return spec


PEERS = st.one_of(
    st.just({"cidr": "10.0.0.0/8", "except": ["10.9.0.0/16"]}),
    st.builds(lambda name: {"profile": name}, NAMES),
    st.builds(lambda chosen: {"selector": chosen}, SELECTORS),
)
PORTS = st.sampled_from([[], [{"protocol": "tcp", "port": 80, "endPort": 90}], [{"protocol": "icmp"}]])
ACTIONS = st.sampled_from(["allow", "drop", "reject"])
INGRESS = st.lists(
    st.builds(
        lambda peers, ports, action: {"from": peers, "ports": ports, "action": action},
        st.lists(PEERS, max_size=2),
        PORTS,
        ACTIONS,
    ),
    max_size=2,
)
EGRESS = st.lists(st.builds(lambda peers: {"to": peers, "log": True}, st.lists(PEERS, max_size=2)), max_size=2)
PROFILE_SPECS = _some(selector=SELECTORS, ingress=INGRESS, egress=EGRESS)
VIPS = st.lists(
    st.sampled_from([{"ip": "10.1.0.100", "port": 80, "targetPort": 8080}, {"ip": "fd00:4::100", "port": 80}]),
    min_size=1,
    max_size=2,
    unique_by=lambda vip: vip["ip"],
)


@st.composite
def balancers(draw: st.DrawFn) -> dict[str, Any]:
    spec = {"vips": draw(VIPS), "networks": draw(st.lists(NETWORKS, min_size=1, max_size=2, unique=True))}
    spec |= draw(_some(routers=st.lists(NAMES, max_size=2, unique=True), affinitySeconds=st.just(60)))
    spec |= draw(_some(healthCheck=st.just({})))
    if draw(MAYBE):
        return spec | {"selector": draw(SELECTORS)}
    return spec | {"endpoints": [{"ip": "10.1.0.5", "port": 8080}]}


PLACES = st.one_of(
    st.builds(lambda name: {"attachment": name}, NAMES),
    st.builds(lambda name: {"network": name}, NETWORKS),
    st.builds(lambda name: {"node": name}, NODES),
    st.builds(lambda chosen: {"selector": chosen}, SELECTORS),
)
SHAPING_SPECS = st.builds(
    _both,
    _all(**{"from": PLACES}),
    st.builds(_both, _all(rate=st.sampled_from(["10mbit", "1gbit"])), _some(to=PLACES, delay=st.just("20ms"))),
)
MIRROR_SPECS = st.sampled_from(
    [
        {"source": {"attachment": one}, "destination": {"attachment": other}, "direction": direction}
        for one in "ab"
        for other in "bc"
        for direction in ("both", "ingress")
        if one != other
    ]
    + [{"source": {"network": "red"}, "destination": {"attachment": "a"}}]
)


REMOTE_MACS = st.lists(
    st.builds(
        lambda host, ips: {"mac": f"02:00:00:00:00:0{host}", "ips": ips},
        st.integers(5, 9),
        st.lists(st.sampled_from(["10.1.0.1", "10.1.0.5", "10.1.0.6", "fd00:4::9"]), max_size=2, unique=True),
    ),
    max_size=3,
    unique_by=lambda one: one["mac"],
)
REMOTE_VTEP_SPECS = st.builds(
    _both,
    _all(
        evpnNetwork=NAMES,
        network=NETWORKS,
        node=NODES,
        address=st.sampled_from(["192.0.2.1", "192.0.2.2", "172.31.0.2"]),
        vni=st.sampled_from([10, 5000]),
        localVNI=st.just(5000),
    ),
    _some(flood=MAYBE, macs=REMOTE_MACS),
)


def _resource(
    kind: str, namespace: str, name: str, labels: dict[str, str], spec: Any, status: dict[str, Any]
) -> Resource:
    metadata = {"name": name, "labels": labels} | ({"namespace": namespace} if namespace else {})
    document = {"apiVersion": "netloom.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
    found = KINDS.kind("netloom.dev/v1alpha1", kind)
    return found.decode(msgspec.json.encode(document | ({"status": status} if status else {})))


def _kind(
    kind: str,
    specs: st.SearchStrategy[dict[str, Any]],
    *,
    names: st.SearchStrategy[str] = NAMES,
    namespaces: st.SearchStrategy[str] = SPACES,
    statuses: st.SearchStrategy[dict[str, Any]] | None = None,
) -> st.SearchStrategy[Resource]:
    return st.builds(
        _resource, st.just(kind), namespaces, names, LABELS, specs, st.just({}) if statuses is None else statuses
    )


BASE: list[Resource] = [
    *(_resource("Node", "", name, {}, {"underlayIP": f"172.31.0.{name[1]}"}, {}) for name in ("n1", "n2")),
    *(_resource("Network", "default", name, {}, {}, {"vni": 5000}) for name in ("blue", "red")),
    _resource("Network", "default", "out", {}, {"provider": {"physicalNetwork": "phys"}}, {"vni": 5001}),
    *(
        _resource(
            "Subnet",
            "default",
            name,
            {},
            {"network": network, "cidr": cidr, "dhcp": {"domainName": "lab"}},
            {"validated": True},
        )
        for name, network, cidr in [
            ("a", "blue", "10.1.0.0/24"),
            ("b", "red", "10.2.0.0/24"),
            ("c", "out", "192.0.0.0/24"),
            ("d", "blue", "fd00:4::/64"),
        ]
    ),
]
"""A world in which most of the rest makes sense."""
RESOURCES: st.SearchStrategy[Resource] = st.one_of(
    _kind(
        "Node",
        _all(underlayIP=st.sampled_from(["172.31.0.1", "172.31.0.2"])),
        names=NODES,
        namespaces=st.just(""),
        statuses=_some(lastHeartbeat=st.just("2026-11-15T12:00:00Z")),
    ),
    _kind("Network", NETWORK_SPECS, names=NETWORKS, statuses=_some(vni=st.just(5000))),
    _kind("Subnet", subnets(), statuses=_some(validated=st.just(True), used=st.integers(0, 3))),
    st.builds(
        lambda namespace, name, labels, both: _resource("NetworkAttachment", namespace, name, labels, *both),
        SPACES,
        NAMES,
        LABELS,
        attachments(),
    ),
    _kind("Router", routers()),
    _kind("SecurityProfile", PROFILE_SPECS),
    _kind("LoadBalancer", balancers()),
    _kind("Shaping", SHAPING_SPECS),
    _kind("Mirror", MIRROR_SPECS),
    _kind("BGPSpeaker", _all(asn=st.just(65001), routerID=st.just("172.31.0.1"), node=NODES)),
    _kind("EVPNNetwork", _all(network=NETWORKS, speaker=NAMES), statuses=_some(forwarding=MAYBE)),
    _kind("RemoteVTEP", REMOTE_VTEP_SPECS, names=st.sampled_from(["a.0", "b.0", "a.1"])),
)
