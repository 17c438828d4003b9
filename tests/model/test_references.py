"""The table of what names what."""

from collections.abc import Iterator

import pytest

from netloom.model.references import REFERENCES, Reference, deletion_order, references_to
from netloom.model.registry import (
    IP_LOCK,
    KINDS,
    NETWORK,
    NETWORK_ATTACHMENT,
    NODE,
    NOT_IMPLEMENTED,
    ROUTER,
    SANDBOX,
    SECURITY_PROFILE,
)
from netloom.model.schemas import rules
from netloom.model.schemas.schema import Schema, tree

NO_REFERENCES = {
    ("Subnet", "spec.dhcp.domainName"),  # A name of the DNS.
    ("IPLock", "spec.network"),  # The lock's attachment names the Network too, and goes first.
    ("VNILock", "spec.network.name"),  # The lock goes with its Network.
    # A RemoteVTEP goes with its EVPNNetwork.
    ("RemoteVTEP", "spec.evpnNetwork"),
    ("RemoteVTEP", "spec.network"),
    ("RemoteVTEP", "spec.node"),
    # Where an endpoint was: one on a Node that is gone gets no connections of that Node.
    ("LoadBalancer", "spec.endpoints[*].node"),
    # Deleting a Node that is gone for good is how its HostDocuments end.
    ("HostDocument", "spec.node"),
    # An attachment has state outside: its deletion waits, and is not refused.
    ("Mirror", "spec.source.attachment"),
    ("Mirror", "spec.destination.attachment"),
    ("Shaping", "spec.from.attachment"),
    ("Shaping", "spec.to.attachment"),
    ("NetworkAttachment", "spec.port.parent"),
}


def named(schema: Schema, path: str) -> Iterator[str]:
    """Yield the paths of all fields that hold the name of an object."""
    if schema.get("pattern") == rules.SUBDOMAIN_PATTERN and schema.get("maxLength") == 253:
        yield path
    for name, part in schema.get("properties", {}).items():
        yield from named(part, f"{path}.{name}" if path else name)
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from named(schema[inner], f"{path}[*]")


def test_every_field_that_names_an_object_is_in_the_table() -> None:
    found = {
        (kind.name, path)
        for kind in KINDS
        if kind.group == NETWORK.group
        for path in named(tree(kind)["properties"]["spec"], "spec")
    }
    assert found - NO_REFERENCES == {(reference.holder.name, reference.path) for reference in REFERENCES}


@pytest.mark.parametrize(
    ("reference", "spec", "names"),
    [
        (Reference(NETWORK_ATTACHMENT, "spec.node", NODE), {"node": "n1"}, ["n1"]),
        (Reference(NETWORK_ATTACHMENT, "spec.securityProfiles[*]", SECURITY_PROFILE), {}, []),
        (
            Reference(ROUTER, "spec.networks[*].network", NETWORK),
            {"networks": [{"network": "a"}, {"network": "b", "ips": []}]},
            ["a", "b"],
        ),
        (Reference(ROUTER, "spec.gateway.network", NETWORK), {"gateway": None}, []),
        (
            Reference(SANDBOX, "spec.placement.hosts[*]", NODE),
            {"placement": {"hosts": {"h": "n1", "i": "n2"}}},
            ["n1", "n2"],
        ),
        (
            Reference(SECURITY_PROFILE, "spec.ingress[*].from[*].profile", SECURITY_PROFILE),
            {"ingress": [{"from": [{"cidr": "10.0.0.0/8"}, {"profile": "db"}]}, {}]},
            ["db"],
        ),
    ],
)
def test_names_are_found_wherever_they_stand(reference: Reference, spec: object, names: list[str]) -> None:
    assert reference.names({"spec": spec}) == names


def test_what_can_be_selected_by_is_known() -> None:
    by_holder = {(r.holder.name, r.path): r.selectable for r in references_to(NETWORK)}
    assert by_holder["NetworkAttachment", "spec.network"]
    assert by_holder["Subnet", "spec.network"]
    assert not by_holder["Router", "spec.gateway.network"]
    assert not references_to(IP_LOCK)


def test_kinds_that_nothing_acts_on_use_nothing() -> None:
    assert {one.holder for one in REFERENCES} >= set(NOT_IMPLEMENTED)
    for kind in KINDS:
        assert not {one.holder for one in references_to(kind)} & set(NOT_IMPLEMENTED)


def test_what_names_others_is_deleted_before_what_is_named() -> None:
    kinds = tuple(kind for kind in KINDS if kind.namespaced)
    order = deletion_order(kinds)
    assert sorted(map(id, order)) == sorted(map(id, kinds))
    for one in REFERENCES:
        if one.target in order and one.holder is not one.target:
            assert order.index(one.holder) < order.index(one.target)
