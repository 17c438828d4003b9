"""What is granted, and above all what is not: paths, devices, names, routes, physical networks."""

import ipaddress
import posixpath
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netloom.errors import Invalid
from netloom.model.kinds.networks import Network
from netloom.plan.node.grants import (
    EVERYTHING,
    NO_PROVIDERS,
    NOT_GRANTED,
    DeviceGrant,
    NodeGrants,
    node_grants,
    provider_grants,
)
from netloom.plan.problem import Problem

SPACES = st.sampled_from(["a", "b", "a-b", "a-", "ab", "b-a"]).map(lambda text: text.strip("-"))
PARTS = st.sampled_from(["run", "netns", "a", "b", "a-b", "ab", "..", ".", "", "w", "{namespace}", "a\0", "net"])
PATHS = st.lists(PARTS, max_size=6).map(lambda parts: "/" + "/".join(parts))


def refused(found: object, setting: str) -> bool:
    return isinstance(found, Problem) and found.reason == NOT_GRANTED and f"setting {setting}: " in found.message


@given(SPACES, PATHS)
@example("a", "/run/netns/a-b/w")
@example("a", "/run/netns/a/../b/w")
@example("a", "/run/netns/a//w")
@example("a", "/run/netns/a")
def test_a_path_is_granted_only_below_the_folder_of_its_own_namespace(namespace: str, path: str) -> None:
    grants = node_grants(netns_folders=["/run/netns/{namespace}", "b=/srv/b"])
    root = grants.folder(namespace, path)
    folders = [f"/run/netns/{namespace}", *(["/srv/b"] if namespace == "b" else [])]
    # What the kernel makes of a path without links is what `normpath` says.
    plain = posixpath.normpath(path) == path and "\0" not in path
    if plain and any(path.startswith(f"{folder}/") for folder in folders):
        assert root in ("/run/netns", "/srv/b")
    else:
        assert refused(root, "netnsFolders")


@given(PATHS)
def test_a_folder_for_all_is_trusted_as_far_as_the_operator_wrote_it(path: str) -> None:
    root = node_grants(netns_folders=["*=/run/netns/", "*=/home/{namespace}/ns"]).folder("a", path)
    plain = posixpath.normpath(path) == path and "\0" not in path
    if plain and path.startswith("/run/netns/"):
        assert root == "/run/netns"
    else:
        assert isinstance(root, Problem)
    # From the placeholder on a link may be the tenant's.
    assert node_grants(netns_folders=["/srv/{namespace}/ns"]).folder("a", "/srv/a/ns/w") == "/srv"
    assert node_grants(netns_folders=["/{namespace}"]).folder("a", "/a/w") == "/"


@pytest.mark.parametrize("length", [10, 1024])
def test_a_refusal_names_the_setting_however_long_the_path_is(length: int) -> None:
    found = NodeGrants().folder("a", "/" + "x" * length)
    assert refused(found, "netnsFolders")
    assert isinstance(found, Problem)
    assert len(found.message) < 1024


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("netnsFolders", "/run/netns"),
        ("netnsFolders", "run/netns"),
        ("netnsFolders", "*=run/netns"),
        ("netnsFolders", "/run/netns/../{namespace}"),
        ("netnsFolders", "/run/netns/x-{namespace}"),
        ("netnsFolders", "A=/run/netns"),
        ("netnsFolders", "=/run/netns"),
        ("internalRoutes", "a"),
        ("internalRoutes", "a=10.0.0.1/8"),
        ("internalRoutes", "a=10.0.0.0"),
        ("internalRoutes", "10.0.0.0/8"),
        ("internalNames", "a="),
        ("internalNames", "a=we b"),
        ("existingDevices", "eth1"),
        ("existingDevices", "a=:used"),
        ("existingDevices", "a=eth1:all"),
    ],
)
def test_a_grant_that_says_nothing_clear_is_refused_with_its_key(key: str, text: str) -> None:
    snake = {"netnsFolders": "netns_folders", "internalRoutes": "internal_routes", "internalNames": "internal_names"}
    with pytest.raises(Invalid) as caught:
        node_grants(**{snake.get(key, "existing_devices"): [text]})
    assert [(cause.field, repr(text) in cause.message) for cause in caught.value.causes] == [(key, True)]


BLOCKS = st.one_of(
    st.builds(lambda n, p: ipaddress.ip_network((n, p), strict=False), st.integers(0, 2**32 - 1), st.integers(0, 32)),
    st.builds(lambda n, p: ipaddress.ip_network((n, p), strict=False), st.integers(0, 2**128 - 1), st.integers(0, 128)),
)


def inside(inner: Any, outer: Any) -> bool:
    return bool(inner.version == outer.version and inner.subnet_of(outer))


