"""Somebody else uses the same OVN and the same switches: what is theirs stays as it is, to the byte, whatever we do."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from netloom.lab import Lab
from tests.lab import labs
from tests.lab.worlds import MANIFESTS, World, document
from tests.run.serving import netloom
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

OWNER = "netloom-owner"
KEPT_BY_OVN = {
    "NB_Global": {"nb_cfg", "nb_cfg_timestamp", "sb_cfg", "sb_cfg_timestamp", "hv_cfg", "hv_cfg_timestamp"},
    "Logical_Switch_Port": {"up"},
}
"""Columns that OVN itself writes."""
KEPT_BY_OVS = {
    # A device of a switch that asks for no MTU has the least of the bridge's.
    "Interface": {"statistics", "status", "ofport", "ifindex", "link_resets", "link_state", "admin_state", "mac_in_use"}
    | {"mtu"},
    "Port": {"statistics", "status"},
    "Bridge": {"status"},
    "Mirror": {"statistics"},
}
# Names like ours, and of everything that we write.
STRANGERS = [
    "ls-add theirs/lan -- set Logical_Switch theirs/lan external_ids:neutron=yes other_config:subnet=10.75.0.0/24",
    "lsp-add theirs/lan theirs/one",
    "lsp-set-addresses theirs/one '02:00:00:00:75:01 10.75.0.1'",
    "lsp-add theirs/lan theirs/two",
    "lsp-set-addresses theirs/two '02:00:00:00:75:02 10.75.0.2'",
    "lsp-set-port-security theirs/two '02:00:00:00:75:02 10.75.0.2'",
    "acl-add theirs/lan to-lport 1002 'outport == \"theirs/one\" && icmp4' allow-related",
    "qos-add theirs/lan from-lport 100 'inport == \"theirs/one\" && udp' rate=100000",
    "lr-add foreign-router -- set Logical_Router foreign-router external_ids:neutron=yes",
    "lrp-add foreign-router foreign-foot 02:00:00:00:75:fe 10.75.0.254/24",
    "lsp-add theirs/lan foreign-plug -- lsp-set-type foreign-plug router"
    " -- lsp-set-options foreign-plug router-port=foreign-foot -- lsp-set-addresses foreign-plug router",
    "lr-route-add foreign-router 10.76.0.0/16 10.75.0.1",
    "lr-policy-add foreign-router 100 'ip4.src == 10.75.0.2' drop",
    "lr-nat-add foreign-router snat 203.0.113.1 10.75.0.0/24",
    "create Address_Set name=foreign_set addresses=10.75.0.1,10.75.0.2",
    "pg-add foreign_group theirs/one",
    "acl-add foreign_group from-lport 900 'inport == @foreign_group && ip4.dst == $foreign_set' allow",
    "lb-add foreign-lb 10.75.0.100:80 10.75.0.1:80,10.75.0.2:80 tcp",
    "ls-lb-add theirs/lan foreign-lb",
    "create DHCP_Options cidr=10.75.0.0/24 options:lease_time=3600 external_ids:theirs=yes",
    "--id=@d create DNS records:theirs=10.75.0.1 -- add Logical_Switch theirs/lan dns_records @d",
    "ha-chassis-group-add foreign-ha -- ha-chassis-group-add-chassis foreign-ha n1 7",
    "meter-add foreign-meter drop 100 kbps",
    "set NB_Global . external_ids:theirs=yes",
]


WHOSE_NAMES_ARE_TAKEN = """\
{apiVersion: netloom.dev/v1alpha1, kind: Network, metadata: {name: taken}, spec: {}}
---
{apiVersion: netloom.dev/v1alpha1, kind: Network, metadata: {name: free}, spec: {}}
---
{apiVersion: netloom.dev/v1alpha1, kind: Subnet, metadata: {name: free}, spec: {network: free, cidr: 10.77.0.0/24}}
---
{apiVersion: netloom.dev/v1alpha1, kind: NetworkAttachment, metadata: {name: held}, spec: {network: free, node: n1}}
---
{apiVersion: netloom.dev/v1alpha1, kind: NetworkAttachment, metadata: {name: fine}, spec: {network: free, node: n1}}
"""


@pytest.fixture(scope="module")
def foreign(lab: Lab) -> Iterator[World]:
    """Somebody else's rows and devices, and none of ours yet."""
    made = World(lab, "foreign")
    central = "set -e\n" + "".join(f"ovn-nbctl {line}\n" for line in STRANGERS)
    lab.exec("central", ["sh", "-c", central])
    for number, node in enumerate(("n1", "n2"), start=1):
        name = {1: "one", 2: "two"}[number]
        lab.exec(node, ["sh", "-c", SWITCH.format(name=name, number=number)])
    lab.exec("central", ["ovn-nbctl", "--wait=hv", "sync"])
    try:
        yield made
    finally:
        made.end()
        lab.exec("central", ["sh", "-c", "".join(f"ovn-nbctl {line}\n" for line in FAREWELL)])
        for node in ("n1", "n2"):
            lab.exec(node, ["sh", "-c", "ovs-vsctl --if-exists del-port theirs -- --if-exists del-br br-theirs"])


