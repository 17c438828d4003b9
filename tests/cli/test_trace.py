"""`netloom trace`: packets from places, and what ovn-trace and ofproto/trace print, made readable."""

import subprocess
from pathlib import Path

import pytest

from netloom.diagnose.trace.output import Origin, deciding, on_switch, parse, path
from netloom.diagnose.trace.packet import Endpoint, Packet, endpoint, packet
from netloom.errors import Invalid, NotFound
from netloom.model.document import Resource
from netloom.plan.problem import Unit
from netloom.plan.rows import Ref
from tests.cli.test_commands import apply
from tests.cli.test_plan import attachment
from tests.plan.planning import planned, resources
from tests.run.serving import NETLOOM, Serving, environment

TEXTS = Path(__file__).parent / "traces"
WORLD = """
{kind: Network, metadata: {name: office}, spec: {}, status: {vni: 10}}
---
{kind: Network, metadata: {name: servers}, spec: {}, status: {vni: 11}}
---
{kind: Network, metadata: {name: world}, spec: {provider: {physicalNetwork: p}}, status: {vni: 12}}
---
{kind: Subnet, metadata: {name: o4}, spec: {network: office, cidr: 10.1.0.0/24}, status: {validated: true}}
---
{kind: Subnet, metadata: {name: o6}, spec: {network: office, cidr: "fd01::/64"}, status: {validated: true}}
---
{kind: Subnet, metadata: {name: s4}, spec: {network: servers, cidr: 10.2.0.0/24}, status: {validated: true}}
---
{kind: Node, metadata: {name: n1}, spec: {underlayIP: 172.31.0.1}}
---
kind: Router
metadata: {name: company}
spec:
  networks: [{network: office}, {network: servers}]
  gateway: {network: world, ips: [192.0.2.10/24], nextHop: 192.0.2.1, nodes: [n1]}
  nat: [{type: dnat_and_snat, external: 192.0.2.20, logical: 10.2.0.11}]
---
kind: LoadBalancer
metadata: {name: shop}
spec: {networks: [servers], routers: [company], vips: [{ip: 10.2.0.100, port: 80}], endpoints: [{ip: 10.2.0.11}]}
---
kind: NetworkAttachment
metadata: {name: alice}
spec: {node: n1, network: office, defaultRoute: true}
status: {ips: [10.1.0.2/24, "fd01::2/64"], mac: "06:01:00:02:00:0a", vni: 10}
---
kind: NetworkAttachment
metadata: {name: bob}
spec: {node: n1, network: office}
status: {ips: [10.1.0.3/24, "fd01::3/64"], mac: "06:01:00:03:00:0a", vni: 10}
---
kind: NetworkAttachment
metadata: {name: web}
spec: {node: n1, network: servers}
status: {ips: [10.2.0.11/24], mac: "06:02:00:0b:00:0b", vni: 11}
---
kind: NetworkAttachment
metadata: {name: new}
spec: {node: n1, network: servers}
"""


@pytest.fixture(scope="module")
def world() -> list[Resource]:
    return resources(WORLD)


def sent(world: list[Resource], start: str, end: str, *, v6: bool = False, protocol: str = "icmp") -> Packet:
    ends = [endpoint(text, "default", world) for text in (start, end)]
    wanted = planned(*world).desired
    return packet(ends[0], ends[1], world, wanted, protocol=protocol, number=80 if protocol != "icmp" else 0, v6=v6)


def router_mac(world: list[Resource], network: str) -> str:
    return str(planned(*world).desired.rows[Ref("Logical_Router_Port", f"default/company:{network}")].columns["mac"])


def test_neighbours_are_addressed_directly(world: list[Resource]) -> None:
    found = sent(world, "alice", "bob")
    assert (found.eth_dst, found.src, found.dst) == ("06:01:00:03:00:0a", "10.1.0.2", "10.1.0.3")
    assert found.microflow == (
        'inport == "default/alice" && eth.src == 06:01:00:02:00:0a && eth.dst == 06:01:00:03:00:0a && '
        "ip4.src == 10.1.0.2 && ip4.dst == 10.1.0.3 && ip.ttl == 64 && icmp4.type == 8"
    )
    six = sent(world, "alice", "bob", v6=True, protocol="tcp")
    assert (
        "ip6.src == fd01::2 && ip6.dst == fd01::3 && ip.ttl == 64 && tcp.src == 40000 && tcp.dst == 80" in six.microflow
    )
    assert six.openflow("nl1").startswith("in_port=nl1,tcp6,dl_src=06:01:00:02:00:0a,")


