"""A node with a real OVS, OVN and `netloom agent`, and a real `netloom serve`, all in one namespace.

with site(folder, "nlt-ag-x") as here:
    here.apply(NETWORK, ...)
    here.agent.start()
    here.wait_ready("a")
"""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.run.serving import NETLOOM, environment
from tests.support.ovn import Central, OvnNode, namespace, ovn_central, ovn_node, within
from tests.support.process import Program, free_port, wait_until

DEFAULT = "default"


@dataclass
class Site:
    """One node and the control plane beside it."""

    folder: Path
    central: Central
    node: OvnNode
    serve: Program | None = None
    agent: Program | None = None
    spaces: list[str] = field(default_factory=list)
    args: tuple[str, ...] = ()

    @property
    def admin(self) -> Path:
        return self.folder / "data" / "admin.kubeconfig"

    @property
    def credential(self) -> Path:
        return self.folder / f"{self.node.name}.kubeconfig"

    def start_serve(self, port: int, *args: str) -> None:
        argv: list[str | Path] = [
            *NETLOOM,
            "serve",
            "--data",
            self.folder / "data",
            "--listen",
            f"127.0.0.1:{port}",
            *args,
        ]
        self.serve = Program(within(self.node.netns, *argv), log=self.folder / "serve.log", env=environment())
        self.serve.wait_ready(lambda: self.admin.exists() and self.cli("get", "nodes", check=False)[0] == 0)
        text = self.cli(
            "credential", "--name", self.node.name, "--role", f"node:{self.node.name}", "--data",
            str(self.folder / "data"),
        )[1]  # fmt: skip
        self.credential.write_text(text)

    def start_agent(self, *args: str, wait: bool = True) -> Program:
        argv: list[str | Path] = [
            *NETLOOM, "agent", "--kubeconfig", self.credential, "--node", self.node.name,
            "--ovs", self.node.database.remote, "--underlay-ip", self.node.underlay, "--log-format", "text",
            "--log-level", "debug", *self.args, *args,
        ]  # fmt: skip
        log = self.folder / "agent.log"
        before = len(log.read_text()) if log.exists() else 0
        self.agent = Program(within(self.node.netns, *argv), log=log, env=environment())
        if wait:
            self.agent.wait_ready(lambda: " ready" in log.read_text()[before:])
        return self.agent

    def cli(self, *args: str, stdin: str = "", check: bool = True) -> tuple[int, str]:
        ended = subprocess.run(
            within(self.node.netns, *NETLOOM, *args), input=stdin, capture_output=True, text=True, timeout=60,
            env=environment(KUBECONFIG=str(self.admin)), check=False,
        )  # fmt: skip
        assert not check or ended.returncode == 0, f"netloom {args}: {ended.stdout}{ended.stderr}"
        return ended.returncode, ended.stdout

    def apply(self, *documents: dict[str, Any]) -> None:
        self.cli("apply", "-f", "-", stdin="\n---\n".join(json.dumps(one) for one in documents))

    def delete(self, kind: str, *names: str) -> None:
        self.cli("delete", kind, *names)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.cli("get", kind, name, "-o", "json")[1])
        return found

    def condition(self, name: str, kind: str = "Ready") -> dict[str, str]:
        status = self.get("networkattachments", name).get("status", {})
        return next((one for one in status.get("conditions", []) if one["type"] == kind), {"status": ""})

    def wait_ready(self, *names: str, timeout: float = 30.0) -> None:
        for name in names:
            try:
                wait_until(
                    lambda name=name: self.condition(name)["status"] == "True",  # type: ignore[misc]
                    what=f"{name} to be Ready", timeout=timeout, interval=0.1,
                )  # fmt: skip
            except AssertionError as error:
                log = self.agent.tail(40) if self.agent else ""
                status = self.get("networkattachments", name).get("status")
                raise AssertionError(f"{error}\n{status}\n{log}") from None

    def logical_port(self, name: str, network: str = "blue") -> None:
        """Have the logical port of an attachment, as the controller would, once it has its addresses."""

        def addressed() -> dict[str, Any] | None:
            status: dict[str, Any] = self.get("networkattachments", name).get("status", {})
            return status if status.get("mac") and status.get("ips") else None

        status = wait_until(addressed, what=f"addresses of {name}", interval=0.1)
        ips = [ip.partition("/")[0] for ip in status["ips"]]
        port = f"{DEFAULT}/{name}"
        self.central.nbctl(
            "--may-exist", "ls-add", f"{DEFAULT}/{network}", "--", "--may-exist", "lsp-add",
            f"{DEFAULT}/{network}", port, "--", "lsp-set-addresses", port, " ".join([status["mac"], *ips]),
        )  # fmt: skip

    def new_namespace(self, name: str) -> str:
        """Make a namespace for a workload, removed at the end."""
        full = f"{self.node.netns}-{name}"
        if full not in self.spaces:
            self.spaces.append(full)
        subprocess.run(["ip", "netns", "add", full], check=True)
        return f"/run/netns/{full}"


@contextlib.contextmanager
def site(folder: Path, netns: str, *args: str, prepared: bool = True) -> Iterator[Site]:
    """Give a node with its control plane; the agent is for the test to start."""
    with ovn_central(folder / "central") as central, contextlib.ExitStack() as stack:
        node = stack.enter_context(ovn_node(folder / "n1", netns, "n1", central, prepared=prepared))
        here = Site(folder, central, node)
        try:
            here.start_serve(free_port(), *args)
            yield here
        finally:
            for program in (here.agent, here.serve):
                if program is not None:
                    program.stop()
            for name in here.spaces:
                subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def network(name: str = "blue", **spec: Any) -> dict[str, Any]:
    return _document("Network", name, spec)


def subnet(name: str, cidr: str, of: str = "blue", **spec: Any) -> dict[str, Any]:
    return _document("Subnet", name, {"network": of, "cidr": cidr, **spec})


def attachment(name: str, of: str = "blue", **spec: Any) -> dict[str, Any]:
    return _document("NetworkAttachment", name, {"node": "n1", "network": of, **spec})


def _document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "netloom.dev/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": DEFAULT},
        "spec": spec,
    }  # fmt: skip


__all__ = ["Site", "attachment", "namespace", "network", "site", "subnet"]
