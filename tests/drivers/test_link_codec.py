"""Our rtnetlink messages against pyroute2's reading and writing of them."""

import socket
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg  # type: ignore[import-untyped]
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg  # type: ignore[import-untyped]
from pyroute2.netlink.rtnl.ndmsg import ndmsg  # type: ignore[import-untyped]
from pyroute2.netlink.rtnl.rtmsg import rtmsg  # type: ignore[import-untyped]
from pyroute2.netlink.rtnl.tcmsg import tcmsg  # type: ignore[import-untyped]

from netloom.drivers.link import codec as codec
from netloom.drivers.link.codec import DeviceRoute, Link, NextHop
from netloom.plan.policy.impairment import Impairment

names = st.text("abcdefghij0123456789", min_size=1, max_size=15)
macs = st.binary(min_size=6, max_size=6).map(lambda packed: packed.hex(":"))
mtus = st.integers(68, 65535)
indexes = st.integers(1, 2**31 - 1)
addresses = st.one_of(
    st.tuples(st.ip_addresses(v=4), st.integers(0, 32)), st.tuples(st.ip_addresses(v=6), st.integers(0, 128))
).map(lambda pair: f"{pair[0]}/{pair[1]}")


def read(kind: Any, message: bytes) -> Any:
    parsed = kind(message)
    parsed.decode()
    return parsed


def body(message: bytes) -> bytes:
    return message[16:]


def written(message: Any) -> bytes:
    message.encode()
    return bytes(message.data)


@given(names, names, macs, mtus, st.integers(3, 1000))
def test_pyroute2_reads_the_pair_we_ask_for(name: str, inner: str, mac: str, mtu: int, namespace: int) -> None:
    made, named, hushed = codec.veth(name, inner, namespace=namespace, mac=mac, mtu=mtu, alias="netloom/x/u")
    asked = read(ifinfmsg, made)
    assert (asked.get_attr("IFLA_IFNAME"), asked.get_attr("IFLA_MTU")) == (name, mtu)
    info = asked.get_attr("IFLA_LINKINFO")
    assert info.get_attr("IFLA_INFO_KIND") == "veth"
    peer = info.get_attr("IFLA_INFO_DATA").get_attr("VETH_INFO_PEER")
    assert (peer.get_attr("IFLA_IFNAME"), peer.get_attr("IFLA_ADDRESS"), peer.get_attr("IFLA_MTU")) == (inner, mac, mtu)
    assert peer.get_attr("IFLA_NET_NS_FD") in (namespace, str(namespace))
    assert read(ifinfmsg, named).get_attr("IFLA_IFALIAS") == "netloom/x/u"
    families = [[one[0] for one in read(ifinfmsg, m).get_attr("IFLA_AF_SPEC")["attrs"]] for m in (named, hushed)]
    assert families == [["AF_INET"], ["AF_INET6"]]


@given(indexes, st.booleans(), mtus, macs)
def test_pyroute2_reads_the_change_we_ask_for(index: int, up: bool, mtu: int, mac: str) -> None:
    asked = read(ifinfmsg, codec.set_link(index, up=up, mtu=mtu, mac=mac, master=0))
    assert (asked["index"], asked["flags"] & 1, asked["change"]) == (index, int(up), 1)
    assert (asked.get_attr("IFLA_MTU"), asked.get_attr("IFLA_ADDRESS"), asked.get_attr("IFLA_MASTER")) == (mtu, mac, 0)


@given(indexes, st.booleans())
def test_pyroute2_reads_whether_a_device_is_to_have_a_link_local_address(index: int, on: bool) -> None:
    asked = read(ifinfmsg, codec.link_local(index, on=on))
    (six,) = asked.get_attr("IFLA_AF_SPEC")["attrs"]
    assert (asked["index"], asked["change"], six[0]) == (index, 0, "AF_INET6")
    assert six[1].get_attr("IFLA_INET6_ADDR_GEN_MODE") == int(not on)