def test_what_is_elsewhere_goes_to_the_router_that_has_the_gateway(world: list[Resource]) -> None:
    found = sent(world, "alice", "web")
    assert (found.eth_dst, found.remark) == (router_mac(world, "office"), "")
    assert "has no route to it" in sent(world, "bob", "web").remark


def test_a_vip_goes_to_the_router_that_answers_for_it(world: list[Resource]) -> None:
    assert sent(world, "web", "10.2.0.100").eth_dst == router_mac(world, "servers")
    assert sent(world, "alice", "10.2.0.100").eth_dst == router_mac(world, "office")


def test_a_stranger_comes_in_by_the_physical_network(world: list[Resource]) -> None:
    found = sent(world, "192.0.2.77", "192.0.2.20")
    assert (found.datapath, found.inport) == ("default/world", "default/world:localnet")
    assert found.eth_dst == router_mac(world, "world")


def test_an_address_of_somebody_here_is_that_attachment(world: list[Resource]) -> None:
    found = endpoint("10.2.0.11", "default", world)
    assert found.port == "default/web"
    assert endpoint("default/web", "other", world).port == "default/web"
    assert endpoint("203.0.113.9", "default", world) == Endpoint("203.0.113.9", None, "203.0.113.9")


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        ("alice", "10.1.0.99", "no port of Network office has 10.1.0.99"),
        ("alice", "new", "new has no address yet"),
        ("web", "fd01::3", "have no addresses of the same family"),
    ],
)
def test_packets_that_cannot_be_are_refused_with_the_reason(
    world: list[Resource], start: str, end: str, said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        sent(world, start, end)


def test_without_a_router_what_is_elsewhere_cannot_be_reached(world: list[Resource]) -> None:
    alone = [one for one in world if one.kind not in ("Router", "LoadBalancer")]
    with pytest.raises(Invalid, match="no Router joins the Network"):
        sent(alone, "alice", "web")
    with pytest.raises(Invalid, match="no Router has a gateway"):
        sent(alone, "192.0.2.77", "web")


def test_a_name_that_is_not_there_is_answered_with_the_nearest(world: list[Resource]) -> None:
    with pytest.raises(NotFound, match=r'did you mean "alice"'):
        endpoint("alcie", "default", world)
    with pytest.raises(NotFound, match="not found in namespace empty: there are none"):
        endpoint("alice", "empty", world)


# What OVN prints, kept in files.


def name(text: str) -> str:
    return text.removeprefix("default/")


def read(file: str, origins: dict[str, Origin]) -> tuple[list[str], list[str], str]:
    flows = list(parse((TEXTS / file).read_text()))
    assert set(origins) <= deciding(flows)
    found = path(flows, origins, name)
    return [f"{hop.place}: {hop.what}" for hop in found.hops], [port for port, _ in found.outputs], found.stopped


DB = Unit("SecurityProfile", "default", "db")
WEB = Unit("SecurityProfile", "default", "web")


def test_a_packet_that_a_profile_drops() -> None:
    hops, outputs, stopped = read("dropped.txt", {"763f7f58": Origin(DB, "ACL", "default/db:ingress:default")})
    assert hops == [
        "network office: from alice",
        "router company: route 10.2.0.0/24 to company:servers",
        "network servers: from company:servers:plug",
        "network servers: SecurityProfile db, no ingress rule allows it: dropped",
    ]
    assert outputs == []
    assert stopped == "dropped by SecurityProfile default/db: no ingress rule allows it"


def test_a_balanced_packet() -> None:
    origins = {
        "9fbd18ba": Origin(Unit("LoadBalancer", "default", "shop"), "Load_Balancer", "default/shop:tcp"),
        "f07588c7": Origin(WEB, "ACL", "default/web:ingress[0]"),
    }
    hops, outputs, stopped = read("balanced.txt", origins)
    assert "network office: LoadBalancer shop: sends it to one of 10.2.0.11:8080, 10.2.0.12:8080" in hops
    assert "network servers: SecurityProfile web, ingress[0]: allowed" in hops
    assert (outputs, stopped) == (["default/web-2"], "")


def test_a_balancer_without_endpoints_rejects() -> None:
    shop = Origin(Unit("LoadBalancer", "default", "shop"), "Load_Balancer", "default/shop:tcp")
    _, _, stopped = read("rejected.txt", {"e9160906": shop})
    assert stopped == "rejected by LoadBalancer default/shop: none of its endpoints is up"


def test_a_translated_packet_from_outside() -> None:
    hops, outputs, stopped = read("translated.txt", {})
    assert "router company: destination becomes 10.2.0.11" in hops
    assert (outputs, stopped) == (["default/web-1"], "")


def test_a_packet_that_waits_for_the_neighbours_mac() -> None:
    hops, outputs, _ = read("asking.txt", {})
    assert "router company: resolves the MAC of the next hop first" in hops
    assert "router company: goes through the gateway node" in hops
    assert outputs == ["default/world:localnet"]


def test_what_a_newer_ovn_prints() -> None:
    hops, outputs, stopped = read("dropped-26.03.txt", {"bb5196c2": Origin(DB, "ACL", "default/db:ingress:default")})
    assert hops[-1] == "network servers: SecurityProfile db, no ingress rule allows it: dropped"
    assert (outputs, stopped) == ([], "dropped by SecurityProfile default/db: no ingress rule allows it")
    hops, outputs, stopped = read("asking-26.03.txt", {})
    assert "router company: source becomes 192.0.2.10" in hops
    assert not [hop for hop in hops if hop.startswith("router world")], "what is set in ends where it is not any more"
    assert (set(outputs), stopped) == ({"default/world:localnet"}, "")


def test_a_forged_address_is_stopped_by_port_security() -> None:
    _, _, stopped = read("forged.txt", {})
    assert stopped.startswith("dropped by the port security of network office")


def test_judged_in_two_stages_as_newer_versions_do_it() -> None:
    text = (
        'ingress(dp="default/blue", inport="default/a")\n'
        "----\n"
        " 9. ls_in_acl_eval: reg0[9] == 1, priority 2000, uuid 0000aaaa\n"
        "    reg8[17] = 1;\n"
        "    next;\n"
        "10. ls_in_acl_action: reg8[17] == 1, priority 1000, uuid 0000bbbb\n"
        "    drop;\n"
    )
    found = path(list(parse(text)), {"0000aaaa": Origin(DB, "ACL", "default/db:egress[2]:v4")}, name)
    assert found.stopped == "dropped by SecurityProfile default/db: rule egress[2]"


def test_a_router_that_is_pinged_answers_itself() -> None:
    text = (
        'ingress(dp="default/r", inport="default/r:a")\n'
        "----\n"
        " 3. lr_in_ip_input (x.c:1): ip4.dst == 10.0.0.1 && icmp4.type == 8, priority 90, uuid 0000aaaa\n"
        "    ip4.dst <-> ip4.src;\n"
        "    icmp4.type = 0;\n"
        "    next;\n"
        "ct_snat(ip4.src=192.0.2.10)\n"
    )
    found = path(list(parse(text)), {}, name)
    assert found.answered == "router r"
    assert [hop.what for hop in found.hops] == ["replies to the ping itself"]


POLICY = Origin(Unit("Router", "default", "r"), "Logical_Router_Policy", "default/r:policy:90:00d1ce")
POLICIES = (
    'ingress(dp="default/r", inport="default/r:a")\n'
    "----\n"
    "13. lr_in_ip_routing (northd.c:1): ip6.dst == fd65::/64, priority 194, uuid 0000aaaa\n"
    "    xxreg0 = ip6.dst;\n"
    '    outport = "default/r:b";\n'
    "    next;\n"
)
EVERYBODYS = "16. lr_in_policy_ecmp (northd.c:1): reg8[0..15] == 0, priority 150, uuid 0000cccc\n    next;\n"


@pytest.mark.parametrize(
    ("text", "said", "stopped"),
    [
        (
            "15. lr_in_policy (northd.c:1): tcp.dst == 7200, priority 90, uuid 0000bbbb\n    drop;\n",
            ["policy with priority 90: dropped"],
            "dropped by Router default/r: policy with priority 90",
        ),
        (
            "15. lr_in_policy (northd.c:1): tcp.dst == 7200, priority 90, uuid 0000bbbb\n"
            f"    reg8[0..15] = 0;\n    next;\n{EVERYBODYS}",
            ["policy with priority 90: allowed"],
            "",
        ),
        (
            "15. lr_in_policy (northd.c:1): ip6, priority 90, uuid 0000bbbb\n"
            f'    xxreg0 = fd65::8;\n    xxreg1 = fd65::1;\n    outport = "default/r:b";\n    next;\n{EVERYBODYS}',
            ["policy with priority 90: rerouted to fd65::8 on r:b"],
            "",
        ),
        (
            "15. lr_in_policy (northd.c:1): ip4, priority 90, uuid 0000bbbb\n"
            "    reg8[0..15] = 1;\n    reg8[16..31] = select(1=100, 2=100);\n"
            "16. lr_in_policy_ecmp (northd.c:1): reg8[0..15] == 1 && reg8[16..31] == 2, priority 100, uuid 0000dddd\n"
            '    reg0 = 10.65.0.8;\n    outport = "default/r:b";\n    next;\n',
            ["policy with priority 90: rerouted to 10.65.0.8 on r:b"],
            "",
        ),
        (f"15. lr_in_policy (northd.c:1): 1, priority 0, uuid 0000eeee\n    next;\n{EVERYBODYS}", [], ""),
    ],
)
def test_what_a_routers_policy_does_is_told(text: str, said: list[str], stopped: str) -> None:
    out = 'egress(dp="default/r")\n----\n 6. lr_out_delivery: 1, priority 1, uuid 0000ffff\n'
    flows = list(parse(POLICIES + text + ("" if stopped else out + '    /* output to "default/x", type "" */\n')))
    assert deciding(flows) <= {"0000bbbb", "0000dddd"}
    found = path(flows, dict.fromkeys(deciding(flows), POLICY), name)
    assert [hop.what for hop in found.hops] == ["route fd65::/64 to r:b", *said]
    assert found.stopped == stopped


def test_nothing_that_matches_is_a_drop_that_names_the_stage() -> None:
    text = 'ingress(dp="default/r", inport="default/r:a")\n-\n 13. lr_in_ip_routing (x.c:1): no match (implicit drop)\n'
    assert path(list(parse(text)), {}, name).stopped == "dropped by router r: it has no route to the destination"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("    output:1\n     -> tunneling to 172.31.0.2 via br-phys\nDatapath actions: tnl_push(1),2\n",
         "through the tunnel to n2 (172.31.0.2)"),
        ("    output:1\n     -> output to kernel tunnel\nDatapath actions: set(tunnel(tun_id=0x1,dst=172.31.0.2)),2\n",
         "through the tunnel to n2 (172.31.0.2)"),
        ("        output:7\nDatapath actions: 4\n", "output to device nl7"),
        ("Datapath actions: drop\n", "dropped"),
        ("Datapath actions: ct(commit,zone=10,mark=0/0x1,nat(src))\n", "dropped"),
        ("    controller(userdata=00,pause)\nDatapath actions: ct(commit),set(ipv4(ttl=63))\n",
         "sent to ovn-controller, which replies or resolves the next hop"),
        ("Datapath actions: ct(commit,zone=10),5\n", "datapath actions: ct(commit,zone=10),5"),
        ("Datapath actions: set(ipv6(hlimit=63)),hash(sym_l4(0)),recirc(0x9)\n",
         "one of several paths is chosen by a hash: not traced further"),
        ("Datapath actions: userspace(pid=0,controller(reason=1))\n",
         "sent to ovn-controller, which replies or resolves the next hop"),
    ],
)  # fmt: skip
def test_what_a_switch_does(text: str, said: str) -> None:
    assert on_switch(text, {7: "nl7"}, {"172.31.0.2": "n2"}) == said


