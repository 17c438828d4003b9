"""A node with a real OVS, OVN and `netloom agent`, and a real `netloom serve`, all in one namespace.

with site(folder, "nlt-ag-x") as here:
    here.start_agent()
    here.apply(network(), subnet("v4", "10.10.0.0/24"), attachment("a"))
    here.wait_ready("a")
"""

import contextlib
import http.client
import json
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netloom.drivers.link.kernel import entered
from netloom.lab.daemons.programs import GRANTS
from netloom.model.registry import KINDS
from netloom.store.kube import kubeconfig as kubeconfigs
from tests.run.serving import NETLOOM, environment
from tests.support.ovn import Central, OvnNode, ovn_central, ovn_node, own, run, within
from tests.support.process import Program, free_port, wait_until

DEFAULT = "default"
NODE = "n1"
Json = dict[str, Any]


@dataclass
class Site:
    """One node and the control plane beside it."""

    folder: Path
    central: Central
    node: OvnNode
    port: int
    serve: Program | None = None
    agent: Program | None = None
    spaces: list[str] = field(default_factory=list)
    _connection: http.client.HTTPSConnection | None = None

    @property
    def admin(self) -> Path:
        return self.folder / "data" / "admin.kubeconfig"

    @property
    def credential(self) -> Path:
        return self.folder / f"{self.node.name}.kubeconfig"

    def start_serve(self, *args: str) -> None:
        argv: list[str | Path] = [
            *NETLOOM, "serve", "--data", self.folder / "data", "--listen", f"127.0.0.1:{self.port}", *args,
        ]  # fmt: skip
        self.serve = Program(within(self.node.netns, *argv), log=self.folder / "serve.log", env=environment())
        self.serve.wait_ready(lambda: self.admin.exists() and self._answers())
        if not self.credential.exists():
            made = run(
                *NETLOOM, "credential", "--name", self.node.name, "--role", f"node:{self.node.name}",
                "--data", self.folder / "data",
            )  # fmt: skip
            self.credential.write_text(made)

    def start_agent(self, *args: str, wait: bool = True) -> Program:
        argv: list[str | Path] = [
            *NETLOOM, "agent", "--kubeconfig", self.credential, "--node", self.node.name,
            "--ovs", self.node.database.remote, "--underlay-ip", self.node.underlay, "--log-format", "text",
            "--log-level", "debug", "--health-listen", f"127.0.0.1:{self.port + 1}", *GRANTS, *args,
        ]  # fmt: skip
        log = self.folder / "agent.log"
        before = len(log.read_text()) if log.exists() else 0
        program = Program(within(self.node.netns, *argv), log=log, env=environment())
        if wait:
            self.agent = program
            program.wait_ready(lambda: " ready" in log.read_text()[before:])
        return program

    def metrics(self) -> dict[str, float]:
        """Return the agent's own numbers."""

        def read() -> bytes:
            with entered(f"/run/netns/{self.node.netns}"):
                connection = http.client.HTTPConnection("127.0.0.1", self.port + 1, timeout=120)
                connection.connect()
            with contextlib.closing(connection):
                connection.request("GET", "/metrics")
                return connection.getresponse().read()

        lines = [line.split() for line in in_thread(read).decode().splitlines() if line.startswith("netloom_agent_")]
        return {name.removeprefix("netloom_agent_").removesuffix("_total"): float(value) for name, value in lines}

    # The API.

    def request(self, method: str, path: str, body: object = None) -> tuple[int, Json]:
        """Send one request as the administrator."""
        cluster = kubeconfigs.load(str(self.admin))
        if self._connection is None:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=120, context=cluster.tls())

            def connect() -> None:
                with entered(f"/run/netns/{self.node.netns}"):
                    connection.connect()

            in_thread(connect)
            self._connection = connection
        headers = {**cluster.headers(), "Content-Type": "application/json"}
        try:
            self._connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = self._connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def apply(self, *documents: Json) -> None:
        """Create the objects, or replace their spec."""
        for document in documents:
            status, answer = self.request("POST", path(document["kind"]), document)
            if status == 409:
                name = document["metadata"]["name"]
                there = self.get(document["kind"], name)
                there["spec"] = document["spec"]
                status, answer = self.request("PUT", path(document["kind"], name), there)
            assert status in (200, 201), answer

    def delete(self, kind: str, *names: str) -> None:
        for name in names:
            status, answer = self.request("DELETE", path(kind, name))
            assert status == 200, answer

    def get(self, kind: str, name: str) -> Json:
        status, answer = self.request("GET", path(kind, name))
        assert status == 200, answer
        return answer

    def status(self, name: str) -> Json:
        found: Json = self.get("NetworkAttachment", name).get("status", {})
        return found

    def condition(self, name: str, kind: str = "Ready", of: str = "NetworkAttachment") -> Json:
        conditions = self.get(of, name).get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == kind), {"status": "", "reason": ""})

    def wait_condition(
        self, name: str, status: str, reason: str = "", *, kind: str = "Plugged", of: str = "NetworkAttachment"
    ) -> Json:
        def holds() -> Json | None:
            found = self.condition(name, kind, of)
            return found if found["status"] == status and reason in ("", found["reason"]) else None

        try:
            return wait_until(holds, what=f"{kind} of {name} to be {status} {reason}", interval=0.05)
        except AssertionError as error:
            log = self.agent.tail(30) if self.agent else ""
            raise AssertionError(f"{error}\n{self.get(of, name).get('status')}\n{log}") from None

    def wait_ready(self, *names: str) -> None:
        for name in names:
            self.wait_condition(name, "True", kind="Ready")

    def plug(self, *attachments: Json, network: str = "blue") -> None:
        """Apply attachments, have their logical ports, and wait until they are Ready."""
        self.apply(*attachments)
        names = [one["metadata"]["name"] for one in attachments]
        for name in names:
            self.logical_port(name, network)
        self.wait_ready(*names)

    def logical_port(self, name: str, network: str = "blue") -> None:
        """Have the logical port of an attachment, as the controller would, once it has its addresses."""
        self.wait_condition(name, "True", kind="Addressed")
        status = self.status(name)
        ips = [ip.partition("/")[0] for ip in status["ips"]]
        port = f"{DEFAULT}/{name}"
        self.central.nbctl(
            "--may-exist", "ls-add", f"{DEFAULT}/{network}", "--", "--may-exist", "lsp-add",
            f"{DEFAULT}/{network}", port, "--", "lsp-set-addresses", port, " ".join([status["mac"], *ips]),
        )  # fmt: skip

    # Workloads.

    def new_namespace(self, name: str) -> str:
        """Make a namespace for a workload, removed at the end."""
        full = f"{self.node.netns}-{name}"
        if full not in self.spaces:
            self.spaces.append(full)
        run("ip", "netns", "add", full)
        return f"/run/netns/{full}"

    def inside(self, netns: str, *argv: str, check: bool = True) -> str:
        """Run a program in a workload's namespace."""
        return run(*within(netns.removeprefix("/run/netns/"), *argv), check=check)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException, ssl.SSLError):
            return self.request("GET", "/apis/netloom.dev/v1alpha1/nodes")[0] == 200
        return False


