"""The same commands against a real kube-apiserver that holds our CRDs: no kubectl is needed there."""

import base64
import json
from pathlib import Path

import pytest

from netloom.model import codec
from netloom.model.registry import KINDS
from tests.run.serving import NETLOOM, Answer, environment, netloom
from tests.support.kube import Kube
from tests.support.process import Program, wait_until

pytestmark = pytest.mark.kube

SYSTEM = ("-n", "netloom-system")
OBJECTS = """
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE}
---
apiVersion: netloom.dev/v1alpha1
kind: Subnet
metadata: {name: blue-v4, namespace: NAMESPACE}
spec: {network: blue, cidr: 10.10.0.0/24}
---
apiVersion: netloom.dev/v1alpha1
kind: Network
metadata: {name: blue, namespace: NAMESPACE, labels: {colour: blue}}
spec: {vni: 4242}
"""


@pytest.fixture(scope="module")
def cluster(kube: Kube) -> Kube:
    """The real API with our CRDs in it, put there by our own commands."""
    definitions = netloom("crds").out
    applied = netloom("apply", "-f", "-", kubeconfig=kube.kubeconfig, stdin=definitions)
    assert "customresourcedefinition.apiextensions.k8s.io/networks.netloom.dev" in applied.out
    for kind in KINDS:
        if kind.group == "netloom.dev":
            netloom("wait", "--for=condition=Established", f"crd/{kind.qualified}", kubeconfig=kube.kubeconfig)
    wait_until(
        lambda: netloom("get", "networks", "-A", kubeconfig=kube.kubeconfig, check=False).rc == 0, what="the CRDs"
    )
    return kube


def on(cluster: Kube, *args: str, stdin: str = "", check: bool = True) -> Answer:
    return netloom(*args, kubeconfig=cluster.kubeconfig, stdin=stdin, check=check)


def test_the_commands_do_on_a_kubernetes_what_they_do_on_our_server(cluster: Kube) -> None:
    objects = OBJECTS.replace("NAMESPACE", "cli-on-kube")
    made = on(cluster, "apply", "-f", "-", stdin=objects)
    assert [line.split() for line in made.out.splitlines()] == [
        ["namespace/cli-on-kube", "created"],
        ["network.netloom.dev/blue", "created"],
        ["subnet.netloom.dev/blue-v4", "created"],
    ]
    again = on(cluster, "apply", "-f", "-", stdin=objects)
    assert {line.split()[1] for line in again.out.splitlines()} == {"unchanged"}

    table = on(cluster, "get", "networks", "-n", "cli-on-kube").out.splitlines()
    assert table[0].split()[:2] == ["NAME", "FABRIC"]
    assert table[1].split()[:2] == ["blue", "ovn"]
    selected = on(
        cluster, "get", "networks", "-n", "cli-on-kube", "--field-selector", "spec.vni=4242", "-o", "name"
    ).out
    assert selected == "network.netloom.dev/blue\n"
    assert "4242" in on(cluster, "describe", "network/blue", "-n", "cli-on-kube").out
    assert on(cluster, "version").out.splitlines()[1] == f"Server: v{cluster.version}"

    refused = on(
        cluster,
        "apply",
        "-n",
        "cli-on-kube",
        "-f",
        "-",
        stdin=objects.replace("10.10.0.0/24", "10.10.0.0/33"),
        check=False,
    )
    assert refused.rc == 1
    assert "spec.cidr" in refused.err

    on(cluster, "delete", "networks,subnets", "-l", "colour=blue", "-n", "cli-on-kube")
    assert on(cluster, "get", "networks", "-n", "cli-on-kube", "-o", "name").out == ""
    assert on(cluster, "get", "subnets", "-n", "cli-on-kube", "-o", "name").out == "subnet.netloom.dev/blue-v4\n"


def test_the_controller_validates_subnets_of_a_kubernetes(cluster: Kube, tmp_path: Path) -> None:
    on(cluster, "apply", "-f", "-", stdin=OBJECTS.replace("NAMESPACE", "controlled"))
    on(cluster, "apply", "-f", "-", stdin="{apiVersion: v1, kind: Namespace, metadata: {name: netloom-system}}")
    argv = [*NETLOOM, "controller", "--kubeconfig", str(cluster.kubeconfig), "--identity", "test"]
    with Program(argv, log=tmp_path / "controller.log", env=environment()) as controller:
        waited = on(
            cluster,
            "wait",
            "--for=condition=Ready",
            "subnet/blue-v4",
            "-n",
            "controlled",
            "--timeout=120s",
            check=False,
        )
        assert waited.rc == 0, waited.err + controller.output()
        leader = on(cluster, "get", "lease", "netloom-controller", *SYSTEM, "-o", "jsonpath={.spec.holderIdentity}").out
        assert leader.startswith("test-")
        assert controller.stop() == 0, controller.output()
    shown = on(cluster, "describe", "subnet/blue-v4", "-n", "controlled").out
    assert "Validated" in shown


def test_a_login_program_gives_the_token_or_the_certificate(cluster: Kube, tmp_path: Path) -> None:
    """As kubeconfigs of managed clusters have it; the server's own answer says who it took us for."""
    version = "client.authentication.k8s.io/v1"
    robot = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "default"}}
    assert cluster.request("POST", "/api/v1/namespaces/default/serviceaccounts", robot)[0] == 201
    by_certificate = codec.decode(cluster.credential("carol", "system:masters").read_bytes(), "application/yaml")
    by_token = codec.decode(cluster.account("default", "robot").read_bytes(), "application/yaml")
    for name, config, who in (
        ("certificate", by_certificate, "carol"),
        ("token", by_token, "system:serviceaccount:default:robot"),
    ):
        user = config["users"][0]["user"]
        status = {"token": user["token"]} if "token" in user else {}
        if "client-certificate-data" in user:
            status["clientCertificateData"] = base64.b64decode(user["client-certificate-data"]).decode()
            status["clientKeyData"] = base64.b64decode(user["client-key-data"]).decode()
        answer = tmp_path / f"{name}.json"
        answer.write_text(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
        login = {"apiVersion": version, "interactiveMode": "Never", "command": "cat", "args": [str(answer)]}
        config["users"][0]["user"] = {"exec": login}
        (tmp_path / name).write_text(codec.encode_yaml(config))
        # Only one of the two may, and the refusal names the other.
        tried = netloom("get", "networks", "-n", "default", kubeconfig=tmp_path / name, check=False)
        assert (tried.rc == 0) is (who == "carol"), tried.err
        assert tried.rc == 0 or f'User "{who}" cannot list' in tried.err