def test_completion_offers_attachments(server: Serving, ns: str) -> None:
    apply(server, ns, *({**attachment(name)} for name in ("alice", "alan", "bob")))
    words = f"netloom trace -n {ns} al"
    env = environment(
        KUBECONFIG=str(server.kubeconfig), _NETLOOM_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD="4"
    )
    ended = subprocess.run(NETLOOM, capture_output=True, text=True, env=env, check=False)
    assert {entry.partition(",")[2] for entry in ended.stdout.split()} == {"alice", "alan"}


def test_wrong_usage_is_told(server: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OVN_SB_DB", raising=False)
    answer = server.cli("trace", "a", "b", check=False)
    assert (answer.rc, "use --ovn-sb, OVN_SB_DB or --lab" in answer.err) == (1, True)
    answer = server.cli("trace", "a", "b", "--tcp", "80", "--icmp", "--ovn-sb", "unix:/nowhere", check=False)
    assert (answer.rc, "exclude each other" in answer.err) == (2, True)
    answer = server.cli("trace", "a", "b", "--ovn-sb", "nonsense", check=False)
    assert (answer.rc, "'nonsense' is not unix:PATH" in answer.err) == (1, True)
    answer = server.cli("trace", "a", "b", "--ovs", "tcp:1.2.3.4:1", check=False)
    assert (answer.rc, "is not unix:/PATH" in answer.err) == (2, True)
