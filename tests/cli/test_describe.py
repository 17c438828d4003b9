import pytest

from netloom.cli.objects import describe


@pytest.mark.parametrize(
    ("key", "title"),
    [
        ("lastHeartbeat", "Last Heartbeat"),
        ("underlayIP", "Underlay IP"),
        ("cidr", "CIDR"),
        ("hostIP", "Host IP"),
        ("apiVersion", "API Version"),
        ("routerID", "Router ID"),
        ("ntp_server", "ntp_server"),
        ("app.kubernetes.io/name", "app.kubernetes.io/name"),
    ],
)
def test_fields_are_named_as_people_read_them(key: str, title: str) -> None:
    assert describe._title(key) == title


def test_nested_fields_are_indented_and_plain_ones_aligned() -> None:
    spec = {
        "cidr": "10.0.0.0/8",
        "exclude": ["a", "b"],
        "none": [],
        "dhcp": {"enabled": True},
        "rules": [{"a": 1, "b": [2]}],
    }
    assert list(describe._section("Spec", spec)) == [
        "Spec:",
        "  CIDR:     10.0.0.0/8",
        "  Exclude:  a, b",
        "  None:     <none>",
        "  DHCP:",
        "    Enabled:  true",
        "  Rules:",
        "    - A:  1",
        "      B:  2",
    ]


def test_what_is_empty_is_left_out() -> None:
    assert list(describe._section("Status", {})) == []


def test_an_object_without_status_or_labels_is_described() -> None:
    lines = "\n".join(describe._object({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "data": "y"}))
    assert "Labels:        <none>" in lines
    assert "Data:  y" in lines
    assert "Conditions" not in lines


@pytest.mark.parametrize("stamp", [None, "", "yesterday"])
def test_a_time_that_is_none_is_unknown(stamp: object) -> None:
    assert describe._ago(stamp) == "<unknown>"
