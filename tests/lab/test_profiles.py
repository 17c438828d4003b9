"""Firewall profiles: what is allowed arrives, what is not does not, answers come back, and changes count at once."""

import socket
from collections.abc import Iterator

import pytest

from netloom.lab import Lab
from netloom.lab.daemons.entering import inside
from tests.lab.worlds import World, world
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

MACHINES = {"web": 11, "client": 12, "stranger": 13, "closed": 14, "locked": 15, "friend": 16, "fortress": 17}
PORTS: tuple[int | str, ...] = (23, 25, 80, 81, 9000, 9010, 9011, "udp/5353")
BLOCKS = ["10.66.0.", "fd66::"]

# From whom, to whom, how: what must be reached; and beside each what must not.
REACHED: list[tuple[str, str, tuple[int | str, ...]]] = [
    ("client", "web", (80, "ping", 9000, 9010, "udp/5353")),
    ("stranger", "web", (80,)),
    ("closed", "web", (80, "ping")),
    ("closed", "client", (80, "udp/5353", "ping")),
    ("locked", "web", (80,)),
    ("web", "locked", (80, "udp/5353", "ping")),
    ("client", "friend", (80, "udp/5353", "ping")),
    ("stranger", "fortress", (80, "udp/5353", "ping")),
]
DROPPED: list[tuple[str, str, tuple[int | str, ...]]] = [
    ("client", "web", (81, 9011)),
    ("stranger", "web", (81, "ping", 9000, "udp/5353")),
    ("closed", "web", (9000, "udp/5353")),
    ("client", "closed", (80, "udp/5353", "ping")),
    ("locked", "web", ("ping", 81)),
    ("locked", "stranger", (80, "udp/5353", "ping")),
    ("stranger", "friend", (80, "udp/5353", "ping")),
    ("stranger", "fortress", (23, 25)),
]


@pytest.fixture(scope="module")
def profiles(lab: Lab) -> Iterator[World]:
    """One network, and machines with all sorts of profiles."""
    with world(lab, "profiles") as made:
        for name in MACHINES:
            made.listen(name, *PORTS)
        yield made


@pytest.mark.parametrize("block", BLOCKS, ids=["v4", "v6"])
def test_what_is_allowed_arrives_and_its_answer_comes_back(profiles: World, block: str) -> None:
    ways = [(who, f"{block}{MACHINES[whom]}", how) for who, whom, hows in REACHED for how in hows]
    assert [way for way, answer in profiles.reaches(ways).items() if not answer] == []


@pytest.mark.parametrize("block", BLOCKS, ids=["v4", "v6"])
def test_what_is_not_allowed_does_not_arrive(profiles: World, block: str) -> None:
    assert profiles.answers("client", f"{block}11", 80)
    ways = [(who, f"{block}{MACHINES[whom]}", how) for who, whom, hows in DROPPED for how in hows]
    assert {way: answer for way, answer in profiles.tries(ways).items() if answer} == {}


@pytest.mark.parametrize("block", BLOCKS, ids=["v4", "v6"])
def test_who_is_rejected_is_told_and_who_is_dropped_is_not(profiles: World, block: str) -> None:
    assert profiles.answers("stranger", f"{block}17", 80)
    assert profiles.refusal("stranger", f"{block}17", 25) == "ConnectionRefusedError"
    assert profiles.refusal("stranger", f"{block}17", 23) == "TimeoutError"


def test_a_changed_profile_counts_for_ports_that_are_there(profiles: World) -> None:
    spec = profiles.get("securityprofile", "web")["spec"]
    assert profiles.answers("stranger", "10.66.0.11", 80)
    rules = [{"ports": [{"protocol": "tcp", "port": 81}]}, *spec["ingress"][1:]]
    try:
        profiles.put("SecurityProfile", "web", {**spec, "ingress": rules})
        assert profiles.answers("stranger", "10.66.0.11", 81)
        profiles.blocked(("stranger", "10.66.0.11", 80))
        assert not profiles.ask("stranger", "fd66::11", 80)
        assert profiles.answers("client", "10.66.0.11", 9000), "the other rules stand"
    finally:
        profiles.put("SecurityProfile", "web", spec)
    assert profiles.answers("stranger", "10.66.0.11", 80)


def test_a_connection_whose_rule_goes_is_cut(profiles: World) -> None:
    spec = profiles.get("securityprofile", "web")["spec"]
    assert profiles.answers("client", "10.66.0.11", 9000)
    server = inside(profiles.netns("web"), lambda: socket.create_server(("10.66.0.11", 9001)))
    with server, inside(profiles.netns("client"), lambda: socket.create_connection(("10.66.0.11", 9001), 5)) as one:
        other, _ = server.accept()
        with other:
            assert passes(one, other)
            try:
                profiles.put("SecurityProfile", "web", {**spec, "ingress": spec["ingress"][:1]})
                wait_until(lambda: not passes(one, other), what="the connection to be cut")
            finally:
                profiles.put("SecurityProfile", "web", spec)


def test_labels_decide_whom_a_profile_covers_and_names(profiles: World) -> None:
    assert profiles.answers("client", "10.66.0.13", 81)
    assert not profiles.ask("stranger", "10.66.0.11", 9000)
    label(profiles, "stranger", "role=client")
    try:
        assert profiles.answers("stranger", "10.66.0.11", 9000), "it is a client now"
        assert profiles.answers("client", "10.66.0.13", 81)
        label(profiles, "stranger", "app=web")
        profiles.blocked(("client", "10.66.0.13", 81))
        assert profiles.answers("client", "10.66.0.13", 80)
    finally:
        label(profiles, "stranger", "role-", "app-")
    assert profiles.answers("client", "10.66.0.13", 81)
    profiles.blocked(("stranger", "10.66.0.11", 9000))


def test_a_port_whose_profile_does_not_exist_is_closed_until_it_does(profiles: World) -> None:
    spec = profiles.get("networkattachment", "stranger")["spec"]
    assert profiles.answers("client", "10.66.0.13", 80)
    try:
        profiles.put("NetworkAttachment", "stranger", {**spec, "securityProfiles": ["later"]})
        profiles.blocked(("client", "10.66.0.13", 80))
        profiles.put("SecurityProfile", "later", {"ingress": [{"ports": [{"port": 80}]}]})
        assert profiles.answers("client", "10.66.0.13", 80)
        assert not profiles.ask("client", "10.66.0.13", 81)
    finally:
        profiles.put("NetworkAttachment", "stranger", spec)
    assert profiles.answers("client", "10.66.0.13", 81)


def label(made: World, name: str, *labels: str) -> None:
    """Set labels of an attachment, as one does."""
    found = made.get("networkattachment", name)
    kept = dict(found["metadata"].get("labels", {}))
    for one in labels:
        if one.endswith("-"):
            kept.pop(one[:-1], None)
        else:
            key, value = one.split("=")
            kept[key] = value
    made.put("NetworkAttachment", name, found["spec"], labels=kept)


def passes(one: socket.socket, other: socket.socket) -> bool:
    """Whether what one says is heard by the other."""
    other.settimeout(1)
    one.send(b"?")
    try:
        return other.recv(64) != b""
    except OSError:
        return False
