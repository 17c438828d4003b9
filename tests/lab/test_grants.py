"""On a real node a namespace gets what its operator grants, and nothing else: devices, routes, packets."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from netloom.lab import Lab
from tests.lab.labs import NETLOOM, running
from tests.lab.worlds import World
from tests.support.process import Program

pytestmark = pytest.mark.lab

NODE = "n1"
REFUSED = ("False", "NotGranted")


@dataclass
class Host:
    """The lab's one host, and its agent, which the test starts with what it grants."""

    lab: Lab
    world: World
    folder: Path
    agent: Program | None = None

    def start(self, *grants: str) -> None:
        """Start the agent, or start it again."""
        self.stop()
        own = self.lab.layout
        argv = [*NETLOOM, "agent", "--kubeconfig", str(own.agent_kubeconfig(NODE)), "--node", NODE]
        argv += ["--ovs", f"unix:{own.switch_socket(NODE)}", "--underlay-ip", own.underlay_ip(NODE)]
        argv += ["--datapath", "netdev", "--log-format", "text", *grants]
        log = self.folder / "agent.log"
        before = len(log.read_text()) if log.exists() else 0
        self.agent = Program(self.lab.command(NODE, argv), log=log, env=self.lab.environment(NODE))
        self.agent.wait_ready(lambda: " ready" in log.read_text()[before:])

    def stop(self) -> None:
        """End the agent."""
        if self.agent is not None:
            self.agent.stop()
            self.agent = None

    def seen(self) -> tuple[str, str, str]:
        """Return what can be seen of a node: its routes, its devices, and which are on which bridge."""
        lines = self.lab.exec(NODE, ["ip", "-o", "-brief", "link"]).stdout.splitlines()
        links = "\n".join(sorted(line.split()[0] for line in lines))
        routes = "".join(self.lab.exec(NODE, ["ip", family, "route"]).stdout for family in ("-4", "-6"))
        ports = self.lab.exec(NODE, ["ovs-vsctl", "--format=list", "--columns=name", "list", "Port"]).stdout
        return routes, links, ports + self.lab.exec(NODE, ["ip", "-o", "link", "show", "master", "lin0"]).stdout


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with running(nodes=1, ovn=0, restart=False) as lab:
        lab.kill(f"agent-{NODE}")
        made = Host(lab, World(lab, "tenant"), tmp_path)
        for command in (
            "link add lin0 type bridge",
            "link add nic0 type veth peer name wire0",
            "link set nic0 master lin0",
            "link add pod0 type veth peer name pod1",
        ):
            lab.exec(NODE, ["ip", *command.split()])
        made.world.put("Network", "blue", {"fabric": "vxlan"})
        made.world.put("Subnet", "blue", {"network": "blue", "cidr": "10.78.0.0/24"})
        try:
            yield made
        finally:
            made.stop()


def test_a_namespace_without_grants_gets_nothing_of_a_node(host: Host) -> None:
    world, lab = host.world, host.lab
    others = lab.workload("other")
    everything = [{"to": "0.0.0.0/1", "via": "10.78.0.1"}, {"to": "128.0.0.0/1", "via": "10.78.0.1"}]
    specs: dict[str, dict[str, Any]] = {
        "hijack": {"port": {"type": "internal", "name": "docker0"}, "routes": everything},
        "spy": {"port": {"type": "veth", "netns": str(others), "name": "eth0"}},
        "pod": {"port": {"type": "existing", "device": "pod0"}},
        "card": {"port": {"type": "existing", "device": "nic0"}},
    }
    host.start()
    before = host.seen()
    for number, (name, spec) in enumerate(specs.items(), 11):
        spec = {"node": NODE, "network": "blue", "ips": [f"10.78.0.{number}"], **spec}
        world.put("NetworkAttachment", name, spec)
    said = {name: world.becomes("networkattachment", name, *REFUSED, condition="Plugged") for name in specs}
    for name, setting in zip(
        specs, ("internalRoutes", "netnsFolders", "existingDevices", "existingDevices"), strict=True
    ):
        assert f"by the setting {setting}: tenant=" in said[name]
    assert host.seen() == before
    assert lab.exec("other", ["ip", "-o", "link"]).stdout.count("\n") == 1  # Its loopback.
    # A pattern grants neither a port of a bridge nor one end of a pair; the exact name does.
    host.start("--existing-devices", "tenant=*,tenant=nic0")
    world.becomes("networkattachment", "pod", *REFUSED, condition="Plugged", message="is one end of a veth pair")
    world.becomes("networkattachment", "card", "True", "Plugged", condition="Plugged")
    assert "nic0" not in lab.exec(NODE, ["ip", "-o", "link", "show", "master", "lin0"]).stdout
    host.start()
    world.becomes("networkattachment", "card", *REFUSED, condition="Plugged")
    assert "nic0" in lab.exec(NODE, ["ip", "-o", "link", "show", "master", "lin0"]).stdout


def test_what_is_granted_works_and_goes_with_its_grant(host: Host) -> None:
    world, lab = host.world, host.lab
    host.start(
        "--netns-folders", "tenant=/run/netns", "--internal-routes", "tenant=10.78.0.0/24",
        "--internal-names", "tenant=web*",
    )  # fmt: skip
    ports = {
        "here": {"type": "internal", "name": "web0"},
        "there": {"type": "veth", "netns": "/run/netns/there", "name": "e0"},
    }
    for number, (name, port) in enumerate(ports.items(), 8):
        spec = {"node": NODE, "network": "blue", "ips": [f"10.78.0.{number}"], "port": port}
        world.put("NetworkAttachment", name, spec)
    for name in ("here", "there"):
        world.becomes("networkattachment", name, "True", "Plugged", condition="Plugged")
    lab.exec(NODE, ["ping", "-c", "1", "-w", "10", "10.78.0.9"])
    host.start()
    for name in ("here", "there"):
        world.becomes("networkattachment", name, *REFUSED, condition="Plugged")
    assert lab.exec(NODE, ["ip", "link", "show", "web0"], check=False).returncode
    assert lab.exec("tenant-there", ["ip", "link", "show", "e0"], check=False).returncode
