"""A vxlan Network that EVPN extends: machines of other sites are reached, and broadcasts pass between sites once."""

import pytest
from msgspec import structs

from netloom.openflow import packets
from netloom.openflow.packets import Packet
from netloom.openflow.pipeline import Sent
from netloom.plan.vxlan.fabric import LocalPort, VxlanPlan
from netloom.plan.vxlan.layout import link_local
from netloom.plan.vxlan.sites import RECEIVERS
from tests.plan.vxlan_nodes import VTEP, Nodes, mac, nodes, number, profile, vtep

EAST, WEST, QUIET = "198.51.100.1", "198.51.100.2", "198.51.100.3"
X, Y = "02:00:00:00:01:01", "02:00:00:00:01:02"
MANY, ALL_NODES = 0x01005E0000FB, 0x333300000001


def world() -> Nodes:
    """Return two nodes with three ports, and two sites that take broadcasts and one that does not."""
    found = nodes("n1", "n2")
    found.plug("a", "n1", "10.0.0.1", "fd00::1")
    found.plug("b", "n1", "10.0.0.2", "fd00::2")
    found.plug("c", "n2", "10.0.0.3", "fd00::3")
    found.plug("a2", "n1", "10.0.0.1", "fd00::1", vni=43)
    found.put(
        vtep("east", EAST, {X: ("10.0.0.101", "fd00::101")}),
        vtep("west", WEST, {Y: ("10.0.0.102", "fd00::102")}, vni=77),
        vtep("quiet", QUIET, {}, flood=False),
    )
    return found


def sent(at: Nodes) -> list[tuple[str, int]]:
    """Return where packets went by the tunnel, and with which VNI; and forget them."""
    found = [(str(packets_to(one)), one.packet["tun_id"]) for _, one in at.log]
    at.log.clear()
    return sorted(found)


def packets_to(one: Sent) -> str:
    return ".".join(str(octet) for octet in one.packet["tun_dst"].to_bytes(4, "big"))


