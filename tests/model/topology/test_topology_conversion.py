"""Files of the old platform become topologies."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.model.kinds.sandbox import Placement, SandboxLink, Topology, TopologyHost
from netloom.model.topology import legacy, ssh_config
from netloom.model.topology.reading import Format, Reading, read

VALID = Path(__file__).parent / "valid"


def reading(name: str) -> Reading:
    return read((VALID / name).read_bytes())


def links(topology: Topology | None) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]:
    assert topology is not None
    hosts = [(one.host, one.network, one.ip) for one in topology.net_mappings]
    return hosts, [(one.router, one.network, one.ip) for one in topology.router_mappings]


def test_a_sandbox_json_becomes_a_topology_with_one_router_for_joined_networks() -> None:
    found = reading("good.json")
    assert found.format is Format.LEGACY
    assert links(found.topology) == (
        [("host1", "lan1", "10.0.1.2"), ("host2", "lan2", "10.0.2.2")],
        [("lr-0", "lan1", "10.0.1.1"), ("lr-0", "lan2", "10.0.2.1")],
    )
    assert found.topology is not None
    assert found.topology.name == "routing"
    assert [host.extra for host in found.topology.hosts] == [{"physRole": "desktop"}, None]
    assert found.links == (SandboxLink(host="host1", network="lan1", rate="512000kbit", delay="20ms", jitter="2ms"),)


def test_networks_that_no_route_joins_have_routers_of_their_own() -> None:
    networks = [{"name": f"n{i}", "ip": f"10.0.{i}.0", "prefix": 24} for i in range(5)]
    routes = [{"lan1": "n0", "lan2": "n1"}, {"lan1": "n1", "lan2": "n4"}, {"lan1": "n4", "lan2": "n0"}]
    sandbox = {"networks": {"networks": networks}, "routes": {"routes": routes}}
    found = read(json.dumps(sandbox).encode()).topology
    by_router: dict[str, set[str]] = {}
    for router, network, _ in links(found)[1]:
        by_router.setdefault(router, set()).add(network)
    assert by_router == {"lr-0": {"n0", "n1", "n4"}, "lr-1": {"n2"}, "lr-2": {"n3"}}


def test_the_router_takes_the_first_address_that_no_host_has() -> None:
    hosts = [{"name": f"h{i}", "lan": "n", "ip": f"10.0.0.{i}"} for i in (1, 2, 4)] + [{"name": "lr-0", "lan": "n"}]
    sandbox = {"networks": {"networks": [{"name": "n", "ip": "10.0.0.0", "prefix": 29}]}, "hosts": {"hosts": hosts}}
    found = links(read(json.dumps(sandbox).encode()).topology)
    assert found[1] == [("lr-1", "n", "10.0.0.3")]  # A host has the name lr-0.
    assert found[0][-1] == ("lr-0", "n", "10.0.0.5")


def test_a_network_without_a_free_address_is_an_error_of_the_host() -> None:
    hosts = [{"name": f"h{i}", "lan": "n"} for i in range(3)]
    sandbox = {"networks": {"networks": [{"name": "n", "ip": "10.0.0.0", "prefix": 30}]}, "hosts": {"hosts": hosts}}
    found = read(json.dumps(sandbox).encode())
    assert {finding.message for finding in found.findings} == {'no free address in network "n"'}
    assert len(found.findings) == 2


@pytest.mark.parametrize(
    ("text", "quality", "unknown"),
    [
        ("rate 512000kbit", {"rate": "512000kbit"}, ""),
        (
            "Rate 10Mbit delay 20ms 2ms loss 0.5%",
            {"rate": "10mbit", "delay": "20ms", "jitter": "2ms", "loss": "0.5%"},
            "",
        ),
        ("delay 100 loss 1", {"delay": "100us", "loss": "1%"}, ""),
        ("rate 1000 burst 1500", {"rate": "1000bit", "burst": "1500b"}, ""),
        ("rate 64kbps delay 20msec 1msecs", {"rate": "512kbit", "delay": "20ms", "jitter": "1ms"}, ""),
        ("rate 1.5mbps delay 1sec loss random 2%", {"rate": "12.0mbit", "delay": "1s", "loss": "2%"}, ""),
        ("loss random", {"loss": "random"}, ""),
        ("", {}, ""),
        ("rate", {}, "rate"),
        ("loss 1% reorder 5%", {"loss": "1%"}, "reorder"),
    ],
)
def test_properties_of_links_are_read_as_tc_writes_them(text: str, quality: dict[str, str], unknown: str) -> None:
    assert legacy.parse_properties(text) == (quality, unknown)


@given(st.text(max_size=40))
def test_any_properties_are_a_quality_or_an_unknown_word(text: str) -> None:
    quality, unknown = legacy.parse_properties(text)
    assert set(quality) <= {"rate", "burst", "delay", "jitter", "loss"}
    assert quality or unknown or not text.split()


def test_a_dump_of_kypodb_becomes_a_topology() -> None:
    found = reading("good.sql")
    assert found.format is Format.KYPODB
    assert links(found.topology) == (
        [("host1", "net1", "10.0.1.2")],
        [("lr-0", "net1", "10.0.1.1"), ("lr-0", "net2", "10.0.2.1")],
    )
    assert found.links == (SandboxLink(host="host1", network="net1", rate="800000kbit"),)


def test_a_dump_may_have_other_tables_quotes_and_addresses() -> None:
    text = """\