@given(addresses, indexes)
def test_addresses_are_what_pyroute2_reads_and_what_we_read_back(text: str, index: int) -> None:
    asked = read(ifaddrmsg, codec.address(text, index))
    ip, _, length = text.partition("/")
    assert (asked["index"], asked["prefixlen"]) == (index, int(length))
    assert ip_address(asked.get_attr("IFA_LOCAL")) == ip_address(ip)
    assert (asked["family"] == socket.AF_INET6) == bool(asked.get_attr("IFA_FLAGS"))
    assert codec.read_address(body(codec.address(text, index))) == (index, f"{ip_address(ip)}/{length}")


@given(addresses, indexes, st.booleans())
def test_routes_are_what_pyroute2_reads_and_what_we_read_back(to: str, index: int, onlink: bool) -> None:
    ip, _, length = to.partition("/")
    to = f"{ip_address(ip) if int(length) else type(ip_address(ip))(0)}/{length}"
    via = "fd00::1" if ":" in to else "10.0.0.1"
    route = DeviceRoute(to, via, onlink)
    asked = read(rtmsg, codec.route(route, index))
    assert (asked["dst_len"], asked["proto"], asked["flags"]) == (int(length), codec.PROTOCOL, 4 if onlink else 0)
    assert (asked.get_attr("RTA_GATEWAY"), asked.get_attr("RTA_OIF")) == (via, index)
    assert codec.read_route(body(codec.route(route, index))) == (index, route)


def test_a_route_of_somebody_else_is_not_read_as_ours() -> None:
    message = rtmsg()
    message["family"], message["proto"], message["type"], message["table"] = socket.AF_INET, 4, 1, 254
    message["attrs"] = [("RTA_GATEWAY", "10.0.0.1"), ("RTA_OIF", 3)]
    assert codec.read_route(body(written(message))) is None


@given(indexes, names, macs, mtus, st.booleans())
def test_a_device_as_pyroute2_writes_it_is_read(index: int, name: str, mac: str, mtu: int, up: bool) -> None:
    message = ifinfmsg()
    message["index"], message["flags"] = index, int(up)
    message["attrs"] = [
        ("IFLA_IFNAME", name), ("IFLA_ADDRESS", mac), ("IFLA_MTU", mtu), ("IFLA_MASTER", 9), ("IFLA_IFALIAS", "a/b"),
        ("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", "bridge")]}),
    ]  # fmt: skip
    assert codec.link(body(written(message))) == Link(index, name, mac, mtu, up, "bridge", 0, 9, "a/b")


@given(st.binary(max_size=200))
def test_nonsense_from_the_kernel_is_no_endless_loop(data: bytes) -> None:
    assert len(list(codec.messages(data))) <= len(data) // 16
    if len(data) >= 16:
        codec.link(data)


def test_a_message_that_is_cut_short_is_left_out() -> None:
    whole = codec.get_link("lo")
    assert len(list(codec.messages(whole + whole[:-4]))) == 1


@pytest.mark.parametrize("number", [0, 17])
def test_an_answer_carries_its_error(number: int) -> None:
    assert codec.error((-number).to_bytes(4, "little", signed=True)) == number


@given(st.ip_addresses(), indexes)
def test_pyroute2_reads_how_a_neighbour_is_resolved_and_probed(ip: Any, index: int) -> None:
    hop = NextHop(str(ip), index)
    for message, state, flags in (
        (codec.resolve(hop), 0, 1),
        (codec.probe(hop), 0x10, 0),
        (codec.get_neighbour(hop), 0, 0),
    ):
        asked = read(ndmsg, message)
        assert (asked["ifindex"], asked["state"], asked["flags"]) == (index, state, flags)
        assert ip_address(asked.get_attr("NDA_DST")) == ip
        assert codec.read_neighbour(body(message)) == (state, "")


