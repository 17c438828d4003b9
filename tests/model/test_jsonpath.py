import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import BadRequest
from netloom.model.values import jsonpath
from netloom.model.values.jsonpath import JSONPath, Template, shown
from tests.support.kubectl import Kubectl

# Keys are in the order of the alphabet, in which kubectl visits and prints them.
DOCUMENT: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"labels": {"a.b/c": "x", "app": "y"}, "name": "blue"},
    "spec": {
        "containers": [
            {
                "image": "i1",
                "name": "a",
                "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 443, "name": "https"}],
            },
            {"image": "i2", "name": "b"},
            {"image": "i3", "name": "c"},
        ],
        "nodeName": "n1",
    },
    "status": {
        "conditions": [{"status": "True", "type": "Ready"}, {"status": "False", "type": "Other"}],
        "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
    },
}
PRINTED = {
    r"{.spec.nodeName}": "n1",
    r"{$.kind}": "Pod",
    r"{@.kind}": "Pod",
    r"{ .kind }": "Pod",
    r"{.nothing.here}": "",
    r"{.metadata.labels}": '{"a.b/c":"x","app":"y"}',
    r"{.metadata.labels['a\.b/c']}": "x",
    r"{.metadata.labels.a\.b/c}": "x",
    r"{.metadata.labels.*}": "x y",
    r"{.spec.containers[*].name}": "a b c",
    r"{.spec.containers.*.name}": "a b c",
    r"{.spec.containers[0].name}": "a",
    r"{.spec.containers[-1].name}": "c",
    r"{.spec.containers[0:2].name}": "a b",
    r"{.spec.containers[1:].name}": "b c",
    r"{.spec.containers[:1].name}": "a",
    r"{.spec.containers[::2].name}": "a c",
    r"{.spec.containers[-2:].name}": "b c",
    r"{.spec.containers[0,2].name}": "a c",
    r"{.spec.containers[*]['name','image']}": "a b c i1 i2 i3",
    r"{['metadata.name','spec.nodeName']}": "blue n1",
    r"{..ip}": "10.0.0.1 fd00::1",
    r"{..containerPort}": "80 443",
    r"{.spec..name}": "a http https b c",
    r'{.spec.containers[?(@.name=="b")].image}': "i2",
    r'{.spec.containers[?(@.name!="b")].image}': "i1 i3",
    r"{.spec.containers[?(@.ports)].name}": "a",
    r'{.spec.containers[?(@.ports[0].name=="http")].name}': "a",
    r"{.spec.containers[0].ports[?(@.containerPort>100)].name}": "https",
    r"{.spec.containers[0].ports[?(@.containerPort<=80)].name}": "http",
    r"{.spec.containers[0].ports[?(@.containerPort==80)].name}": "http",
    r"{.status.conditions[?(@.type=='Ready')].status}": "True",
    r'{.status.conditions[?( @.type == "Ready" )].status}': "True",
    r'x{.kind}y{"z"}': "xPodyz",
    r"{.kind} {.metadata.name}": "Pod blue",
    r'{"A\u00e9\x41\t\"x"}': 'A\u00e9A\t"x',
    r'{range .spec.containers[*]}{.name}{"\t"}{.image}{"\n"}{end}': "a\ti1\nb\ti2\nc\ti3\n",
    r"{range .spec.containers[*]}{range .ports[*]}{.name},{end};{end}": "http,https,;;;",
    r"{range .spec.containers[?(@.ports)]}{@.name}{end}": "a",
    r"{range .items[*]}x{end}": "",
}
"""What kubectl prints; `test_kubectl_prints_the_same` asks it."""
LENIENT = {
    # What kubectl refuses, or answers otherwise.
    r".spec.nodeName": "n1",
    r"spec.nodeName": "n1",
    r"{spec.nodeName}": "n1",
    r"{.metadata.labels['a.b/c']}": "x",
    r'{.metadata.labels["a.b/c"]}': "x",
    r"{.spec.containers[5].name}": "",
    r"{.spec.containers[1:9].name}": "b c",
    r"{.spec.containers[0].ports[?(@.name==@.name)].name}": "http https",
    r"{.spec.containers[0].ports[?(@.containerPort>x)].name}": "",
    r'{.spec.containers[0].ports[?(@.containerPort=="80")].name}': "http",
    r'{.spec.containers[?(@.name>="b")].name}': "b c",
    r'{.spec.containers[?(@.ports=="b")].name}': "",
    r"{.spec.containers[?(@.ports==@.ports)].name}": "a",
    r"{.metadata[?(@.app)].app}": "y",
}


@pytest.mark.parametrize(("template", "printed"), [*PRINTED.items(), *LENIENT.items()])
def test_a_template_prints_what_it_leads_to(template: str, printed: str) -> None:
    assert Template(template).render(DOCUMENT) == printed


def _in_any_order(template: str, printed: str) -> str:
    """Return what is printed, sorted where kubectl prints the values of an object, whose order it chooses at random."""
    return " ".join(sorted(printed.split())) if ".*" in template else printed


