"""OVN's certificates in a cluster, on a real kube-apiserver: the authority signs for the node that asks alone."""

import base64
import json
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from netloom.model import codec
from netloom.run.access import certificates
from netloom.run.cluster.manifests import NAMESPACE
from netloom.run.identities import requests
from tests.e2e.joined import Joined
from tests.run.serving import NETLOOM, environment, netloom
from tests.support.kube import Kube
from tests.support.kubectl import Kubectl
from tests.support.process import Program, wait_until

pytestmark = pytest.mark.kube


@pytest.fixture(scope="module")
def joined(kube: Kube, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Joined]:
    """The accounts, roles, empty Secrets and policies; and an authority that runs as its account."""
    made = Joined(kube, kubectl, tmp_path_factory.mktemp("identities"))
    documents = [
        one for one in codec.documents(netloom("crds", "--with-ovn").out) if one["kind"] != "CustomResourceDefinition"
    ]
    made.tell("---\n".join(codec.encode_yaml(one) for one in documents))
    argv: list[str | Path] = [*NETLOOM, "--kubeconfig", kube.account(NAMESPACE, "netloom-ovn")]
    argv += ["ovn", "authority", "--folder", made.folder / "central", "--address", "192.0.2.5"]
    program = Program(argv, log=made.folder / "authority.log", env=environment())
    try:
        wait_until(lambda: (made.folder / "central/server.crt").exists(), what="the servers' certificate", timeout=60)
        _published(made)
        yield made
    finally:
        program.stop()


def test_the_parts_that_connect_to_ovn_get_certificates_of_the_right_authority(joined: Joined) -> None:
    central, nodes = _published(joined)
    folder = joined.folder / "central"
    now = datetime.now(UTC)
    server, key = (folder / "server.crt").read_bytes(), (folder / "server.key").read_bytes()
    margin = timedelta(days=300)
    assert certificates.is_valid(server, key=key, ca=central, hosts=["192.0.2.5"], now=now, margin=margin)
    assert (folder / "both-ca.crt").read_bytes() == central + nodes
    assert (folder / "central-ca.crt").read_bytes() == central
    secret = json.loads(joined.admin("-n", NAMESPACE, "get", "secret", "netloom-ovn", "-o", "json").out)["data"]
    data = {name: base64.b64decode(value) for name, value in secret.items()}
    assert certificates.is_valid(data["tls.crt"], key=data["tls.key"], ca=central, now=now, margin=margin)
    assert data["ca.crt"] == central


def test_a_node_gets_a_certificate_for_its_own_name(joined: Joined) -> None:
    _, nodes = _published(joined)
    folder = _identity(joined, "n1", credential=joined.agent("n1"))
    wait_until(lambda: (folder / "node.crt").exists(), what="the certificate", timeout=60)
    made = (folder / "node.crt").read_bytes()
    assert certificates.common_name(made) == "n1"
    key = (folder / "node.key").read_bytes()
    assert certificates.is_valid(made, key=key, ca=nodes, now=datetime.now(UTC), margin=timedelta(days=300))
    assert (folder / "node.key").stat().st_mode & 0o777 == 0o600
    context = ssl.create_default_context(cafile=joined.folder / "nodes.crt")
    context.load_cert_chain(folder / "node.crt", folder / "node.key")


def test_a_node_gets_no_certificate_for_another_and_none_of_another_signer(joined: Joined) -> None:
    made = _create(joined, joined.agent("n1"), requests.document(certificates.new_key(), "n2"))
    wait_until(lambda: _condition(joined, made)[0] == "Denied", what="the denial", timeout=30)
    assert _condition(joined, made)[1] == "the common name is n2, and must be n1"
    other = requests.document(certificates.new_key(), "n1")
    other["spec"]["signerName"] = "kubernetes.io/kube-apiserver-client"
    with pytest.raises(AssertionError, match=r"agent of n1 may ask for certificates of netloom.dev/ovn-node only"):
        _create(joined, joined.agent("n1"), other)
    # The account without a node, and others, even administrators.
    for credential, why in (
        (joined.cluster.account(NAMESPACE, "netloom-agent"), "the token of the request is bound to no node"),
        (joined.cluster.kubeconfig, "may ask for a certificate of a node"),
    ):
        made = _create(joined, credential, requests.document(certificates.new_key(), "n1"))
        wait_until(lambda made=made: _condition(joined, made)[0] == "Denied", what="the denial", timeout=30)  # type: ignore[misc]
        assert why in _condition(joined, made)[1]


def test_the_credentials_of_both_reach_nothing_else(joined: Joined) -> None:
    agent, authority = joined.agent("n1"), joined.cluster.account(NAMESPACE, "netloom-ovn")

    def may(credential: Path, *words: str) -> bool:
        asked = joined.kubectl.run("auth", "can-i", "-n", NAMESPACE, *words, kubeconfig=credential, check=False)
        return asked.out.strip() == "yes"

    assert not any(may(agent, verb, "secrets") for verb in ("get", "list", "create"))
    assert not may(agent, "approve", "signers.certificates.k8s.io/netloom.dev/ovn-node")
    assert not may(agent, "update", "certificatesigningrequests", "--subresource=approval")
    assert may(authority, "get", "secrets/netloom-ovn")
    assert not any(may(authority, verb, "secrets") for verb in ("get", "list", "create"))
    assert not may(authority, "create", "serviceaccounts", "--subresource=token")


def _published(joined: Joined) -> tuple[bytes, bytes]:
    """Return the certificates of the CAs, once they are there."""

    def found() -> dict[str, str] | None:
        shown = joined.admin("-n", NAMESPACE, "get", "configmap", "netloom-ovn-ca", "-o", "json").out
        data: dict[str, str] | None = json.loads(shown).get("data")
        return data

    data = wait_until(found, what="the CAs", timeout=30)
    (joined.folder / "nodes.crt").write_text(data["nodes.crt"])
    return data["central.crt"].encode(), data["nodes.crt"].encode()


def _identity(joined: Joined, node: str, *, credential: Path) -> Path:
    folder = joined.folder / node
    argv: list[str | Path] = [
        *NETLOOM,
        "--kubeconfig",
        credential,
        "ovn",
        "identity",
        "--folder",
        folder,
        "--node",
        node,
    ]
    program = Program([*argv, "--ca", joined.folder / "nodes.crt"], log=joined.folder / "node.log", env=environment())
    try:
        wait_until(lambda: (folder / "node.crt").exists(), what="the certificate", timeout=60)
    finally:
        program.stop()
    return folder


def _create(joined: Joined, credential: Path, document: dict[str, object]) -> str:
    words = ("create", "-f", "-", "-o", "name")
    return joined.kubectl.run(*words, kubeconfig=credential, stdin=json.dumps(document)).out.strip()


def _condition(joined: Joined, name: str) -> tuple[str, str]:
    found = json.loads(joined.admin("get", name, "-o", "json").out)["status"].get("conditions")
    return (found[0]["type"], found[0]["message"]) if found else ("", "")
