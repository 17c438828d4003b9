"""The RPC server of `netloom vtep`, on a real RabbitMQ, asked by oslo.messaging's client."""

import contextlib
import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.run.serving import Serving, netloom, serving
from tests.run.vtep import Vtep, vtep
from tests.support.process import free_port
from tests.support.rabbit import PASSWORD, Broker, rabbit

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("serve")) as running:
        yield running


@pytest.fixture(params=[False, True], ids=["plain", "TLS"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with rabbit(tls=request.param) as running:
        yield running


@contextlib.contextmanager
def serving_rpc(folder: Path, server: Serving, broker: Broker, namespace: str) -> Iterator[Vtep]:
    secret = folder / "password"
    secret.write_text(f"{PASSWORD}\n")
    args = ["--rabbit", broker.url, "--rabbit-password-file", str(secret), "--node", "gw", "--namespace", namespace]
    if broker.ca is not None:
        args += ["--rabbit-ca", str(broker.ca)]
    with vtep(folder, server, *args, "--log-level", "debug") as running:
        running.program.wait_ready(lambda: "serving RPC" in running.program.output(), timeout=120)
        yield running


class Client:
    """An RPC client of the old system."""

    def __init__(self, broker: Broker) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tests.run.rpc_client", broker.url, PASSWORD, str(broker.ca or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def send(self, method: str, arg: Any, *, topic: str) -> Any:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(json.dumps([topic, method, arg]) + "\n")
        self.child.stdin.flush()
        return json.loads(self.child.stdout.readline())

    def call(self, method: str, *, topic: str = "bgpagent_bus", **arg: Any) -> Any:
        """Call a method and return its answer."""
        answer = self.send(method, arg, topic=topic)
        assert "answer" in answer, answer
        return answer["answer"]

    def fail(self, method: str, **arg: Any) -> str:
        """Call a method that must raise, and return the error."""
        error: str = self.send(method, arg, topic="bgpagent_bus")["error"]
        return error


@contextlib.contextmanager
def client(broker: Broker) -> Iterator[Client]:
    made = Client(broker)
    with made.child:
        try:
            yield made
        finally:
            made.child.kill()


def test_the_old_operations_work_over_rabbitmq(tmp_path: Path, server: Serving, broker: Broker) -> None:
    namespace = f"rpc-{'tls' if broker.ca else 'plain'}"
    with serving_rpc(tmp_path, server, broker, namespace) as running, client(broker) as rpc:
        assert rpc.call("get_speaker") == {"BGPSpeakerNotFound": {"address": ""}}
        speaker = rpc.call("add_speaker", as_number=65000, router_id="192.168.10.20")
        assert speaker == {
            "192.168.10.20": {"EvpnSpeaker": {"as_number": 65000, "neighbors": {}, "router_id": "192.168.10.20"}}
        }
        rpc.call("add_neighbor", address="192.168.10.10", remote_as=65000)
        assert rpc.call("get_neighbors")["192.168.10.10"]["EvpnNeighbor"]["state"] == "down"
        network = rpc.call("add_network", vni=10, logical_switch="ls1")
        assert network["10"]["EvpnNetwork"]["logical_switch"] == "ls1"
        rpc.call("add_client", vni="10", port="vm1", mac="02:ac:10:ff:00:12", ip="192.168.222.12")
        assert list(rpc.call("get_networks", vni="10")["10"]["EvpnNetwork"]["clients"]) == ["02:ac:10:ff:00:12"]
        # The same objects as by REST.
        assert running.request("GET", "/vtep/networks") == (200, rpc.call("get_networks"))

        assert rpc.call("get_neighbors", address="10.0.0.1") == {"NeighborNotFound": {"address": "10.0.0.1"}}
        assert rpc.call("del_network", vni=11) == {"VniNotFound": {"vni": 11}}
        assert rpc.call("del_client", vni=10, mac="x") == {"ClientNotFound": {"mac": "x"}}
        assert rpc.fail("add_network", vni=0) == "BadRequest: vni must be from 1 to 16777215"
        assert rpc.fail("add_speaker", router_id="192.168.10.20") == "BadRequest: as_number not specified"
        assert rpc.send("add_network", 5, topic="ovn_bus") == {"error": "BadRequest: the body must be a JSON object"}
        assert rpc.fail("_method", operation="x").startswith("NoSuchMethod")

        first = functools.partial(rpc.call, topic="ovn_bus")  # The topic of the first version.
        assert first("del_client", vni=10, mac="02:ac:10:ff:00:12")["10"]["EvpnClient"]["port"] == "vm1"
        first("del_network", vni=10)
        first("del_neighbor", address="192.168.10.10")
        assert first("del_speaker") == speaker
        shown = server.cli("get", "networks,evpnnetworks,bgppeers,bgpspeakers", "-n", namespace, "-o", "json")
        assert json.loads(shown.out)["items"] == []
        assert running.program.stop() == 0
        assert PASSWORD not in running.log.read_text()


def test_without_a_broker_the_rest_api_is_served_and_the_process_stops(tmp_path: Path, server: Serving) -> None:
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    url = f"rabbit://netloom@127.0.0.1:{free_port()}/"
    with vtep(tmp_path, server, "--rabbit", url, "--rabbit-password-file", str(secret)) as running:
        assert running.request("GET", "/vtep/speakers")[0] == 404
        assert running.program.stop(grace=60) == 0
        assert PASSWORD not in running.log.read_text()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--rabbit", "rabbit://netloom:secret@127.0.0.1/"], "must not contain the password"),
        (["--rabbit", "rabbit://127.0.0.1/"], "must be rabbit://USER@HOST:PORT/VHOST"),
        (["--rabbit", "amqp://netloom@127.0.0.1/"], "must be rabbit://USER@HOST:PORT/VHOST"),
        (["--rabbit", "rabbit://netloom@127.0.0.1/"], "rabbitPasswordFile: required"),
        (["--rabbit", "rabbit://netloom@192.0.2.1:5672/", "--rabbit-password-file", "p"], "rabbitCa: required"),
        (["--rabbit", "rabbit://a@127.0.0.1,b@192.0.2.1/", "--rabbit-password-file", "p"], "rabbitCa: required"),
    ],
)
def test_unsafe_settings_are_refused(args: list[str], text: str) -> None:
    answer = netloom("vtep", "--insecure", *args, check=False)
    assert answer.rc == 1
    assert text in answer.err
    assert "secret" not in answer.err


@pytest.mark.parametrize("password", ["secret/of/rabbit", "", None])
def test_a_password_that_cannot_be_used_is_refused(tmp_path: Path, server: Serving, password: str | None) -> None:
    secret = tmp_path / "password"
    if password is not None:
        secret.write_text(password)
    args = ["--rabbit", "rabbit://netloom@127.0.0.1/", "--rabbit-password-file", str(secret)]
    answer = netloom("vtep", "--insecure", *args, kubeconfig=server.kubeconfig, check=False)
    assert answer.rc == 1
    assert (f"cannot read {secret}" if password is None else "must not be empty or contain /") in answer.err
    assert "secret/of" not in answer.err


def test_without_the_extra_the_error_names_it(tmp_path: Path, server: Serving) -> None:
    (tmp_path / "password").write_text("x")
    args = ["vtep", "--insecure", "--rabbit", "rabbit://netloom@127.0.0.1/"]
    args += ["--rabbit-password-file", str(tmp_path / "password"), "--kubeconfig", str(server.kubeconfig)]
    program = f"import sys; sys.modules['oslo_messaging'] = None; from netloom.cli.main import run; run({args!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert "install netloom[openstack]" in done.stderr
