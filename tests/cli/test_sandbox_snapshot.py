"""`netloom sandbox snapshot` and `restore`: back after an edit, after a removal, and as a copy."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_sandbox_fault import TOPOLOGY, Rooms
from tests.run.serving import Serving
from tests.support.process import wait_until

pytestmark = pytest.mark.slow

MACS = [
    {"host": "alice", "network": "left", "mac": "02:00:00:00:00:01"},
    {"host": "bob", "network": "right", "mac": "02:00:00:00:00:02"},
]


@pytest.fixture
def rooms(server: Serving, ns: str, tmp_path: Path) -> Rooms:
    """A Sandbox whose hosts have MAC addresses and Nodes that it names."""
    made = Rooms(server, ns, tmp_path)
    change(made, "rooms", {"macs": MACS, "placement": {"hosts": {"alice": "n1", "bob": "n2"}}})
    return made


def change(rooms: Rooms, name: str, spec: dict[str, Any]) -> None:
    """Change the spec of a Sandbox as another program would."""
    found = json.loads(rooms.cli("get", f"sandbox/{name}", "-o", "json").out)
    found["spec"] |= spec
    path = f"/apis/netloom.dev/v1alpha1/namespaces/{rooms.ns}/sandboxes/{name}?fieldManager=somebody"
    status, body = rooms.server.request("PUT", path, found)
    assert status == 200, body


def taken(rooms: Rooms) -> str:
    """Return a snapshot, once IPAM has given all hosts their MAC addresses."""

    def whole() -> str:
        answer = rooms.cli("sandbox", "snapshot", "rooms")
        return "" if "has no MAC address" in answer.err else answer.out

    return wait_until(whole, what="MAC addresses")


def restored(rooms: Rooms, text: str, *args: str) -> str:
    return rooms.cli("sandbox", "restore", "-", "--no-wait", *args, stdin=text).out


def test_a_restored_sandbox_is_as_it_was_and_its_file_can_be_applied_again(rooms: Rooms) -> None:
    rooms.fault("link-down", "alice", "--no-wait")
    before, text = rooms.spec(), taken(rooms)
    assert restored(rooms, text) == "sandbox.netloom.dev/rooms unchanged\n"
    rooms.fault("restore", "--no-wait")
    rooms.fault("link-down", "bob", "--no-wait")
    rooms.file.write_text(TOPOLOGY.replace("10.2.0.5", "10.2.0.6").replace("groups", "#"))
    rooms.apply()
    links = [{"host": "bob", "network": "right", "rate": "1mbit"}]
    change(rooms, "rooms", {"links": links, "run": True, "macs": MACS[:1]})
    assert restored(rooms, text) == "sandbox.netloom.dev/rooms configured\n"
    assert rooms.spec() == before
    assert restored(rooms, text) == "sandbox.netloom.dev/rooms unchanged\n"
    # The file is the owner of what it has; MAC addresses and faults stay.
    rooms.file.write_text(TOPOLOGY.replace("10.2.0.5", "10.2.0.7"))
    assert rooms.apply().endswith("configured\n")
    after = rooms.spec()
    assert after["topology"]["net_mappings"][1]["ip"] == "10.2.0.7"
    assert (after["macs"], after["faults"]) == (before["macs"], before["faults"])


def test_a_sandbox_comes_back_after_its_removal_and_a_copy_beside_it_has_other_mac_addresses(rooms: Rooms) -> None:
    before, text = rooms.spec(), taken(rooms)
    answer = rooms.cli("sandbox", "restore", "-", "--name", "twin", "--no-wait", stdin=text)
    assert answer.out == "sandbox.netloom.dev/twin created\n"
    assert "two hosts on one Node cannot have one MAC address: twin gets its own" in answer.err
    twin = json.loads(rooms.cli("get", "sandbox/twin", "-o", "json").out)["spec"]
    assert twin == {key: value for key, value in before.items() if key != "macs"}
    rooms.cli("sandbox", "destroy", str(rooms.file))
    assert restored(rooms, text) == "sandbox.netloom.dev/rooms created\n"
    assert rooms.spec() == before
    rooms.cli("sandbox", "destroy", str(rooms.file))
    assert restored(rooms, text, "--name", "heir") == "sandbox.netloom.dev/heir created\n"
    assert json.loads(rooms.cli("get", "sandbox/heir", "-o", "json").out)["spec"] == before
    assert rooms.apply() == "sandbox.netloom.dev/rooms created\n"


def test_a_snapshot_replaces_an_older_one_as_a_whole(rooms: Rooms, tmp_path: Path) -> None:
    text = taken(rooms)
    file, link = tmp_path / "kept" / "rooms.yml", tmp_path / "link"
    file.parent.mkdir()
    rooms.cli("sandbox", "snapshot", "rooms", "-o", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    with file.open() as old:
        rooms.cli("sandbox", "snapshot", "rooms", "-o", str(link))
        assert old.read() == "old", "it is another file"
    assert file.read_text() == text
    assert file.stat().st_mode & 0o777 == 0o640
    assert list(file.parent.iterdir()) == [file]
    assert link.is_symlink()


def test_a_sandbox_that_is_being_deleted_is_not_restored(rooms: Rooms) -> None:
    text = taken(rooms)
    found = json.loads(rooms.cli("get", "sandbox/rooms", "-o", "json").out)
    path = f"/apis/netloom.dev/v1alpha1/namespaces/{rooms.ns}/sandboxes/rooms"
    found["metadata"]["finalizers"] += ["example.com/mine"]
    assert rooms.server.request("PUT", path, found)[0] == 200
    rooms.cli("sandbox", "destroy", str(rooms.file), "--no-wait")
    answer = rooms.cli("sandbox", "restore", "-", "--no-wait", check=False, stdin=text)
    assert (answer.rc, answer.out) == (1, "")
    assert "sandbox rooms is being deleted: repeat this when it is gone" in answer.err
    assert "is being deleted" in rooms.refused("link-down", "alice")


def test_a_damaged_or_foreign_file_changes_nothing(rooms: Rooms, tmp_path: Path) -> None:
    before, file = rooms.spec(), tmp_path / "snapshot.yaml"
    rooms.cli("sandbox", "snapshot", "rooms", "-o", str(file))
    text = file.read_text()
    for content, says in (
        (text.replace("10.1.0.5", "10.1.0.6"), "the snapshot is damaged, or was edited"),
        (TOPOLOGY, "this is not a snapshot of a Sandbox"),
        (text[:200], "this is not a snapshot of a Sandbox"),
    ):
        file.write_text(content)
        answer = rooms.cli("sandbox", "restore", str(file), "--no-wait", check=False)
        assert (answer.rc, answer.out) == (1, "")
        assert f"Error: {file}: " in answer.err
        assert says in answer.err or "the snapshot is damaged" in answer.err
    assert rooms.spec() == before
    answer = rooms.cli("sandbox", "snapshot", "nowhere", check=False)
    assert (answer.rc, '"nowhere" not found' in answer.err) == (1, True)
