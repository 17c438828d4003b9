import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.cli.jsonpath import JSONPath, shown
from netloom.errors import BadRequest

DOCUMENT = {
    "metadata": {"name": "blue", "labels": {"a.b/c": "x"}},
    "spec": {"ips": ["10.0.0.1", "10.0.0.2"]},
    "status": {"vni": 7, "validated": True, "conditions": [{"type": "Ready", "status": "True"}, {"type": "Other"}]},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("{.status.vni}", [7]),
        (".status.vni", [7]),
        ("status.vni", [7]),
        ("{$.metadata.name}", ["blue"]),
        ("{.spec.ips[0]}", ["10.0.0.1"]),
        ("{.spec.ips[-1]}", ["10.0.0.2"]),
        ("{.spec.ips[5]}", []),
        ("{.spec.ips[*]}", ["10.0.0.1", "10.0.0.2"]),
        ("{.metadata.labels['a.b/c']}", ["x"]),
        ('{.status.conditions[?(@.type=="Ready")].status}', ["True"]),
        ("{.status.conditions[?(@.type=='Nope')].status}", []),
        ("{.nothing.here}", []),
    ],
)
def test_a_path_finds_what_it_leads_to(path: str, found: list[object]) -> None:
    assert JSONPath(path).find(DOCUMENT) == found


@pytest.mark.parametrize("path", ["{.a[}", "{.a..b}", "{.a b}", "{range .items[*]}", "{.a[?(@.x)]}"])
def test_a_path_that_cannot_be_read_is_refused(path: str) -> None:
    with pytest.raises(BadRequest, match="cannot read the JSONPath"):
        JSONPath(path)


def test_values_are_shown_as_text_or_json() -> None:
    assert [shown(value) for value in ("x", True, 7, ["a"])] == ["x", "true", "7", '["a"]']


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=10,
)


@given(JSON, st.lists(st.sampled_from([".a", ".b", "[0]", "[*]", "['c']", '[?(@.a=="x")]', ".*", "[-1]"])))
def test_a_path_never_fails_on_any_document(document: object, steps: list[str]) -> None:
    assert isinstance(JSONPath("".join(steps) or ".a").find(document), list)


@given(st.text(alphabet=".[]{}()?@*'\"=ab0- $"))
def test_any_text_is_a_path_or_refused(text: str) -> None:
    try:
        JSONPath(text).find(DOCUMENT)
    except BadRequest:
        pass
