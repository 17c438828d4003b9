"""From request lines to what is asked."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import BadRequest, MethodNotAllowed, NotFound, TooLarge
from netloom.front.api.http.paths import Match, Request, Routes, Verb
from netloom.model.kind import Kind
from netloom.model.registry import EVENT, KINDS, NETWORK, NETWORK_ATTACHMENT, NODE
from netloom.model.schemas.validation import Unknown
from netloom.store.base import Propagation

ROUTES = Routes(KINDS)
GROUP = "/apis/netloom.dev/v1alpha1"


def parse(method: str, target: str) -> Request:
    path, _, query = target.partition("?")
    return ROUTES.parse(method, path, query)


@pytest.mark.parametrize(
    ("method", "target", "verb", "namespace", "name", "subresource"),
    [
        ("GET", "/networks", Verb.LIST, "", "", ""),
        ("GET", "/networks/", Verb.LIST, "", "", ""),
        ("GET", "/networks?watch=1", Verb.WATCH, "", "", ""),
        ("GET", "/networks?watch=false", Verb.LIST, "", "", ""),
        ("GET", "/watch/networks", Verb.WATCH, "", "", ""),
        ("GET", "/watch/namespaces/a/networks", Verb.WATCH, "a", "", ""),
        ("GET", "/watch/namespaces/a/networks/blue", Verb.WATCH, "a", "blue", ""),
        ("GET", "/namespaces/a/networks", Verb.LIST, "a", "", ""),
        ("POST", "/namespaces/a/networks", Verb.CREATE, "a", "", ""),
        ("DELETE", "/namespaces/a/networks", Verb.DELETE_COLLECTION, "a", "", ""),
        ("GET", "/namespaces/a/networks/blue", Verb.GET, "a", "blue", ""),
        ("GET", "/namespaces/a/networks/blue?watch=1", Verb.GET, "a", "blue", ""),
        ("PUT", "/namespaces/a/networks/blue", Verb.UPDATE, "a", "blue", ""),
        ("PATCH", "/namespaces/a/networks/blue", Verb.PATCH, "a", "blue", ""),
        ("DELETE", "/namespaces/a/networks/blue", Verb.DELETE, "a", "blue", ""),
        ("GET", "/namespaces/a/networks/blue/status", Verb.GET, "a", "blue", "status"),
        ("PATCH", "/namespaces/a/networks/blue/status", Verb.PATCH, "a", "blue", "status"),
        ("GET", "/namespaces/a/networks/%62lue", Verb.GET, "a", "blue", ""),
    ],
)
def test_a_path_says_verb_and_object(
    method: str, target: str, verb: Verb, namespace: str, name: str, subresource: str
) -> None:
    found = parse(method, GROUP + target)
    assert (found.verb, found.kind, found.namespace, found.name) == (verb, NETWORK, namespace, name)
    assert found.subresource == subresource


def test_cluster_scoped_and_core_kinds_have_their_paths() -> None:
    assert parse("GET", f"{GROUP}/nodes/n1").kind is NODE
    assert parse("POST", f"{GROUP}/nodes").verb is Verb.CREATE
    assert parse("GET", "/api/v1/namespaces/a/events").kind is EVENT


@pytest.mark.parametrize("kind", list(KINDS), ids=lambda kind: kind.qualified)
def test_every_kinds_own_path_leads_back_to_it(kind: Kind) -> None:
    namespace = "a" if kind.namespaced else ""
    found = parse("GET", kind.path(namespace, "x"))
    assert (found.kind, found.namespace, found.name) == (kind, namespace, "x")


@pytest.mark.parametrize(
    "target",
    [
        "/apis/netloom.dev/v1alpha1/things",
        "/apis/netloom.dev/v2/networks",
        "/apis/example.com/v1/networks",
        f"{GROUP}/networks/blue",
        f"{GROUP}/namespaces/a/nodes/n1",
        f"{GROUP}/namespaces/a/networks/blue/scale",
        f"{GROUP}/namespaces/a/networks/blue/status/more",
        "/api/v1/namespaces/a/events/e/status",
        "/api/v1/namespaces/a/b/c/d",
        f"{GROUP}/namespaces//networks",
        f"{GROUP}//networks",
        "/nothing",
        "/",
        "",
    ],
)
def test_a_path_that_leads_nowhere_is_not_found(target: str) -> None:
    with pytest.raises(NotFound):
        parse("GET", target)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", f"{GROUP}/networks"),
        ("PUT", f"{GROUP}/namespaces/a/networks"),
        ("POST", f"{GROUP}/namespaces/a/networks/blue"),
        ("DELETE", f"{GROUP}/namespaces/a/networks/blue/status"),
        ("POST", f"{GROUP}/watch/namespaces/a/networks"),
        ("HEAD", f"{GROUP}/networks"),
        ("OPTIONS", f"{GROUP}/networks"),
        ("BREW", f"{GROUP}/networks"),
    ],
)
def test_a_method_that_means_nothing_there_is_not_allowed(method: str, target: str) -> None:
    with pytest.raises(MethodNotAllowed):
        parse(method, target)


@pytest.mark.parametrize("name", ["a%2Fb", "a%25b", "..", "x" * 300])
def test_a_name_no_object_can_have_is_refused(name: str) -> None:
    with pytest.raises(BadRequest):
        parse("GET", f"{GROUP}/namespaces/a/networks/{name}")


def test_options_are_read() -> None:
    asked = parse(
        "GET",
        f"{GROUP}/networkattachments?labelSelector=app%3Dweb&fieldSelector=spec.node%3Dn1&limit=5&continue=abc"
        "&timeoutSeconds=7&allowWatchBookmarks=true&includeObject=Object&pretty=true&nobody=knows",
    ).options
    assert asked.selector.label_text == "app=web"
    assert asked.selector.field_text == "spec.node=n1"
    assert (asked.limit, asked.token, asked.timeout, asked.bookmarks) == (5, "abc", 7, True)
    asked = parse(
        "PATCH",
        f"{GROUP}/namespaces/a/networks/blue?dryRun=All&fieldManager=me&fieldValidation=Warn&force=true",
    ).options
    assert (asked.dry_run, asked.manager, asked.validation, asked.force) == (True, "me", Unknown.WARN, True)
    asked = parse("DELETE", f"{GROUP}/namespaces/a/networks/blue?propagationPolicy=Orphan").options
    assert asked.propagation is Propagation.ORPHAN


def test_limit_0_is_no_limit_and_the_first_of_two_values_counts() -> None:
    assert parse("GET", f"{GROUP}/networks?limit=0").options.limit is None
    assert parse("GET", f"{GROUP}/networks?limit=3&limit=4").options.limit == 3


@pytest.mark.parametrize(
    "query",
    [
        "limit=abc",
        "limit=-1",
        "limit=99999999999999999999",
        "limit=%D9%A3",  # A digit, but not one of ours.
        "resourceVersion=x",
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=Exact&resourceVersion=0",
        "resourceVersionMatch=Roughly&resourceVersion=1",
        "resourceVersionMatch=Exact&resourceVersion=5&continue=abc",
        "resourceVersion=5&continue=abc",
        "watch=perhaps",
        "watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=5",
        "watch=1&sendInitialEvents=true",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        "labelSelector=%3D%3D",
        "fieldSelector=spec.nothing%3D1",
        "fieldSelector=nonsense",
        "dryRun=Some",
        "fieldValidation=Lenient",
        "propagationPolicy=Sideways",
        "fieldManager=" + "x" * 129,
        "fieldManager=" + "%C3%A9" * 65,
        "fieldManager=a%00b",
        "timeoutSeconds=soon",
        "labelSelector=%FF",
        "&".join(f"a{i}=1" for i in range(100)),
    ],
)
def test_a_value_that_means_nothing_is_a_bad_request(query: str) -> None:
    with pytest.raises(BadRequest):
        _ = parse("GET", f"{GROUP}/networks?{query}").options.selector


def test_a_path_is_limited_wherever_it_comes_from() -> None:
    with pytest.raises(TooLarge, match="32768 characters"):
        ROUTES.parse("GET", f"{GROUP}/networks", "labelSelector=" + "," * 32_768)


def test_a_label_selector_is_parsed_only_when_it_is_needed() -> None:
    asked = parse("GET", f"{GROUP}/networks?labelSelector=(((&fieldSelector=metadata.name%3Da").options
    assert [str(requirement) for requirement in asked.fields] == ["metadata.name=a"]
    with pytest.raises(BadRequest, match="unable to parse label selector"):
        _ = asked.selector


def test_watching_the_initial_state_is_understood() -> None:
    asked = parse(
        "GET", f"{GROUP}/networks?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion="
    ).options
    assert (asked.initial, asked.match, asked.revision) == (True, Match.NOT_OLDER, None)


def test_the_old_watch_path_selects_by_name() -> None:
    found = parse("GET", f"{GROUP}/watch/namespaces/a/networks/blue?fieldSelector=spec.vni%3D5")
    assert found.options.selector.field_text == "spec.vni=5,metadata.name=blue"


def test_selectors_are_of_the_kind() -> None:
    assert parse("GET", f"{GROUP}/networkattachments?fieldSelector=spec.node=n1").kind is NETWORK_ATTACHMENT
    with pytest.raises(BadRequest):
        parse("GET", f"{GROUP}/networks?fieldSelector=spec.node=n1")


@given(st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "X"]), st.text(), st.text())
def test_any_text_is_understood_or_refused(method: str, path: str, query: str) -> None:
    for prefix in ("", "/", f"{GROUP}/", f"{GROUP}/namespaces/a/networks/"):
        try:
            found = ROUTES.parse(method, prefix + quote(path), query.encode().decode("latin-1"))
        except (BadRequest, NotFound, MethodNotAllowed):
            continue
        assert "/" not in found.name
