"""Snapshots: what is written is read again; what is damaged or something else is refused, whatever it is."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import BadRequest
from netloom.model import codec
from netloom.model.document import Document, Resource
from netloom.model.kinds.attachments import NetworkAttachment, NetworkAttachmentStatus
from netloom.model.kinds.sandbox import HostDocument, Sandbox
from netloom.plan.linux.objects import plan_host_documents
from netloom.plan.sandbox import snapshot as snapshots
from netloom.plan.sandbox.changes import changes
from netloom.plan.sandbox.objects import plan_sandbox
from tests.plan.test_sandbox import SMALL, of, planned, sandbox
from tests.plan.test_sandbox_faults import OFFICE

NODES = frozenset(("n1", "n2"))


def document(topology: dict[str, Any], **spec: Any) -> Document:
    return {"metadata": {"name": "s1", "namespace": "ns1"}, "spec": {"topology": topology, **spec}}


def deployed(topology: dict[str, Any], **spec: Any) -> list[NetworkAttachment]:
    """Return the attachments of a Sandbox, each with a MAC address."""
    found = of(planned(topology, **spec), NetworkAttachment).values()
    return [
        msgspec.structs.replace(one, status=NetworkAttachmentStatus(mac=f"02:00:00:00:00:{at:02x}"))
        for at, one in enumerate(sorted(found, key=lambda one: one.metadata.name), 1)
    ]


def taken(topology: dict[str, Any] = OFFICE, **spec: Any) -> snapshots.Snapshot:
    found, unknown = snapshots.take(document(topology, **spec), deployed(topology, **spec))
    assert unknown == []
    return found


TEXT = snapshots.encode(taken())


def test_a_snapshot_has_the_nodes_and_mac_addresses_of_all_hosts() -> None:
    spec = taken(placement={"default": "n2", "hosts": {"home": "n1"}}).spec
    assert spec["placement"] == {"default": "n2", "hosts": {"desk": "n2", "home": "n1", "server": "n2"}}
    assert spec["macs"] == [
        {"host": "desk", "network": "home-switch", "mac": "02:00:00:00:00:01"},
        {"host": "desk", "network": "server-switch", "mac": "02:00:00:00:00:02"},
        {"host": "home", "network": "home-switch", "mac": "02:00:00:00:00:03"},
        {"host": "server", "network": "server-switch", "mac": "02:00:00:00:00:04"},
    ]


def test_a_sandbox_of_a_snapshot_has_the_same_objects_wherever_hosts_would_be_placed() -> None:
    before = deployed(OFFICE)
    again = msgspec.convert(snapshots.sandbox_of(taken(), "s1", "ns1"), Sandbox)
    plan = plan_sandbox(again, frozenset(("n0", "n1", "n2")))
    after = of(plan, NetworkAttachment)
    assert {name: one.spec.mac for name, one in after.items()} == {one.metadata.name: one.status.mac for one in before}
    assert {name: one.spec.node for name, one in after.items()} == {one.metadata.name: one.spec.node for one in before}
    found = changes(plan.objects, planned(OFFICE).objects)
    assert {one.kind for one in (*found.create, *found.update, *found.remove)} == {"NetworkAttachment"}
    assert (found.create, found.remove) == ((), ())


def test_a_snapshot_of_the_backend_linux_is_taken_from_its_documents() -> None:
    spec: dict[str, Any] = {"backend": "linux", "run": True}
    value = sandbox(OFFICE, placement={"hosts": {"home": "n2"}}, **spec)
    nodes = {"n1": "192.0.2.1", "n2": "192.0.2.2"}
    before = plan_host_documents(value, nodes)
    found, unknown = snapshots.take(document(OFFICE, **spec), before.objects)
    assert unknown == []
    again = msgspec.convert(snapshots.sandbox_of(found, "s1", "ns1"), Sandbox)
    after = plan_host_documents(again, {"n0": "192.0.2.9", **nodes})
    assert ends(after.objects) == ends(before.objects)
    assert "home" in {host for one in of(before, HostDocument).values() for host in one.spec.hosts}


def ends(objects: Iterable[Resource]) -> set[tuple[str, str, str]]:
    """Return Node, network namespace and MAC address of each link of a host."""
    return {
        (one.spec.node, member["namespace"], member["mac"])
        for one in objects
        if isinstance(one, HostDocument)
        for member in one.spec.document["members"]
        if member["namespace"] in one.spec.hosts.values()
    }


def test_a_copy_may_have_mac_addresses_of_its_own() -> None:
    copy = snapshots.sandbox_of(taken(), "s2", "ns2", macs=False)
    assert copy["metadata"] == {"name": "s2", "namespace": "ns2"}
    assert "macs" not in copy["spec"]
    assert copy["spec"]["placement"] == taken().spec["placement"]


def test_hosts_that_are_not_deployed_yet_are_named_and_left_out() -> None:
    found, unknown = snapshots.take(document(SMALL), deployed(SMALL)[:1])
    assert [(one.host, one.network) for one in unknown] == [("server", "server-switch")]
    assert list(found.spec["placement"]["hosts"]) == ["home"]
    assert snapshots.read(snapshots.encode(found).encode()) == found


def test_a_mac_address_of_no_link_has_no_effect() -> None:
    macs = [{"host": "nobody", "network": "home-switch", "mac": "02:00:00:00:00:09"}]
    assert planned(SMALL, macs=macs) == planned(SMALL)
    assert sandbox(SMALL, macs=macs).spec.macs[0].host == "nobody"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "Sandbox"}, "this is not a snapshot of a Sandbox, but Sandbox: use a file of"),
        ({"kind": None}, "this is not a snapshot of a Sandbox: use a file of"),
        ({"version": 2}, "the version of the snapshot is 2, and this program reads version 1"),
        ({"version": True}, "the snapshot is damaged: Expected `int`, got `bool` - at `$.version`"),
        ({"name": "s2"}, "the snapshot is damaged, or was edited"),
        ({"more": 1}, "the snapshot is damaged: Object contains unknown field `more`"),
        ({"spec": {}}, "the snapshot is damaged, or was edited"),
        ({"spec": []}, "the snapshot is damaged: Expected `object`, got `array` - at `$.spec`"),
        ({"checksum": ""}, "the snapshot is damaged, or was edited"),
    ],
)
def test_what_is_damaged_or_something_else_is_refused(change: dict[str, Any], says: str) -> None:
    (found,) = codec.documents(TEXT)
    with pytest.raises(BadRequest) as refused:
        snapshots.read(codec.encode_yaml(found | change).encode())
    assert refused.value.message.startswith(says)


def test_a_snapshot_of_an_invalid_sandbox_is_refused_although_its_checksum_is_right() -> None:
    spec = {"topology": {"name": "small", "hosts": [{"name": "A b"}]}}
    bad = snapshots.Snapshot(name="s1", namespace="ns1", spec=spec)
    bad = msgspec.structs.replace(bad, checksum=snapshots.checksum(bad))
    with pytest.raises(BadRequest, match="not of a valid Sandbox"):
        snapshots.read(snapshots.encode(bad).encode())


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        snapshots.read(data)


@given(st.integers(0, len(TEXT) - 1), st.sampled_from("0aZ:-{}[]\"'\n \t#&*!\x00é"))
def test_a_changed_character_is_noticed_or_means_the_same(at: int, character: str) -> None:
    changed = TEXT[:at] + character + TEXT[at + 1 :]
    try:
        found = snapshots.read(changed.encode())
    except BadRequest:
        return
    assert found == taken()


@given(st.integers(0, len(TEXT) - 2))
def test_a_truncated_file_is_noticed(length: int) -> None:
    with pytest.raises(BadRequest):
        snapshots.read(TEXT[:length].encode())


names = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9]", fullmatch=True)
numbers = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(names, min_size=1, max_size=5, unique=True), st.booleans(), st.dictionaries(names, numbers))
def test_what_is_taken_is_read_again(hosts: list[str], run: bool, extra: dict[str, int]) -> None:
    topology = {
        "name": "range",
        "hosts": [{"name": name, "extra": extra} for name in hosts],
        "networks": [{"name": "lan", "cidr": "10.0.0.0/24"}],
        "net_mappings": [{"host": name, "network": "lan", "ip": f"10.0.0.{at}"} for at, name in enumerate(hosts, 2)],
    }
    found = taken(topology, run=run)
    assert snapshots.read(snapshots.encode(found).encode()) == found
