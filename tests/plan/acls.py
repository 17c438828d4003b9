"""What OVN would do with a packet by the ACLs that are wanted: a small reader of matches that executes them."""

import re
from ipaddress import ip_address, ip_network
from typing import Any

from msgspec import Struct

from netloom.plan.ovn.desired import DesiredRows
from netloom.plan.rows import Ref

_ATOM = re.compile(r"\d+ <= [\w.]+ <= \d+|[\w.]+ == (?:\{[^}]*\}|[^\s)]+)|\w+")


class Packet(Struct, frozen=True):
    """The first packet of a connection."""

    inport: str = ""
    outport: str = ""
    src: str = ""
    dst: str = ""
    protocol: str = ""
    """tcp, udp, sctp, icmp, or another; arp and nd are of their own kind."""
    sport: int = 0
    dport: int = 0


class Reader:
    """Reads matches against what is wanted."""

    def __init__(self, wanted: DesiredRows) -> None:
        self.desired = wanted
        self.groups = {
            str(row.columns["name"]): {one.key for one in wanted.members(ref).get("ports", ()) if isinstance(one, Ref)}
            for ref, row in wanted.rows.items()
            if ref.table == "Port_Group"
        }
        self.sets = {
            str(row.columns["name"]): set(wanted.members(ref).get("addresses", ()))
            for ref, row in wanted.rows.items()
            if ref.table == "Address_Set"
        }

    def verdict(self, packet: Packet, direction: str) -> tuple[str, bool]:
        """Return the action taken and whether it is logged; "" where no ACL matches."""
        found = [
            (int(str(row.columns["priority"])), row.columns["action"], row.columns["log"])
            for ref, row in self.desired.rows.items()
            if ref.table == "ACL"
            and row.columns["direction"] == direction
            and self.matches(row.columns["match"], packet)
        ]
        if not found:
            return "", False
        best = max(priority for priority, _, _ in found)
        chosen = {(action, log) for priority, action, log in found if priority == best}
        assert len(chosen) == 1, f"undefined: {chosen} are of one priority"
        action, log = chosen.pop()
        return str(action), bool(log)

    def matches(self, match: Any, packet: Packet) -> bool:
        """Whether a match holds."""
        text = _ATOM.sub(lambda atom: str(self._atom(atom[0], packet)), match)
        return bool(eval(text.replace("&&", "and").replace("||", "or"), {}))

    def _atom(self, atom: str, packet: Packet) -> bool:
        if "<=" in atom:
            low, field, high = atom.split(" <= ")
            value = self._field(field, packet)
            return value is not None and int(low) <= int(value) <= int(high)
        if "==" in atom:
            field, _, wanted = atom.partition(" == ")
            value = self._field(field, packet)
            return value is not None and any(self._equal(value, one) for one in wanted.strip("{}").split(", "))
        v6 = ":" in packet.src
        is_ip = packet.protocol not in ("arp", "other")
        return {
            "ip": is_ip,
            "ip4": is_ip and not v6,
            "ip6": is_ip and v6,
            "icmp4": packet.protocol == "icmp" and not v6,
            "icmp6": packet.protocol == "icmp" and v6,
        }.get(atom, packet.protocol == atom)

    def _field(self, field: str, packet: Packet) -> Any:
        name, _, end = field.partition(".")
        if name in ("inport", "outport"):
            return getattr(packet, name)
        if name in ("ip4", "ip6"):
            return (getattr(packet, end) or None) if self._atom(name, packet) else None
        if name == "eth":
            return "nobody"
        return {"src": packet.sport, "dst": packet.dport}[end] if packet.protocol == name else None

    def _equal(self, value: Any, wanted: str) -> bool:
        if wanted.startswith("@"):
            return value in self.groups[wanted[1:]]
        if wanted.startswith("$"):
            return value in self.sets.get(wanted[1:], set())
        if isinstance(value, int):
            return value == int(wanted)
        if "/" in wanted:
            return ip_address(value) in ip_network(wanted)
        return bool(ip_address(value) == ip_address(wanted))
