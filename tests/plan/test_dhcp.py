"""What machines are told by DHCP, and that nothing OVN cannot read is ever written."""

import csv
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netloom.plan.ovn.desired import DesiredRows
from netloom.plan.ovn.layer2.dhcp import server_mac
from netloom.plan.ovn.layer2.dhcp_options import OPTIONS_V4, OPTIONS_V6, written
from netloom.plan.problem import Problem, Unit
from netloom.plan.rows import Column, Outcome, Ref, Row
from tests.plan.northd import misread, write
from tests.plan.planning import planned, resources
from tests.support.ovn import Central, ovn_central

NETWORK = "{kind: Network, metadata: {name: blue}, spec: {%s}}"
A = Unit("Subnet", "default", "a")


def subnet(dhcp: str = "{}", cidr: str = "10.0.0.0/24", more: str = "", validated: str = "true") -> str:
    spec = f"{{network: blue, cidr: '{cidr}', dhcp: {dhcp}{more}}}"
    return f"{{kind: Subnet, metadata: {{name: a}}, spec: {spec}, status: {{validated: {validated}}}}}"


def options(*specs: str) -> Any:
    rows = planned(*specs).desired.rows
    return rows[Ref("DHCP_Options", "default/a")].columns["options"]


def test_a_v4_subnet_tells_what_a_machine_needs() -> None:
    dhcp = "{leaseSeconds: 600, dnsServers: [10.0.0.53], domainName: lab.example}"
    row = planned(NETWORK % "", subnet(dhcp)).desired.rows[Ref("DHCP_Options", "default/a")]
    assert row.columns == {
        "cidr": "10.0.0.0/24",
        "options": {
            "server_id": "10.0.0.1",
            "server_mac": server_mac("default", "a"),
            "lease_time": "600",
            "router": "10.0.0.1",
            "dns_server": "10.0.0.53",
            "domain_name": '"lab.example"',
            "mtu": "1442",
        },
    }


def test_a_v6_subnet_tells_servers_and_leaves_the_domain_to_the_router() -> None:
    dhcp = '{dnsServers: ["fd00::53", "fd00::54"], domainName: lab.example}'
    assert options(NETWORK % "mtu: 1400", subnet(dhcp, "fd00::/64")) == {
        "server_id": server_mac("default", "a"),
        "dns_server": "{fd00::53, fd00::54}",
    }


def test_the_mac_of_a_server_stays_and_is_nobodys_hardware() -> None:
    assert server_mac("default", "a") == server_mac("default", "a") != server_mac("default", "b")
    assert int(server_mac("default", "a")[:2], 16) & 3 == 2


@pytest.mark.parametrize(
    ("network", "mtu"),
    [
        ("", "1442"),
        ("mtu: 9000", "9000"),
        ("provider: {physicalNetwork: p}", None),
        ("mtu: 1400, provider: {physicalNetwork: p}", "1400"),
    ],
)
def test_the_mtu_is_the_networks_or_what_a_tunnel_leaves(network: str, mtu: str | None) -> None:
    assert options(NETWORK % network, subnet()).get("mtu") == mtu


def test_the_gateway_is_the_one_given_and_a_tiny_block_has_none() -> None:
    assert options(NETWORK % "", subnet(more=", gateway: 10.0.0.254"))["router"] == "10.0.0.254"
    tiny = options(NETWORK % "", subnet(cidr="10.0.0.8/31"))
    assert "router" not in tiny
    assert tiny["server_id"] == "10.0.0.8"


@pytest.mark.parametrize(
    "specs",
    [
        [NETWORK % "", subnet(validated="false")],
        [NETWORK % "", subnet("{enabled: false}")],
        [subnet()],
    ],
    ids=["not validated", "off", "no Network"],
)
def test_nothing_is_told_where_nobody_asks(specs: list[str]) -> None:
    wanted = planned(*specs).desired
    assert Ref("DHCP_Options", "default/a") not in wanted.rows
    assert not wanted.problems


def test_dhcp_where_ovn_does_not_carry_the_network_is_said_to_be_served_by_nobody() -> None:
    wanted = planned(NETWORK % "fabric: vxlan", subnet()).desired
    assert not wanted.rows
    ((unit, (problem,)),) = wanted.problems.items()
    assert (unit.kind, problem.reason) == ("Subnet", "WrongFabric")
    assert problem.message.startswith("spec.dhcp: Network ")


def test_people_may_say_more_say_otherwise_and_leave_out() -> None:
    found = options(NETWORK % "", subnet('{options: {mtu: "1300", router: "", ntp_server: "10.0.0.5,10.0.0.6"}}'))
    assert found["mtu"] == "1300"
    assert found["ntp_server"] == "{10.0.0.5, 10.0.0.6}"
    assert "router" not in found


def test_what_must_be_told_cannot_be_left_out() -> None:
    planner = planned(NETWORK % "", subnet('{options: {lease_time: "", server_id: " ", server_mac: ""}}'))
    found: Any = planner.desired.rows[Ref("DHCP_Options", "default/a")].columns["options"]
    assert found["lease_time"] == "3600"
    assert found["server_id"] == "10.0.0.1"
    assert [one.reason for one in planner.desired.problems[A]] == ["BadOption"] * 3