def in_thread(work: Any) -> Any:
    """Run something that changes its thread's namespace."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def path(kind: str, name: str = "") -> str:
    """Return where objects of a kind are."""
    known = next(one for one in KINDS if one.name == kind)
    where = f"/namespaces/{DEFAULT}" if known.namespaced else ""
    return f"/apis/{known.api_version}{where}/{known.plural}" + (f"/{name}" if name else "")


@contextlib.contextmanager
def site(folder: Path, netns: str, *, prepared: bool = True, controlled: bool = False) -> Iterator[Site]:
    """Give a node with its control plane; the agent is for the test to start.

    `controlled`: the control plane writes the northbound itself; otherwise the test does (`plug`).
    """
    with (
        ovn_central(folder / "central") as central,
        ovn_node(folder / NODE, own(netns), NODE, central, prepared=prepared) as node,
    ):
        here = Site(folder, central, node, free_port())
        try:
            here.start_serve(*(("--ovn-nb", central.northbound.remote) if controlled else ()))
            yield here
        finally:
            here.close()
            for program in (here.agent, here.serve):
                if program is not None:
                    program.stop()
            for name in here.spaces:
                subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def network(name: str = "blue", **spec: Any) -> Json:
    return _document("Network", name, spec)


def subnet(name: str, cidr: str, of: str = "blue", **spec: Any) -> Json:
    return _document("Subnet", name, {"network": of, "cidr": cidr, **spec})


def attachment(name: str, of: str = "blue", **spec: Any) -> Json:
    return _document("NetworkAttachment", name, {"node": NODE, "network": of, **spec})


def veth(name: str, netns: str, device: str = "eth0", **spec: Any) -> Json:
    return attachment(name, port={"type": "veth", "netns": netns, "name": device}, **spec)


def mirror(name: str, source: str, destination: str, direction: str = "both") -> Json:
    ends = {"source": {"attachment": source}, "destination": {"attachment": destination}}
    return _document("Mirror", name, {**ends, "direction": direction})


def _document(kind: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, "namespace": DEFAULT}
    return {"apiVersion": "netloom.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
