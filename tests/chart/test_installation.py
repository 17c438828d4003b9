"""The chart on a real cluster: its pods run from the image of deploy/container and connect other pods.

The node is a host of a lab with a kubelet and containerd, its own Open vSwitch, and nothing else of Netloom's.
"""

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netloom.lab import Lab
from netloom.lab.kube import images
from netloom.lab.kube.places import POD_CIDRS, SERVICE_CIDRS, Places
from netloom.plan.kube import names
from tests.lab import labs
from tests.support import chart
from tests.support import kube as kube_support
from tests.support.kubectl import Kubectl
from tests.support.process import wait_until

pytestmark = [pytest.mark.chart, pytest.mark.lab, pytest.mark.ovn, pytest.mark.root, pytest.mark.timeout(900)]

IMAGE = "netloom.dev/netloom:chart"
OVS = ("ovs-vsctl", "--timeout=20")


class Cluster:
    """A lab of one node, as a cluster of others: what is of Netloom there is removed before."""

    def __init__(self, lab: Lab, kubectl: Kubectl, scratch: Path) -> None:
        self.lab = lab
        self.scratch = scratch
        self._kubectl = kubectl
        places = Places(lab.layout)
        self.own = lab.layout.node("n1")
        self.cni = places.cni("n1")
        self.netns = self.own / "containerd/state/io.containerd.grpc.v1.cri/netns"
        self.run = lab.layout.folder.parent / "run"
        self.data = lab.layout.folder.parent / "central/ovn"

    def empty(self) -> None:
        """Take the lab's own Netloom away."""
        places = Places(self.lab.layout)
        for name in ("controller", "agent-n1"):
            self.lab.kill(name)
        for path in (places.objects, places.crds):
            self.kubectl("delete", "--ignore-not-found", "--timeout=60s", "-f", path)
        for path in (self.cni / "net.d").iterdir():
            path.unlink()
        self.lab.exec("n1", [*OVS, "--if-exists", "del-br", "br-vxlan"])
        # containerd hands mounts on to containers from shared mounts only, which / is not on every machine.
        self.netns.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", self.netns, self.netns], check=True)
        subprocess.run(["mount", "--make-shared", self.netns], check=True)

    def import_image(self) -> None:
        """Build the image without a registry, and give it to containerd; NETLOOM_TEST_IMAGE is one of image-root."""
        root = Path(os.environ.get("NETLOOM_TEST_IMAGE") or self.scratch / "root")
        if not root.exists():
            subprocess.run([chart.TREE / "tools/image-files", chart.TREE / "build/image"], check=True)
            built = subprocess.run([chart.TREE / "tools/image-root", root], capture_output=True, text=True, check=False)
            assert built.returncode == 0, built.stderr[-3000:]
        config = {"User": "65532:65532", "Entrypoint": ["/usr/local/bin/netloom"]}
        layer = self.scratch / "layer.tar"
        with tarfile.open(layer, "w") as tar:
            tar.add(root, arcname=".")
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        archive = self.scratch / "image.tar"
        archive.write_bytes(images.archive(layer.read_bytes(), {IMAGE: config | {"Env": [path]}}))
        self.lab.exec("n1", ["ctr", "images", "import", str(archive)], timeout=300)

    def kubectl(self, *words: str | Path, check: bool = True) -> str:
        return self._kubectl.run(*words, kubeconfig=self.lab.kubeconfig, check=check).out

    def get(self, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", *words, "-o", "json"))["items"]
        return found

    def helm(self, *words: str | Path) -> str:
        return chart.helm(*words, scratch=self.scratch, kubeconfig=self.lab.kubeconfig)

    def values(self, **more: str) -> list[str]:
        own = {
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "apiServer": self.lab.layout.kube_ip,
            "central.node": "n1",
            "central.address": self.lab.underlay_ip("n1"),
            "central.data": str(self.data),
            "controller.replicas": "1",
            "podCIDRs": "{" + ",".join(POD_CIDRS) + "}",
            "serviceCIDRs": "{" + ",".join(SERVICE_CIDRS) + "}",
            "host.openvswitch": str(self.own),
            "host.run": str(self.run),
            "host.cniPrograms": str(self.cni / "bin"),
            "host.cniConfigurations": str(self.cni / "net.d"),
            "host.netns": str(self.netns),
        }
        return chart.settings(own | more)

    def of_netloom(self) -> list[str]:
        """Return the names of everything in the cluster that is Netloom's."""
        kinds = self.kubectl("api-resources", "--verbs=list", "-o", "name").split()
        kinds = [kind for kind in kinds if not kind.startswith(("events", "leases", "componentstatuses"))]
        found = self.kubectl("get", ",".join(kinds), "-A", "-o", "name", "--ignore-not-found", check=False).split()
        return [one for one in found if "netloom" in one]

    def diagnosis(self) -> str:
        said = [self.kubectl("get", "pods", "-A", "-o", "wide"), self.kubectl("get", "events", "-A")]
        words = ("logs", "-n", "netloom-system", "--all-containers", "--prefix", "--tail=30")
        names_ = [pod["metadata"]["name"] for pod in self.get("pods", "-n", "netloom-system")]
        said += [self.kubectl(*words, name, check=False) for name in names_]
        return "\n".join(said)


@pytest.fixture
def cluster(kubectl: Kubectl, tmp_path: Path) -> Iterator[Cluster]:
    for program in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"):
        kube_support.kube_program(program)
    with labs.running(nodes=1, ovn=0, kube=kube_support.CURRENT, cni="bridge", restart=False) as lab:
        made = Cluster(lab, kubectl, tmp_path)
        made.empty()
        made.import_image()
        yield made
        subprocess.run(["umount", "--recursive", made.netns], check=False)
        lab.down()
        assert labs.left_of(lab.layout.folder) == []


def test_the_chart_is_installed_connects_pods_is_upgraded_and_leaves_nothing(cluster: Cluster) -> None:
    before = set(cluster.of_netloom())
    try:
        cluster.helm(
            "install", "netloom", chart.CHART, "-n", "kube-system", *cluster.values(), "--wait", "--timeout=300s"
        )
        assert (cluster.cni / "net.d/10-netloom.conflist").exists()
        kept_to_their_rights(cluster)
        first, second = pods(cluster)
        reaches(cluster, first, second)
        cluster.helm("upgrade", "netloom", chart.CHART, "-n", "kube-system", "--wait", "--timeout=300s",
                     *cluster.values(**{"agent.settings.logLevel": "debug"}))  # fmt: skip
        assert "logLevel: debug" in cluster.kubectl(
            "get", "configmap", "-n", "netloom-system", "netloom-agent", "-o", "yaml"
        )
        reaches(cluster, second, first)
        assert reaches(cluster, *pods(cluster, "later"))
    except AssertionError as error:
        raise AssertionError(f"{error}\n{cluster.diagnosis()}") from error
    cluster.kubectl("delete", "deployments", "--all", "--timeout=60s")
    cluster.helm("upgrade", "netloom", chart.CHART, "-n", "kube-system", *cluster.values(cleanup="true"), "--wait")
    # As docs/kubernetes-install.md says.
    cluster.kubectl("delete", "namespace", "netloom-pods", "--timeout=110s")
    cluster.kubectl("wait", "--for=delete", "vnilocks.netloom.dev", "--all", "-A", "--timeout=110s")
    cluster.kubectl("delete", "certificatesigningrequests", "-l", "app.kubernetes.io/part-of=netloom")
    cluster.helm("uninstall", "netloom", "-n", "kube-system", "--wait", "--timeout=180s")
    assert set(cluster.of_netloom()) == before
    assert left_on_the_node(cluster) == []


def pods(cluster: Cluster, name: str = "web") -> list[dict[str, Any]]:
    """Run two web servers."""
    serve = "hostname > /www/index.html; exec httpd -f -p 80 -h /www"
    container = {"name": "web", "image": images.TOOLS, "command": ["sh", "-c", serve]}
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template}
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
    path = cluster.scratch / "web.json"
    path.write_text(json.dumps(made))
    cluster.kubectl("apply", "-f", path)
    cluster.kubectl("rollout", "status", f"deployment/{name}", "--timeout=120s")
    return cluster.get("pods", "-l", f"app={name}")


