"""Real packets through the table of a node: from outside, from pods, and from the node itself."""

import asyncio
import socket
from collections.abc import Iterator, Sequence

import pytest

from netloom.drivers.link import kernel as link
from netloom.drivers.nft.tracking import forget, targets
from netloom.model.kinds.policy import ExternalAddress, ExternalTrafficPolicy, LoadBalancer, Protocol, Vip
from netloom.plan.kube.node.table import TABLE, plan_table
from tests.drivers.nft_world import NODE, SECONDS, SILENCE, Place, in_namespace, nft, place, ruleset
from tests.plan.test_kube_node import balancer
from tests.run.agents import in_thread
from tests.support.ovn import run, within

pytestmark = [pytest.mark.root, pytest.mark.lab]
LOCAL = ExternalTrafficPolicy.LOCAL
V4, V6 = "192.0.2.1", "2001:db8::1"
"""The node's addresses outside."""
OWN4, OWN6 = "10.244.1.2", "fd00:1:0:1::2"
"""Its addresses in the Network of pods."""
CLIENT4, CLIENT6, FAR = "192.0.2.9", "2001:db8::9", "198.51.100.9"
POD4, OTHER4, POD6, REMOTE4 = "10.244.1.7", "10.244.1.8", "fd00:1:0:1::7", "10.244.2.7"
CLUSTER4, CLUSTER6 = "10.96.0.10", "fd00:2::10"
BOTH = (Vip(ip=CLUSTER4, port=80, node_port=30080), Vip(ip=CLUSTER6, port=80, node_port=30080))


@pytest.fixture(scope="module")
def world() -> Iterator[Place]:
    with place() as found:
        yield found


def write(world: Place, *balancers: LoadBalancer) -> None:
    """Write the table as an agent does."""
    planned = plan_table(NODE, balancers)
    assert not planned.problems
    asyncio.run(nft(world.node).compare(planned.table))


@pytest.fixture(params=[(V4, CLUSTER4, CLIENT4, OWN4), (V6, CLUSTER6, CLIENT6, OWN6)], ids=["IPv4", "IPv6"])
def family(request: pytest.FixtureRequest) -> tuple[str, str, str, str]:
    """The node, a Service, the client and the node's address in the Network of pods, of one family."""
    found: tuple[str, str, str, str] = request.param
    return found


def test_a_pod_reaches_the_outside_from_the_address_of_its_node(
    world: Place, family: tuple[str, str, str, str]
) -> None:
    node, _, client, _ = family
    write(world)
    with world.serving(world.client, client, 8000):
        pod = POD6 if ":" in node else POD4
        assert world.ask(world.ovn, client, 8000, source=pod) == f"{client} {node}"


def test_a_pod_reaches_its_node_from_its_own_address(world: Place) -> None:
    write(world)
    with world.serving(world.node, V4, 8000):
        assert world.ask(world.ovn, V4, 8000, source=POD4) == f"{V4} {POD4}"


def test_the_node_reaches_pods_and_services(world: Place, family: tuple[str, str, str, str]) -> None:
    node, cluster, _, own = family
    write(world)
    pod = POD6 if ":" in node else POD4
    with world.serving(world.ovn, pod, 8000), world.serving(world.ovn, cluster, 80):
        assert world.ask(world.node, pod, 8000) == f"{pod} {own}"
        assert world.ask(world.node, cluster, 80) == f"{cluster} {own}"
        # A process that is bound to another address of the node gets its answer, too.
        assert world.ask(world.node, cluster, 80, source=node) == f"{cluster} {own}"


def test_a_node_port_is_reached_from_outside_from_the_node_and_from_pods(
    world: Place, family: tuple[str, str, str, str]
) -> None:
    node, cluster, _, own = family
    write(world, balancer("web", *BOTH))
    with world.serving(world.ovn, cluster, 80):
        assert world.ask(world.client, node, 30080) == f"{cluster} {own}"
        assert world.ask(world.node, node, 30080) == f"{cluster} {own}"
        assert world.ask(world.ovn, node, 30080, source=POD6 if ":" in node else POD4) == f"{cluster} {own}"
        assert world.ask(world.client, node, 30081, seconds=SILENCE) == ""
    write(world)
    with world.serving(world.ovn, cluster, 80):
        assert world.ask(world.client, node, 30080, seconds=SILENCE) == ""


def test_a_node_port_of_udp_is_not_one_of_tcp(world: Place) -> None:
    write(world, balancer("dns", Vip(ip=CLUSTER4, port=53, protocol=Protocol.UDP, node_port=30053)))
    with world.serving(world.ovn, CLUSTER4, 53, socket.SOCK_DGRAM), world.serving(world.ovn, CLUSTER4, 53):
        assert world.ask_udp(world.client, V4, 30053) == f"{CLUSTER4} {OWN4}"
        assert world.ask(world.client, V4, 30053, seconds=SILENCE) == ""


