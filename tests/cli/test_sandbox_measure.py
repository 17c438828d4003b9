"""`netloom sandbox measure`: what it measures with, and what it says where nothing can be measured."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from netloom.cli.sandbox import traffic
from netloom.lab import probes
from tests.run.serving import Serving
from tests.support.ovn import namespace, own, run, within
from tests.support.process import wait_until

LEFT, RIGHT = own("nlt-me-left"), own("nlt-me-right")
HALL: dict[str, Any] = {
    "apiVersion": "netloom.dev/v1alpha1",
    "kind": "Sandbox",
    "metadata": {"name": "hall"},
    "spec": {
        "links": [{"host": "alice", "network": "left", "rate": "10mbit"}],
        "topology": {
            "name": "hall",
            "hosts": [{"name": "alice"}, {"name": "bob"}],
            "networks": [{"name": "left", "cidr": "10.1.0.0/24"}],
            "net_mappings": [
                {"host": "alice", "network": "left", "ip": "10.1.0.5"},
                {"host": "bob", "network": "left", "ip": "10.1.0.6"},
            ],
        },
    },
}
SHAPING: dict[str, Any] = {
    "apiVersion": "netloom.dev/v1alpha1",
    "kind": "Shaping",
    "metadata": {"name": "hall-alice-left"},
    "spec": {"from": {"attachment": "hall-alice-left"}, "rate": "10mbit"},
}


@pytest.fixture
def wire() -> Iterator[None]:
    """Two namespaces with a cable between them."""
    with namespace(LEFT), namespace(RIGHT):
        run("ip", "link", "add", "e0", "netns", LEFT, "type", "veth", "peer", "name", "e0", "netns", RIGHT)
        for name, last in ((LEFT, 1), (RIGHT, 2)):
            run(*within(name, "ip", "address", "add", f"10.7.0.{last}/24", "dev", "e0"))
            run(*within(name, "ip", "address", "add", f"fd07::{last}/64", "dev", "e0", "nodad"))
            run(*within(name, "ip", "link", "set", "e0", "up"))
        # The kernel notices a carrier, and begins to resolve neighbours, up to some seconds after `up`.
        for ip in ("10.7.0.2", "fd07::2"):
            wait_until(partial(probes.ping, LEFT, ip), what=f"the cable to carry packets to {ip}")
        yield


@pytest.mark.lab
@pytest.mark.root
@pytest.mark.parametrize("ips", [("10.7.0.1", "10.7.0.2"), ("fd07::1", "fd07::2")], ids=["v4", "v6"])
def test_on_a_plain_cable_every_packet_returns_and_what_is_offered_arrives(wire: None, ips: tuple[str, str]) -> None:
    with traffic.Responder(RIGHT, ips[1]) as far, traffic.client(LEFT, ips[0]) as near:
        assert traffic.answers(near, far)
        trips = traffic.round_trips(near, far, count=50, interval=0.002, wait=5)
        assert (trips.sent, len(trips.seconds)) == (50, 50)
        flow = traffic.throughput(near, far, rate=2_000_000, burst=0, delay=0)
        # Nothing limits it here, so twice the rate arrives, or what a busy machine sends of that.
        assert flow.received == pytest.approx(flow.offered, rel=0.2)
        assert flow.offered <= 4_100_000


@pytest.mark.lab
@pytest.mark.root
def test_who_is_not_there_does_not_answer_and_counts_as_lost(wire: None) -> None:
    with traffic.Responder(RIGHT, "10.7.0.2") as far, traffic.client(LEFT, "10.7.0.1") as near:
        run(*within(RIGHT, "ip", "link", "set", "e0", "down"))
        assert not traffic.answers(near, far)
        assert traffic.round_trips(near, far, count=5, interval=0.001, wait=0.1).seconds == []


@pytest.mark.slow
def test_what_cannot_be_measured_is_said_and_is_no_success(server: Serving, ns: str) -> None:
    def measured(*args: str) -> tuple[int, str, str]:
        answer = server.cli("-n", ns, "sandbox", "measure", *args, check=False)
        return answer.rc, answer.out, answer.err

    def apply(one: dict[str, Any]) -> None:
        server.cli("-n", ns, "apply", "-f", "-", stdin=json.dumps(one))

    assert "not found" in measured("--name", "hall")[2]
    for both in ([], ["-f", "hall.yml", "--name", "hall"]):
        code, _, said = measured(*both)
        assert (code, "give either -f FILE or --name NAME" in said) == (1, True)
    apply(HALL)
    server.cli("-n", ns, "delete", "shapings", "--all")
    assert measured("--name", "hall")[:2] == (0, "No link of Sandbox hall is shaped.\n")
    apply(SHAPING)
    code, text, _ = measured("--name", "hall", "-o", "json")
    (finding,) = json.loads(text)
    assert code == 1
    assert (finding["host"], finding["network"], finding["ok"]) == ("alice", "left", False)
    assert finding["note"] == "alice does not run on this machine"
    assert "alice does not run on this machine" in measured("--name", "hall", "alice", "left")[1]
    code, _, said = measured("--name", "hall", "bob")
    assert (code, "Sandbox hall has no shaped link of bob" in said) == (1, True)