SWITCH = """set -e
ovs-vsctl add-br br-theirs -- set Bridge br-theirs datapath_type=netdev external_ids:theirs=yes
ovs-vsctl add-port br-int theirs -- set Interface theirs type=internal mac='"02:00:00:00:75:0{number}"' \
  external_ids:iface-id=theirs/{name} external_ids:theirs=yes
ovs-vsctl -- --id=@p get Port theirs -- --id=@m create Mirror name=theirs select_src_port=@p output_vlan=9 \
  -- set Bridge br-theirs mirrors=@m
ethtool -K theirs tx off >/dev/null
ip address add 10.75.0.{number}/24 dev theirs
ip link set theirs up
"""
FAREWELL = [
    "--if-exists ls-del theirs/lan",
    "--if-exists lr-del foreign-router",
    "destroy Address_Set foreign_set",
    "pg-del foreign_group",
    "--if-exists lb-del foreign-lb",
    "meter-del foreign-meter",
    "ha-chassis-group-del foreign-ha",
    "remove NB_Global . external_ids theirs",
    "destroy DHCP_Options $(ovn-nbctl --bare --columns=_uuid find DHCP_Options external_ids:theirs=yes)",
    "destroy DNS $(ovn-nbctl --bare --columns=_uuid find DNS records:theirs=10.75.0.1)",
]


def test_what_is_theirs_stays_through_everything_we_do(foreign: World) -> None:
    lab = foreign.lab
    before = theirs(lab)
    tables = {"Logical_Switch", "ACL", "QoS", "NAT", "Load_Balancer", "Address_Set", "Port_Group", "DNS", "HA_Chassis"}
    assert tables <= {key.split()[1] for key in before}
    wait_until(lambda: labs.pings(lab, "n1", "10.75.0.2"), what="their machines to reach each other")

    text = (MANIFESTS / "foreign.yaml").read_text()
    foreign.apply(text)
    foreign.ready(text)
    assert foreign.answers("one", "10.74.0.12", "ping")
    assert touched(lab, before) == {}, "after apply"
    assert len(ours(lab)) > 30

    spec = foreign.get("router", "r1")["spec"]
    foreign.put("Router", "r1", {**spec, "nat": []})
    foreign.put("SecurityProfile", "web", {"selector": {"matchLabels": {"app": "web"}}, "ingress": []})
    foreign.delete("shaping/slow")
    foreign.blocked(("one", "10.74.0.12", "ping"))
    assert touched(lab, before) == {}, "after changes"

    # A new connection, and a new process: both compare everything.
    foreign.apply(text)
    spoiled = drift(lab)
    for name in ("ovn-nb", "serve"):
        labs.killed_comes_back(lab, name)
    wait_until(lambda: ours(lab).keys() == spoiled.keys() and mended(lab), what="our own rows to be mended")
    assert touched(lab, before) == {}, "after sweeps"

    drift(lab)
    answer = netloom("doctor", "--repair", "--lab", lab.layout.folder, check=False)
    wait_until(lambda: mended(lab), what="our own rows to be mended")
    assert "Repaired: restored." in answer.out, answer
    assert touched(lab, before) == {}, "after doctor --repair"

    foreign.cli("delete", "-f", "-", "--timeout", "50s", stdin=text)
    wait_until(lambda: not ours(lab), what="our rows to be gone")
    assert touched(lab, before) == {}, "after delete"
    assert labs.pings(lab, "n1", "10.75.0.2")


