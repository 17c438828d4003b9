"""`netloom serve` as a process: first start, signals, who else may be there."""

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.run.serving import NETLOOM, Serving, environment, netloom, serving
from tests.support.process import Program, free_port, wait_until

pytestmark = pytest.mark.slow

NETWORK = "apiVersion: netloom.dev/v1alpha1\nkind: Network\nmetadata: {name: blue}\nspec: {vni: 10}\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("serve")) as running:
        yield running


def test_the_first_start_makes_a_private_directory(server: Serving) -> None:
    assert stat.S_IMODE(server.data.stat().st_mode) == 0o700
    assert stat.S_IMODE(server.kubeconfig.stat().st_mode) == 0o600
    for path in server.data.iterdir():
        assert not path.stat().st_mode & 0o077, path


def test_health_needs_no_credentials_and_everything_else_does(server: Serving) -> None:
    connection, _ = server.connect()
    for path, status in (("/healthz", 200), ("/livez", 200), ("/readyz", 200), ("/version", 401), ("/metrics", 401)):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert (path, answer.status) == (path, status)
    connection.close()


def test_metrics_tell_of_requests_store_and_controllers(server: Serving) -> None:
    server.cli("apply", "-f", "-", stdin=NETWORK)
    status, text = server.request("GET", "/metrics")
    assert status == 200
    for name in (
        "netloom_api_request_duration_seconds_count",
        'netloom_store_operations_total{operation="create",outcome="ok"}',
        'netloom_reconciles_total{controller="subnets",outcome="ok"}',
        'netloom_queue_keys{controller="garbage",state="ready"}',
        "netloom_store_watches",
        "netloom_api_connections",
        "process_resident_memory_bytes",
        "netloom_build_info",
    ):
        assert name in text.decode(), name


def test_every_line_of_the_log_is_json_and_none_holds_the_token(server: Serving) -> None:
    token = (server.data / "admin.token").read_text().strip()
    lines = server.log.read_text().splitlines()
    assert any(json.loads(line)["message"] == "ready" for line in lines)
    assert token not in server.log.read_text()


def test_a_second_process_on_the_same_directory_is_refused(server: Serving) -> None:
    second = netloom("serve", "--data", server.data, "--listen", f"127.0.0.1:{free_port()}", check=False)
    assert second.rc == 1
    assert second.err.splitlines()[-1].startswith(f"Error: another netloom serve uses {server.data} (process ")
    assert server.ready()


def test_a_port_in_use_is_named(server: Serving, tmp_path: Path) -> None:
    second = netloom("serve", "--data", tmp_path / "d", "--listen", f"127.0.0.1:{server.port}", check=False)
    assert second.rc == 1
    assert f"Error: port {server.port} is in use" in second.err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "data: required: use --data, NETLOOM_DATA or data: in the file"),
        (["--data", "D", "--listen", "nowhere"], "listen: 'nowhere' is not ADDRESS:PORT"),
        (["--data", "D", "--log-level", "loud"], "logLevel: Invalid enum value 'loud' (from --log-level)"),
    ],
)
def test_wrong_settings_are_refused_by_key(args: list[str], says: str) -> None:
    answer = netloom("serve", *args, check=False)
    assert answer.rc == 1
    assert says in answer.err


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    before = tmp_path.stat().st_mode
    answer = netloom("serve", "--data", tmp_path, "--listen", "127.0.0.1:0", check=False)
    assert (answer.rc, "is not empty and not a data directory" in answer.err) == (1, True)
    assert os.listdir(tmp_path) == ["thesis.txt"]
    assert tmp_path.stat().st_mode == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_gracefully(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path) as server:
        assert server.program is not None
        os.kill(server.program.pid, number)
        assert server.program.wait() == 0
        assert '"stopped"' in server.log.read_text()