def forgotten(world: Place, before: Sequence[LoadBalancer], now: Sequence[LoadBalancer]) -> int:
    """Forget flows as an agent does after it has written a table."""

    def work() -> int:
        with link.entered(f"/run/netns/{world.node}"):
            tables = (plan_table(NODE, balancers).table for balancers in (now, before))
            return forget(*map(targets, tables))

    found: int = in_thread(work)
    return found


def test_a_client_of_udp_that_never_pauses_is_led_to_the_endpoint_there_is(world: Place) -> None:
    vip = Vip(ip=CLUSTER4, port=53, protocol=Protocol.UDP, node_port=30063)
    first = balancer("dns", vip, ends=(POD4,), policy=LOCAL)
    second = balancer("dns", vip, ends=(OTHER4,), policy=LOCAL)
    aside = balancer("aside", Vip(ip=CLUSTER4, port=54, protocol=Protocol.UDP, node_port=30064))
    with (
        in_namespace(world.client, socket.AF_INET, socket.SOCK_DGRAM) as client,
        in_namespace(world.client, socket.AF_INET, socket.SOCK_DGRAM) as other,
        world.serving(world.ovn, POD4, 53, socket.SOCK_DGRAM),
        world.serving(world.ovn, OTHER4, 53, socket.SOCK_DGRAM),
        world.serving(world.ovn, CLUSTER4, 54, socket.SOCK_DGRAM),
        world.serving(world.node, V4, 30063, socket.SOCK_DGRAM),
    ):

        def answer(who: socket.socket, port: int) -> str:
            who.settimeout(SECONDS)
            who.sendto(b"?", (V4, port))
            return who.recv(64).decode().partition(" ")[0]

        write(world, aside)
        assert answer(client, 30063) == V4  # There is no such nodePort yet.
        assert answer(other, 30064) == CLUSTER4
        write(world, first, aside)
        assert answer(client, 30063) == V4
        assert forgotten(world, [aside], [first, aside]) == 1
        assert answer(client, 30063) == POD4
        write(world, second, aside)
        assert forgotten(world, [first, aside], [second, aside]) == 1
        assert answer(client, 30063) == OTHER4
        assert forgotten(world, [second, aside], [second, aside]) == 0
        write(world, aside)
        assert forgotten(world, [second, aside], [aside]) == 1
        assert answer(client, 30063) == V4
        assert answer(other, 30064) == CLUSTER4


def test_a_flow_to_the_same_port_of_another_host_is_not_forgotten(world: Place) -> None:
    vip = Vip(ip=CLUSTER4, port=53, protocol=Protocol.UDP, node_port=30053)
    with world.serving(world.client, CLIENT4, 30053, socket.SOCK_DGRAM):
        write(world, balancer("dns", vip))
        assert world.ask_udp(world.ovn, CLIENT4, 30053) == f"{CLIENT4} {V4}"
        assert world.ask_udp(world.node, CLIENT4, 30053) == f"{CLIENT4} {V4}"
        assert forgotten(world, [], [balancer("dns", vip)]) == 0


def test_with_policy_local_a_pod_sees_the_address_of_the_client(world: Place) -> None:
    write(world, balancer("web", *BOTH, ends=(POD4, OTHER4, REMOTE4, POD6), policy=LOCAL))
    with (
        world.serving(world.ovn, POD4, 80),
        world.serving(world.ovn, OTHER4, 80),
        world.serving(world.ovn, REMOTE4, 80),
    ):
        found = {world.ask(world.client, V4, 30080) for _ in range(40)}
        assert found == {f"{POD4} {CLIENT4}", f"{OTHER4} {CLIENT4}"}
    with world.serving(world.ovn, POD6, 80):
        assert world.ask(world.client, V6, 30080) == f"{POD6} {CLIENT6}"
    with world.serving(world.ovn, CLUSTER4, 80):
        # From inside, the VIP: OVN knows endpoints on all nodes.
        assert world.ask(world.node, V4, 30080) == f"{CLUSTER4} {OWN4}"
        assert world.ask(world.ovn, V4, 30080, source=POD4) == f"{CLUSTER4} {OWN4}"


def test_with_affinity_a_client_stays_with_one_pod(world: Place) -> None:
    write(world, balancer("web", *BOTH, ends=(POD4, OTHER4), policy=LOCAL, affinity=10800))
    with world.serving(world.ovn, POD4, 80), world.serving(world.ovn, OTHER4, 80):
        assert len({world.ask(world.client, V4, 30080) for _ in range(20)}) == 1


