"""Bad requests: the documented texts and codes, never a 500, and nothing written."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import BadRequest
from netloom.front.vtep import routes
from netloom.front.vtep.arguments import ARGUMENTS
from netloom.model.registry import EVPN_NETWORK
from tests.front.vtep.rest import CLIENT, SPEAKER, Rest

POSTS = {path.format(vni=10): methods["POST"] for path, methods in routes.ROUTES.items() if "POST" in methods}
VALID: dict[str, dict[str, Any]] = {
    "add_speaker": SPEAKER | {"dpid": 1},
    "add_neighbor": {"address": "192.168.10.10", "remote_as": 65000},
    "add_network": {"vni": 11, "logical_switch": "ls1", "network_id": "a"},
    "add_client": CLIENT,
}

MISSING = "BGPSpeaker could not be found"


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/vtep/speakers", None, 404),
        ("DELETE", "/vtep/speakers", None, 404),
        ("POST", "/vtep/neighbors", VALID["add_neighbor"], 400),
        ("GET", "/vtep/neighbors", None, 404),
        ("GET", "/vtep/neighbors/10.0.0.1", None, 404),
        ("DELETE", "/vtep/neighbors/10.0.0.1", None, 404),
        ("POST", "/vtep/networks", {"vni": 10}, 404),
        ("GET", "/vtep/networks", None, 404),
        ("DELETE", "/vtep/networks/10", None, 404),
        ("POST", "/vtep/networks/10/clients", CLIENT, 404),
        ("DELETE", "/vtep/networks/10/clients/02:ac:10:ff:00:12", None, 404),
    ],
)
def test_without_a_speaker(bare: Rest, method: str, path: str, body: Any, code: int) -> None:
    assert bare.request(method, path, body) == (code, {"error": MISSING, "status": code})
    assert bare.contents() == []


@pytest.mark.parametrize(
    ("method", "path", "body", "text"),
    [
        ("GET", "/vtep/neighbors/10.0.0.1", None, "No such neighbor: 10.0.0.1"),
        ("DELETE", "/vtep/neighbors/x", None, "No such neighbor: x"),
        ("GET", "/vtep/networks/11", None, "No such VNI: 11"),
        ("DELETE", "/vtep/networks/0x0b", None, "No such VNI: 11"),
        ("POST", "/vtep/networks/99999999/clients", CLIENT, "No such VNI: 99999999"),
        ("DELETE", "/vtep/networks/11/clients/02:ac:10:ff:00:12", None, "No such VNI: 11"),
        (
            "DELETE",
            "/vtep/networks/10/clients/02:ac:10:ff:00:12",
            None,
            "No such client: 02:ac:10:ff:00:12",
        ),
        ("DELETE", "/vtep/networks/10/clients/nonsense", None, "No such client: nonsense"),
    ],
)
def test_what_does_not_exist_is_named(rest: Rest, method: str, path: str, body: Any, text: str) -> None:
    rest.post("/vtep/networks", {"vni": 10})
    assert rest.request(method, path, body) == (404, {"error": text, "status": 404})


@pytest.mark.parametrize(("path", "operation"), POSTS.items())
def test_a_missing_key_is_named(rest: Rest, path: str, operation: str) -> None:
    before = rest.contents()
    for name in VALID[operation]:
        if ARGUMENTS[operation][name].required:
            body = {key: value for key, value in VALID[operation].items() if key != name}
            assert rest.request("POST", path, body) == (400, {"error": f"{name} not specified", "status": 400})
            assert rest.request("POST", path, body | {name: None})[0] == 400
    assert rest.contents() == before


WRONG: dict[str, list[Any]] = {
    "as_number": [0, 2**32, "x", "", 1.5, True, [], {}, "010", "9" * 5000, -1],
    "remote_as": [0, 2**32, "65000.0", False],
    "router_id": ["0.0.0.0", "1.2.3", "2001:db8::1", 1, "01.2.3.4", ""],
    "dpid": [-1, 2**64, "s1"],
    "address": ["1.2.3", "fe80::1%eth0", "::ffff:1.2.3.4", 5, "1.2.3.4/32", "host.example"],
    "vni": [0, 2**24, "ten", None],
    "logical_switch": [None, "", "LS_1", "-", "a" * 254, 5, "../x"],
    "network_id": ["", "A", "a" * 250, 5],
    "port": ["", "p" * 1025, True, [], -1, 2**32, "a\nb", 1.5],
    "mac": ["", "02:ac:10:ff:00", "01:00:5e:00:00:01", "00:00:00:00:00:00", "02-ac-10-ff-00-12", 5],
    "ip": ["", "192.168.222", "10.0.0.0/8", 5],
}


@pytest.mark.parametrize(
    ("path", "operation", "name", "value"),
    [
        (path, operation, name, value)
        for path, operation in POSTS.items()
        for name in VALID[operation]
        for value in WRONG[name]
    ],
)
def test_a_wrong_value_is_refused_and_its_key_named(
    rest: Rest, path: str, operation: str, name: str, value: Any
) -> None:
    rest.post("/vtep/networks", {"vni": 10})
    before = rest.contents()
    body = VALID[operation] | {name: value}
    if operation == "add_network":
        del body["network_id" if name != "network_id" else "logical_switch"]
    code, answer = rest.request("POST", path, body)
    assert (code, answer["status"]) == (400, 400)
    assert answer["error"].startswith(name), answer
    assert len(answer["error"]) < 300
    assert rest.contents() == before


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "the body is not valid JSON"),
        (b"{", "the body is not valid JSON"),
        (b"\xff\xfe", "the body is not valid JSON"),
        (b"[" * 60_000, "the body is not valid JSON"),
        (b"[]", "the body must be a JSON object"),
        (b"10", "the body must be a JSON object"),
        (b'{"vni": 10, "colour": 1}', "unknown key 'colour': use vni, logical_switch, network_id"),
        (b'{"vni": 10, "logical_switch": "a", "network_id": "b"}', "use either logical_switch or network_id"),
    ],
)
def test_a_body_that_is_not_understood_is_refused(rest: Rest, body: bytes, text: str) -> None:
    before = rest.contents()
    code, answer = rest.request("POST", "/vtep/networks", body)
    assert (code, answer["status"]) == (400, 400)
    assert answer["error"].startswith(text)
    assert rest.contents() == before


def test_the_path_decides_which_network_a_client_is_of(rest: Rest) -> None:
    rest.post("/vtep/networks", {"vni": 10})
    code, answer = rest.request("POST", "/vtep/networks/10/clients", CLIENT | {"vni": 11})
    assert (code, answer["error"]) == (400, "vni is part of the path: leave it out of the body")


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/", 404),
        ("GET", "/vtep", 404),
        ("GET", "/vtep/networks/10/clients/x/y", 404),
        ("PUT", "/vtep/speakers", 405),
        ("GET", "/vtep/networks/10/clients", 405),
        ("DELETE", "/vtep/networks", 405),
        ("GET", "/vtep/networks/ten", 400),
        ("DELETE", "/vtep/networks/%31%30x", 400),
    ],
)
def test_other_paths_and_methods(rest: Rest, method: str, path: str, code: int) -> None:
    found, answer = rest.request(method, path)
    assert (found, answer["status"]) == (code, code)


def test_more_clients_than_an_object_holds_are_refused(rest: Rest) -> None:
    rest.post("/vtep/networks", {"vni": 10})
    document = rest.object(EVPN_NETWORK, "vni-10")
    document["spec"]["clients"] = [{"mac": f"02:00:00:00:{i >> 8:02x}:{i & 255:02x}"} for i in range(1024)]
    rest.runner.run(rest.store.update(EVPN_NETWORK, document))
    code, answer = rest.request("POST", "/vtep/networks/10/clients", CLIENT)
    assert code == 400
    assert "1024" in answer["error"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = sorted({name for fields in ARGUMENTS.values() for name in fields})
VALUES = st.sampled_from([value for one in VALID.values() for value in one.values()])
BODIES = st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), VALUES | JSON, max_size=5)
PATHS = st.sampled_from(["/vtep/speakers", "/vtep/neighbors", "/vtep/networks"]) | st.builds(
    "/vtep/networks/{}/clients".format, st.sampled_from(["10", "0xa", "11"]) | st.text(max_size=6)
)


@given(
    st.lists(
        st.tuples(st.sampled_from(["POST", "POST", "POST", "DELETE", "GET"]), PATHS | st.text(), BODIES | JSON),
        max_size=6,
    )
)
def test_no_body_causes_an_internal_error_or_a_partial_write(requests: list[tuple[str, str, Any]]) -> None:
    with asyncio.Runner() as runner:
        rest = Rest(runner)
        rest.post("/vtep/speakers", SPEAKER)
        rest.post("/vtep/networks", {"vni": 10})
        for method, path, body in requests:
            before = rest.contents()
            code, answer = rest.request(method, path, json.dumps(body).encode())
            assert code == 200 or (code in (400, 404, 405, 409) and answer["status"] == code and answer["error"])
            assert code == 200 or rest.contents() == before
            assert method != "GET" or rest.contents() == before


@given(st.binary(max_size=64), st.sampled_from(sorted(POSTS)))
def test_no_bytes_cause_an_internal_error(body: bytes, path: str) -> None:
    with asyncio.Runner() as runner:
        assert Rest(runner).request("POST", path, body)[0] in (400, 404)


@pytest.mark.parametrize("operation", ["get_networks", "del_network"])
def test_a_number_that_cannot_be_printed_is_refused(rest: Rest, operation: str) -> None:
    # Over RabbitMQ, the VNI may be a number of any length.
    with pytest.raises(BadRequest, match="vni must be an integer"):
        rest.runner.run(rest.vtep.run(operation, {"vni": 10**5000}))


def test_the_openapi_document_says_which_request_needs_no_token() -> None:
    described = json.loads(routes.openapi())
    open_to_all = [path for path, methods in described["paths"].items() if methods.get("get", {}).get("security") == []]
    assert (described["security"], open_to_all) == ([{"token": []}], [routes.TEST])
