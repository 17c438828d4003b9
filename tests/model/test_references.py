"""The table of what names what."""

from collections.abc import Iterator

import pytest

from netloom.model import rules
from netloom.model.references import REFERENCES, Reference, references_to
from netloom.model.registry import IP_LOCK, KINDS, NETWORK, NETWORK_ATTACHMENT, NODE, ROUTER, SANDBOX, SECURITY_PROFILE
from netloom.model.schema import Schema, tree

NO_REFERENCES = {
    ("Subnet", "spec.dhcp.domainName"),  # A name of the DNS.
    ("IPLock", "spec.network"),  # The lock's attachment names the Network too, and goes first.
    ("VNILock", "spec.network.name"),  # The lock goes with its Network.
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
    assert not by_holder["PortPool", "spec.network"]
    assert not references_to(IP_LOCK)
