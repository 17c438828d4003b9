import pytest

from netloom.cli.objects.apply import unknown_field

NETWORK = {"apiVersion": "netloom.dev/v1alpha1", "kind": "Network"}
ATTACHMENT = {"apiVersion": "netloom.dev/v1alpha1", "kind": "NetworkAttachment"}


@pytest.mark.parametrize(
    ("message", "document", "hint"),
    [
        (".spec.fabrik: field not declared in schema", NETWORK, ' (did you mean "fabric"?)'),
        (
            "failed to create typed patch object (default/x; Network): .spec.fabrik: field not declared in schema",
            NETWORK,
            ' (did you mean "fabric"?)',
        ),
        (".spec.provider.vlam: field not declared in schema", NETWORK, ' (did you mean "vlan"?)'),
        (".spec.routes[0].vai: field not declared in schema", ATTACHMENT, ' (did you mean "via"?)'),
        (".spec.zzzzzz: field not declared in schema", NETWORK, ""),
        (".sepc: field not declared in schema", NETWORK, ' (did you mean "spec"?)'),
        (".spec.fabrik: field not declared in schema", {"apiVersion": "v1", "kind": "Pod"}, ""),
        ('.spec.fabrik: field not declared in schema (did you mean "fabric"?)', NETWORK, ""),
        ("something else", NETWORK, ""),
    ],
)
def test_the_nearest_field_is_named_where_the_server_does_not(
    message: str, document: dict[str, str], hint: str
) -> None:
    assert unknown_field(message, document) == hint
