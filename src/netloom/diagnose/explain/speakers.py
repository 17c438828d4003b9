"""BGPSpeakers, BGPPeers, EVPNNetworks and RemoteVTEPs on the node of their speaker: what it knows of them now."""

from collections.abc import Sequence

from netloom.client import lists
from netloom.client.lists import Scope
from netloom.client.resources import Target, of_kind
from netloom.client.session import Session
from netloom.control.evpn.answers import Request
from netloom.diagnose import evpn
from netloom.diagnose.access import Access, no_switch
from netloom.diagnose.evpn import Item
from netloom.diagnose.explain.port import Port
from netloom.errors import NetloomError, NotFound
from netloom.model.document import Document
from netloom.model.registry import BGP_PEER, BGP_SPEAKER, EVPN_NETWORK, REMOTE_VTEP
from netloom.plan.problem import Unit

KINDS = {kind.name for kind in (BGP_SPEAKER, BGP_PEER, EVPN_NETWORK, REMOTE_VTEP)}


def node_of(session: Session, unit: Unit, document: Document) -> str:
    """Return the node of the speaker of an object; "": there is no such speaker."""
    spec = document.get("spec") or {}
    if unit.kind in (BGP_SPEAKER.name, REMOTE_VTEP.name):
        return str(spec.get("node") or "")
    try:
        target = Target(of_kind(BGP_SPEAKER), str(spec.get("speaker") or ""))
        speaker = lists.one(session.client, target, Scope(unit.namespace))
    except NotFound:
        return ""
    return str(speaker["spec"]["node"])


def read_speaker(access: Access, unit: Unit, document: Document, node: str) -> tuple[Port | None, str]:
    """Return what the speaker knows of an object now; if it does not answer, why."""
    switches = [one for one in access.switches if one.node in ("", node)]
    if not switches:
        return None, no_switch(node)
    try:
        found = list(evpn.ask(evpn.places(switches), Request("summary")))
    except NetloomError as error:
        return None, f"speaker of node {node}: {error.message}"
    lines = [line for item in found if (line := _line(item, unit, document))]
    return Port(node=node, lines=tuple(lines), missing=() if lines else (_absent(unit),)), ""


def next_steps(unit: Unit, document: Document, node: str) -> Sequence[str]:
    """Return where to look next."""
    spec, on = document.get("spec") or {}, f"On node {node}: " if node else ""
    match unit.kind:
        case "BGPSpeaker":
            return [f"{on}`netloom evpn summary`", f"`netloom get bgppeers,evpnnetworks -n {unit.namespace}`"]
        case "BGPPeer":
            return [f"{on}`netloom evpn routes --peer {spec.get('address')}`"]
        case "EVPNNetwork":
            of = f"--field-selector spec.evpnNetwork={unit.name}"
            return [
                f"{on}`netloom evpn macs --network {unit.namespace}/{unit.name}`",
                f"`netloom get remotevteps -n {unit.namespace} {of}`",
            ]
        case _:
            return [f"{on}`netloom evpn vteps --network {unit.namespace}/{spec.get('evpnNetwork')}`"]


def _line(item: Item, unit: Unit, document: Document) -> str:
    """Return an item of a summary as a line, if it is about the object."""
    key, spec = f"{unit.namespace}/{unit.name}", document.get("spec") or {}
    match item["kind"], unit.kind:
        case "speaker", "BGPSpeaker" if item["speaker"] == key:
            return f"runs: {item['established']} of {item['peers']} sessions established, {item['routes']} routes"
        case "peer", "BGPPeer" if item["name"] == unit.name and item["speaker"].startswith(f"{unit.namespace}/"):
            error = f", last error: {item['lastError']}" if item["lastError"] else ""
            counts = f"{item['received']} routes received, {item['sent']} sent, {item['flaps']} flaps"
            return f"session with {item['address']}: {item['state']}, {counts}{error}"
        case "network", "EVPNNetwork" | "RemoteVTEP" if item["evpnNetwork"] in (
            key,
            f"{unit.namespace}/{spec.get('evpnNetwork')}",
        ):
            if item["error"]:
                return f"EVPNNetwork {item['evpnNetwork']}: {item['error']}"
            forwards = "forwards" if item["forwarding"] else "does not forward"
            counts = f"{item['local']} local and {item['remote']} remote MAC addresses, {item['vteps']} VTEPs"
            return f"EVPNNetwork {item['evpnNetwork']}: {forwards}, {counts}, {item['duplicates']} duplicates"
    return ""


def _absent(unit: Unit) -> str:
    return f"the speakers of this node do not know {unit.kind} {unit.namespace}/{unit.name}"