def echo(at: Nodes, sender: str, to: str, dst: str, version: int = 4, **more: int) -> Packet:
    mine = at.ports[sender]
    ends = {"src": number(mine.ips[version // 5]), "dst": number(dst)}
    return packets.echo(**{**ends, "version": version, "dl_src": mac(mine.mac), "dl_dst": mac(to), **more})


def from_site(at: Nodes, packet: Packet, address: str = EAST, *, vni: int = 42, node: str = "n1") -> list[Sent]:
    """Return what a node does with a packet of a VTEP."""
    return at.step(at.nodes[node], packet.having(tun_id=vni, tun_src=number(address)), VTEP)


@pytest.mark.parametrize(("version", "address"), [(4, "10.0.0.101"), (6, "fd00::101")])
def test_a_machine_of_another_site_is_reached_at_its_vtep_and_reaches_us(version: int, address: str) -> None:
    at = world()
    out = echo(at, "a", X, address, version)
    assert at.send("a", out) == {}
    assert sent(at) == [(EAST, 42)]
    (back,) = from_site(at, packets.reply(out))
    assert at.at(at.nodes["n1"], back.port) == "a"


def test_a_vtep_is_sent_its_own_vni() -> None:
    at = world()
    at.send("a", echo(at, "a", Y, "10.0.0.102"))
    assert sent(at) == [(WEST, 77)]


def test_a_question_for_a_machine_of_another_site_goes_to_its_vtep_alone() -> None:
    at = world()
    own = mac(at.ports["a"].mac)
    at.send("a", packets.arp_request(mac=own, sender=number("10.0.0.1"), target=number("10.0.0.102")))
    assert sent(at) == [(WEST, 77)]
    at.send("a", packets.solicitation(mac=own, src=number("fd00::1"), target=number("fd00::101")))
    assert sent(at) == [(EAST, 42)]


def broadcasts(at: Nodes) -> dict[str, Packet]:
    """Return what a sends to all: questions for what nobody has, for itself, and more."""
    own, v4, v6 = mac(at.ports["a"].mac), number("10.0.0.1"), number("fd00::1")
    link = link_local(own)
    everyone = packets.BROADCAST
    return {
        "unknown v4": packets.arp_request(mac=own, sender=v4, target=number("10.0.0.77")),
        "unknown v6": packets.solicitation(mac=own, src=v6, target=number("fd00::77")),
        "announcement v4": packets.arp_request(mac=own, sender=v4, target=v4),
        "announcement by reply": packets.arp_reply(mac=own, sender=v4, to_mac=everyone, target=v4),
        "announcement v6": packets.advertisement(mac=own, src=v6, to_mac=ALL_NODES, dst=number("ff02::1")),
        "detection of duplicates": packets.solicitation(mac=own, src=0, target=v6),
        "detection of duplicates on the link": packets.solicitation(mac=own, src=0, target=link),
        "broadcast": packets.echo(src=v4, dst=number("10.0.0.255"), dl_src=own, dl_dst=everyone),
        "multicast v4": packets.echo(src=v4, dst=number("224.0.0.251"), dl_src=own, dl_dst=MANY),
        "multicast v6": packets.echo(src=v6, dst=number("ff02::1"), version=6, dl_src=own, dl_dst=ALL_NODES),
    }


@pytest.mark.parametrize("kind", broadcasts(world()))
def test_a_broadcast_goes_once_to_each_site_that_takes_it_and_to_no_node_of_this_one(kind: str) -> None:
    at = world()
    assert at.send("a", broadcasts(at)[kind]) == {}
    assert sent(at) == [(EAST, 42), (WEST, 77)]


def test_a_question_for_a_port_of_this_site_stays_in_it() -> None:
    at = world()
    for target, receiver in (("10.0.0.2", "b"), ("10.0.0.3", "c")):
        question = packets.arp_request(mac=mac(at.ports["a"].mac), sender=number("10.0.0.1"), target=number(target))
        assert at.send("a", question).keys() == {receiver}
    assert sent(at) == [("192.0.2.2", 42)]


def test_a_network_that_is_not_extended_is_not_flooded() -> None:
    at = world()
    for packet in broadcasts(at).values():
        changed = {"dl_src": mac(at.ports["a2"].mac)}
        if packet["arp_op"]:
            changed["arp_sha"] = changed["dl_src"]
        assert at.send("a2", packet.having(**changed)) == {}
    assert sent(at) == []


def test_an_unknown_mac_is_not_flooded() -> None:
    at = world()
    assert at.send("a", echo(at, "a", "02:00:00:00:07:07", "10.0.0.77")) == {}
    assert sent(at) == []


def test_a_vtep_with_several_objects_gets_one_copy_and_none_when_the_last_is_gone() -> None:
    at = world()
    more = vtep("east.1", EAST, {"02:00:00:00:01:09": ("10.0.0.109",)})
    at.put(more)
    question = broadcasts(at)["unknown v4"]
    at.send("a", question)
    assert sent(at) == [(EAST, 42), (WEST, 77)]
    for name in ("east", "east.1"):
        for node in at.nodes.values():
            node.plan.drop_vtep("default", name)
        at.send("a", question)
        assert (EAST, 42) in sent(at) or name == "east.1"
    at.send("a", question)
    assert sent(at) == [(WEST, 77)]


def who(at: Nodes, got: list[Sent], node: str = "n1") -> list[str]:
    return sorted(at.at(at.nodes[node], one.port) for one in got)


def theirs(**more: int) -> dict[str, Packet]:
    """Return what a machine of another site sends to all."""
    own, v4, v6 = mac(X), number("10.0.0.101"), number("fd00::101")
    everyone = packets.BROADCAST
    return {
        "announcement": packets.arp_reply(mac=own, sender=v4, to_mac=everyone, target=v4),
        "announcement v6": packets.advertisement(mac=own, src=v6, to_mac=ALL_NODES, dst=number("ff02::1")),
        "broadcast": packets.echo(src=v4, dst=number("10.0.0.255"), dl_src=own, dl_dst=everyone),
        "multicast v4": packets.echo(src=v4, dst=number("224.0.0.251"), dl_src=own, dl_dst=MANY),
        "multicast v6": packets.echo(src=v6, dst=number("ff02::1"), version=6, dl_src=own, dl_dst=ALL_NODES),
    }


@pytest.mark.parametrize("kind", theirs())
def test_a_broadcast_of_another_site_is_delivered_to_each_port_here_and_not_sent_on(kind: str) -> None:
    at = world()
    assert who(at, from_site(at, theirs()[kind])) == ["a", "b"]
    assert who(at, from_site(at, theirs()[kind], node="n2"), "n2") == ["c"]


@pytest.mark.parametrize("kind", theirs())
def test_a_broadcast_of_a_stranger_or_of_another_network_is_dropped(kind: str) -> None:
    at = world()
    for address in ("203.0.113.1", QUIET, "192.0.2.2"):
        assert from_site(at, theirs()[kind], address) == []
    assert from_site(at, theirs()[kind], vni=43) == []


def test_a_question_of_another_site_reaches_the_port_that_has_the_address_and_no_other() -> None:
    at = world()
    own, v4, v6 = mac(X), number("10.0.0.101"), number("fd00::101")
    for target, receivers in (("10.0.0.1", ["a"]), ("10.0.0.3", []), ("10.0.0.77", []), ("10.0.0.102", [])):
        got = from_site(at, packets.arp_request(mac=own, sender=v4, target=number(target)))
        assert who(at, got) == receivers
    for target, receivers in (("fd00::2", ["b"]), ("fd00::3", []), ("fd00::77", []), ("fd00::102", [])):
        assert who(at, from_site(at, packets.solicitation(mac=own, src=v6, target=number(target)))) == receivers


def test_nothing_goes_from_one_site_to_another() -> None:
    at = world()
    through = packets.echo(src=number("10.0.0.101"), dst=number("10.0.0.102"), dl_src=mac(X), dl_dst=mac(Y))
    assert from_site(at, through) == []
    for packet in theirs().values():
        assert VTEP not in {one.port for one in from_site(at, packet)}


def test_a_port_of_this_site_has_its_mac_and_address_whatever_other_sites_say() -> None:
    at = world()
    here, there = at.ports["b"].mac, at.ports["c"].mac
    at.put(vtep("thief", EAST, {here: ("10.0.0.2", "fd00::2"), there: ("10.0.0.3", "fd00::3")}))
    own = mac(at.ports["a"].mac)
    for name in "bc":
        assert at.send("a", echo(at, "a", at.ports[name].mac, at.ports[name].ips[0])).keys() == {name}
        question = packets.arp_request(mac=own, sender=number("10.0.0.1"), target=number(at.ports[name].ips[0]))
        assert at.send("a", question).keys() == {name}
    assert {where for where, _ in sent(at)} == {"192.0.2.2"}
    at.nodes["n1"].plan.drop_remote("c")
    assert at.send("a", echo(at, "a", there, "10.0.0.3")) == {}
    assert sent(at) == [(EAST, 42)]


def test_an_address_that_several_ports_may_use_is_asked_of_other_sites_as_well() -> None:
    at = nodes("n1", "n2")
    at.plug("a", "n1", "10.0.0.1")
    at.plug("b", "n1", "10.0.0.2", allowed=("10.0.0.100",))
    at.plug("c", "n2", "10.0.0.3", allowed=("10.0.0.100",))
    at.put(vtep("east", EAST, {X: ("10.0.0.100",)}))
    question = packets.arp_request(mac=mac(at.ports["a"].mac), sender=number("10.0.0.1"), target=number("10.0.0.100"))
    assert at.send("a", question).keys() == {"b", "c"}
    assert sent(at) == [("192.0.2.2", 42), (EAST, 42)]


def test_rules_match_machines_of_other_sites_by_their_address() -> None:
    at = world()
    at.put(
        profile("any", selector={}, ingress=[{"from": [{"selector": {}}]}, {"from": [{"cidr": "10.0.0.101/32"}]}]),
    )
    ping = packets.echo(src=number("10.0.0.101"), dst=number("10.0.0.1"), dl_src=mac(X), dl_dst=mac(at.ports["a"].mac))
    assert who(at, from_site(at, ping)) == ["a"]
    assert from_site(at, ping.having(nw_src=number("10.0.0.102"))) == []
    assert who(at, from_site(at, theirs()["broadcast"])) == ["a", "b"]
    assert from_site(at, theirs()["broadcast"].having(nw_src=number("10.0.0.102"))) == []


def test_many_vteps_and_ports_take_several_flows_and_still_get_one_copy_each() -> None:
    at = nodes("n1")
    count = 2 * RECEIVERS + 1
    at.plug("a", "n1", "10.0.0.1")
    plan = at.nodes["n1"].plan
    for position in range(count):
        at.put(vtep(f"v{position}", f"198.51.{position // 256}.{position % 256}", {}, vni=1000 + position % 2))
    for position in range(RECEIVERS):
        port = LocalPort(uid=f"p{position}", namespace="default", name="p", ofport=1000 + position, vni=42,
                         mac=f"02:00:00:00:09:{position:02x}", ips=(f"10.0.9.{position}",))  # fmt: skip
        plan.put_local(port)
    at.send("a", packets.arp_request(mac=mac(at.ports["a"].mac), sender=number("10.0.0.1"), target=number("10.0.0.77")))
    gone = sent(at)
    assert (len(gone), len({where for where, _ in gone})) == (count, count)
    assert {vni for _, vni in gone} == {1000, 1001}
    got = from_site(at, theirs()["broadcast"], "198.51.2.0")
    assert len({one.port for one in got}) == len(got) == RECEIVERS + 1


def test_one_machine_among_many_costs_its_own_flows() -> None:
    plan = VxlanPlan()
    plan.vtep = VTEP
    for part in range(20):
        macs = {f"02:00:00:01:{part:02x}:{at:02x}": (f"10.1.{part}.{at}",) for at in range(200)}
        plan.put_vtep(vtep(f"e.{part}", EAST, macs))
    assert len(plan.flush().puts) > 2 * 20 * 200
    first = vtep("e.0", EAST, {X: ("10.0.0.101", "fd00::101"), Y: ()})
    plan.put_vtep(first)
    plan.flush()
    plan.put_vtep(vtep("e.0", EAST, {X: ("10.0.0.101", "fd00::101"), Y: ("10.0.0.102",)}))
    came = plan.flush()
    assert (len(came.puts), len(came.drops)) == (1, 0)
    plan.put_vtep(vtep("e.0", EAST, {X: ("10.0.0.101",)}))
    gone = plan.flush()
    assert (len(gone.puts), len(gone.drops)) == (0, 3)
    plan.put_vtep(structs.replace(first, spec=structs.replace(first.spec, macs=())))
    assert len(plan.flush().drops) == 2
