"""Topologies without faults, made at random."""

from typing import Any

from hypothesis import strategies as st

from netloom.model.document import Document

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)


@st.composite
def topology_documents(draw: st.DrawFn) -> Document:
    """Give documents that have no errors; there may be warnings."""
    hosts = [f"h{i}" for i in range(draw(st.integers(0, 6)))]
    routers = [f"r{i}" for i in range(draw(st.integers(0, 3)))]
    networks = [f"n{i}" for i in range(draw(st.integers(0, 4)))]
    bits = draw(st.sampled_from([24, 25, 28]))
    mapped = _links(draw, hosts, networks)
    routed = _links(draw, routers, networks)
    # Routers from .1, hosts from .5: the smallest network has 14 addresses.
    net_mappings = [
        {"host": h, "network": n, "ip": f"10.{networks.index(n)}.0.{5 + hosts.index(h)}"} for h, n in mapped
    ]
    router_mappings = [
        {"router": r, "network": n, "ip": f"10.{networks.index(n)}.0.{1 + routers.index(r)}"} for r, n in routed
    ]
    document: Document = {
        "name": draw(st.sampled_from(["small", "aB-9", "x"])),
        "hosts": [_host(draw, name) for name in hosts],
        "routers": [{"name": name, **_machine(draw)} for name in routers],
        "networks": [
            {"name": name, "cidr": f"10.{i}.0.0/{bits}", "accessible_by_user": draw(st.booleans())}
            for i, name in enumerate(networks)
        ],
        "net_mappings": net_mappings,
        "router_mappings": router_mappings,
        "groups": [{"name": "all-of-them", "nodes": [*hosts, *routers]}],
    }
    if draw(st.booleans()):
        document["wan"] = {"name": "internet", "cidr": "100.64.0.0/28"}
    monitored = draw(st.booleans())
    if monitored and hosts:
        document["monitoring_targets"] = {"tcp": [{"node": hosts[0], "targets": [{"port": 22, "interface": "e"}]}]}
        document["vpn"] = {"entrypoints": [{"name": hosts[0], "routes": ["10.0.0.0/8"]}]}
    return document


def _links(draw: st.DrawFn, machines: list[str], networks: list[str]) -> list[tuple[str, str]]:
    pairs = [(machine, network) for machine in machines for network in networks]
    return draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []


def _machine(draw: st.DrawFn) -> dict[str, Any]:
    machine: dict[str, Any] = {"flavor": draw(TEXT)}
    if draw(st.booleans()):
        box = {"image": draw(TEXT), "mgmt_protocol": draw(st.sampled_from(["SSH", "winrm", "Ssh"]))}
        machine["base_box"] = box | draw(st.sampled_from([{}, {"mgmt_user": "root"}, {"man_user": "root"}]))
    return machine


def _host(draw: st.DrawFn, name: str) -> dict[str, Any]:
    extra = st.dictionaries(
        TEXT, st.one_of(st.booleans(), st.integers(-9, 9), TEXT, st.lists(TEXT, max_size=2)), max_size=2
    )
    more = {"hidden": draw(st.booleans()), "block_internet": draw(st.booleans()), "extra": draw(extra)}
    return {"name": name, **_machine(draw), **more, "volumes": [{"size": draw(st.integers(1, 99))}]}
