"""`netloom apiserver` and `netloom controller`, apart from each other, as on control nodes."""

import http.client
import json
import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.run.serving import NETLOOM, environment, netloom
from tests.support.etcd import Etcd
from tests.support.process import Program, free_port, wait_until

pytestmark = pytest.mark.slow

OBJECTS = """
apiVersion: netloom.dev/v1alpha1
kind: Network
metadata: {name: NAME}
spec: {}
---
apiVersion: netloom.dev/v1alpha1
kind: Subnet
metadata: {name: NAME}
spec: {network: NAME, cidr: 10.7.0.0/24}
"""


@contextmanager
def apiserver(folder: Path, *args: str) -> Iterator[Path]:
    """Give the kubeconfig of a running `netloom apiserver` with its own data directory."""
    argv = [*NETLOOM, "apiserver", "--data", str(folder / "d"), "--listen", f"127.0.0.1:{free_port()}", *args]
    kubeconfig = folder / "d" / "admin.kubeconfig"
    with Program(argv, log=folder / "apiserver.log", env=environment()) as program:
        program.wait_ready(
            lambda: netloom("wait", "server", "--timeout=0s", kubeconfig=kubeconfig, check=False).rc == 0, timeout=120
        )
        yield kubeconfig
        assert program.stop() == 0, program.output()


def controller(folder: Path, kubeconfig: Path, name: str, *args: str) -> Program:
    argv = [*NETLOOM, "controller", "--kubeconfig", str(kubeconfig), "--identity", name, *args]
    return Program(argv, log=folder / f"{name}.log", env=environment())


def leader(kubeconfig: Path, namespace: str = "netloom-system") -> str:
    """Return who leads, without what makes an identity unique."""
    shown = netloom(
        "get",
        "lease",
        "netloom-controller",
        "-n",
        namespace,
        "-o",
        "jsonpath={.spec.holderIdentity}",
        kubeconfig=kubeconfig,
        check=False,
    )
    return shown.out.partition("-")[0].strip()


def test_the_api_alone_stores_and_does_not_act(tmp_path: Path) -> None:
    with apiserver(tmp_path, "--store", f"sqlite:{tmp_path / 'db'}") as kubeconfig:
        netloom("apply", "-f", "-", kubeconfig=kubeconfig, stdin=OBJECTS.replace("NAME", "blue"))
        found = json.loads(netloom("get", "subnet/blue", "-o", "json", kubeconfig=kubeconfig).out)
        assert not found.get("status")


def test_of_two_controllers_one_leads_and_the_other_takes_over_when_it_is_killed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        kubeconfig = stack.enter_context(apiserver(tmp_path, "--store", f"sqlite:{tmp_path / 'db'}"))
        programs = {name: stack.enter_context(controller(tmp_path, kubeconfig, name)) for name in ("one", "two")}
        first = wait_until(lambda: leader(kubeconfig), what="one to lead")
        _check_nobody_elses(kubeconfig, tmp_path)
        netloom("apply", "-f", "-", kubeconfig=kubeconfig, stdin=OBJECTS.replace("NAME", "blue"))
        netloom("wait", "--for=condition=Ready", "subnet/blue", "--timeout=120s", kubeconfig=kubeconfig)
        programs.pop(first).kill()
        (second,) = programs
        wait_until(lambda: leader(kubeconfig) == second, what="the other to lead")
        netloom("apply", "-f", "-", kubeconfig=kubeconfig, stdin=OBJECTS.replace("NAME", "red"))
        netloom("wait", "--for=condition=Ready", "subnet/red", "--timeout=120s", kubeconfig=kubeconfig)
        assert programs[second].stop() == 0
        assert leader(kubeconfig) == ""


def _check_nobody_elses(kubeconfig: Path, folder: Path) -> None:
    """An administrator of a namespace that people use has no say in who leads."""
    assert leader(kubeconfig, "default") == ""
    data, file = kubeconfig.parent, folder / "default-admin"
    netloom("credential", "--data", data, "--name", "d", "--role", "admin", "-n", "default", "--output", file)
    for verb in ("get", "delete"):
        tried = netloom(verb, "lease", "netloom-controller", "-n", "netloom-system", kubeconfig=file, check=False)
        assert (tried.rc, "forbidden" in tried.err) == (1, True), tried.err


def test_during_an_upgrade_a_controller_waits_for_the_lease_of_before_as_well(tmp_path: Path) -> None:
    with ExitStack() as stack:
        kubeconfig = stack.enter_context(apiserver(tmp_path, "--store", f"sqlite:{tmp_path / 'db'}"))
        old = stack.enter_context(controller(tmp_path, kubeconfig, "old", "--lease-namespace", "default"))
        wait_until(lambda: leader(kubeconfig, "default") == "old", what="the old one to lead")
        new = stack.enter_context(controller(tmp_path, kubeconfig, "new", "--previous-lease-namespace", "default"))
        wait_until(lambda: '"started"' in new.output() or "started" in new.output(), what="the new one to start")
        old.stop()
        wait_until(lambda: leader(kubeconfig) == "new", what="the new one to lead")
        assert leader(kubeconfig, "default") == "new"
        assert new.stop() == 0