-- a dump
INSERT INTO "property" (name, value, measurable_id) VALUES ('it''s; (odd', 'x', 1);
INSERT INTO sandbox (name, id) VALUES ('network (name, x)', 1);
insert into public.network (name, connectable_id, cidr4) values ('net1', 1, '10.0.1.0/24');
INSERT INTO link (src_connectable_id, dst_connectable_id) VALUES (3, 1),
  (1, 3);
INSERT INTO node (name, measurable_id) VALUES ('host1', 1), ('idle', 2);
INSERT INTO node_interface (connectable_id, measurable_id, address4) VALUES (3, 1, '10.0.1.77');
"""
    found = read(text.encode())
    assert links(found.topology)[0] == [("host1", "net1", "10.0.1.77")]
    assert [str(finding) for finding in found.findings] == [
        '7:62: warning: The host "idle" is in no network: add it to net_mappings.'
    ]


@given(st.text(alphabet="'(),; \n\tabc1\\", max_size=80))
def test_any_dump_gives_a_topology_or_findings(text: str) -> None:
    for start in (
        "COPY network (name, connectable_id, cidr4) FROM stdin;\n",
        "INSERT INTO node (name, measurable_id) VALUES",
    ):
        found = read((start + text).encode())
        assert found.format is Format.KYPODB
        assert found.topology is not None or not found.is_valid


def test_an_ssh_config_says_which_machine_is_behind_which() -> None:
    machines = reading("good.conf").machines
    assert [(one.names, one.address, one.jump) for one in machines] == [
        (("range",), "192.0.2.1", ""),
        (("range-net1",), "172.16.1.2", "range"),
        (("range-host1",), "10.0.1.2", "range-net1"),
    ]


def test_hosts_are_placed_on_their_jump_hosts() -> None:
    machines = reading("good.conf").machines
    topology = Topology(name="t", hosts=(TopologyHost(name="host1"), TopologyHost(name="host2")))
    assert ssh_config.placement(topology, machines) == Placement(hosts={"host1": "range-net1"})
    assert ssh_config.placement(Topology(name="t"), machines) is None


@pytest.mark.parametrize(
    ("block", "jump"),
    [
        ("ProxyJump a,root@b:22", "b"),
        ("ProxyJump none", ""),
        ("proxyjump=b", "b"),
        ("ProxyCommand /usr/bin/ssh -F cfg -i key -W %h:%p b", "b"),
        ("ProxyCommand ssh b -W %h:%p", "b"),
        ("ProxyCommand nc %h %p", ""),
        ("ProxyJump a\n  ProxyJump b", "a"),
    ],
)
def test_the_jump_host_is_the_last_one_of_the_first_directive(block: str, jump: str) -> None:
    machines, _ = ssh_config.parse(f"Host x\n  {block}\n")
    assert [machine.jump for machine in machines] == [jump]


@given(st.text(max_size=80))
def test_any_ssh_config_gives_machines_or_findings(text: str) -> None:
    found = read(("Host a\n" + text).encode())
    assert found.machines or not found.is_valid
