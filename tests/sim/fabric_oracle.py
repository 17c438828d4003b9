"""What each node's fabric must be, worked out from the resources alone: naive, all at once, and knowing no history.

    attachments, Networks ──► who is here, who of the others concerns us ──► the flows of each, one after the other

Nothing here is taken from what the agents know. The flows of one port are those `plan/vxlan_ports` gives for it; which
ports there are, and that nothing else is there, is this module's. Where profiles and shapings are in play the flows are
those of a plan that is told everything once; what becomes of packets then is said by hand, in `fabric_packets`.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_interface
from typing import Any

import msgspec
from msgspec import Struct

from netloom.model.document import Document
from netloom.model.kinds.paths import Shaping
from netloom.model.kinds.policy import SecurityProfile
from netloom.openflow.flows import Flow, MeterSpec
from netloom.plan.vxlan.fabric import VxlanPlan
from netloom.plan.vxlan.ports import LocalPort, Remote, base, local, remote


class Switchboard(Struct, frozen=True):
    """What a node's switch decided itself, and what it has."""

    node: str
    host: str
    """The node's underlay address."""
    numbers: Mapping[str, int]
    """The number of each port, by the attachment's uid; "" is the tunnel's."""
    flows: Iterable[Flow]
    meters: Mapping[int, MeterSpec] = {}


class Resources(Struct, frozen=True):
    """All desired objects."""

    networks: Sequence[Document]
    attachments: Sequence[Document]
    profiles: Sequence[Document] = ()
    shapings: Sequence[Document] = ()

    def vnis(self) -> dict[tuple[str, str], int]:
        """Return the vxlan Networks and their VNIs."""
        found = {}
        for network in self.networks:
            if network["spec"].get("fabric") == "vxlan":
                metadata = network["metadata"]
                found[metadata["namespace"], metadata["name"]] = int(network["status"]["vni"])
        return found

    def on(self, node: str) -> list[Document]:
        """Return the attachments of a node that are in vxlan Networks."""
        vnis = self.vnis()
        return [one for one in self.attachments if one["spec"]["node"] == node and place(one) in vnis]

    def concerning(self, node: str) -> list[Document]:
        """Return the attachments of other nodes that concern one, and are plugged there."""
        networks = {place(one) for one in self.on(node)}
        others = [one for one in self.attachments if one["spec"]["node"] != node and place(one) in networks]
        return [one for one in others if one.get("status", {}).get("hostIP")]

    @property
    def is_plain(self) -> bool:
        """Whether everybody may speak to everybody, as fast as they like."""
        return not (
            self.profiles or self.shapings or any(one["spec"].get("securityProfiles") for one in self.attachments)
        )


def place(attachment: Document) -> tuple[str, str]:
    """Return the Network an attachment is in."""
    return attachment["metadata"]["namespace"], attachment["spec"]["network"]


def uid(attachment: Document) -> str:
    """Return who it is."""
    return str(attachment["metadata"]["uid"])


def complaints(resources: Resources, boards: Sequence[Switchboard]) -> list[str]:
    """Return what is not as it should be, in words."""
    found = []
    hosts = {board.node: board.host for board in boards}
    for one in resources.attachments:
        found += _unplugged(one, hosts)
    for board in boards:
        missing = [one["metadata"]["name"] for one in resources.on(board.node) if uid(one) not in board.numbers]
        if missing or "" not in board.numbers:
            found.append(f"{board.node} has no port for {', '.join(missing) or 'the tunnel'}")
            continue
        flows, meters = wanted(resources, board) if resources.is_plain else planned(resources, board)
        found += _differences(board.node, set(board.flows), flows)
        if dict(board.meters) != meters:
            found.append(f"{board.node} has the meters {dict(board.meters)}, not {meters}")
    return found


def wanted(resources: Resources, board: Switchboard) -> tuple[set[Flow], dict[int, MeterSpec]]:
    """Return the flows a node must have, and no others, where nobody is kept from anybody."""
    found = set(base(board.numbers[""]))
    here, elsewhere = _ports(resources, board)
    found.update(flow for port in here for flow in local(port))
    found.update(flow for one in elsewhere for flow in remote(one, board.numbers[""]))
    return found, {}


def planned(resources: Resources, board: Switchboard) -> tuple[set[Flow], dict[int, MeterSpec]]:
    """Return the flows and meters that a plan gives which is told everything once."""
    plan = VxlanPlan()
    here, elsewhere = _ports(resources, board)
    for port in here:
        plan.put_local(port)
    for one in elsewhere:
        plan.put_remote(one, 0)
    for document in resources.profiles if here else ():
        plan.put_profile(msgspec.convert(document, SecurityProfile))
    for document in resources.shapings if here else ():
        plan.put_shaping(msgspec.convert(document, Shaping))
    plan.vtep = board.numbers[""]
    plan.flush()
    return set(plan.claims.flows.values()), plan.claims.meters


def _ports(resources: Resources, board: Switchboard) -> tuple[list[LocalPort], list[Remote]]:
    vnis = resources.vnis()
    here = [LocalPort(ofport=board.numbers[uid(one)], **_about(one, vnis)) for one in resources.on(board.node)]
    others = resources.concerning(board.node)
    return here, [Remote(host_ip=one["status"]["hostIP"], **_about(one, vnis)) for one in others]


def _differences(node: str, there: set[Flow], should: set[Flow]) -> list[str]:
    lacking = [f"{node} lacks {flow}" for flow in sorted(should - there, key=str)]
    return lacking + [f"{node} has besides {flow}" for flow in sorted(there - should, key=str)]


def _unplugged(one: Document, hosts: Mapping[str, str]) -> list[str]:
    status = one.get("status", {})
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ()))
    if ready and status.get("hostIP") == hosts[one["spec"]["node"]]:
        return []
    return [f"{one['metadata']['name']} is not plugged: {status.get('conditions')}"]


def _about(one: Document, vnis: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    metadata, spec = one["metadata"], one["spec"]
    return {
        "uid": metadata["uid"],
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "vni": vnis[place(one)],
        "mac": one["status"]["mac"],
        "ips": tuple(str(ip_interface(ip).ip) for ip in one["status"]["ips"]),
        "profiles": tuple(spec.get("securityProfiles", ())),
        "labels": metadata.get("labels", {}),
        "network": spec["network"],
        "node": spec["node"],
    }
