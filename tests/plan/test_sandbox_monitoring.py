"""Monitoring targets as single checks."""

from typing import Any

import msgspec

from netloom.model.kinds.sandbox import Topology
from netloom.plan.sandbox.monitoring import checks


def found(**monitoring: Any) -> list[tuple[str, str, int]]:
    topology = {
        "name": "t",
        "hosts": [{"name": "Web"}],
        "routers": [{"name": "r"}],
        "networks": [{"name": "a", "cidr": "10.1.0.0/24"}, {"name": "b", "cidr": "fd00::/64"}],
        "net_mappings": [
            {"host": "Web", "network": "a", "ip": "10.1.0.5"},
            {"host": "Web", "network": "b", "ip": "fd00::5"},
        ],
        "router_mappings": [{"router": "r", "network": "a", "ip": "10.1.0.1"}],
        "monitoring_targets": monitoring,
    }
    return [(one.name, one.address, one.port) for one in checks(msgspec.convert(topology, Topology))]


def test_interfaces_are_links_by_number_and_other_names_the_first() -> None:
    targets = [{"interface": "eth0"}, {"interface": "eth1"}, {"interface": "ens3"}, {"interface": "eth7"}]
    assert found(icmp=[{"node": "Web", "targets": targets}, {"node": "r", "targets": targets[:1]}]) == [
        ("icmp Web 10.1.0.5", "10.1.0.5", 0),
        ("icmp Web fd00::5", "fd00::5", 0),
        ("icmp Web 10.1.0.5", "10.1.0.5", 0),
        ("icmp Web eth7", "", 0),
        ("icmp r 10.1.0.1", "10.1.0.1", 0),
    ]


def test_an_address_is_itself_and_a_block_the_address_in_it() -> None:
    targets = [
        {"address": "10.1.0.5", "port": 22},
        {"address": "fd00::/64", "port": 22},
        {"address": "10.9.0.0/24", "port": 22},
    ]
    assert found(tcp=[{"node": "Web", "targets": targets}]) == [
        ("tcp Web 10.1.0.5:22", "10.1.0.5", 22),
        ("tcp Web [fd00::5]:22", "fd00::5", 22),
        ("tcp Web 10.9.0.0/24:22", "", 22),
    ]


def test_pages_are_served_by_machines_of_the_topology_only() -> None:
    urls = ["http://web/x", "https://10.1.0.5:8443", "http://[fd00::5]/", "http://example.org", "http://web:99999/"]
    assert [one[1:] for one in found(http={"targets": [{"url": url} for url in urls]})] == [
        ("10.1.0.5", 80),
        ("10.1.0.5", 8443),
        ("fd00::5", 80),
        ("", 80),
        ("", 0),
    ]


def test_a_topology_without_targets_has_no_checks() -> None:
    assert found() == []
    assert list(checks(msgspec.convert({"name": "t"}, Topology))) == []
