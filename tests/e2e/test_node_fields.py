"""A node's credential, tried against every field of every kind, wherever the objects are kept."""

import contextlib
from pathlib import Path

import pytest

from netloom.model.kind import Kind
from netloom.model.registry import (
    BGP_PEER,
    BGP_SPEAKER,
    EVENT,
    EVPN_NETWORK,
    GROUP,
    KINDS,
    NETWORK_ATTACHMENT,
    NODE,
    REMOTE_VTEP,
)
from tests.e2e import joined as joining
from tests.e2e.joined import Joined
from tests.e2e.node_fields import (
    MERGE,
    NAMESPACE,
    OTHER,
    OWN,
    UNDERLAY,
    Ask,
    Walk,
    asking,
    connected,
    created,
    learned,
    prepare,
)
from tests.front.serving import make_credentials, serving
from tests.support import kube as kube_support
from tests.support.etcd import Etcd
from tests.support.kube import Kube
from tests.support.kubectl import Kubectl
from tests.support.process import wait_until

OURS = tuple(kind for kind in KINDS if kind.group == GROUP)
ON_A_CLUSTER = (*OURS, EVENT)
"""What a node has to do with there: Leases are for whom the cluster lets write them."""


def check(admin: Ask, node: Ask, made: list[tuple[Kind, str, str]]) -> None:
    """Try all fields of some objects."""
    status = NETWORK_ATTACHMENT.path(NAMESPACE, "own", "status")
    for host, code in ((UNDERLAY[OTHER], 403), ("192.0.2.203", 403), (UNDERLAY[OWN], 200)):
        assert node("PATCH", f"{status}?dryRun=All", {"status": {"hostIP": host}}, MERGE)[0] == code
    assert node("PATCH", NODE.path(name=OWN), {"spec": {"underlayIP": UNDERLAY[OTHER]}}, MERGE)[0] == 403
    wide = {"spec": {"underlayIP": "fd00:0:0::1"}}
    assert admin("PATCH", NODE.path(name=OTHER), {"spec": {"underlayIP": "fd00::1"}}, MERGE)[0] == 200
    # kube-apiserver reads the Nodes for its policies from a cache.
    tried = f"{NODE.path(name=OWN)}?dryRun=All"
    wait_until(lambda: node("PATCH", tried, wide, MERGE)[0] == 403, what="the other Node's new address")
    assert node("PATCH", NODE.path(name=OWN), wide, MERGE)[0] == 403
    assert admin("PATCH", NODE.path(name=OTHER), {"spec": {"underlayIP": UNDERLAY[OTHER]}}, MERGE)[0] == 200
    check_speakers(admin, node)
    found = Walk(admin, node).walk(made)
    assert found.wrong == []
    # The value tried there is no node's underlay address.
    assert found.withheld == {"networkattachments status.hostIP"}
    assert {"networkattachments status.ifcName", "nodes metadata.labels.node.netloom.dev/one"} <= found.written
    assert {"networkattachments status.mac", "nodes metadata.labels.one", "events source.host"} <= found.refused
    assert {"bgpspeakers status.lastHeartbeat", "bgppeers status.state", "remotevteps spec.flood"} <= found.written
    assert {"evpnnetworks status.remoteMACs", "evpnnetworks status.conditions.Advertised.reason"} <= found.written
    assert {"evpnnetworks status.vni", "evpnnetworks status.forwarding", "bgpspeakers spec.node"} <= found.refused
    assert created(admin, node) == []


