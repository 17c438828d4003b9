"""Files of the old platform become topologies."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.model.document import Document, Json
from netloom.model.kinds.sandbox import Placement, SandboxLink, Topology, TopologyHost
from netloom.model.topology import legacy, ssh_config
from netloom.model.topology.reading import Format, Reading, read
from netloom.plan.linux.documents import METRIC, plan_documents
from netloom.plan.sandbox.declared import Declared
from netloom.plan.sandbox.transit import next_hops
from tests.model.topology.samples import FOLDER
from tests.plan.test_sandbox import sandbox

VALID = Path(__file__).parent / "valid"


def reading(name: str) -> Reading:
    return read((VALID / name).read_bytes())


def links(topology: Topology | None) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]:
    assert topology is not None
    hosts = [(one.host, one.network, one.ip) for one in topology.net_mappings]
    return hosts, [(one.router, one.network, one.ip) for one in topology.router_mappings]


def test_a_sandbox_json_becomes_a_topology_with_a_router_for_each_network_and_a_cable_for_each_route() -> None:
    found = reading("good.json")
    assert found.format is Format.LEGACY
    assert links(found.topology) == (
        [("host1", "lan1", "10.0.1.2"), ("host2", "lan2", "10.0.2.2")],
        [
            ("lr-0", "lan1", "10.0.1.1"),
            ("lr-1", "lan2", "10.0.2.1"),
            ("lr-0", "cable-0", "100.64.0.1"),
            ("lr-1", "cable-0", "100.64.0.2"),
        ],
    )
    assert found.topology is not None
    assert found.topology.name == "routing"
    assert [host.extra for host in found.topology.hosts] == [{"physRole": "desktop"}, None]
    assert found.links == (SandboxLink(host="host1", network="lan1", rate="512000kbit", delay="20ms", jitter="2ms"),)


def test_networks_that_no_route_joins_do_not_meet_at_man() -> None:
    networks = [{"name": f"n{i}", "ip": f"10.0.{i}.0", "prefix": 24} for i in range(5)]
    routes = [{"lan1": "n0", "lan2": "n1"}, {"lan1": "n1", "lan2": "n4"}, {"lan1": "n4", "lan2": "n0"}]
    sandbox = {"networks": {"networks": networks}, "routes": {"routes": routes}}
    found = read(json.dumps(sandbox).encode()).topology
    by_router: dict[str, set[str]] = {}
    for router, network, _ in links(found)[1]:
        by_router.setdefault(router, set()).add(network)
    assert by_router == {
        "lr-0": {"n0", "cable-0", "cable-2"},
        "lr-1": {"n1", "cable-0", "cable-1"},
        "lr-2": {"n2"},
        "lr-3": {"n3"},
        "lr-4": {"n4", "cable-1", "cable-2"},
    }
    assert found is not None
    assert not any(one.accessible_by_user for one in found.networks)
    declared = Declared(found)
    assert declared.are_joined("n0", "n4")
    assert not declared.are_joined("n0", "n2")


def test_a_route_that_is_there_twice_or_leads_back_is_one_cable_or_none_and_cables_need_room() -> None:
    networks: list[Document] = [{"name": f"n{i}", "ip": f"10.0.{i}.0", "prefix": 24} for i in range(2)]
    routes = [{"lan1": "n0", "lan2": "n1"}, {"lan1": "n1", "lan2": "n0"}, {"lan1": "n1", "lan2": "n1"}]
    sandbox: Document = {"networks": {"networks": networks}, "routes": {"routes": routes}}
    found = read(json.dumps(sandbox).encode()).topology
    assert found is not None
    assert [one.name for one in found.networks] == ["n0", "n1", "cable-0"]
    networks.append({"name": "cable-0", "ip": "100.64.0.0", "prefix": 11})
    found = read(json.dumps(sandbox).encode()).topology
    assert found is not None
    assert [(one.name, one.cidr) for one in found.networks][3:] == [("cable-1", "100.96.0.0/30")]
    networks.append({"name": "n4", "ip": "100.96.0.0", "prefix": 11})
    messages = [one.message for one in read(json.dumps(sandbox).encode()).findings]
    assert "the networks leave no room in 100.64.0.0/10 for cables" in messages


def rows(**more: list[dict[str, Json]]) -> Document:
    """Return the rows that the old tools pass on: the samples have them, too."""
    found = json.loads((FOLDER / "legacy-json/kyponet-tests.expected.json").read_text())
    case: Document = found["test_config_kypodb.py"]["test_decode_kypodb_config"]
    return {**case, **more}


def test_rows_of_kypodb_in_json_become_a_topology() -> None:
    found = read(json.dumps(rows()).encode())
    assert found.format is Format.KYPODB
    expected = rows()["expected_decoded_config"]
    assert found.topology is not None
    named = {one.name: one.cidr for one in found.topology.networks if not one.name.startswith("cable-")}
    assert named == {one["name"]: one["cidr4"] for one in expected["networks"]}
    assert links(found.topology)[0] == [("host1", "net1", "10.0.1.2")]
    assert [one[:2] for one in links(found.topology)[1]] == [
        ("lr-0", "net1"), ("lr-1", "net2"), ("lr-0", "cable-0"), ("lr-1", "cable-0")
    ]  # fmt: skip
    plain = {key.partition("_get_")[2].partition("_table")[0]: value for key, value in rows().items() if "_get_" in key}
    assert read(json.dumps(plain).encode()).topology == found.topology


def test_a_wrong_row_of_kypodb_in_json_is_named_at_its_place() -> None:
    text = json.dumps(
        {"network": [{"name": "n", "cidr4": "10.0.0.0/24", "connectable_id": 1}, {}], "link": 7}, indent=1
    )
    assert [str(one) for one in read(text.encode()).findings] == [
        "8:3: a row of network has no name",
        "10:10: the rows of link are not a list",
    ]


def test_hops_and_metrics_between_networks_are_those_of_the_old_tools() -> None:
    found = json.loads((FOLDER / "legacy-json/kyponet-tests.expected.json").read_text())["test_routing.py"]
    for case in found.values():
        graph: dict[str, list[str]] = {one["name"]: [] for one in case["config_networks"]}
        for one in case["config_network_links"]:
            graph[one["networkA"]].append(one["networkB"])
            graph[one["networkB"]].append(one["networkA"])
        for one in case["expected_config_networks"]:
            detours: dict[tuple[str, str], dict[str, int]] = {}
            routes = {
                (end, hop, METRIC * length)
                for end in graph
                for hop, length in next_hops(graph, [end], detours).get(one["name"], {}).items()
            }
            wanted = {(route["dstNetwork"], route["nextHopNetwork"], route["metric"]) for route in one["routes"]}
            assert routes == wanted


@pytest.mark.parametrize("name", ["test_routes", "test_multipath_routes"])
def test_documents_of_a_legacy_file_have_the_routes_and_metrics_of_the_old_tools(name: str) -> None:
    case = json.loads((FOLDER / "legacy-json/kyponet-tests.expected.json").read_text())["test_routing.py"][name]
    networks = [
        {"name": one["name"], "ip": one["cidr4"].partition("/")[0], "prefix": 24} for one in case["config_networks"]
    ]
    routes = [{"lan1": one["networkA"], "lan2": one["networkB"]} for one in case["config_network_links"]]
    topology = read(json.dumps({"networks": {"networks": networks}, "routes": {"routes": routes}}).encode()).topology
    assert topology is not None
    plan = plan_documents(sandbox(msgspec.to_builtins(topology), backend="linux"), {"n1": "192.0.2.1"})
    blocks = {one["name"]: one["cidr4"] for one in case["config_networks"]}
    router_of = {one.network: one.router for one in topology.router_mappings if one.network in blocks}
    at = {one.ip: one.router for one in topology.router_mappings}
    found: dict[str, set[tuple[str, str, int]]] = {}
    for one in plan.documents["n1"]["routes"]:
        if one["to"] != "0.0.0.0/0" and one["via"] in at:
            found.setdefault(one["namespace"], set()).add((one["to"], at[one["via"]], one["metric"]))
    for one in case["expected_config_networks"]:
        wanted = {
            (blocks[route["dstNetwork"]], router_of[route["nextHopNetwork"]], route["metric"])
            for route in one["routes"]
        }
        assert found[f"s1-{router_of[one['name']]}"] == wanted


def test_a_shared_pattern_of_an_ssh_config_places_hosts_behind_the_machines_it_means() -> None:
    text = (
        "Host range\n    HostName 192.0.2.1\n    User root\n"
        "Host range-x 172.16.1.*\n    User root\n    ProxyCommand ssh -q -W %h:%p range\n"
        "Host range-host1\n    HostName 10.0.1.2\n    ProxyCommand ssh -q -W %h:%p 172.16.1.2\n"
    )
    found = read(text.encode())
    assert found.format is Format.SSH_CONFIG
    assert [(one.names, one.jump) for one in found.machines] == [
        (("range",), ""),
        (("range-x", "172.16.1.*"), "range"),
        (("range-host1",), "172.16.1.2"),
    ]
    assert found.findings == ()  # A pattern names the jump host.
    topology = Topology(name="t", hosts=(TopologyHost(name="host1"),))
    assert ssh_config.placement(topology, found.machines) == Placement(hosts={"host1": "172.16.1.2"})


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
        [
            ("lr-0", "net1", "10.0.1.1"),
            ("lr-1", "net2", "10.0.2.1"),
            ("lr-0", "cable-0", "100.64.0.1"),
            ("lr-1", "cable-0", "100.64.0.2"),
        ],
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
