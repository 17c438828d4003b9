"""What the platform makes of a topology, and its drawings."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import BadRequest
from netloom.model import codec
from netloom.model.kinds.sandbox import SandboxLink, Topology
from netloom.model.topology import exports, views
from netloom.model.topology.instance import Known, instance, known_links, numbered
from netloom.model.topology.reading import read

VALID = Path(__file__).parent / "valid"
HIDDEN = (
    (VALID / "good.yml")
    .read_text()
    .replace("    flavor: standard.small\n", "    flavor: standard.small\n    hidden: true\n", 1)
    .replace("cidr: 10.10.20.0/24", "cidr: 10.10.20.0/24\n    accessible_by_user: false")
)


FIELDS = (
    "small-sandbox", "server-router", "home-switch", "10.10.20.5", "10.10.30.1", "10.10.30.0/24", "100.100.100.0/29",
    "internet", "accessible", "winrm", "debian-12", "standard.small", "home",
)  # fmt: skip
"""Texts of the file, in each kind of field."""


def topology(text: str | None = None) -> Topology:
    found = read((text or (VALID / "good.yml").read_text()).encode()).topology
    assert found is not None
    return found


def test_links_are_numbered_in_the_order_of_the_platform() -> None:
    assert [(link.name, link.node, link.ip) for link in numbered(topology())] == [
        ("link-1", "man", "192.168.128.1"),
        ("link-2", "man", "100.100.100.1"),
        ("link-3", "server", "192.168.128.2"),
        ("link-4", "home", "192.168.128.3"),
        ("link-5", "server", "10.10.20.5"),
        ("link-6", "home", "10.10.30.5"),
        ("link-7", "server-router", "192.168.128.4"),
        ("link-8", "server-router", "100.100.100.2"),
        ("link-9", "home-router", "192.168.128.5"),
        ("link-10", "home-router", "100.100.100.3"),
        ("link-11", "server-router", "10.10.20.1"),
        ("link-12", "home-router", "10.10.30.1"),
    ]


def test_of_several_routers_the_first_by_name_is_the_gateway() -> None:
    text = (VALID / "good.yml").read_text()
    both = text.replace("groups:", "  - {router: home-router, network: server-switch, ip: 10.10.20.2}\ngroups:")
    assert instance(topology(both)).gateways == {"server-switch": "home-router", "home-switch": "home-router"}
    assert views.tree(topology(both)).count("server 10.10.20.5") == 1


def test_the_front_end_sees_nothing_hidden() -> None:
    routers = exports.front_end(topology(HIDDEN))["routers"]
    assert routers[0]["subnets"] == [{"name": "server-switch", "cidr": "10.10.20.0/24", "hosts": []}]
    assert routers[1] == {
        "name": "home-router",
        "os_type": "linux",
        "gui_access": False,
        "is_accessible": True,
        "ip": "10.10.30.1",
        "subnets": [
            {
                "name": "home-switch",
                "cidr": "10.10.30.0/24",
                "hosts": [
                    {
                        "name": "home",
                        "os_type": "windows",
                        "gui_access": False,
                        "is_accessible": True,
                        "ip": "10.10.30.5",
                    }
                ],
            }
        ],
    }
    assert not routers[0]["is_accessible"]


def test_the_inventory_has_the_groups_of_the_platform() -> None:
    found = exports.inventory(topology(HIDDEN))["all"]
    groups = {name: set(group["hosts"]) for name, group in found["children"].items()}
    assert groups == {
        "accessible": {"server", "home"},
        "hidden_hosts": {"server"},
        "hosts": {"server", "home"},
        "management": {"man"},
        "routers": {"server-router", "home-router"},
        "ssh_nodes": {"server", "server-router", "home-router"},
        "user_accessible_nodes": {"home", "home-router"},
        "windows_hosts": {"home"},
        "winrm_nodes": {"home"},
    }
    assert found["hosts"]["man"]["interfaces"] == [
        {
            "def_gw_ip": "",
            "routes": [
                {"gw": "100.100.100.2", "mask": "255.255.255.0", "net": "10.10.20.0"},
                {"gw": "100.100.100.3", "mask": "255.255.255.0", "net": "10.10.30.0"},
            ],
        }
    ]
    assert found["hosts"]["server-router"] == {
        "ansible_host": "192.168.128.4",
        "ansible_user": "debian",
        "user_network_ip": "10.10.20.1",
        "interfaces": [{"def_gw_ip": "100.100.100.1", "routes": []}],
        "ip_forward": True,
    }


def test_monitored_machines_vpn_gateways_and_docker_hosts_have_groups() -> None:
    monitored = exports.inventory(topology((VALID / "good-monitoring.yml").read_text()))["all"]["children"]
    assert set(monitored["monitored_hosts_tcp"]["hosts"]) == {"server"}
    assert set(monitored["monitored_hosts_icmp"]["hosts"]) == {"home"}
    containers = read((VALID / "good-containers.yml").read_bytes()).containers
    vpn = exports.inventory(topology((VALID / "good-vpn.yml").read_text()), containers)["all"]["children"]
    assert set(vpn["vpn_entrypoints"]["hosts"]) == {"server"}
    assert set(vpn["docker_hosts"]["hosts"]) == {"server"}


def test_the_tree_shows_routers_networks_hosts_and_qualities() -> None:
    text = (
        (VALID / "good.yml")
        .read_text()
        .replace("router_mappings:", "  - {host: home, network: tap, ip: 10.9.0.5}\nrouter_mappings:")
    )
    text = text.replace("net_mappings:", "  - {name: tap, cidr: 10.9.0.0/24}\nnet_mappings:", 1)
    links = [SandboxLink(host="home", network="home-switch", rate="10mbit", delay="20ms", jitter="2ms")]
    assert views.tree(topology(text), links) == (
        "small-sandbox\n"
        "├── server-router 100.100.100.2\n"
        "│   └── server-switch 10.10.20.0/24 at 10.10.20.1\n"
        "│       └── server 10.10.20.5\n"
        "├── home-router 100.100.100.3\n"
        "│   └── home-switch 10.10.30.0/24 at 10.10.30.1\n"
        "│       └── home 10.10.30.5 rate 10mbit delay 20ms jitter 2ms\n"
        "└── no router\n"
        "    └── tap 10.9.0.0/24\n"
        "        └── home 10.9.0.5\n"
    )


def test_the_svg_is_xml_with_a_box_for_each_machine_and_network_and_a_line_for_each_link() -> None:
    drawing = ElementTree.fromstring(views.svg(topology()))
    space = "{http://www.w3.org/2000/svg}"
    assert len(drawing.findall(f"{space}rect")) == 7
    assert len(drawing.findall(f"{space}line")) == 6


def test_mermaid_and_dot_have_every_link() -> None:
    assert '    n3 -- "10.10.20.5" --- n5\n' in views.mermaid(topology())
    assert '    "server-switch" -- "server" [label="10.10.20.5"];\n' in views.dot(topology())
    assert views.dot(topology()).count(" -- ") == views.mermaid(topology()).count(" --- ") == 6


@pytest.mark.parametrize(
    "user",
    [
        'a b\\n  ProxyCommand evil\\"',
        "{{ lookup('pipe', 'touch /tmp/pwned') }}",
        "{% raw %}",
        "-oProxyCommand=x",
        "a b",
    ],
)
@pytest.mark.parametrize("key", ["mgmt_user", "man_user"])
def test_a_user_that_could_be_a_template_or_a_line_is_refused(key: str, user: str) -> None:
    text = (VALID / "good.yml").read_text().replace("mgmt_user: debian", f'{key}: "{user}"')
    assert any("is not a user name" in str(finding) for finding in read(text.encode()).findings)


@given(st.text(max_size=30), st.sampled_from(FIELDS))
def test_no_text_of_a_valid_topology_is_a_template_of_ansible_or_a_line_of_ssh(text: str, field: str) -> None:
    for one in (text, f"{{{{ {text} }}}}", f"{field}%{{{{ {text} }}}}", f"{field}\n{text}", f"{field}\n"):
        reading = read((VALID / "good.yml").read_text().replace(field, json.dumps(one)).encode())
        if reading.topology is None:
            continue
        shown = json.dumps(exports.inventory(reading.topology))
        assert "{{" not in shown
        assert "{%" not in shown
        lines = exports.ssh_config(reading.topology).split("\n")
        assert {line.split()[0] for line in lines if line} == {"Host", "HostName", "User", "ProxyJump"}


@pytest.mark.parametrize("user", ["debian", "None", "Administrator", "ops@range.example", "_svc-1.2"])
def test_names_of_users_are_taken(user: str) -> None:
    text = (VALID / "good.yml").read_text().replace("mgmt_user: debian", f'mgmt_user: "{user}"')
    assert f"    User {user}\n" in exports.ssh_config(topology(text))


LINKS = """
link-2: {ip: 100.100.100.9, mac: "0a:00:00:00:00:02"}
link-3: {ip: 192.168.128.77}
"""


def test_the_addresses_of_a_sandbox_that_runs_take_the_place_of_assumed_ones() -> None:
    known = known_links(LINKS.encode())
    found = exports.inventory(topology(HIDDEN), known=known)["all"]["hosts"]
    first = topology(HIDDEN).hosts[0].name
    assert found[first]["ansible_host"] == "192.168.128.77"
    assert found["man"]["interfaces"][0]["mac"] == "0a:00:00:00:00:02"
    routers = [found[router.name]["interfaces"][0] for router in topology(HIDDEN).routers]
    assert {one["def_gw_ip"] for one in routers} == {"100.100.100.9"}
    listed = exports.links(topology(HIDDEN), known)
    assert listed["link-3"] == {"ip": "192.168.128.77"}
    assert known_links(codec.encode_yaml(listed).encode()) == {name: Known(**one) for name, one in listed.items()}
    assert "HostName 192.168.128.77" in exports.ssh_config(topology(HIDDEN), known)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("link-1: 10.0.0.1", "each with ip and mac"),
        ("link-1: {ip: here}", "link-1.ip: 'here' is no IP address"),
        ("link-1: {ip: 10.0.0.1, mac: '1'}", "link-1.mac: '1' is no MAC address"),
        ("link-1: {ip: 10.0.0.1, name: x}", "name"),
    ],
)
def test_links_that_are_none_are_refused(text: str, problem: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(problem)):
        known_links(text.encode())


def test_links_of_another_topology_are_refused() -> None:
    made = topology(HIDDEN)
    link = instance(made).first[made.net_mappings[0].host]
    with pytest.raises(BadRequest, match="the links are of another topology"):
        exports.links(made, {link.name: Known("192.0.2.1")})