@given(st.lists(BLOCKS, min_size=1, max_size=3), st.lists(BLOCKS, max_size=3), st.lists(BLOCKS, max_size=3))
@example([ipaddress.ip_network("10.0.0.0/8")], [], [ipaddress.ip_network("0.0.0.0/1")])
@example([ipaddress.ip_network("0.0.0.0/0")], [], [ipaddress.ip_network("::/0")])
@example([ipaddress.ip_network("10.0.0.0/8")], [ipaddress.ip_network("10.0.0.0/7")], [])
def test_an_internal_port_reaches_only_into_granted_blocks(blocks: Any, ips: Any, routes: Any) -> None:
    grants = node_grants(internal_routes=[f"a={one}" for one in blocks])
    found = grants.internal("a", "", [str(one) for one in ips], [str(one) for one in routes], generated=True)
    assert (found is None) is all(any(inside(one, block) for block in blocks) for one in (*ips, *routes))
    assert found is None or refused(found, "internalRoutes")
    assert refused(grants.internal("b", "", [], [], generated=True), "internalRoutes")
    assert refused(NodeGrants().internal("a", "", [], [], generated=True), "internalRoutes")


@pytest.mark.parametrize(
    ("namespace", "name", "fine"),
    [("a", "web0", True), ("a", "web", True), ("a", "docker0", False), ("b", "web0", False), ("a", "xweb0", False)],
)
def test_a_name_is_granted_by_pattern(namespace: str, name: str, fine: bool) -> None:
    grants = node_grants(internal_routes=["*=10.0.0.0/8"], internal_names=["a=web*"])
    found = grants.internal(namespace, name, [], [], generated=False)
    assert (found is None) is fine
    assert fine or refused(found, "internalNames")
    assert grants.internal(namespace, name, [], [], generated=True) is None


DEVICES = st.sampled_from(["eth1", "eth10", "eth", "veth1", "cali123", "docker0", "br-int", "tap7"])
PATTERNS = st.sampled_from(["eth1", "eth*", "*", "*:used", "tap?", "docker0", "cali*:used", "[ev]*"])


@given(SPACES, DEVICES, st.lists(st.tuples(st.sampled_from(["a", "b", "*"]), PATTERNS), max_size=4))
@example("a", "docker0", [("*", "*")])
@example("a-b", "eth1", [("a", "eth1")])
def test_a_device_of_others_is_granted_by_its_exact_name_only(
    namespace: str, device: str, granted: list[tuple[str, str]]
) -> None:
    found = node_grants(existing_devices=[f"{one}={what}" for one, what in granted]).device(namespace, device)
    mine = [what for one, what in granted if one in ("*", namespace)]
    exact = device in mine
    matching = exact or any(_matches(device, what.removesuffix(":used")) for what in mine)
    used = exact or any(_matches(device, what.removesuffix(":used")) for what in mine if what.endswith(":used"))
    if not matching:
        assert refused(found, "existingDevices")
    else:
        assert isinstance(found, DeviceGrant)
        assert found.used is used


def _matches(device: str, pattern: str) -> bool:
    """Whether a device is one of a pattern, said otherwise than by `fnmatch`."""
    if pattern == "[ev]*":
        return device[0] in "ev"
    if pattern.endswith("?"):
        return device[:-1] == pattern[:-1]
    return device.startswith(pattern[:-1]) if pattern.endswith("*") else device == pattern


def test_everything_is_everything() -> None:
    assert EVERYTHING.folder("a", "/proc/1/ns/net") == ""
    assert (
        EVERYTHING.internal("a", "docker0", ["10.0.0.1/1", "fd00::1/8"], ["0.0.0.0/0", "::/0"], generated=False) is None
    )
    assert EVERYTHING.device("a", "cali1") == DeviceGrant("*", "*", used=True)


def network(physical: str = "", vlan: int | None = None, namespace: str = "a") -> Network:
    provider = {"physicalNetwork": physical, **({"vlan": vlan} if vlan else {})}
    document = {
        "apiVersion": "v", "kind": "Network", "metadata": {"name": "n", "namespace": namespace},
        "spec": {"provider": provider} if physical else {},
    }  # fmt: skip
    return msgspec.convert(document, Network)


@pytest.mark.parametrize(
    ("grants", "physical", "vlan", "fine"),
    [
        ([], "p", None, False),
        ([], "", None, True),
        (["a=p"], "p", None, True),
        (["a=p"], "p", 7, True),
        (["a=p"], "q", None, False),
        (["b=p"], "p", None, False),
        (["a-b=p"], "p", None, False),
        (["*=p:untagged"], "p", None, True),
        (["*=p:untagged"], "p", 7, False),
        (["a=p:7"], "p", 7, True),
        (["a=p:7"], "p", None, False),
        (["a=p:7-9"], "p", 10, False),
        (["a=p:7-9", "a=p:11"], "p", 11, True),
        (["*=*"], "q", 4094, True),
    ],
)
def test_a_physical_network_is_granted_by_namespace_and_vlan(
    grants: list[str], physical: str, vlan: int | None, fine: bool
) -> None:
    said = provider_grants(grants).refusal(network(physical, vlan))
    assert (said == "") is fine
    assert fine or f"setting providerGrants: a={physical}:{vlan or 'untagged'}" in said
    assert (NO_PROVIDERS.refusal(network(physical, vlan)) == "") is (not physical)


@pytest.mark.parametrize("text", ["p", "a=", "A=p", "a=P!", "a=p:0", "a=p:4095", "a=p:9-7", "a=p:x", "a=p:"])
def test_a_grant_of_a_physical_network_that_says_nothing_clear_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        provider_grants([text])
    assert [cause.field for cause in caught.value.causes] == ["providerGrants"]
