"""The audit finds each thing that can be wrong, and nothing else."""

from typing import Any

import msgspec

from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import IPLock, Network, Subnet, VNILock
from netloom.plan.audit.addresses import audit
from netloom.plan.audit.finding import Check, Finding


def world(**changed: Any) -> dict[str, dict[str, Any]]:
    """Return a small world in order, by kind and name."""
    owner = {"apiVersion": "netloom.dev/v1alpha1", "kind": "NetworkAttachment", "name": "a", "uid": "ua"}
    made: dict[str, dict[str, Any]] = {
        "Network/blue": {"spec": {}, "status": {"vni": 7}},
        "Subnet/s": {"spec": {"network": "blue", "cidr": "10.0.0.0/24"}},
        "NetworkAttachment/a": {
            "spec": {"node": "n1", "network": "blue"},
            "status": {
                "ips": ["10.0.0.2/24"],
                "vni": 7,
                "mac": "02:00:00:00:00:01",
                "locks": [{"ip": "10.0.0.2", "uid": "uv1-7-10-0-0-2"}],
            },
        },
        "IPLock/v1-7-10-0-0-2": {
            "metadata": {"ownerReferences": [owner]},
            "spec": {"network": "blue", "vni": 7, "ip": "10.0.0.2"},
        },
        "VNILock/vni-7": {
            "metadata": {"labels": {"app.kubernetes.io/managed-by": "netloom-controller"}},
            "spec": {"vni": 7, "network": {"namespace": "ns1", "name": "blue", "uid": "ublue"}},
        },
    }
    for path, value in changed.items():
        if value is None:
            del made[path]
        else:
            made[path] = value
    return made


def findings(made: dict[str, dict[str, Any]]) -> list[Finding]:
    """Audit documents."""
    values: dict[str, list[Any]] = {}
    types = {"Network": Network, "Subnet": Subnet, "NetworkAttachment": NetworkAttachment}
    types |= {"IPLock": IPLock, "VNILock": VNILock}
    for path, document in made.items():
        kind, name = path.split("/")
        metadata = {"namespace": "ns1", "name": name, "uid": f"u{name}"} | document.get("metadata", {})
        whole = {"apiVersion": "netloom.dev/v1alpha1", "kind": kind, **document, "metadata": metadata}
        values.setdefault(kind, []).append(msgspec.convert(whole, types[kind]))
    return audit(*(values.get(kind, []) for kind in types))


def checks(made: dict[str, dict[str, Any]]) -> set[tuple[Check, str]]:
    return {(one.check, one.name) for one in findings(made)}


def test_a_world_in_order_has_no_findings() -> None:
    assert findings(world()) == []


def test_an_address_two_attachments_have_is_found_at_both() -> None:
    made = world()
    made["NetworkAttachment/b"] = made["NetworkAttachment/a"]
    found = checks(made)
    assert {(Check.DUPLICATE_ADDRESS, "a"), (Check.DUPLICATE_ADDRESS, "b"), (Check.LOST_LOCK, "b")} <= found
    assert {(Check.DUPLICATE_MAC, "a"), (Check.DUPLICATE_MAC, "b")} <= found
    text = str(next(one for one in findings(made) if one.check is Check.DUPLICATE_ADDRESS and one.name == "a"))
    assert text == "duplicate-address: NetworkAttachment ns1/a: has 10.0.0.2 of VNI 7, and so has ns1/b"


def test_an_address_of_a_vni_that_two_namespaces_lock_is_found_at_both() -> None:
    made = world()
    spec = made["IPLock/v1-7-10-0-0-2"]["spec"]
    made["IPLock/other"] = {"metadata": {"namespace": "ns2", "name": "v1-7-10-0-0-2", "uid": "u2"}, "spec": spec}
    assert [(one.check, one.namespace) for one in findings(made)] == [
        (Check.DUPLICATE_LOCK, "ns1"),
        (Check.DUPLICATE_LOCK, "ns2"),
    ]
    text = "duplicate-lock: IPLock ns1/v1-7-10-0-0-2: has 10.0.0.2 of VNI 7, and so has ns2/v1-7-10-0-0-2"
    assert str(findings(made)[0]) == text


def test_a_lock_whose_owner_is_gone_is_found_unless_it_is_going() -> None:
    made = world(**{"NetworkAttachment/a": None})
    assert checks(made) == {(Check.ORPHANED_LOCK, "v1-7-10-0-0-2")}
    made["IPLock/v1-7-10-0-0-2"]["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    assert findings(made) == []


def test_a_lock_a_person_made_is_nobodys_business() -> None:
    assert findings(world(**{"IPLock/v1-7-10-0-0-9": {"spec": {"network": "blue", "vni": 7, "ip": "10.0.0.9"}}})) == []


def test_an_attachment_whose_lock_is_gone_going_or_another_is_found() -> None:
    assert checks(world(**{"IPLock/v1-7-10-0-0-2": None})) == {(Check.LOST_LOCK, "a")}
    made = world()
    made["IPLock/v1-7-10-0-0-2"]["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    assert checks(made) == {(Check.LOST_LOCK, "a")}
    made = world()
    made["IPLock/v1-7-10-0-0-2"]["metadata"]["uid"] = "other"
    assert (Check.LOST_LOCK, "a") in checks(made)
    made = world()
    made["NetworkAttachment/a"]["status"]["locks"] = []
    assert checks(made) == {(Check.LOST_LOCK, "a"), (Check.SPARE_LOCK, "v1-7-10-0-0-2")}


def test_an_address_of_no_subnet_and_a_stale_vni_are_found() -> None:
    assert checks(world(**{"Subnet/s": None})) == {(Check.OUTSIDE, "a")}
    made = world(**{"Network/blue": {"spec": {}, "status": {"vni": 8}}, "VNILock/vni-7": None})
    assert checks(made) == {(Check.STALE_VNI, "a"), (Check.UNHELD_VNI, "blue")}


def test_a_misnamed_lock_is_found() -> None:
    made = world()
    made["IPLock/v1-7-10-0-0-3"] = {"spec": {"network": "blue", "vni": 7, "ip": "10.0.0.4"}}
    assert checks(made) == {(Check.MISNAMED_LOCK, "v1-7-10-0-0-3")}


def test_a_vni_two_networks_have_and_one_of_a_network_gone_are_found() -> None:
    made = world(**{"Network/red": {"spec": {}, "status": {"vni": 7}}})
    assert {(Check.DUPLICATE_VNI, "blue"), (Check.DUPLICATE_VNI, "red"), (Check.UNHELD_VNI, "red")} <= checks(made)
    made = world(**{"Network/blue": None, "NetworkAttachment/a": None, "IPLock/v1-7-10-0-0-2": None})
    assert checks(made) == {(Check.ORPHANED_VNI, "vni-7")}
    resting = {"spec": {"network": "blue", "vni": 7, "ip": "10.0.0.9"}}
    assert findings(made | {"IPLock/v1-7-10-0-0-9": resting}) == []  # Its time has not come.
    labels = made["VNILock/vni-7"]["metadata"]
    made["VNILock/vni-7"]["metadata"] = {}
    assert findings(made) == []
    made["VNILock/vni-7"]["metadata"] = labels | {"deletionTimestamp": "2030-01-01T00:00:00Z"}
    assert findings(made) == []  # It rests.


def test_a_network_whose_vni_lock_is_going_is_found() -> None:
    made = world()
    made["VNILock/vni-7"]["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    assert [str(one) for one in findings(made)] == [
        "unheld-vni: Network ns1/blue: has VNI 7, which is locked by a lock that is being deleted"
    ]