def test_a_controller_collects_garbage_on_an_api_of_ours(tmp_path: Path) -> None:
    with apiserver(tmp_path, "--store", f"sqlite:{tmp_path / 'db'}") as kubeconfig:
        netloom("apply", "-f", "-", kubeconfig=kubeconfig, stdin=OBJECTS.replace("NAME", "blue"))
        uid = netloom("get", "network/blue", "-o", "jsonpath={.metadata.uid}", kubeconfig=kubeconfig).out.strip()
        owned = {
            "apiVersion": "netloom.dev/v1alpha1",
            "kind": "Network",
            "spec": {},
            "metadata": {
                "name": "owned",
                "ownerReferences": [
                    {"apiVersion": "netloom.dev/v1alpha1", "kind": "Network", "name": "blue", "uid": uid}
                ],
            },
        }
        netloom("apply", "-f", "-", kubeconfig=kubeconfig, stdin=json.dumps(owned))
        with controller(tmp_path, kubeconfig, "one"):
            netloom("delete", "subnet/blue", "network/blue", kubeconfig=kubeconfig)
            netloom("wait", "--for=delete", "network/owned", "--timeout=120s", kubeconfig=kubeconfig)


def test_a_controllers_health_and_metrics_are_on_loopback_only(tmp_path: Path) -> None:
    port = free_port()
    with apiserver(tmp_path, "--store", f"sqlite:{tmp_path / 'db'}") as kubeconfig:
        refused = netloom("controller", "--kubeconfig", kubeconfig, "--health-listen", f"0.0.0.0:{port}", check=False)
        assert refused.rc == 1
        assert "healthListen: 0.0.0.0:" in refused.err

        def get(path: str, method: str = "GET") -> tuple[int, bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            try:
                connection.request(method, path)
                answer = connection.getresponse()
                return answer.status, answer.read()
            except OSError:
                return 0, b""
            finally:
                connection.close()

        with controller(
            tmp_path, kubeconfig, "one", "--health-listen", f"127.0.0.1:{port}", "--no-leader-elect"
        ) as program:
            wait_until(lambda: get("/readyz") == (200, b"ok"), what="readiness")
            assert get("/healthz") == (200, b"ok")
            assert b"netloom_leader 1.0" in get("/metrics")[1]
            assert get("/nothing")[0] == 404
            assert get("/healthz", "POST")[0] == 405
            os.kill(program.pid, signal.SIGTERM)
            assert program.wait() == 0


@pytest.mark.etcd
def test_two_api_servers_on_one_etcd_show_the_same(etcd: Etcd, tmp_path: Path) -> None:
    name = f"n{uuid.uuid4().hex[:8]}"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    store = f"etcd:{etcd.url}"
    with apiserver(tmp_path / "a", "--store", store) as one, apiserver(tmp_path / "b", "--store", store) as other:
        netloom("apply", "-f", "-", kubeconfig=one, stdin=OBJECTS.replace("NAME", name))
        assert netloom("get", f"network/{name}", "-o", "name", kubeconfig=other).out == f"network.netloom.dev/{name}\n"
        netloom("delete", f"subnet/{name}", f"network/{name}", kubeconfig=other)
        assert netloom("get", f"network/{name}", kubeconfig=one, check=False).rc == 1


def test_certificates_and_tokens_of_somebody_else_are_used(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'db'}"
    with apiserver(tmp_path, "--store", store) as kubeconfig:
        pass
    data = kubeconfig.parent
    port = kubeconfig.read_text().partition("https://127.0.0.1:")[2].split()[0]
    flags = ["--tls-cert", data / "server.crt", "--tls-key", data / "server.key", "--tokens", data / "tokens"]
    argv = [*NETLOOM, "apiserver", "--store", store, "--listen", f"127.0.0.1:{port}", *map(str, flags)]
    with Program(argv, log=tmp_path / "log", env=environment()):
        netloom("wait", "server", kubeconfig=kubeconfig)
        assert netloom("get", "networks", kubeconfig=kubeconfig).rc == 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--listen", "127.0.0.1:1"], "store: required: use --store"),
        (["--store", "sqlite:x"], "tlsCert: required: use --tls-cert"),
        (["--store", "sqlite:x", "--tls-cert", "a", "--tls-key", "b"], "clientCa: use --client-ca, --tokens or both"),
        (["--store", "sqlite:x", "--data", "d", "--tokens", "t"], "data: use either --data or --tokens, not both"),
        (["--store", "tape:x", "--data", "D", "--listen", "127.0.0.1:0"], "'tape:x' is not a store"),
    ],
)
def test_wrong_settings_are_refused_by_key(args: list[str], says: str, tmp_path: Path) -> None:
    answer = netloom("apiserver", *(str(tmp_path) if arg == "D" else arg for arg in args), check=False)
    assert answer.rc == 1
    assert says in answer.err