def test_a_watch_does_not_keep_it_from_stopping(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        connection, headers = server.connect()
        with contextlib.closing(connection):
            connection.request("GET", "/apis/netloom.dev/v1alpha1/networks?watch=true", headers=headers)
            with connection.getresponse() as watch:
                assert watch.status == 200
                assert server.stop() == 0


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with serving(tmp_path) as server, contextlib.ExitStack() as held:
        # A request whose body never comes keeps the first, graceful stop waiting.
        connection, headers = server.connect()
        connection.putrequest("POST", "/apis/netloom.dev/v1alpha1/namespaces/default/networks")
        for name, value in {**headers, "Content-Type": "application/json", "Content-Length": "10"}.items():
            connection.putheader(name, value)
        connection.endheaders(b"{")
        held.callback(connection.close)
        wait_until(lambda: b"netloom_api_connections 2" in server.request("GET", "/metrics")[1], what="the connection")
        assert server.program is not None
        os.kill(server.program.pid, signal.SIGTERM)
        wait_until(
            lambda: "repeat the signal to stop at once" in server.log.read_text(), what="the first signal to be heard"
        )
        if server.program.returncode is None:
            os.kill(server.program.pid, signal.SIGTERM)
        assert server.program.wait() in (128 + signal.SIGTERM, 0)


def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.cli("apply", "-f", "-", stdin=NETWORK)
        kubeconfig = server.kubeconfig.read_bytes()
        assert server.stop() == 0
        server.start()
        assert server.cli("get", "networks", "-o", "name").out == "network.netloom.dev/blue\n"
        assert server.kubeconfig.read_bytes() == kubeconfig


def test_the_kubeconfig_follows_the_port(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert server.stop() == 0
        server.port = free_port()
        server.start()
        assert f"https://127.0.0.1:{server.port}" in server.kubeconfig.read_text()


def test_systemd_is_told_when_it_is_ready_and_when_it_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(120)
        argv = [*NETLOOM, "serve", "--data", str(tmp_path / "d"), "--listen", "127.0.0.1:0"]
        with Program(argv, log=tmp_path / "log", env=environment(NOTIFY_SOCKET=str(tmp_path / "notify"))) as program:
            assert notified.recv(100) == b"READY=1"
            os.kill(program.pid, signal.SIGTERM)
            assert notified.recv(100) == b"STOPPING=1"
            assert program.wait() == 0


def test_a_terminal_is_told_what_to_do_next(tmp_path: Path) -> None:
    leader, follower = os.openpty()
    argv = [*NETLOOM, "serve", "--data", str(tmp_path / "d"), "--listen", "127.0.0.1:0"]
    child = subprocess.Popen(argv, stdout=follower, stderr=subprocess.DEVNULL, env=environment())
    try:
        os.close(follower)
        shown = ""
        while "kubectl" not in shown:
            shown += os.read(leader, 4096).decode()
    finally:
        child.kill()
        child.wait()
        os.close(leader)
    assert "serves https://127.0.0.1:" in shown
    assert f"export KUBECONFIG={tmp_path / 'd' / 'admin.kubeconfig'}" in shown


@pytest.mark.slow
def test_a_first_start_killed_at_any_instant_is_completed_by_the_next(tmp_path: Path) -> None:
    random = Random(7)
    server = Serving(tmp_path)
    began = time.monotonic()
    server.start()
    whole = time.monotonic() - began
    server.kill()
    for attempt in range(12):
        server = Serving(tmp_path / str(attempt))
        server.log.parent.mkdir()
        for _ in range(2):
            program = server.spawn()
            # The instant is what the test chooses at random; nothing is waited for.
            time.sleep(random.uniform(0, whole))
            program.kill()
        server.start()
        server.cli("apply", "-f", "-", stdin=NETWORK)
        assert not list(server.data.glob(".*.tmp"))
        server.kill()


def test_speakers_run_inside_serve(tmp_path: Path) -> None:
    own = os.getpid() % 62_500  # Other processes test beside this one.
    addresses = [f"127.{own // 250 + 1}.{own % 250}.{number}" for number in (101, 102)]
    port = free_port()

    def objects(number: int) -> str:
        mine, other, vtep = addresses[number], addresses[1 - number], f"192.0.2.{number + 1}"
        items = [
            ("Node", "gw", {"underlayIP": vtep}),
            ("Network", "blue", {"vni": 10}),
            (
                "BGPSpeaker",
                "main",
                {"asn": 65000, "routerID": vtep, "node": "gw", "listen": {"address": mine, "port": port}},
            ),
            ("BGPPeer", "other", {"speaker": "main", "address": other, "port": port, "remoteASN": 65000}),
            (
                "EVPNNetwork",
                "blue",
                {"network": "blue", "speaker": "main", "clients": [{"mac": f"02:00:00:00:00:0{number}"}]},
            ),
        ]
        made = [
            {"apiVersion": "netloom.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
            for kind, name, spec in items
        ]
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": made})

    folders = [tmp_path / str(number) for number in range(2)]
    with contextlib.ExitStack() as stack:
        for number, folder in enumerate(folders):
            folder.mkdir()
            server = stack.enter_context(serving(folder, "--speaker-node", "gw"))
            server.cli("apply", "-f", "-", stdin=objects(number))
        server.cli("wait", "bgppeers,evpnnetworks", "--all")
        socket_path = folders[1] / "data" / "speaker.sock"

        def remote() -> list[str]:
            found = json.loads(netloom("evpn", "macs", "--socket", socket_path, "-o", "json").out)
            return [one["mac"] for one in found if one["vtep"] == "192.0.2.1"]

        wait_until(lambda: remote() == ["02:00:00:00:00:00"], what="the machine of the other site")
        assert stat.S_IMODE(socket_path.stat().st_mode) == 0o600
        assert b"netloom_bgp_routes " in server.request("GET", "/metrics")[1]