def test_with_policy_local_and_no_endpoint_here_the_outside_gets_no_answer(world: Place) -> None:
    elsewhere = balancer("web", *BOTH, ends=(REMOTE4,), policy=LOCAL)
    beside = balancer("beside", Vip(ip=CLUSTER4, port=81, node_port=30081))
    write(world, elsewhere, beside)
    with world.serving(world.ovn, REMOTE4, 80), world.serving(world.ovn, CLUSTER4, 80):
        with world.serving(world.ovn, CLUSTER4, 81):
            assert world.ask(world.client, V4, 30081) == f"{CLUSTER4} {OWN4}"
        assert world.ask(world.client, V4, 30080, seconds=SILENCE) == ""
        assert world.ask(world.node, V4, 30080) == f"{CLUSTER4} {OWN4}"


def test_an_external_address_is_reached_by_those_who_may(world: Place) -> None:
    external = (
        ExternalAddress(ip="203.0.113.5"),
        ExternalAddress(ip="203.0.113.6", source_ranges=("198.51.100.0/24",)),
    )
    write(world, balancer("web", Vip(ip=CLUSTER4, port=80), external=external))
    with world.serving(world.ovn, CLUSTER4, 80):
        assert world.ask(world.client, "203.0.113.5", 80) == f"{CLUSTER4} {OWN4}"
        assert world.ask(world.client, "203.0.113.6", 80, source=FAR) == f"{CLUSTER4} {OWN4}"
        assert world.ask(world.client, "203.0.113.6", 80, seconds=SILENCE) == ""
        assert world.ask(world.client, "203.0.113.5", 81, seconds=SILENCE) == ""
        assert world.ask(world.node, "203.0.113.5", 80) == f"{CLUSTER4} {OWN4}"
        assert world.ask(world.ovn, "203.0.113.5", 80, source=POD4) == f"{CLUSTER4} {OWN4}"


def test_an_external_address_of_policy_local_leads_to_the_pod_of_this_node(world: Place) -> None:
    external = (ExternalAddress(ip="203.0.113.7"),)
    vip = Vip(ip=CLUSTER4, port=80, target_port=8080)
    write(world, balancer("web", vip, ends=(POD4, REMOTE4), policy=LOCAL, external=external))
    with world.serving(world.ovn, POD4, 8080):
        assert world.ask(world.client, "203.0.113.7", 80, source=FAR) == f"{POD4} {FAR}"


def test_connections_last_while_the_whole_table_is_replaced(world: Place) -> None:
    write(world, balancer("web", *BOTH))
    with (
        in_namespace(world.ovn, socket.AF_INET, socket.SOCK_STREAM) as server,
        in_namespace(world.client, socket.AF_INET, socket.SOCK_STREAM) as client,
    ):
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((CLUSTER4, 80))
        server.listen(1)
        client.settimeout(SECONDS)
        client.connect((V4, 30080))
        connection, _ = server.accept()
        with connection:
            connection.send(b"before")
            assert client.recv(64) == b"before"
            # With something of others in it, the table is written anew, in one transaction.
            run(*within(world.node, "nft", "add", "counter", "inet", TABLE, "foreign"))
            write(world, balancer("web", *BOTH))
            assert "foreign" not in ruleset(world.node)
            connection.send(b"after")
            assert client.recv(64) == b"after"
            client.send(b"and afterwards")
            assert connection.recv(64) == b"and afterwards"


@pytest.mark.parametrize("value", ["0", "1", "2"])
def test_any_reverse_path_filter_will_do(world: Place, value: str) -> None:
    for device in ("all", "nl-host", "eth0"):
        run(*within(world.node, "sysctl", "-qw", f"net.ipv4.conf.{device}.rp_filter={value}"))
    write(
        world,
        balancer("web", *BOTH, ends=(POD4,), policy=LOCAL),
        balancer("x", Vip(ip=CLUSTER4, port=81, node_port=30081)),
    )
    with world.serving(world.ovn, POD4, 80), world.serving(world.ovn, CLUSTER4, 81):
        assert world.ask(world.client, V4, 30080) == f"{POD4} {CLIENT4}"
        assert world.ask(world.client, V4, 30081) == f"{CLUSTER4} {OWN4}"
        assert world.ask(world.ovn, V4, 30081, source=POD4) == f"{CLUSTER4} {OWN4}"
    with world.serving(world.client, FAR, 8000):
        assert world.ask(world.ovn, FAR, 8000, source=REMOTE4) == f"{FAR} {V4}"