def test_unknown_options_are_told_with_the_nearest_known() -> None:
    spec = '{options: {ntp-servers: 10.0.0.5, domain_search: x, qqqqqqq: "1"}, dnsServers: ["fd00::53"]}'
    planner = planned(NETWORK % "", subnet(spec))
    family, domain, near, far = planner.desired.problems[A]
    assert family == Problem(
        "WrongFamily", "spec.dhcp.dnsServers[0]: DHCP for IPv4 cannot announce fd00::53: it is ignored"
    )
    assert domain.message.endswith("OVN has no such option for IPv4, only for IPv6")
    assert near.message.endswith("did you mean ntp_server?")
    assert "it has T1, T2, arp_cache_timeout" in far.message
    assert Ref("DHCP_Options", "default/a") in planner.desired.rows


ROUTERS = """
kind: Network
metadata: {name: red}
spec: {}
---
kind: Subnet
metadata: {name: red}
spec: {network: red, cidr: 10.2.0.0/24}
status: {validated: true}
---
kind: Subnet
metadata: {name: red-v6}
spec: {network: red, cidr: "fd02::/64"}
status: {validated: true}
---
kind: Router
metadata: {name: side}
spec:
  networks: [{network: blue, ips: [%s]}, {network: red}]
  routes: [{to: 10.99.0.0/16, via: 10.2.0.7}, {to: "fd99::/64", via: "fd02::7"}]
"""


def test_a_router_beside_the_gateway_is_told_as_routes() -> None:
    specs = NETWORK % "", ROUTERS % "10.0.0.2/24"
    beyond = "10.2.0.0/24,10.0.0.2, 10.99.0.0/16,10.0.0.2"
    assert options(*specs, subnet())["classless_static_route"] == f"{{{beyond}, 0.0.0.0/0,10.0.0.1}}"
    alone = options(*specs, subnet('{options: {router: ""}}'))
    assert alone["classless_static_route"] == f"{{{beyond}}}"
    other = options(*specs, subnet('{options: {router: "10.0.0.3, 10.0.0.4"}}'))
    assert other["classless_static_route"] == f"{{{beyond}, 0.0.0.0/0,10.0.0.3}}"
    own = options(*specs, subnet('{options: {classless_static_route: "10.7.0.0/16,10.0.0.9"}}'))
    assert own["classless_static_route"] == "{10.7.0.0/16,10.0.0.9}"


def test_more_routes_than_an_option_has_room_for_are_left_out_and_told_of() -> None:
    routes = ", ".join(f"{{to: 10.99.{number}.0/24, via: 10.2.0.7}}" for number in range(40))
    many = (ROUTERS % "10.0.0.2/24").replace("{to: 10.99.0.0/16, via: 10.2.0.7}", routes)
    planner = planned(NETWORK % "", many, subnet())
    found: Any = planner.desired.rows[Ref("DHCP_Options", "default/a")].columns["options"]
    told = found["classless_static_route"].strip("{}").split(", ")
    assert len(told) == 1 + (255 - 5) // 8
    assert told[-1] == "0.0.0.0/0,10.0.0.1"
    (problem,) = planner.desired.problems[A]
    assert problem.reason == "TooManyRoutes"
    assert problem.message.endswith("hosts do not get 10.99.36.0/24, nor 9 more")


@pytest.mark.parametrize(
    ("name", "fits", "too_long"),
    [
        ("hostname", "h" * 255, "h" * 256),
        ("hostname", "é" * 127, "é" * 128),
        ("ntp_server", ",".join(["10.0.0.5"] * 63), ",".join(["10.0.0.5"] * 64)),
        ("domain_search_list", ",".join(["a" * 49] * 5), ",".join(["a" * 50] * 5)),
        ("classless_static_route", "10.0.0.0/8,10.0.0.1," * 42, "10.0.0.0/8,10.0.0.1," * 43),
    ],
)
def test_what_is_longer_than_an_option_can_be_is_left_out(name: str, fits: str, too_long: str) -> None:
    assert written({name: fits}, 4)[1] == []
    good, (problem,) = written({name: too_long}, 4)
    assert good == {}
    assert problem.message.endswith("is not short enough: an option has at most 255 bytes; the option is ignored")


@pytest.mark.parametrize("ips", ["10.0.0.1/24", "", "10.77.0.2/24"])
def test_the_gateway_itself_needs_no_routes(ips: str) -> None:
    assert "classless_static_route" not in options(NETWORK % "", ROUTERS % ips, subnet())


def test_a_second_router_that_comes_later_is_told() -> None:
    planner = planned(NETWORK % "", subnet())
    for resource in resources(ROUTERS % "10.0.0.2/24"):
        planner.put(resource)
    assert Ref("DHCP_Options", "default/a") in planner.flush().rows


