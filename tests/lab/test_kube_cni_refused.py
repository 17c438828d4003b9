"""Calls of the CNI plugin that are refused, or that ask only: each is one process, one error, and changes nothing."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from netloom.front.cni.request import LATEST, MOST_INPUT, VERSIONS
from netloom.lab import Lab
from tests.lab.cni_runtime import CONF, NOTHING, Changes, Runtime, args

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root, pytest.mark.kube, pytest.mark.timeout(300)]

RESULT: dict[str, Any] = {"interfaces": [{"name": "eth0"}], "ips": []}
LIST = "cni.dev/valid-attachments"


class Case(NamedTuple):
    """A call, and the code of its error; 0: it succeeds."""

    what: str
    verb: str
    code: int
    env: Changes = NOTHING
    conf: Changes | bytes = NOTHING


def _missing(verb: str, name: str) -> Case:
    return Case(f"{verb} without {name}", verb, 4, {name: None})


def _version(verb: str, version: object, code: int = 1) -> Case:
    return Case(f"{verb} of version {version}", verb, code, conf={"cniVersion": version, "prevResult": RESULT})


CASES = [
    Case("no command", "", 4, {"CNI_COMMAND": None}),
    Case("an unknown command", "UPDATE", 4),
    Case("a command in small letters", "add", 4),
    *(_missing("ADD", name) for name in ("CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS", "CNI_ARGS")),
    *(_missing("CHECK", name) for name in ("CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS")),
    *(_missing("DEL", name) for name in ("CNI_CONTAINERID", "CNI_IFNAME")),
    *(_version("ADD", version) for version in ("0.1.0", "0.2.0", "1.2.0", "", 1, None)),
    *(_version("DEL", version) for version in ("0.1.0", None)),
    *(_version("CHECK", version) for version in ("0.3.1", "0.3.0")),
    *(_version("STATUS", version) for version in ("0.3.1", "1.0.0")),
    *(_version("GC", version) for version in ("0.4.0", "1.0.0")),
    Case("a container's id with a path", "ADD", 4, {"CNI_CONTAINERID": "../c"}),
    Case("a container's id that is too long", "DEL", 4, {"CNI_CONTAINERID": "c" * 254}),
    *(Case(f"the interface {name}", "ADD", 4, {"CNI_IFNAME": name}) for name in ("a/b", "..", "a b", "a" * 16, "a:b")),
    Case("a relative path of a namespace", "ADD", 4, {"CNI_NETNS": "netns"}),
    Case("a namespace that is not there", "ADD", 3, {"CNI_NETNS": "/run/netns/nl-nobody"}),
    Case("a file that is no namespace", "ADD", 3, {"CNI_NETNS": "/etc/passwd"}),
    Case("arguments without values", "ADD", 4, {"CNI_ARGS": "K8S_POD_NAME"}),
    Case("no pod in the arguments", "ADD", 4, {"CNI_ARGS": "IgnoreUnknown=1"}),
    Case("a pod with a path for a name", "ADD", 4, {"CNI_ARGS": args("../web")}),
    Case("a pod whose name is too long", "ADD", 4, {"CNI_ARGS": args("w" * 254)}),
    Case("a namespace of Kubernetes that is none", "ADD", 4, {"CNI_ARGS": args("web", K8S_POD_NAMESPACE="A.b")}),
    Case("a uid that is too long", "ADD", 4, {"CNI_ARGS": args("web", K8S_POD_UID="u" * 129)}),
    Case("no configuration", "ADD", 6, conf=b""),
    Case("no JSON", "ADD", 6, conf=b"{'name': 1}"),
    Case("a list", "DEL", 6, conf=b"[]"),
    Case("bytes that are no text", "DEL", 6, conf=b'{"name": "\xff"}'),
    Case("a configuration that is too large", "ADD", 6, conf=b" " * (MOST_INPUT + 1)),
    Case("a configuration that is nested too deeply", "ADD", 6, conf=b"[" * 100_000),
    Case("no name", "ADD", 7, conf={"name": None}),
    Case("a name with a path", "DEL", 7, conf={"name": "a/b"}),
    Case("a plugin for addresses", "ADD", 2, conf={"ipam": {"type": "host-local"}}),
    Case("a capability that nobody has", "ADD", 2, conf={"runtimeConfig": {"infinibandGUID": "c2:11"}}),
    Case("capabilities that are no object", "ADD", 7, conf={"runtimeConfig": ["mac"]}),
    Case("addresses that are none", "ADD", 7, conf={"runtimeConfig": {"ips": ["10.244.1"]}}),
    Case("addresses that are no list", "ADD", 7, conf={"runtimeConfig": {"ips": "10.244.1.9"}}),
    Case("an address that the pod does not have", "ADD", 7, conf={"runtimeConfig": {"ips": ["192.0.2.9"]}}),
    Case("a MAC address that the pod does not have", "ADD", 7, conf={"runtimeConfig": {"mac": "02:00:00:00:00:77"}}),
    Case("a MAC address that is no text", "ADD", 7, conf={"runtimeConfig": {"mac": 7}}),
    Case("an earlier result that is no object", "ADD", 7, conf={"prevResult": []}),
    Case("an earlier result without a list", "ADD", 7, conf={"prevResult": {"ips": {"address": "10.0.0.1/24"}}}),
    Case("an interface that the pod has", "ADD", 4, {"CNI_IFNAME": "lo"}),
    Case("CHECK without a result", "CHECK", 7),
    Case("CHECK of what was never added", "CHECK", 100, conf={"prevResult": RESULT}),
    Case("GC without a list", "GC", 7),
    Case("GC of what is no list", "GC", 7, conf={LIST: {}}),
    Case("GC of what are no interfaces", "GC", 7, conf={LIST: [{"containerID": "c"}]}),
    Case("GC of nothing", "GC", 0, conf={LIST: []}),
    Case(
        "GC of nothing, as Go writes it",
        "GC",
        0,
        conf=b'{"cniVersion": "1.1.0", "name": "x", "%s": null}' % LIST.encode(),
    ),
    Case("STATUS", "STATUS", 0),
    Case("STATUS without anything else", "STATUS", 0, dict.fromkeys(("CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"))),
    Case("DEL of what was never added", "DEL", 0),
    Case("DEL without a namespace", "DEL", 0, {"CNI_NETNS": None, "CNI_ARGS": None}),
    Case("DEL of a namespace that is not there", "DEL", 0, {"CNI_NETNS": "/run/netns/nl-nobody"}),
    Case("DEL with capabilities that nobody has", "DEL", 0, conf={"runtimeConfig": [], "ipam": {"type": "x"}}),
]


@pytest.fixture(scope="module")
def runtime(cluster: Lab) -> Iterator[Runtime]:
    made = Runtime(cluster, "n1")
    try:
        made.attach("web")
        made.space()
        yield made
    finally:
        made.end()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_a_call_is_answered_and_nothing_is_left(case: Case, runtime: Runtime) -> None:
    before = runtime.inside("ip", "-o", "address")
    said = runtime.call(case.verb, env=case.env, conf=case.conf)
    assert said.code == case.code, said
    if case.code:
        assert said.result["msg"]
        assert said.result["cniVersion"] in VERSIONS
    assert runtime.left() == []
    assert runtime.inside("ip", "-o", "address") == before


@pytest.mark.parametrize("version", [*VERSIONS, "0.1.0", "9.9.9", ""])
def test_the_plugin_says_which_versions_it_knows(version: str, runtime: Runtime) -> None:
    said = runtime.call("VERSION", env=dict.fromkeys(("CNI_CONTAINERID", "CNI_IFNAME")), conf={"cniVersion": version})
    assert said.code == 0
    assert said.result == {
        "cniVersion": version if version in VERSIONS else LATEST,
        "supportedVersions": list(VERSIONS),
    }
    assert runtime.call("VERSION", conf=b"").result["supportedVersions"] == list(VERSIONS)


def test_the_nodes_own_namespace_is_refused(cluster: Lab, runtime: Runtime) -> None:
    said = runtime.call("ADD", env={"CNI_NETNS": f"/run/netns/{cluster.netns('n1')}"}, conf=CONF)
    assert (said.code, said.result["details"]) == (4, "NotGranted")
    assert runtime.left() == []