def test_a_name_that_somebody_else_has_is_a_condition_and_heals_when_it_is_free(foreign: World) -> None:
    lab = foreign.lab
    lab.exec("central", ["ovn-nbctl", "ls-add", "foreign/taken", "--", "ls-add", "theirs/more"])
    # The database itself refuses a second port of a name.
    lab.exec("central", ["ovn-nbctl", "lsp-add", "theirs/more", "foreign/held"])
    before = theirs(lab)
    try:
        foreign.apply(WHOSE_NAMES_ARE_TAKEN)
        foreign.ready(json.dumps(document("NetworkAttachment", "fine", {})))
        for kind, name in (("network", "taken"), ("networkattachment", "held")):
            said = foreign.becomes(kind, name, "False", "NameTaken", condition="Programmed")
            assert f"foreign/{name}" in said
        assert touched(lab, before) == {}
    finally:
        lab.exec("central", ["ovn-nbctl", "ls-del", "foreign/taken", "--", "ls-del", "theirs/more"])
    wait_until(lambda: {"Logical_Switch foreign/taken", "Logical_Switch_Port foreign/held"} <= ours(lab).keys(),
               what="both to be made", timeout=120)  # fmt: skip
    foreign.ready(json.dumps(document("NetworkAttachment", "held", {})))
    for kind, name in (("network", "taken"), ("networkattachment", "held")):
        wait_until(partial(well, foreign, kind, name), what="the condition to go", interval=0.2)
    foreign.cli("delete", "-f", "-", "--timeout", "50s", stdin=WHOSE_NAMES_ARE_TAKEN)
    wait_until(lambda: not ours(lab), what="all to be gone")


def well(made: World, kind: str, name: str) -> bool:
    """Whether nothing stands in the way of an object."""
    return bool(made.condition(kind, name, "Programmed").get("status", "True") == "True")


def theirs(lab: Lab) -> dict[str, str]:
    """Return all that is not ours, in the northbound and on switches, but for what OVN and OVS keep there."""
    nb = rows(lab, "central", "unix:" + str(lab.layout.ovn / "nb.sock"), "OVN_Northbound", KEPT_BY_OVN)
    found = {f"nb {table}": not_ours(every) for table, every in nb.items()}
    for node in ("n1", "n2"):
        switch = rows(lab, node, f"unix:{lab.layout.node(node) / 'db.sock'}", "Open_vSwitch", KEPT_BY_OVS)
        for table in ("Bridge", "Port", "Interface", "Mirror"):
            found[f"{node} {table}"] = [row for row in switch[table] if "theirs" in row["name"]]
    return {
        f"{table} {row['_uuid'][1]} {column}": json.dumps(value)
        for table, every in found.items()
        for row in every
        for column, value in row.items()
    }


def touched(lab: Lab, before: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Return what of theirs is not as it was."""
    now = theirs(lab)
    return {
        key: (before.get(key, ""), now.get(key, "")) for key in before | now if before.get(key, "") != now.get(key, "")
    }


def not_ours(every: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows without our mark."""
    return [row for row in every if OWNER not in json.dumps(row.get("external_ids", ""))]


def ours(lab: Lab) -> dict[str, Any]:
    """Return the rows with our mark, by what they are."""
    nb = rows(lab, "central", "unix:" + str(lab.layout.ovn / "nb.sock"), "OVN_Northbound", KEPT_BY_OVN)
    found = {}
    for table, every in nb.items():
        for row in every:
            ids = dict(row.get("external_ids", ["map", []])[1])
            if OWNER in ids and "/foreign/" in ids["netloom-of"]:
                found[f"{table} {ids['netloom-key']}"] = row
    return found


def rows(
    lab: Lab, place: str, remote: str, database: str, kept: dict[str, set[str]]
) -> dict[str, list[dict[str, Any]]]:
    """Return a whole database, in an order that means nothing."""
    dumped = lab.exec(place, ["ovsdb-client", "--format=json", "dump", remote, database]).stdout
    found = {}
    for line in dumped.splitlines():
        table = json.loads(line)
        name = table["caption"].removesuffix(" table")
        every = [dict(zip(table["headings"], row, strict=True)) for row in table["data"]]
        for row in every:
            for column in kept.get(name, ()):
                row.pop(column, None)
        found[name] = sorted(every, key=json.dumps)
    return found


def drift(lab: Lab) -> dict[str, Any]:
    """Spoil some of our rows, and return what was there."""
    before = ours(lab)
    lab.exec("central", ["ovn-nbctl", "set", "Logical_Switch_Port", "foreign/one", "addresses=unknown"])
    lab.exec("central", ["ovn-nbctl", "lsp-del", "foreign/two"])
    return before


def mended(lab: Lab) -> bool:
    """Whether what was spoilt is as it was."""
    shown = lab.exec(
        "central",
        [
            "ovn-nbctl",
            "--if-exists",
            "get",
            "Logical_Switch_Port",
            "foreign/one",
            "addresses",
            "--",
            "--if-exists",
            "get",
            "Logical_Switch_Port",
            "foreign/two",
            "addresses",
        ],
        check=False,
    ).stdout
    return "10.74.0.11" in shown and "10.74.0.12" in shown