def check_speakers(admin: Ask, node: Ask) -> None:
    """Try to write for the speaker of another node, and RemoteVTEPs that are not the node's."""
    for kind in (BGP_SPEAKER, BGP_PEER, EVPN_NETWORK):
        for name, code in (("own", 200), ("other", 403)):
            status = kind.path(NAMESPACE, name, "status")
            assert node("PATCH", f"{status}?dryRun=All", {"status": {}}, MERGE)[0] == code, status
    path = f"{REMOTE_VTEP.path(NAMESPACE)}?dryRun=All"
    assert node("POST", path, learned(admin))[0] == 201
    for refused in ({"node": OTHER}, {"network": "red"}, {"evpnNetwork": "other"}, {"address": UNDERLAY[OTHER]}):
        assert node("POST", path, learned(admin, **refused))[0] == 403, refused
    own = learned(admin)
    wrong = {"name": "other.192-0-2-1.10.0", "ownerReferences": [], "labels": {"node.netloom.dev/a": "b"}}
    for key, value in wrong.items():
        assert node("POST", path, {**own, "metadata": {**own["metadata"], key: value}})[0] == 403, key
    own["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert node("POST", path, own)[0] == 403
    for name, code in (("own", 200), ("other", 403)):
        assert node("DELETE", f"{REMOTE_VTEP.path(NAMESPACE, name)}?dryRun=All")[0] == code
    assert node("DELETE", f"{REMOTE_VTEP.path(NAMESPACE)}?dryRun=All")[0] == 403


def on_cluster(joined: Joined) -> None:
    """Try them as the administrator of a cluster and as the agent of a node in it."""
    joined.admin("create", "namespace", NAMESPACE)
    with connected(joined.cluster.kubeconfig) as admin, connected(joined.agent(OWN)) as node:
        made = prepare(admin, ON_A_CLUSTER)

        def tries(path: str, change: object) -> int:
            return node("PATCH", f"{path}?dryRun=All", change, MERGE)[0]

        # The cluster's policies are in force some time after they are stored.
        label, address = {"metadata": {"labels": {"a": "b"}}}, {"spec": {"underlayIP": "192.0.2.203"}}
        other = {"spec": {"underlayIP": UNDERLAY[OTHER]}}
        wait_until(lambda: tries(NODE.path(name=OWN), label) == 403, what="the policy for objects")
        wait_until(lambda: tries(NODE.path(name=OWN), address) == 200, what="the Nodes to be compared", timeout=120)
        wait_until(lambda: tries(NODE.path(name=OWN), other) == 403, what="the policy for addresses")
        peer = BGP_PEER.path(NAMESPACE, "other", "status")
        wait_until(lambda: tries(peer, {"status": {}}) == 403, what="the policy for speakers", timeout=120)
        vteps = f"{REMOTE_VTEP.path(NAMESPACE)}?dryRun=All"
        wait_until(lambda: node("POST", vteps, learned(admin))[0] == 201, what="the policy for VTEPs", timeout=120)
        red = learned(admin, network="red")
        wait_until(lambda: node("POST", vteps, red)[0] == 403, what="the EVPNNetworks to be compared", timeout=120)
        _writes_where_nothing_is_compared(admin)
        try:
            check(admin, node, made)
        finally:
            for kind, namespace, name in made:  # Others use the cluster, too.
                admin("DELETE", kind.path(namespace, name))


def _writes_where_nothing_is_compared(admin: Ask) -> None:
    """The policies for agents stop nobody else, also where there is no BGPSpeaker or EVPNNetwork to compare with."""
    namespace = "no-speakers"
    code, said = admin("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    assert code in (201, 409), said
    vtep = learned(admin)
    vtep["metadata"]["namespace"] = namespace
    code, said = admin("POST", f"{REMOTE_VTEP.path(namespace)}?dryRun=All", vtep)
    assert code == 201, said
    document = {
        "apiVersion": EVPN_NETWORK.api_version,
        "kind": EVPN_NETWORK.name,
        "metadata": {"name": "lone", "namespace": namespace},
        "spec": {"network": "blue", "speaker": "missing"},
    }
    code, stored = admin("POST", EVPN_NETWORK.path(namespace), document)
    assert code == 201, stored
    code, said = admin("PUT", EVPN_NETWORK.path(namespace, "lone", "status"), stored | {"status": {"localMACs": 0}})
    assert code == 200, said
    admin("DELETE", EVPN_NETWORK.path(namespace, "lone"))


def test_a_node_changes_nothing_but_its_own_on_netloom_serve(tmp_path: Path) -> None:
    make_credentials(tmp_path)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(tmp_path))

        def asks(name: str) -> Ask:
            connection = stack.enter_context(contextlib.closing(server.connect()))
            return asking(connection, {"Authorization": f"Bearer {name}-token"})

        admin, node = asks("admin"), asks(OWN)
        check(admin, node, prepare(admin, KINDS))


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(kube_support.CURRENT, marks=pytest.mark.kube),
        pytest.param(kube_support.OLDER, marks=pytest.mark.versions),
    ],
)
def test_a_node_changes_nothing_but_its_own_on_the_aggregated_api(
    version: str, etcd: Etcd, kubectl: Kubectl, tmp_path: Path
) -> None:
    store = f"etcd:{etcd.url}?prefix=/node-fields-{version}"
    with (
        kube_support.kube(version) as cluster,
        joining.aggregated(cluster, kubectl, tmp_path, store=store, controlled=False) as joined,
    ):
        on_cluster(joined)


@pytest.mark.parametrize(
    "cluster",
    [pytest.param("kube", marks=pytest.mark.kube), pytest.param("kube_old", marks=pytest.mark.versions)],
)
def test_a_node_changes_nothing_but_its_own_where_crds_keep_the_objects(
    cluster: str, request: pytest.FixtureRequest, kubectl: Kubectl, tmp_path: Path
) -> None:
    found = request.getfixturevalue(cluster)
    assert isinstance(found, Kube)
    with joining.with_crds(found, kubectl, tmp_path, controlled=False) as joined:
        on_cluster(joined)
