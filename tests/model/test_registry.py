"""The registry: all kinds, each found by all of its names."""

from pathlib import Path

import msgspec
import pytest

from netloom.errors import NotFound
from netloom.model import codec
from netloom.model.document import Condition, ObjectMeta
from netloom.model.kind import Kind
from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Fabric, Network, NetworkSpec
from netloom.model.registry import EVENT, KINDS, LEASE, NETWORK, NETWORK_ATTACHMENT, NODE, SANDBOX, SUBNET, VNI_LOCK
from netloom.model.schemas.validation import admit

EXAMPLES = Path(__file__).parents[2] / "examples"
OURS = [kind for kind in KINDS if kind.group == "netloom.dev"]
BUILT_INTO_KUBERNETES = """po svc no ns ep ev cm pv pvc rs rc ds deploy sts hpa cj csr ing netpol pdb sa sc quota limits
    crd crds pc cs"""
PROMISED = """Node Network Subnet NetworkAttachment IPLock VNILock Router SecurityProfile LoadBalancer Shaping
    Mirror ServiceChain PortPool Sandbox BGPSpeaker BGPPeer EVPNNetwork RemoteVTEP"""


def test_all_kinds_are_there() -> None:
    assert {kind.name for kind in OURS} == set(PROMISED.split())
    assert {kind.api_version for kind in OURS} == {"netloom.dev/v1alpha1"}
    assert (EVENT.api_version, LEASE.api_version) == ("v1", "coordination.k8s.io/v1")


def test_only_nodes_and_vni_locks_of_ours_have_no_namespace() -> None:
    assert [kind for kind in OURS if not kind.namespaced] == [NODE, VNI_LOCK]


def test_no_word_means_two_kinds() -> None:
    words = [word for kind in KINDS for word in {kind.plural, kind.singular, *kind.short_names}]
    assert len(words) == len(set(words))
    assert not {short for kind in OURS for short in kind.short_names} & set(BUILT_INTO_KUBERNETES.split())


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.name)
def test_columns_end_with_the_age(kind: Kind) -> None:
    assert kind.columns[-1].name == "Age"
    assert kind.description.endswith(".")


def test_fields_are_selectable_as_promised() -> None:
    promised = {
        "Network": ("spec.vni",),
        "Subnet": ("spec.network",),
        "NetworkAttachment": ("spec.node", "spec.network", "status.hostIP"),
        "IPLock": ("spec.network", "spec.vni"),
        "PortPool": ("spec.node",),
        "LoadBalancer": ("spec.externalTrafficPolicy",),
        "BGPSpeaker": ("spec.node",),
        "BGPPeer": ("spec.speaker",),
        "EVPNNetwork": ("spec.speaker", "spec.network"),
        "RemoteVTEP": ("spec.node", "spec.network", "spec.evpnNetwork"),
    }
    assert {kind.name: kind.selectable for kind in OURS if kind.selectable} == promised


@pytest.mark.parametrize(
    "word", ["networks", "network", "net", "Network", "networks.netloom.dev", "net.v1alpha1.netloom.dev"]
)
def test_a_person_names_a_kind_as_they_like(word: str) -> None:
    assert KINDS.named(word) is NETWORK


@pytest.mark.parametrize("word", ["networkz", "", "networks.example.com"])
def test_a_word_for_no_kind_is_not_found(word: str) -> None:
    with pytest.raises(NotFound, match="resource type"):
        KINDS.named(word)


def test_kinds_are_found_by_resource_by_kind_and_by_type() -> None:
    assert KINDS.resource("netloom.dev", "v1alpha1", "sandboxes") is SANDBOX
    assert KINDS.kind("v1", "Event") is EVENT
    assert KINDS.of(Node) is NODE
    value = Network(api_version=NETWORK.api_version, kind="Network", spec=NetworkSpec())
    assert KINDS.of(value) is NETWORK
    with pytest.raises(NotFound):
        KINDS.resource("netloom.dev", "v1", "networks")
    with pytest.raises(NotFound, match="the core group"):
        KINDS.kind("", "Network")


def test_paths_are_those_of_kubernetes() -> None:
    assert NODE.path(name="n1", subresource="status") == "/apis/netloom.dev/v1alpha1/nodes/n1/status"
    assert SUBNET.path("default") == "/apis/netloom.dev/v1alpha1/namespaces/default/subnets"
    assert EVENT.path("default", "x") == "/api/v1/namespaces/default/events/x"
    assert SUBNET.path() == "/apis/netloom.dev/v1alpha1/subnets"
    assert (SUBNET.qualified, EVENT.qualified) == ("subnets.netloom.dev", "events")


def test_a_document_is_camel_case_and_a_value_snake_case() -> None:
    raw = b"""{"apiVersion": "netloom.dev/v1alpha1", "kind": "Network",
        "metadata": {"name": "blue", "resourceVersion": "7"},
        "spec": {"fabric": "vxlan", "provider": {"physicalNetwork": "physnet1"}},
        "status": {"vni": 10, "conditions": [{"type": "Ready", "status": "True"}]}}"""
    value = NETWORK.decode(raw)
    assert isinstance(value, Network)
    assert value.spec.fabric is Fabric.VXLAN
    assert value.spec.provider is not None
    assert value.spec.provider.physical_network == "physnet1"
    assert value.metadata.revision == 7
    assert value.status.condition("Ready") == Condition(type="Ready", status="True")
    assert value.status.condition("Other") is None
    assert NETWORK.document(value) == msgspec.json.decode(raw)


def test_defaults_are_left_out_of_a_document() -> None:
    value = Network(
        api_version=NETWORK.api_version,
        kind="Network",
        metadata=ObjectMeta(name="blue"),
        spec=NetworkSpec(),
    )
    assert NETWORK.document(value) == {
        "apiVersion": "netloom.dev/v1alpha1",
        "kind": "Network",
        "metadata": {"name": "blue"},
        "spec": {},
    }
    assert ObjectMeta().revision == 0


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_right(path: Path) -> None:
    for document in codec.documents(path.read_bytes()):
        kind = KINDS.kind(document["apiVersion"], document["kind"])
        document["metadata"].setdefault("namespace", "default")
        assert admit(kind, document) == []


def test_one_example_has_every_kind() -> None:
    shown = {document["kind"] for document in codec.documents((EXAMPLES / "every-kind.yaml").read_bytes())}
    assert shown == {kind.name for kind in OURS}


def test_attachments_and_leases_decode_with_the_least() -> None:
    raw = b'{"apiVersion": "x", "kind": "y", "metadata": {}, "spec": {"node": "n1", "network": "blue"}}'
    assert NETWORK_ATTACHMENT.decode(raw).kind == "y"
    assert LEASE.decode(b'{"apiVersion": "x", "kind": "y"}').kind == "y"