def reaches(cluster: Cluster, one: dict[str, Any], other: dict[str, Any]) -> bool:
    for found in other["status"]["podIPs"]:
        ip = found["ip"]
        url = f"http://[{ip}]/" if ":" in ip else f"http://{ip}/"
        fetch = ("exec", one["metadata"]["name"], "--", "timeout", "5", "wget", "-qO-", url)
        wait_until(lambda fetch=fetch: cluster.kubectl(*fetch, check=False).strip() == other["metadata"]["name"],  # type: ignore[misc]
                   what=" ".join(fetch), timeout=60)  # fmt: skip
    return True


def kept_to_their_rights(cluster: Cluster) -> None:
    """The node's certificate is for OVN's role and its own chassis, and was signed for its own token."""
    requests = cluster.get("certificatesigningrequests")
    ours = [one for one in requests if one["spec"]["signerName"] == "netloom.dev/ovn-node"]
    assert [one["spec"]["extra"]["authentication.kubernetes.io/node-name"] for one in ours] == [["n1"]]
    agent = cluster.get("pods", "-n", "netloom-system", "-l", "app=netloom-agent")[0]["metadata"]["name"]
    files = ("-p", "/run/ovn-tls/node.key", "-c", "/run/ovn-tls/node.crt", "-C", "/etc/netloom/ca/central.crt")
    address = cluster.lab.underlay_ip("n1")
    inside = ("exec", "-n", "netloom-system", agent, "-c", "ovn-controller", "--")
    southbound = (*inside, "ovn-sbctl", f"--db=ssl:{address}:6642", *files, "--timeout=10")
    assert "n1" in cluster.kubectl(*southbound, "--bare", "--columns=name", "list", "Chassis")
    assert cluster.kubectl(*southbound, "--bare", "--columns=name", "list", "Address_Set") is not None
    northbound = (*inside, "ovn-nbctl", f"--db=ssl:{address}:6641", *files, "--timeout=5", "show")
    with pytest.raises(AssertionError):
        cluster.kubectl(*northbound)
    with pytest.raises(AssertionError, match="RBAC"):
        cluster.kubectl(*southbound, "create", "SB_Global", "nb_cfg=1")


def left_on_the_node(cluster: Cluster) -> list[str]:
    """Return what is left on the node of what Netloom makes."""
    lab, node = cluster.lab, "n1"
    bridges = lab.exec(node, [*OVS, "list-br"]).stdout.split()
    keys = json.loads(lab.exec(node, [*OVS, "--format=json", "--columns=external_ids", "list", "Open_vSwitch"]).stdout)
    tables = lab.exec(node, ["nft", "list", "tables"]).stdout
    links = lab.exec(node, ["ip", "-o", "link"]).stdout
    return [
        *(one for one in bridges if one != "br-phys"),
        *(key for key, _ in keys["data"][0][0][1] if key.startswith(("ovn-remote", "ovn-encap"))),
        *(one for one in tables.splitlines() if "netloom" in one),
        *(one for one in links.splitlines() if names.HOST_DEVICE in one),
        *(str(path) for path in (*cluster.run.rglob("*"), cluster.data) if path.exists()),
        *(str(path) for folder in ("bin", "net.d") for path in (cluster.cni / folder).glob("*netloom*")),
    ]