GOOD = {
    "bool": ["0", "1", "true", "False"],
    "domains": ["lab.example", "lab.example, example", '"a.b,c.d"'],
    "flag": ["true", "false"],
    "host_id": ["10.0.0.5", "tftp.example", '"tftp.example"'],
    "ipv4": ["10.0.0.5", "10.0.0.5, 10.0.0.6", "{10.0.0.5, 10.0.0.6}", "10.0.0.5 10.0.0.6"],
    "ipv6": ["fd00::5", "{fd00::5,fd00::6}"],
    "mac": ["02:00:00:00:00:0A"],
    "static_routes": ["10.9.0.0/16,10.0.0.1", "{10.9.0.0/16,10.0.0.1, 0.0.0.0/0,10.0.0.1}", "10.9.0.9,10.0.0.1"],
    "str": ["text", '"text"', 'with "quotes" and \\ and ü', "; next; drop;", "a b"],
    "uint8": ["0", "255"],
    "uint16": ["0", "65535"],
    "uint32": ["0", "4294967295"],
}
BAD = {
    "bool": ["2", "yes"],
    "domains": [",", "a..b", "ü"],
    "flag": ["1"],
    "host_id": ["a\tb"],
    "ipv4": ["fd00::5", "10.0.0", "{}", "10.0.0.5; next"],
    "ipv6": ["10.0.0.5", "fd00::zz"],
    "mac": ["02:00", "02-00-00-00-00-0a"],
    "static_routes": ["10.9.0.0/16", "10.0.0.1,10.9.0.0/16", "fd00::/64,10.0.0.1"],
    "str": ["a\x7fb"],
    "uint8": ["256", "-1", "1.0", "٣"],
    "uint16": ["65536"],
    "uint32": ["4294967296"],
}


@pytest.mark.parametrize(("name", "kind"), [*OPTIONS_V4.items(), *OPTIONS_V6.items()])
def test_values_are_read_by_their_type(name: str, kind: str) -> None:
    version = 4 if OPTIONS_V4.get(name) == kind else 6
    for value in GOOD[kind]:
        assert written({name: value}, version)[1] == [], value
    for value in BAD[kind]:
        good, (problem,) = written({name: value}, version)
        assert good == {}
        assert problem.reason == "BadOption"
        assert problem.message.startswith(f"spec.dhcp.options[{name}]: ")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(OPTIONS_V4)), st.text(max_size=20))
def test_no_value_breaks_out_of_its_place(name: str, value: str) -> None:
    good, _ = written({name: value}, 4)
    text = good.get(name, "")
    if text.startswith('"'):
        inner = text[1:-1].replace("\\\\", "").replace('\\"', "")
        assert text.endswith('"')
        assert '"' not in inner
    else:
        assert set(text) <= set("0123456789abcdef.:/{}, ")


@pytest.fixture(scope="module")
def central(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Central]:
    with ovn_central(tmp_path_factory.mktemp("ovn")) as central:
        yield central


@pytest.mark.ovn
def test_the_options_are_those_ovn_has(central: Central) -> None:
    central.nbctl("--wait=sb", "sync")

    def known(table: str) -> dict[str, str]:
        listed = central.sbctl("--format=csv", "--no-headings", "--columns=name,type", "list", table)
        return dict(line for line in csv.reader(listed.splitlines()) if len(line) == 2)

    assert known("DHCP_Options") | {"server_mac": "mac"} == OPTIONS_V4 | {"offerip": "ipv4"}
    assert known("DHCPv6_Options") | {"dhcpv6_stateless": "flag"} == OPTIONS_V6 | {"ia_addr": "ipv6"}


@pytest.mark.ovn
@pytest.mark.parametrize("version", [4, 6])
def test_ovn_can_read_whatever_is_written(central: Central, version: int) -> None:
    known = OPTIONS_V4 if version == 4 else OPTIONS_V6
    cidr, ip = ("10.0.0.0/24", "10.0.0.{}") if version == 4 else ("fd00::/64", "fd00::{}")
    must = {"server_id": "10.0.0.1", "server_mac": "02:00:00:00:00:01", "lease_time": "60"}
    base = must if version == 4 else {"server_id": "02:00:00:00:00:01"}
    wanted, ports, rows = DesiredRows(), set(), []
    for number in range(max(len(values) for values in GOOD.values())):
        given = base | {name: GOOD[kind][number % len(GOOD[kind])] for name, kind in known.items()}
        text, problems = written(given, version)
        assert not problems
        name = f"p{number}"
        options = Row("DHCP_Options", name, {"cidr": cidr, "options": text})
        columns: dict[str, Column] = {
            "name": name,
            "addresses": frozenset({f"02:00:00:00:01:0{number} {ip.format(number + 5)}"}),
            f"dhcpv{version}_options": options.ref,
        }
        rows += [options, Row("Logical_Switch_Port", name, columns)]
        ports.add(Ref("Logical_Switch_Port", name))
    switch = Row("Logical_Switch", "s", {"name": "s", "ports": frozenset(ports)})
    wanted.replace(A, Outcome(rows=[*rows, switch]))
    write(central, wanted)
    flows = central.sbctl("lflow-list", "s")
    assert f"put_dhcp{'v6' if version == 6 else ''}_opts" in flows
    assert misread(central, wanted) == ""
