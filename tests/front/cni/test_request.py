"""Requests of container runtimes: whatever is sent, it is a request or one error of CNI."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import Conflict, Internal, NetloomError, TimedOut, Unreachable
from netloom.front.cni import results
from netloom.front.cni.errors import CniError, Code, cni_error
from netloom.front.cni.request import LATEST, VERSIONS, Request, Verb, read, split, version_of
from netloom.model.kinds.attachments import PortType
from netloom.plan.node.ports import PlannedRoute, PortPlan
from netloom.plan.problem import ProblemError

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(TEXT, some, max_size=3),
    max_leaves=8,
)
KEYS = ["cniVersion", "name", "ipam", "runtimeConfig", "prevResult", "cni.dev/valid-attachments"]
ENV = {
    "CNI_CONTAINERID": "c1",
    "CNI_IFNAME": "eth0",
    "CNI_NETNS": "/run/netns/x",
    "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0.a;K8S_POD_UID=u=1",
}
CONF = {"cniVersion": LATEST, "name": "netloom"}
PLAN = PortPlan(
    uid="u", namespace="ns1", name="web", type=PortType.POD, device="nl020000000005", inner="eth0",
    netns="/run/netns/x", mac="02:00:00:00:00:05", mtu=1442, addresses=("10.0.0.5/24", "fd00::5/64"),
    routes=(PlannedRoute("0.0.0.0/0", "10.0.0.1", False), PlannedRoute("10.9.0.0/16", "10.0.0.2", False)),
)  # fmt: skip


def request(verb: str, *, env: dict[str, str] | None = None, **conf: Any) -> Request:
    return read({**ENV, "CNI_COMMAND": verb, **(env or {})}, json.dumps({**CONF, **conf}).encode())


def test_an_add_has_what_the_agent_needs() -> None:
    asked = {"ips": ["10.0.0.5/24", "FD00::5"], "mac": "02:00:00:00:00:0A"}
    assert request("ADD", runtimeConfig=asked) == Request(
        verb=Verb.ADD, container="c1", device="eth0", netns="/run/netns/x", namespace="shop", pod="web-0.a", uid="u=1",
        ips=("10.0.0.5", "fd00::5"), mac="02:00:00:00:00:0a",
    )  # fmt: skip


def test_a_delete_needs_no_more_than_its_interface() -> None:
    found = request(
        "DEL", env={"CNI_NETNS": "", "CNI_ARGS": "rubbish"}, ipam={"type": "x"}, runtimeConfig=[], prevResult=1
    )
    assert (found.container, found.device) == ("c1", "eth0")


@given(st.dictionaries(TEXT.filter(lambda name: "=" not in name and name != ""), TEXT, max_size=5), st.binary())
def test_what_the_plugin_sends_is_what_the_agent_reads(variables: dict[str, str], stdin: bytes) -> None:
    sent = b"".join(f"{name}={value}\0".encode() for name, value in variables.items()) + b"\0" + stdin
    assert split(sent) == (variables, stdin)


def outcome(variables: dict[str, str], stdin: bytes) -> Request | CniError:
    try:
        return read(variables, stdin)
    except CniError as error:
        return error


@given(st.binary())
def test_any_bytes_are_variables_and_an_input_or_an_error(data: bytes) -> None:
    try:
        found = split(data)
    except CniError as error:
        found = {}, error.message.encode()
    assert isinstance(outcome(*found), Request | CniError)


@given(
    st.sampled_from([*Verb, "", "x"]),
    st.dictionaries(st.sampled_from(sorted(ENV)), TEXT),
    st.dictionaries(st.sampled_from(KEYS), JSON),
    st.sampled_from([*VERSIONS, "0.1.0", None]),
)
def test_any_environment_and_configuration_is_a_request_or_an_error(
    verb: str, env: dict[str, str], conf: dict[str, Any], version: str | None
) -> None:
    stdin = json.dumps({**CONF, "cniVersion": version, **conf}).encode()
    found = outcome({**ENV, **env, "CNI_COMMAND": verb}, stdin)
    if isinstance(found, CniError):
        assert json.loads(results.failed(found, version_of(stdin))[2:])["code"] == found.code
    elif found.verb is not Verb.VERSION:
        assert found.version in VERSIONS
        results.added(PLAN, found.version, found.previous)
        results.differences(PLAN, found.previous or {})


@pytest.mark.parametrize(
    ("stdin", "version"), [(b"", LATEST), (b"[]", LATEST), (b"\xff", LATEST), (b'{"cniVersion": "0.4.0"}', "0.4.0")]
)
def test_an_error_is_answered_in_the_version_of_the_call(stdin: bytes, version: str) -> None:
    assert version_of(stdin) == version


@pytest.mark.parametrize("version", VERSIONS)
def test_a_result_agrees_with_its_own_plan(version: str) -> None:
    before = {"interfaces": [{"name": "lo"}], "ips": [{"address": "192.0.2.1/32", "interface": 0}]}
    for previous in (None, before):
        result = results.added(PLAN, version, previous)
        assert results.differences(PLAN, result) == []
        assert results.differences(PLAN, {**result, "ips": result["ips"][:-1]}) == [
            "prevResult does not have fd00::5/64"
        ]
    assert [ip.get("gateway") for ip in results.added(PLAN, version, None)["ips"]] == ["10.0.0.1", None]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProblemError("NamespaceMissing", ""), Code.UNKNOWN_CONTAINER),
        (ProblemError("NameTaken", ""), Code.ENVIRONMENT),
        (ProblemError("KernelRefused", ""), Code.IO),
        (ProblemError("SwitchUnreachable", ""), Code.LATER),
        (TimedOut(""), Code.LATER),
        (Unreachable(""), Code.LATER),
        (Conflict(""), Code.LATER),
        (Internal(""), Code.IO),
    ],
)
def test_each_error_has_a_code_that_says_how_to_react(error: NetloomError, code: Code) -> None:
    assert cni_error(error).code is code
