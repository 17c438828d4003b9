"""Who gets a packet, said by hand from the resources; and who does get it, by the flows of all nodes.

The two have nothing in common: one reads objects, as users do, the other executes flows, node by node.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network
from random import Random

from netloom.model.document import Document
from netloom.openflow.packets import Packet, arp_request, echo, packet, solicitation
from netloom.openflow.pipeline import Tables, run
from netloom.plan.addresses.macs import number as mac_number
from tests.sim.fabric_oracle import Resources, Switchboard, place, uid

OF_THE_SWITCH = ("reg", "ct_", "metadata", "in_port")


@dataclass(frozen=True)
class Party:
    """An attachment, in numbers."""

    document: Document

    @property
    def mac(self) -> int:
        return mac_number(self.document["status"]["mac"])

    def ip(self, version: int) -> int:
        found = (ip_interface(text) for text in self.document["status"]["ips"])
        return next(int(one.ip) for one in found if one.version == version)

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])


class Fabric:
    """The flows of all nodes, and the wire between them."""

    def __init__(self, boards: Sequence[Switchboard]) -> None:
        self._tables = {board.node: Tables(board.flows) for board in boards}
        self._numbers = {board.node: board.numbers for board in boards}
        self._hosts = {board.node: int(ip_address(board.host)) for board in boards}

    def carry(self, sender: Document, sent: Packet) -> set[str]:
        """Return who gets what an attachment sends, by uid."""
        node = sender["spec"]["node"]
        reached = set()
        for out in run(self._tables[node], sent, self._numbers[node][uid(sender)]):
            if out.port == self._numbers[node][""]:
                reached |= self._arrive(node, out.packet)
            else:
                reached.add(self._holder(node, out.port))
        return reached

    def _arrive(self, source: str, sent: Packet) -> set[str]:
        to = sent["tun_dst"] or sent["tun_ipv6_dst"]
        there = [node for node, host in self._hosts.items() if host == to]
        assert there, f"{source} sends to {to:#x}, where nobody is"
        arriving = packet(**{name: value for name, value in sent.fields.items() if not name.startswith(OF_THE_SWITCH)})
        tunnel = self._numbers[there[0]][""]
        out = run(self._tables[there[0]], arriving, tunnel)
        assert all(one.port != tunnel for one in out), f"{there[0]} sends back what came from {source}"
        return {self._holder(there[0], one.port) for one in out}

    def _holder(self, node: str, port: int) -> str:
        return next((who for who, number in self._numbers[node].items() if number == port), f"port {port} of {node}")


def astray(resources: Resources, boards: Sequence[Switchboard], random: Random, samples: int) -> list[str]:
    """Return, of some packets, those that get where they should not, or do not where they should, in words."""
    parties = [Party(one) for one in resources.attachments]
    if len(parties) < 2:
        return []
    fabric = Fabric(boards)
    found = []
    for _ in range(samples):
        sender, target = random.sample(parties, 2)
        for what, sent, reaches in _packets(resources, sender, target):
            got = fabric.carry(sender.document, sent)
            should = {uid(target.document)} if reaches else set()
            if got != should:
                found.append(f"{what} from {sender.name} to {target.name} reaches {got}, and should {should}")
    return found


def _packets(resources: Resources, sender: Party, target: Party) -> Iterator[tuple[str, Packet, bool]]:
    """Give what one may send to another, and whether it gets there."""
    same = place(sender.document) == place(target.document)
    may = {version: same and _may(resources, sender, target, version) for version in (4, 6)}
    four, six = (sender.ip(4), target.ip(4)), (sender.ip(6), target.ip(6))
    ends = {"dl_src": sender.mac, "dl_dst": target.mac}
    # In another Network somebody else may have the address; that is somebody else's question.
    if same:
        open_ = not (_is_closed(resources, sender) or _is_closed(resources, target))
        yield "ARP", arp_request(mac=sender.mac, sender=four[0], target=four[1]), open_
        yield "ND", solicitation(mac=sender.mac, src=six[0], target=six[1]), open_
    yield "ARP for nobody", arp_request(mac=sender.mac, sender=four[0], target=four[1] + 100), False
    yield "ping", echo(src=four[0], dst=four[1], **ends), may[4]
    yield "ping6", echo(src=six[0], dst=six[1], version=6, **ends), may[6]
    yield "broadcast", echo(src=four[0], dst=0xFFFFFFFF, **{**ends, "dl_dst": 0xFFFFFFFFFFFF}), False
    yield "ping from another's address", echo(src=four[0] + 100, dst=four[1], **ends), False
    yield "ping from another's MAC", echo(src=four[0], dst=four[1], **{**ends, "dl_src": sender.mac + 1}), False
    yield "ARP of another's address", arp_request(mac=sender.mac, sender=four[0] + 100, target=four[1]), False


def _is_closed(resources: Resources, one: Party) -> bool:
    """Whether it is cut off, because nobody knows what may pass."""
    known = {profile["metadata"]["name"] for profile in resources.profiles}
    return not known.issuperset(one.document["spec"].get("securityProfiles", ()))


def _may(resources: Resources, sender: Party, target: Party, version: int) -> bool:
    """Whether the profiles of both let one ping the other."""
    if _is_closed(resources, sender) or _is_closed(resources, target):
        return False
    profiles = {profile["metadata"]["name"]: profile["spec"] for profile in resources.profiles}
    out = _lets(profiles, sender, target, "egress", version)
    return out and _lets(profiles, target, sender, "ingress", version)


def _lets(profiles: Mapping[str, Document], one: Party, peer: Party, direction: str, version: int) -> bool:
    """Whether one's profiles let it speak first to (egress), or be spoken to first by (ingress), a peer."""
    covering = [spec for name, spec in profiles.items() if _covers(name, spec, one)]
    lists = [spec[direction] for spec in covering if direction in spec]
    if not lists:
        return True
    end = "to" if direction == "egress" else "from"
    actions = {
        rule.get("action", "allow")
        for rules in lists
        for rule in rules
        if not rule.get(end) or any(_is(profiles, peer, wanted, version) for wanted in rule[end])
    }
    return actions == {"allow"}


def _covers(name: str, spec: Document, one: Party) -> bool:
    return name in one.document["spec"].get("securityProfiles", ()) or _selected(spec.get("selector"), one)


def _selected(selector: Document | None, one: Party) -> bool:
    labels = one.document["metadata"].get("labels", {})
    return selector is not None and all(labels.get(key) == value for key, value in selector["matchLabels"].items())


def _is(profiles: Mapping[str, Document], peer: Party, wanted: Document, version: int) -> bool:
    if "profile" in wanted:
        return wanted["profile"] in profiles and _covers(wanted["profile"], profiles[wanted["profile"]], peer)
    if "selector" in wanted:
        return _selected(wanted["selector"], peer)
    block = ip_network(wanted["cidr"])
    return block.version == version and ip_address(peer.ip(version)) in block
