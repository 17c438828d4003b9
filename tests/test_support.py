"""The helpers themselves: programs start, answer, and are gone afterwards."""

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.etcd import Etcd
from tests.support.etcd import etcd as start_etcd
from tests.support.kube import Kube
from tests.support.kubectl import Kubectl
from tests.support.ovn import namespace, own
from tests.support.process import Program, find_program, wait_until


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_program_is_stopped_when_its_block_ends(tmp_path: Path) -> None:
    with Program(["sleep", "600"], log=tmp_path / "log") as program:
        assert program.returncode is None
    assert program.returncode == -signal.SIGTERM


def test_a_program_dies_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time\n"
        "from tests.support.process import Program\n"
        f"program = Program(['sleep', '600'], log=pathlib.Path({str(tmp_path / 'log')!r}))\n"
        "print(program.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    root = Path(__file__).parent.parent
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert not _gone(pid)
        starter.kill()
    wait_until(lambda: _gone(pid), what=f"process {pid} to be gone")


def test_a_program_hears_ctrl_c_even_when_the_tests_themselves_do_not(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        program = Program(["sleep", "600"], log=tmp_path / "log")
    finally:
        signal.signal(signal.SIGINT, before)
    with program:
        os.kill(program.pid, signal.SIGINT)
        assert program.wait() == -signal.SIGINT


def test_a_missing_program_fails_the_test_and_names_what_installs_it() -> None:
    with pytest.raises(pytest.fail.Exception, match="no-such-program is not installed: make it"):
        find_program("no-such-program", install="make it")


@pytest.mark.etcd
def test_etcd_that_was_killed_comes_back_at_the_same_address() -> None:
    with start_etcd() as running:
        first = running.pid
        running.kill()
        running.start()
        assert running.pid != first


@pytest.mark.etcd
def test_the_shared_etcd_answers(etcd: Etcd) -> None:
    assert etcd.url.startswith("http://127.0.0.1:")


@pytest.mark.kube
def test_both_kubectls_speak_to_the_real_apiserver(kube: Kube, kubectl: Kubectl, kubectl_old: Kubectl) -> None:
    assert "v1.36.3" in kubectl.run("version", kubeconfig=kube.kubeconfig).out
    assert "default" in kubectl_old.run("get", "namespaces", kubeconfig=kube.kubeconfig).out
    assert kubectl.run("get", "nosuchthing", kubeconfig=kube.kubeconfig, check=False).rc == 1
    assert kube.request("GET", "/version")[0] == 200


@pytest.mark.kube
def test_kubernetes_collects_the_garbage_of_a_deleted_owner(kube: Kube, kubectl: Kubectl) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    _, owner = kube.request("POST", maps, {"metadata": {"name": "owner"}})
    assert isinstance(owner, dict)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    kube.request("POST", maps, {"metadata": {"name": "owned", "ownerReferences": [reference]}})
    kubectl.run("delete", "configmap", "owner", kubeconfig=kube.kubeconfig)
    wait_until(lambda: kube.request("GET", f"{maps}/owned")[0] == 404, what="the owned object to be collected")


@pytest.mark.versions
def test_the_older_apiserver_starts_too(kube_old: Kube, kubectl: Kubectl) -> None:
    assert "v1.32.2" in kubectl.run("version", kubeconfig=kube_old.kubeconfig).out


@pytest.mark.root
def test_a_namespace_is_its_owners_alone_and_left_behind_only_by_the_dead() -> None:
    prefix = f"nlt-support-{secrets.token_hex(3)}"
    name, other = own(prefix), own(prefix)
    assert name != other
    with namespace(name) as path:
        with namespace(other), pytest.raises(AssertionError, match="File exists"), namespace(name):
            raise RuntimeError("a second namespace of one name")
        assert path.exists()
    with subprocess.Popen(["true"]) as dead:
        pass
    subprocess.run(["ip", "netns", "add", f"{prefix}.{dead.pid}-1"], check=True)
    own(prefix)
    assert not list(Path("/run/netns").glob(f"{prefix}*"))
