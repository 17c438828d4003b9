"""`netloom sandbox fault`: faults are written to the spec, survive an apply of the file, and are removed again."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.run.serving import Answer, Serving

pytestmark = pytest.mark.slow

TOPOLOGY = """
name: rooms
hosts: [{name: alice}, {name: bob}]
routers: [{name: hall}]
networks: [{name: left, cidr: 10.1.0.0/24}, {name: right, cidr: 10.2.0.0/24}]
net_mappings:
- {host: alice, network: left, ip: 10.1.0.5}
- {host: bob, network: right, ip: 10.2.0.5}
router_mappings:
- {router: hall, network: left, ip: 10.1.0.1}
- {router: hall, network: right, ip: 10.2.0.1}
groups: [{name: guests, nodes: [alice]}]
"""


class Rooms:
    """A Sandbox on a server without agents."""

    def __init__(self, server: Serving, ns: str, folder: Path) -> None:
        self.server, self.ns, self.file = server, ns, folder / "rooms.yml"
        self.file.write_text(TOPOLOGY)
        self.apply()

    def cli(self, *args: str, check: bool = True, stdin: str = "") -> Answer:
        return self.server.cli("-n", self.ns, *args, check=check, stdin=stdin)

    def apply(self) -> str:
        return self.cli("sandbox", "apply", str(self.file), "--no-wait").out

    def fault(self, *args: str) -> str:
        return self.cli("sandbox", "fault", "rooms", *args).out

    def refused(self, *args: str) -> str:
        answer = self.cli("sandbox", "fault", "rooms", *args, check=False)
        assert (answer.rc, answer.out) == (1, "")
        return answer.err

    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.cli("get", "sandbox/rooms", "-o", "json").out)["spec"]
        return found


@pytest.fixture
def rooms(server: Serving, ns: str, tmp_path: Path) -> Rooms:
    return Rooms(server, ns, tmp_path)


def test_faults_last_until_they_are_restored_and_an_apply_keeps_them(rooms: Rooms) -> None:
    created = "link-down-alice-left created: the link of alice to left is down\n"
    assert rooms.fault("link-down", "alice", "left", "--no-wait") == created
    assert rooms.fault("link-down", "alice", "left", "--no-wait") == created.replace("created", "unchanged")
    rooms.fault("link-down", "hall", "--no-wait", "--name", "hall")
    rooms.fault("partition", "guests", "--from", "bob", "--no-wait")
    assert rooms.spec()["faults"] == [
        {"name": "link-down-alice-left", "linkDown": {"host": "alice", "network": "left"}},
        {"name": "hall", "linkDown": {"host": "hall"}},
        {"name": "partition-guests-from-bob", "partition": {"members": ["guests"], "from": ["bob"]}},
    ]
    assert rooms.apply().endswith("unchanged\n")
    rooms.file.write_text(TOPOLOGY.replace("10.2.0.5", "10.2.0.6"))
    assert rooms.apply().endswith("configured\n")
    assert rooms.fault("list").splitlines() == [
        "NAME                        FAULT",
        "link-down-alice-left        the link of alice to left is down",
        "hall                        every link of hall is down",
        "partition-guests-from-bob   guests and bob cannot reach each other",
    ]
    assert "link-down-alice-left,hall" in rooms.cli("get", "sandboxes", "-o", "wide").out
    assert rooms.fault("restore", "hall", "--no-wait") == "hall restored\n"
    assert [one["name"] for one in rooms.spec()["faults"]] == ["link-down-alice-left", "partition-guests-from-bob"]
    restored = "link-down-alice-left restored\npartition-guests-from-bob restored\n"
    assert rooms.fault("restore", "--no-wait") == restored
    assert "faults" not in rooms.spec()
    assert rooms.fault("restore") == rooms.fault("list") == "No faults found.\n"


def test_what_the_topology_does_not_have_is_refused_and_changes_nothing(rooms: Rooms) -> None:
    assert "alice has no link to right" in rooms.refused("link-down", "alice", "right")
    assert "there is no host, network or group carol" in rooms.refused("partition", "alice", "carol")
    assert "alice has no link to right" in rooms.refused("flap", "alice", "right")
    assert "has no fault nothing: see netloom sandbox fault rooms list" in rooms.refused("restore", "nothing")
    rooms.fault("link-down", "alice", "--name", "mine", "--no-wait")
    assert "fault mine exists and is another one" in rooms.refused("link-down", "bob", "--name", "mine")
    assert "by fault mine: restore it first" in rooms.refused("flap", "alice", "left")
    assert [one["name"] for one in rooms.spec()["faults"]] == ["mine"]
    answer = rooms.cli("sandbox", "fault", "rooms", "flap", "bob", "--every", "1ms", check=False)
    assert (answer.rc, "must be at least 0.1s" in answer.err) == (2, True)
    answer = rooms.cli("sandbox", "fault", "nowhere", "flap", "bob", check=False)
    assert (answer.rc, '"nowhere" not found' in answer.err, "may be down" in answer.err) == (1, True, False)


def test_a_flap_ends_with_the_link_up(rooms: Rooms) -> None:
    out = rooms.fault("flap", "alice", "left", "--every", "0.2s", "--for", "1s")
    down, up = "the link of alice to left is down", "the link of alice to left is up"
    lines = out.splitlines()
    assert len(lines) >= 2
    assert lines == [down, up] * (len(lines) // 2)
    assert "faults" not in rooms.spec()


def test_a_fault_that_a_file_declares_is_restored_until_the_file_is_applied_again(rooms: Rooms) -> None:
    text = rooms.cli("sandbox", "convert", str(rooms.file)).out
    text += "  faults:\n  - {name: drill, linkDown: {host: bob}}\n"
    rooms.cli("apply", "-f", "-", stdin=text)
    assert rooms.fault("restore", "--no-wait") == "drill restored\n"
    assert "faults" not in rooms.spec()
    rooms.cli("apply", "-f", "-", stdin=text)
    assert [one["name"] for one in rooms.spec()["faults"]] == ["drill"]