@given(st.ip_addresses(), st.ip_addresses(), indexes)
def test_the_next_hop_is_the_gateway_or_else_the_destination(ip: Any, gateway: Any, index: int) -> None:
    asked = read(rtmsg, codec.get_next_hop(str(ip)))
    assert (asked["dst_len"], ip_address(asked.get_attr("RTA_DST"))) == (ip.max_prefixlen, ip)
    families = {4: socket.AF_INET, 6: socket.AF_INET6}
    via = ("RTA_VIA", {"family": families[gateway.version], "addr": str(gateway)})
    by = ("RTA_GATEWAY", str(gateway)) if gateway.version == ip.version else via

    def read_back(kind: int, *attributes: tuple[str, Any]) -> NextHop | None:
        answer = rtmsg()
        answer["family"], answer["type"] = families[ip.version], kind
        answer["attrs"] = [("RTA_DST", str(ip)), ("RTA_OIF", index), *attributes]
        return codec.read_next_hop(body(written(answer)))

    unicast, local = 1, 2
    assert read_back(unicast) == NextHop(str(ip), index)
    assert read_back(unicast, by) == NextHop(str(gateway), index)
    assert read_back(local) is None


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("bridge", {}),
        ("vxlan", {"IFLA_VXLAN_ID": 1}),
        ("geneve", {"IFLA_GENEVE_ID": 1, "IFLA_GENEVE_REMOTE": "127.0.0.1"}),
        ("vrf", {"IFLA_VRF_TABLE": 10}),
    ],
)
def test_pyroute2_reads_the_device_a_probe_makes(kind: str, wanted: dict[str, object]) -> None:
    asked = read(ifinfmsg, codec.new_device(kind))
    info = asked.get_attr("IFLA_LINKINFO")
    assert (asked.get_attr("IFLA_IFNAME"), info.get_attr("IFLA_INFO_KIND")) == (kind, kind)
    assert dict((info.get_attr("IFLA_INFO_DATA") or {"attrs": []})["attrs"]) == wanted


def test_pyroute2_reads_the_qdisc_a_probe_makes() -> None:
    asked = {kind: read(tcmsg, codec.new_qdisc(kind)) for kind in codec.PROBED_QDISCS}
    assert [one.get_attr("TCA_KIND") for one in asked.values()] == ["fq", "htb", "netem", "tbf"]
    assert [(one["index"], one["handle"] >> 16, one["parent"]) for one in asked.values()] == [
        (1, number, 0xFFFFFFFF) for number in (1, 2, 3, 4)
    ]
    assert asked["netem"].get_attr("TCA_OPTIONS")["delay"] == 1000
    assert asked["htb"].get_attr("TCA_OPTIONS").get_attr("TCA_HTB_INIT")["version"] == 3
    shaped = asked["tbf"].get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")
    assert (shaped["rate"], shaped["limit"]) == (1_000_000, 3000)


def test_pyroute2_reads_netem_as_it_was_asked_for() -> None:
    options = codec.netem(Impairment(0.05, 0.25, 0.002))
    asked = read(tcmsg, codec.set_netem(7, options))
    assert (asked["index"], asked["handle"], asked["parent"]) == (7, codec.NETEM_HANDLE, 0xFFFFFFFF)
    assert asked.get_attr("TCA_KIND") == "netem"
    found = asked.get_attr("TCA_OPTIONS")
    # In ticks of 64 ns, and parts of 2^32.
    assert (found["delay"], found["jitter"], found["loss"]) == (50_000_000 // 64, 2_000_000 // 64, 0xFFFFFFFF // 4 + 1)
    assert found["limit"] == codec.NETEM_LIMIT
    removed = read(tcmsg, codec.del_netem(7))
    assert (removed["index"], removed["handle"], removed["parent"]) == (7, codec.NETEM_HANDLE, 0xFFFFFFFF)


@given(st.floats(0, 30), st.floats(0, 1), st.floats(0, 30))
def test_a_qdisc_is_read_back_as_it_was_set(delay: float, loss: float, jitter: float) -> None:
    options = codec.netem(Impairment(delay, loss, jitter))
    body = codec.set_netem(9, options)[16:]
    assert codec.read_qdisc(body) == (9, codec.Qdisc("netem", codec.NETEM_HANDLE, options))
