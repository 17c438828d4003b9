"""What the probes see, and what they must not see."""

from collections.abc import Iterator

import pytest

from netloom.errors import Invalid, NotFound
from netloom.lab import Lab, probes
from netloom.lab.wiring import run
from tests.lab import labs
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]


@pytest.fixture
def pair(lab: Lab) -> Iterator[tuple[str, str]]:
    """Two workloads with a cable between them: 10.8.0.1 and 10.8.0.2."""
    names = [lab.workload(name).name for name in ("probe-a", "probe-b")]
    run(["ip", "-n", names[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", names[1]])
    for number, name in enumerate(names, start=1):
        run(["ip", "-n", name, "address", "add", f"10.8.0.{number}/24", "dev", "eth0"])
        run(["ip", "-n", name, "address", "add", f"fd00:8::{number}/64", "dev", "eth0", "nodad"])
        run(["ip", "-n", name, "link", "set", "eth0", "up"])
    # IPv6 makes sure that nobody else has a link's own address before it sends anything.
    wait_until(lambda: probes.ping(names[0], "fd00:8::2"), what="IPv6 to work")
    yield names[0], names[1]
    for name in names:
        run(["ip", "netns", "delete", name])


def test_a_workload_is_a_place_of_its_own(lab: Lab) -> None:
    path = lab.workload("guest")
    assert lab.workload("guest") == path, "a second time it is the same"
    assert path.name == lab.netns("guest")
    assert lab.exec("guest", ["ip", "-br", "link"]).stdout.split()[0] == "lo"
    said = labs.command("exec", "--data", lab.layout.folder, "nobody", "true").stderr
    assert "use one of underlay, central, outside, n1, n2" in said
    assert "guest" in said
    for bad in ("n1", "", "a/b", "-x", "A"):
        with pytest.raises(Invalid):
            lab.workload(bad)
    run(["ip", "netns", "delete", path.name])
    with pytest.raises(NotFound):
        lab.netns("guest")


def test_a_ping_is_answered_or_not(pair: tuple[str, str]) -> None:
    assert probes.ping(pair[0], "10.8.0.2")
    assert probes.ping(pair[1], "fd00:8::1")
    assert not probes.ping(pair[0], "10.8.0.3")
    assert not probes.ping(pair[0], "198.51.100.1")


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_listener_says_who_it_is_and_whom_it_sees(pair: tuple[str, str], protocol: probes.Protocol) -> None:
    with probes.Listeners() as listeners:
        listeners.add(pair[1], 80, name="b", protocol=protocol)
        assert probes.reach(pair[0], "10.8.0.2", 80, protocol=protocol) == "b 10.8.0.1"
        assert probes.reach(pair[0], "fd00:8::2", 80, protocol=protocol) == "b fd00:8::1"
        assert probes.reach(pair[0], "10.8.0.2", 81, protocol=protocol) == ""
        listeners.remove(pair[1], 80, protocol=protocol)
        assert probes.reach(pair[0], "10.8.0.2", 80, protocol=protocol) == ""


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_listener_answers_from_the_address_that_was_asked(pair: tuple[str, str], protocol: probes.Protocol) -> None:
    run(["ip", "-n", pair[1], "address", "add", "10.8.9.9/32", "dev", "lo"])
    run(["ip", "-n", pair[0], "route", "add", "10.8.9.9", "via", "10.8.0.2"])
    with probes.Listeners() as listeners:
        listeners.add(pair[1], 80, name="b", protocol=protocol)
        assert probes.reach(pair[0], "10.8.9.9", 80, protocol=protocol) == "b 10.8.0.1"


def test_a_rate_is_measured(pair: tuple[str, str]) -> None:
    with probes.iperf_server(pair[1]):
        assert probes.megabits(pair[0], "10.8.0.2", seconds=1) > 0
        assert 0 < probes.megabits(pair[0], "10.8.0.2", seconds=1, offered=2) < 4
        assert probes.megabits(pair[0], "10.8.0.2", seconds=1, port=5999) == 0


def test_nobody_leases_where_nobody_offers(pair: tuple[str, str]) -> None:
    assert probes.lease(pair[0], "eth0") == ""