@pytest.mark.kube
def test_kubectl_prints_the_same(kubectl: Kubectl, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.touch()
    separator = "\n====\n"
    words = ("patch", "--local", "-f", "-", "--type=merge", "-p", "{}", "-o", "jsonpath=" + separator.join(PRINTED))
    theirs = kubectl.run(*words, kubeconfig=config, stdin=msgspec.json.encode(DOCUMENT).decode()).out
    found = dict(zip(PRINTED, theirs.split(separator), strict=True))
    assert {template: _in_any_order(template, text) for template, text in found.items()} == {
        template: _in_any_order(template, text) for template, text in PRINTED.items()
    }


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("{.spec.containers[0].ports[*].containerPort}", [80, 443]),
        (".metadata.labels['app']", ["y"]),
        ("{.nothing}", []),
        ("kind", ["Pod"]),
        ("{.metadata}", [DOCUMENT["metadata"]]),
    ],
)
def test_a_path_finds_values(path: str, found: list[object]) -> None:
    assert JSONPath(path).find(DOCUMENT) == found


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "{.a[}", "{.a b}", "{.a[]}", "{.a[1}", "{.a['b]}", "{.a[99999999999]}", "{.a[0:1:0]}", "{.a[?(@.x]}",
        "{.a[?(@.x=)]}", "{.a[?(==1)]}", "{end}", "{range .a}", "{range}x{end}", "{range .a}x{end}{end}", "{.a", "{'a}",
        "{...a}", "{.a\\}",
    ],
)  # fmt: skip
def test_a_template_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="cannot read the JSONPath"):
        Template(text)


@pytest.mark.parametrize("text", ["{.a}{.b}", "x{.a}", "{.a}x", "{range .a}", '{"a"}'])
def test_a_template_is_no_path(text: str) -> None:
    with pytest.raises(BadRequest, match="cannot read the JSONPath"):
        JSONPath(text)


def test_values_are_shown_as_text_or_json() -> None:
    assert [shown(value) for value in ("x", True, 7, None, ["a", 1])] == ["x", "true", "7", "null", '["a",1]']


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=10,
)
STEPS = st.lists(
    st.sampled_from([
        ".a", ".b", "[0]", "[*]", "['c']", "['a.b']", '[?(@.a=="x")]', "[?(@.a<3)]", "[?(@.b)]", "[?(@..a!=@.b)]", ".*",
        "[-1]", "..", "..a", "[1:]", "[::2]", "[0,1]", "['a',*]",
    ]),
    min_size=1,
).map("".join)  # fmt: skip


@given(JSON, STEPS)
def test_a_path_never_fails_on_any_document(document: object, steps: str) -> None:
    try:
        path = JSONPath(steps)
    except BadRequest:
        assert "..." in steps  # The one thing that two good steps make bad.
        return
    found = path.find(document)
    assert Template("{" + steps + "}").render(document) == " ".join(map(shown, found))
    ranged = Template("{range " + steps + "}{@}|{end}").render(document)
    assert ranged == "".join(shown(value) + "|" for value in found)


@given(JSON)
def test_everything_at_any_depth_is_found_once(document: object) -> None:
    def containers(value: object) -> list[object]:
        if not isinstance(value, dict | list) or not value:
            return []
        inner = value.values() if isinstance(value, dict) else value
        return [value, *(found for one in inner for found in containers(one))]

    assert JSONPath("{..}").find(document) == containers(document)


@given(st.lists(st.integers()), *[st.none() | st.integers(-9, 9)] * 2, st.none() | st.integers(1, 9))
def test_slices_are_those_of_python(items: list[int], first: int | None, last: int | None, by: int | None) -> None:
    text = f"[{'' if first is None else first}:{'' if last is None else last}:{'' if by is None else by}]"
    assert JSONPath("{.a" + text + "}").find({"a": items}) == items[first:last:by]


@given(st.text(alphabet=".[]{}()?@*'\"=ab0- $\\:,<!"))
def test_any_text_is_a_template_or_refused(text: str) -> None:
    for read in (lambda: Template(text).render(DOCUMENT), lambda: JSONPath(text).find(DOCUMENT)):
        try:
            read()
        except BadRequest:
            pass


@pytest.mark.parametrize(
    "text",
    [
        "{" + ".a" * 30_000 + "}", "{.a[" + "0," * 30_000 + "0]}", "{" + "[?(@.a" * 10_000, "{range .a}" * 10_000,
        "{'" + "\\" * 60_001, "[" * 30_000, "." * 30_000, "{.a[" + " " * 30_000, "{" + "..a" * 20_000 + "}",
    ],
)  # fmt: skip
def test_reading_a_hostile_text_takes_linear_time(text: str) -> None:
    start = time.process_time()
    try:
        Template(text).render(DOCUMENT)
    except BadRequest:
        pass
    assert time.process_time() - start < 5


def nested(depth: int) -> object:
    document: object = "x"
    for _ in range(depth):
        document = {"a": document, "b": [document]}
    return document


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("{" + ".." + "*.." * 30 + "}", nested(12)),
        ("{.a[" + "0," * 5000 + "0][*][*]}", {"a": [[list(range(10_000))]]}),
        ("{range ..}" * 10 + "x" + "{end}" * 10, nested(12)),
        ("{.a[" + "*," * 50_000 + "*].b}", {"a": [{"b": 1}] * 1000}),
    ],
)
def test_what_multiplies_is_bounded(text: str, document: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonpath, "VISITS", 300_000)
    start = time.process_time()
    with pytest.raises(BadRequest, match="visits more than 300,000 values"):
        Template(text).render(document)
    assert time.process_time() - start < 5


def test_what_is_printed_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonpath, "OUTPUT", 10_000)
    with pytest.raises(BadRequest, match="prints more than 10,000 characters"):
        Template("{range .a[" + "0," * 500 + "0]}{@}{end}").render({"a": ["x" * 100]})
