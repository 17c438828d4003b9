"""Nodes of the vxlan fabric that execute their flows: a packet sent by one attachment arrives where the flows say.

Each node has the flows that its `VxlanPlan` comes to, and a connection tracker. What leaves by the tunnel arrives at
the node whose address it is sent to, with its VNI; what leaves by a port has arrived.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

import msgspec

from netloom.model.kinds.bgp import RemoteVTEP
from netloom.model.kinds.paths import Shaping
from netloom.model.kinds.policy import SecurityProfile
from netloom.openflow.packets import Packet
from netloom.openflow.pipeline import Sent, Tables, Tracker, run
from netloom.plan.vxlan.fabric import LocalPort, Remote, VxlanPlan

VTEP = 1


def number(ip: str) -> int:
    """Return an address as a field has it."""
    return int(ip_address(ip))


def mac(text: str) -> int:
    """Return a MAC as a field has it."""
    return int(text.replace(":", ""), 16)


def profile(name: str, namespace: str = "default", **spec: Any) -> SecurityProfile:
    """Return a SecurityProfile."""
    whole = {"apiVersion": "netloom.dev/v1alpha1", "kind": "SecurityProfile", "spec": spec}
    return msgspec.convert({**whole, "metadata": {"name": name, "namespace": namespace}}, SecurityProfile)


def shaping(name: str, namespace: str = "default", **spec: Any) -> Shaping:
    """Return a Shaping."""
    whole = {"apiVersion": "netloom.dev/v1alpha1", "kind": "Shaping", "spec": spec}
    return msgspec.convert({**whole, "metadata": {"name": name, "namespace": namespace}}, Shaping)


def vtep(
    name: str,
    address: str,
    macs: Mapping[str, tuple[str, ...]],
    *,
    vni: int = 42,
    local_vni: int = 42,
    flood: bool = True,
) -> RemoteVTEP:
    """Return a RemoteVTEP, with the machines behind it and their addresses."""
    spec = {"evpnNetwork": "e", "network": "blue", "node": "n1", "address": address, "vni": vni, "localVNI": local_vni}
    behind = [{"mac": mac, "ips": ips} for mac, ips in macs.items()]
    whole = {
        "apiVersion": "netloom.dev/v1alpha1",
        "kind": "RemoteVTEP",
        "spec": {**spec, "flood": flood, "macs": behind},
    }
    return msgspec.convert({**whole, "metadata": {"name": name, "namespace": "default"}}, RemoteVTEP)


@dataclass
class Node:
    """One node."""

    name: str
    address: str
    plan: VxlanPlan = field(default_factory=VxlanPlan)
    tracker: Tracker = field(default_factory=Tracker)


@dataclass
class Nodes:
    """Some nodes, and what is plugged in them."""

    nodes: dict[str, Node]
    ports: dict[str, LocalPort] = field(default_factory=dict)
    log: list[tuple[str, Sent]] = field(default_factory=list)
    """What left which node by its tunnel."""

    def plug(self, name: str, node: str, *ips: str, vni: int = 42, **more: Any) -> LocalPort:
        """Plug an attachment, of which all nodes hear."""
        position = len(self.ports) + 1
        face: dict[str, Any] = {"uid": name, "namespace": "default", "name": name, "vni": vni, "ips": ips, "node": node}
        face = {**face, "mac": f"02:00:00:00:00:{position:02x}", "network": f"n{vni}", **more}
        port = self.ports[name] = LocalPort(ofport=10 + position, **face)
        for one in self.nodes.values():
            if one.name == node:
                one.plan.put_local(port, 1)
            else:
                one.plan.put_remote(Remote(host_ip=self.nodes[node].address, **face), 1)
        return port

    def put(self, *resources: SecurityProfile | Shaping | RemoteVTEP) -> None:
        """Let all nodes hear of profiles, Shapings and VTEPs of other sites."""
        for one in self.nodes.values():
            for resource in resources:
                if isinstance(resource, SecurityProfile):
                    one.plan.put_profile(resource)
                elif isinstance(resource, RemoteVTEP):
                    one.plan.put_vtep(resource)
                else:
                    one.plan.put_shaping(resource)

    def send(self, sender: str, packet: Packet) -> dict[str, Packet]:
        """Send a packet by somebody's port; return who got it, and how."""
        port = self.ports[sender]
        return self.inject(self.nodes[port.node], packet, port.ofport)

    def inject(self, node: Node, packet: Packet, in_port: int) -> dict[str, Packet]:
        """Let a packet come in by any port of a node."""
        got: dict[str, Packet] = {}
        for sent in self.step(node, packet, in_port):
            if sent.port != VTEP:
                got[self.at(node, sent.port)] = sent.packet
                continue
            self.log.append((node.name, sent))
            for other in self.nodes.values():
                if sent.packet["tun_dst"] == number(other.address) and other is not node:
                    got |= self.inject(other, arriving(node, sent.packet), VTEP)
        return got

    def step(self, node: Node, packet: Packet, in_port: int) -> list[Sent]:
        """Let one node act on a packet."""
        node.plan.flush()
        return run(Tables(node.plan.claims.flows.values()), packet, in_port, tracker=node.tracker)

    def at(self, node: Node, ofport: int) -> str:
        """Return who is at a port of a node."""
        (name,) = [name for name, port in self.ports.items() if (port.node, port.ofport) == (node.name, ofport)]
        return name


def arriving(node: Node, packet: Packet) -> Packet:
    """Return a packet as it comes out of the tunnel from a node."""
    kept = {name: value for name, value in packet.fields.items() if not name.startswith(("reg", "ct_", "tun_"))}
    return Packet({**kept, "tun_id": packet["tun_id"], "tun_src": number(node.address)}, packet.inner)


def nodes(*names: str) -> Nodes:
    """Return nodes without anything in them."""
    found = {name: Node(name, f"192.0.2.{position + 1}") for position, name in enumerate(names)}
    for node in found.values():
        node.plan.vtep = VTEP
    return Nodes(found)
