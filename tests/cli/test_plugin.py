"""`kubectl netloom`: what becomes of its words, and kubectl that finds and runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from netloom.cli.plugin import translated
from tests.support.kube import kube_program

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: mine, context: {cluster: c, user: "", namespace: shop}}]
current-context: mine
"""


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("version", "version"),
        ("get networks -n blue", "get networks -n blue"),
        ("summary -o json", "--namespace netloom-pods status -o json"),
        ("explain pod/web-0 -n shop", "--namespace netloom-pods explain networkattachment/pod.shop.web-0"),
        (
            "explain pods/shop/web-0 --flows",
            "--namespace netloom-pods explain networkattachment/pod.shop.web-0 --flows",
        ),
        ("-n a trace pod/x po/b/y --tcp 80", "--namespace netloom-pods trace pod.a.x pod.b.y --tcp 80"),
        ("--namespace=a describe pod/x", "--namespace netloom-pods describe networkattachment/pod.a.x"),
        ("trace pod/a/x 10.0.0.9", "--namespace netloom-pods trace pod.a.x 10.0.0.9"),
    ],
)
def test_a_pod_becomes_its_attachment_and_all_else_stays(words: str, wanted: str) -> None:
    assert " ".join(translated(words.split())) == wanted.strip()


def test_the_namespace_of_a_pod_is_that_of_the_context(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(KUBECONFIG)
    made = translated(["explain", "pod/web-0", "--kubeconfig", str(file)])
    assert "networkattachment/pod.shop.web-0" in made
    assert made[-2:] == ["--kubeconfig", str(file)]


@pytest.mark.kube
def test_kubectl_runs_the_plugin_that_is_installed(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("kubectl-netloom")
    env = {"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    argv = [str(kube_program("kubectl")), "netloom", "explain", "--help"]
    shown = subprocess.run(argv, capture_output=True, text=True, env=env, check=True).stdout
    assert shown.startswith("Usage: netloom explain")
