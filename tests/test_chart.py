"""The chart and its kustomize base: the same objects, current, and with settings that the processes take."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from netloom.errors import Invalid
from netloom.model import codec
from netloom.model.document import Document
from netloom.run import config
from netloom.run.cluster import manifests
from netloom.run.config import AgentSettings, ControllerSettings, Settings
from netloom.run.controllers import options_of
from netloom.run.node import settings as node_settings
from tests.support import chart
from tests.support import kube as kube_support
from tests.support.chart import TREE

BASE = chart.CHART / "base"


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> list[Document]:
    return chart.rendered(tmp_path_factory.mktemp("helm"))


def test_the_base_is_what_the_chart_and_the_program_print(tmp_path: Path) -> None:
    subprocess.run([TREE / "tools/manifests", tmp_path], check=True, capture_output=True)
    for name in ("cluster.yaml", "workloads.yaml"):
        assert (tmp_path / name).read_text() == (BASE / name).read_text(), "run make manifests"


def test_helm_and_kustomize_install_the_same_objects(rendered: list[Document]) -> None:
    argv = [str(kube_support.kube_program("kubectl")), "kustomize", str(BASE)]
    printed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    by_kustomize = {identity(one): one for one in codec.documents(printed) if one}
    by_helm = {identity(one): one for one in rendered}
    assert by_kustomize.keys() == by_helm.keys()
    for key, one in by_helm.items():
        assert by_kustomize[key] == one, key


def test_every_account_that_a_workload_names_is_there_and_every_volume_too(rendered: list[Document]) -> None:
    known = {identity(one)[1:] for one in rendered}
    for workload in workloads(rendered):
        spec = workload["spec"]["template"]["spec"]
        assert ("ServiceAccount", manifests.NAMESPACE, spec["serviceAccountName"]) in known
        for volume in spec["volumes"]:
            for kind, name in (("configMap", "name"), ("secret", "secretName")):
                if kind in volume:
                    wanted = {"configMap": "ConfigMap", "secret": "Secret"}[kind]
                    assert (wanted, manifests.NAMESPACE, volume[kind][name]) in known


def test_the_settings_are_settings_of_the_processes(tmp_path: Path) -> None:
    values = {"podCIDRs": "{10.0.0.0/16,fd00::/48}", "serviceCIDRs": "{10.1.0.0/16,fd01::/112}",
              "central.address": "fd00:1::5", "controller.settings.kubeMtu": "1400"}  # fmt: skip
    found = [one for one in chart.rendered(tmp_path, **values) if one["kind"] == "ConfigMap"]
    maps = {one["metadata"]["name"]: one.get("data", {}) for one in found}
    controller = loaded(ControllerSettings, tmp_path, maps["netloom-controller"])
    assert (controller.ovn_nb, controller.kube_mtu) == (("ssl:[fd00:1::5]:6641",), 1400)
    with pytest.raises(Invalid) as refused:
        options_of(controller)
    # Only the files are missing here.
    assert {cause.field for cause in refused.value.causes} == {"ovnKey", "ovnCert", "ovnCa"}
    agent = loaded(AgentSettings, tmp_path, maps["netloom-agent"])
    node_settings.check(agent)
    assert agent.internal_routes == tuple(
        f"netloom-pods={one}" for one in ("10.0.0.0/16", "fd00::/48", "10.1.0.0/16", "fd01::/112")
    )


def test_what_is_required_is_asked_for_by_name(tmp_path: Path) -> None:
    for name in chart.SETTINGS:
        others = chart.settings({key: value for key, value in chart.SETTINGS.items() if key != name})
        assert f"{name}: " in chart.helm("template", "x", chart.CHART, *others, scratch=tmp_path, check=False)


def test_only_the_agents_pods_have_capabilities_and_nothing_else_is_privileged(rendered: list[Document]) -> None:
    found = {}
    for workload in workloads(rendered):
        spec = workload["spec"]["template"]["spec"]
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"], container["name"]
            assert context.get("privileged") or not context["allowPrivilegeEscalation"]
            found[container["name"]] = context.get("capabilities", {}).get("add", "all")
            if context.get("capabilities", {}).get("drop") == ["ALL"]:
                found[container["name"]] = context["capabilities"].get("add", [])
    assert found == {
        "forwarding": "all", "agent": ["NET_ADMIN", "SYS_ADMIN", "NET_BIND_SERVICE"], "identity": [],
        "ovn-controller": [], "controller": [], "authority": [], "nb": [], "sb": [], "northd": [],
    }  # fmt: skip


def identity(document: Document) -> tuple[str, str, str, str]:
    metadata = document["metadata"]
    return document["apiVersion"], document["kind"], metadata.get("namespace", ""), metadata["name"]


def workloads(documents: list[Document]) -> list[dict[str, Any]]:
    return [one for one in documents if one["kind"] in ("Deployment", "DaemonSet")]


def loaded(kind: type[Settings], folder: Path, data: Any) -> Any:
    [(name, text)] = data.items()
    (folder / name).write_text(text)
    return config.load(kind, flags={}, environ={}, file=str(folder / name))[0]
