"""The API compared with the real kube-apiserver: creates, a list, 500 watchers, memory.

Both servers have the same kinds, and the same client program (bench/client, with Go's own HTTP and TLS) sends the
requests, on this machine, alternately, so that other load affects both. The ratio counts.

    kube-apiserver   with etcd, as `make kube` builds it
    netloom          `netloom apiserver` on sqlite, every write durable when it is answered
"""

import contextlib
import json
import os
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.table import Row
from netloom.model.codec import documents
from netloom.model.schemas.crds import crds
from tests.support.kube import CURRENT, kube
from tests.support.process import Program, free_port, scratch, wait_until

CREATED = 8_000
HELD = 10_000
CLIENTS = 32
WATCHERS = 500
EVENTS = 60


class Target(NamedTuple):
    """A server to measure."""

    name: str
    url: str
    ca: Path
    token: str
    pid: int


class Client:
    """The measuring program."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "client"
        go = os.environ.get("NETLOOM_GO", "go")
        source = Path(__file__).parent / "client"
        subprocess.run([go, "build", "-o", str(self._program), "."], cwd=source, check=True)

    def run(self, target: Target, *words: str | float | Path) -> dict[str, float]:
        """Take one measurement."""
        process = self.begin(target, *words)
        answer, error = process.communicate()
        if process.returncode:
            raise SystemExit(f"bench: {target.name}: {words[0]}: {error.strip()}")
        figures: dict[str, float] = json.loads(answer)
        return figures

    def begin(self, target: Target, *words: str | float | Path) -> subprocess.Popen[str]:
        """Start the program."""
        command = [self._program, "-url", target.url, "-ca", target.ca, "-token", target.token, *words]
        return subprocess.Popen(
            [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )


@contextlib.contextmanager
def kube_apiserver() -> Iterator[Target]:
    """Yield a kube-apiserver with our CRDs."""
    with kube(CURRENT) as cluster:
        for crd in crds():
            status, answer = cluster.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
            assert status == 201, answer
        path = "/apis/netloom.dev/v1alpha1/networkattachments"
        wait_until(lambda: cluster.request("GET", path)[0] == 200, what="the CRDs to be served")
        pid = cluster.pid
        yield Target("kube-apiserver", cluster.url, cluster.ca_file, cluster.token, pid)


@contextlib.contextmanager
def netloom_server() -> Iterator[Target]:
    """Yield a `netloom apiserver` on sqlite: the API alone, like kube-apiserver."""
    with (
        scratch("bench") as folder,
        api_process(folder, "apiserver", "--store", f"sqlite:{folder / 'bench.db'}") as target,
    ):
        yield target


@contextlib.contextmanager
def api_process(folder: Path, command: str, *words: str) -> Iterator[Target]:
    """Yield `netloom COMMAND` with its data in a folder."""
    data = folder / "data"
    listen = f"127.0.0.1:{free_port()}"
    netloom = Path(os.environ.get("NETLOOM", ".venv/bin/netloom"))
    with Program([netloom, command, "--data", data, "--listen", listen, *words], log=folder / "log") as program:
        kubeconfig = data / "admin.kubeconfig"
        program.wait_ready(lambda: kubeconfig.exists() and _answers(listen))
        [config] = documents(kubeconfig.read_bytes())
        ca = folder / "ca.pem"
        ca.write_bytes(_pem(config["clusters"][0]["cluster"]))
        token = config["users"][0]["user"]["token"]
        yield Target(f"netloom {command}", f"https://{listen}", ca, token, program.pid)


def _pem(cluster: dict[str, str]) -> bytes:
    import base64

    if "certificate-authority-data" in cluster:
        return base64.b64decode(cluster["certificate-authority-data"])
    return Path(cluster["certificate-authority"]).read_bytes()


def _answers(listen: str) -> bool:
    import http.client
    import ssl

    host, port = listen.split(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(host, int(port), timeout=2, context=context)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def resident_mb(pid: int) -> float:
    """Return a process's resident memory in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024 / 1e6


def measure(client: Client, targets: list[Target]) -> dict[str, dict[str, float]]:
    """Return every figure for every target, measured alternately."""
    rates: dict[str, list[float]] = {t.name: [] for t in targets}
    for target in targets:
        client.run(target, "create", "-n", 200, "-clients", CLIENTS, "-prefix", "warm")
    parts = 4
    for part in range(parts):
        for target in targets:
            count = (CREATED - 200 * (part == 0)) // parts if part else CREATED // parts - 200
            figures = client.run(target, "create", "-n", count, "-clients", CLIENTS, "-prefix", f"c{part}")
            rates[target.name].append(figures["per_second"])
    found: dict[str, dict[str, float]] = {t.name: {"creates": statistics.median(rates[t.name])} for t in targets}
    lists: dict[str, list[float]] = {t.name: [] for t in targets}
    for _ in range(3):
        for target in targets:
            lists[target.name].append(client.run(target, "list", "-rounds", 5, "-want", CREATED)["p50_ms"])
    for target in targets:
        found[target.name]["list"] = statistics.median(lists[target.name])
        client.run(target, "create", "-n", HELD - CREATED, "-clients", CLIENTS, "-prefix", "more")
        found[target.name]["memory"] = resident_mb(target.pid)
    latencies: dict[str, list[float]] = {t.name: [] for t in targets}
    for turn in range(3):
        for target in targets:
            words = ("watch", "-watchers", WATCHERS, "-events", EVENTS // 3, "-prefix", f"w{turn}")
            latencies[target.name].append(client.run(target, *words)["p50_ms"])
    for target in targets:
        found[target.name]["watch"] = statistics.median(latencies[target.name])
        found[target.name]["memory with watchers' traces"] = resident_mb(target.pid)
    return found


def rows() -> list[Row]:
    """Measure and return the table."""
    with scratch("bench-client") as folder, kube_apiserver() as other, netloom_server() as ours:
        found = measure(Client(folder), [ours, other])
    a, b = found[ours.name], found[other.name]
    return [
        Row(f"creates, {CLIENTS} clients over TLS", a["creates"], "/s", b["creates"], 1.0),
        Row(f"event at the last of {WATCHERS} watchers", a["watch"], "ms", b["watch"], 1.0, more_is_better=False),
        Row(f"list of {CREATED:,} objects", a["list"], "ms", b["list"], 1.0, more_is_better=False),
        Row(f"resident with {HELD:,} objects", a["memory"], "MB", b["memory"], 0.5, more_is_better=False),
    ]
