"""What a cluster is told: that it fits together, and that what cannot work is refused."""

import base64
import json
from pathlib import Path

import pytest

from netloom.errors import Invalid
from netloom.model import codec
from netloom.model.document import Document
from netloom.model.registry import GROUP, KINDS
from netloom.run.cluster import manifests
from netloom.run.cluster.joining import ClusterOptions
from netloom.run.cluster.joining import manifests as printed
from netloom.run.config import ApiserverSettings, ControllerSettings
from tests.run.serving import netloom


def by_kind(documents: list[Document], kind: str) -> list[Document]:
    return [document for document in documents if document["kind"] == kind]


def test_every_role_that_is_bound_is_there_and_every_account_too() -> None:
    documents = [*manifests.common(["n1"]), *manifests.aggregated(manifests.ServerPlacement(ca=b"CA"))]
    roles = {role["metadata"]["name"] for role in by_kind(documents, "ClusterRole")} | {"system:auth-delegator"}
    accounts = {one["metadata"]["name"] for one in by_kind(documents, "ServiceAccount")}
    for binding in by_kind(documents, "ClusterRoleBinding"):
        assert binding["roleRef"]["name"] in roles
        named = {one["name"] for one in binding["subjects"] if one["kind"] == "ServiceAccount"}
        assert named <= accounts
    names = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in documents]
    assert len(names) == len(set(names))


def test_controllers_write_leases_in_their_own_namespace_only() -> None:
    documents = manifests.common()
    for role in by_kind(documents, "ClusterRole"):
        assert not any("leases" in rule["resources"] for rule in role["rules"])
    [role], [binding] = by_kind(documents, "Role"), by_kind(documents, "RoleBinding")
    assert (role["metadata"]["namespace"], binding["metadata"]["namespace"]) == (manifests.NAMESPACE,) * 2
    assert [rule["resources"] for rule in role["rules"]] == [["leases"]]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "netloom-controller", "namespace": "netloom-system"}
    ]
    assert ControllerSettings().lease_namespace == manifests.NAMESPACE


def test_roles_name_only_what_there_is() -> None:
    known = {kind.plural for kind in KINDS if kind.group == GROUP}
    known |= {f"{plural}/status" for plural in known} | {"*", "batch"}
    for role in by_kind(manifests.common(), "ClusterRole"):
        for rule in role["rules"]:
            assert rule["apiGroups"] != [GROUP] or set(rule["resources"]) <= known


@pytest.mark.parametrize("asked", [False, True])
def test_the_clusters_editors_are_ours_only_if_asked_for(asked: bool) -> None:
    flag = ("--aggregate-edit",) if asked else ()
    documents = list(codec.documents(netloom("crds", "--with-roles", *flag).out))
    roles = {role["metadata"]["name"]: role for role in by_kind(documents, "ClusterRole")}
    into = {
        name: {
            label.rpartition("-")[2]
            for label in roles[f"netloom:{name}"]["metadata"]["labels"]
            if "/aggregate" in label
        }
        for name in ("view", "edit", "admin")
    }
    wider = {"edit": {"edit", "admin"}, "admin": {"admin"}}
    assert into == {"view": {"view", "edit", "admin"}, **(wider if asked else {"edit": set(), "admin": set()})}
    for name in ("edit", "admin"):  # Bound by name, each is enough by itself.
        assert {"get", "list", "watch", "create", "delete"} <= set(roles[f"netloom:{name}"]["rules"][0]["verbs"])


def test_a_node_that_is_a_user_is_held_to_its_name() -> None:
    roles = {role["metadata"]["name"]: role for role in by_kind(manifests.common(["n1"]), "ClusterRole")}
    assert [rule["resourceNames"] for rule in roles["netloom:node:n1"]["rules"]] == [["n1"]]


def test_a_node_writes_events_and_reads_none() -> None:
    roles = {role["metadata"]["name"]: role for role in by_kind(manifests.common(), "ClusterRole")}
    events = [rule["verbs"] for rule in roles["netloom:node"]["rules"] if "events" in rule["resources"]]
    assert events == [["create", "update"]]


def test_both_ways_hold_agents_to_their_own_events(tmp_path: Path) -> None:
    settings = ApiserverSettings(data=str(tmp_path / "d"), store="etcd:http://e:2379")
    for documents in (
        printed(settings, ClusterOptions(address="a.example")),
        json.loads(netloom("crds", "--with-roles", "-o", "json").out)["items"],
    ):
        names = [one["metadata"]["name"] for one in by_kind(documents, "ValidatingAdmissionPolicy")]
        bound = [one["spec"]["policyName"] for one in by_kind(documents, "ValidatingAdmissionPolicyBinding")]
        assert "node-events.netloom.dev" in names
        assert names == bound


@pytest.mark.parametrize(
    ("address", "kinds", "port"),
    [
        ("", ["Service"], 443),
        ("netloom.example", ["Service"], 8480),
        ("192.0.2.5", ["Service", "Endpoints", "EndpointSlice"], 443),
        ("2001:db8::5", ["Service", "Endpoints", "EndpointSlice"], 443),
    ],
)
def test_the_service_leads_to_where_the_server_is(address: str, kinds: list[str], port: int) -> None:
    documents = manifests.aggregated(manifests.ServerPlacement(ca=b"CA", address=address))
    assert [one["kind"] for one in documents if one["kind"] in ("Service", "Endpoints", "EndpointSlice")] == kinds
    (api,) = by_kind(documents, "APIService")
    assert (api["spec"]["service"]["port"], api["spec"]["caBundle"]) == (port, base64.b64encode(b"CA").decode())


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "0.0.0.0"])
def test_an_address_that_no_service_can_lead_to_is_refused(address: str) -> None:
    with pytest.raises(Invalid, match="localhost"):
        manifests.aggregated(manifests.ServerPlacement(ca=b"CA", address=address))


def test_what_is_printed_fits_the_server_that_runs(tmp_path: Path) -> None:
    settings = ApiserverSettings(data=str(tmp_path / "d"), listen="0.0.0.0:9443", store="etcd:http://e:2379")
    documents = printed(settings, ClusterOptions(image="netloom:1"))
    (api,) = by_kind(documents, "APIService")
    assert base64.b64decode(api["spec"]["caBundle"]) == (tmp_path / "d" / "ca.crt").read_bytes()
    (secret,) = by_kind(documents, "Secret")
    assert base64.b64decode(secret["data"]["tls.crt"]) == (tmp_path / "d" / "server.crt").read_bytes()
    (deployment,) = by_kind(documents, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "--listen=:9443" in container["args"]
    assert not (tmp_path / "d" / "admin.kubeconfig").exists()
    again = printed(settings, ClusterOptions(address="[2001:db8::5]:443"))
    (newer,) = by_kind(again, "EndpointSlice")
    assert (newer["addressType"], newer["ports"][0]["port"]) == ("IPv6", 443)


def test_what_contradicts_itself_is_said(tmp_path: Path) -> None:
    data = ["--data", str(tmp_path / "d"), "--print-manifests"]
    both = netloom("apiserver", *data, "--image", "i", "--address", "a.example", check=False)
    assert "either --image" in both.err
    assert "store" in netloom("apiserver", *data, "--image", "i", check=False).err
    assert "tlsCert" in netloom("apiserver", "--print-manifests", check=False).err
    store = ["--store", "sqlite:x"]
    given = netloom(
        "apiserver", "--aggregated", *store, "--tls-cert", "c", "--tls-key", "k", "--tokens", "t", check=False
    )
    assert "the cluster authenticates clients" in given.err
