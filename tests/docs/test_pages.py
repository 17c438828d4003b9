"""Every command that README.md and docs/ show is run, against a real `netloom serve`."""

import os
from pathlib import Path

import pytest

from tests.docs import console
from tests.docs.console import ROOT
from tests.support.kube import kube, kube_cache
from tests.support.kubectl import Kubectl

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ON_A_CLUSTER = ROOT / "docs" / "kubernetes.md"
WITH_COMMANDS = [page for page in PAGES if console.parse(page.read_text())[1] and page != ON_A_CLUSTER]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_the_commands_of_a_page_do_what_the_page_says(page: Path, tmp_path: Path) -> None:
    commands = console.parse(page.read_text())[1]
    servers = ("netloom serve", "netloom apiserver", "netloom lab up")
    starts_its_own = any(command.text.startswith(servers) for command in commands)
    environment = {"NETLOOM_KUBE_BIN": str(kube_cache())}
    complaints = console.run(page, tmp_path, serving=not starts_its_own, environment=environment)
    assert not complaints, "\n\n".join(complaints)


@pytest.mark.kube
@pytest.mark.lab
def test_the_page_about_kubernetes_is_true_of_a_real_one(tmp_path: Path, kubectl: Kubectl) -> None:
    with kube() as cluster:
        for node in ("n1", "n2"):
            status, _ = cluster.request(
                "POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
            )
            assert status == 201
        path = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{kubectl.program.parent}{os.pathsep}{os.environ['PATH']}"
        environment = {"KUBECONFIG": str(cluster.kubeconfig), "PATH": path}
        complaints = console.run(ON_A_CLUSTER, tmp_path, serving=False, environment=environment)
    assert not complaints, "\n\n".join(complaints)


def test_dots_stand_for_anything_and_gaps_for_any_gap() -> None:
    assert console.matches(["a  b", "...", "end ... here"], ["a     b", "x", "y", "end of story here"])
    assert console.matches([], ["whatever"])
    assert not console.matches(["a b"], ["a  b"])
    assert not console.matches(["a"], ["a", "b"])


def test_a_page_gives_its_files_and_commands() -> None:
    page = "```yaml\n# file: a.yaml\nx: 1\n```\n```console\n$ one \\\n> two\nout\n$ three  # fails\n```\n"
    files, commands = console.parse(page)
    assert files == {"a.yaml": "# file: a.yaml\nx: 1\n"}
    assert [(c.text, c.expected, c.fails) for c in commands] == [
        ("one \\\ntwo", ["out"], False),
        ("three  # fails", [], True),
    ]
