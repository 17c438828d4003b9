"""Runs packets through flows as a switch does.  Pure: tests ask "does this packet arrive?".

    sent = run(flows, echo(src=..., dst=..., dl_src=..., dl_dst=...), in_port=1)
    [one.port for one in sent]

Tables are executed as Open vSwitch executes them: the matching flow of highest priority; conjunctions; `resubmit`,
whose changes to the packet stay; the connection tracker (`tracking`), which is an argument so that its state can be
kept between packets; a packet is not sent out of its input port, except by `InPort`. Flows are looked up as in the real
classifier, with one dictionary for each set of fields that flows of a table match, so that thousands are fast. Meters
pass everything, and are recorded.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from netloom.openflow.fields import FIELDS
from netloom.openflow.flows import (
    Action,
    Conjunction,
    Ct,
    Flow,
    Goto,
    InPort,
    Meter,
    Move,
    Output,
    Resubmit,
    SetField,
)
from netloom.openflow.packets import Packet
from netloom.openflow.tracking import INV, Tracker

__all__ = ["Packet", "Sent", "Tables", "TooDeep", "Tracker", "run"]

DEEPEST = 64
"""The limit of nested tables; Open vSwitch drops the packet beyond it."""


class Sent(Struct, frozen=True):
    """A sent packet, its output port, and the meters it passed."""

    port: int
    packet: Packet
    meters: tuple[int, ...] = ()


class TooDeep(Exception):
    """The limit of nested tables is exceeded."""


Signature = tuple[tuple[str, int], ...]


class Tables:
    """Flows, indexed for track-up."""

    def __init__(self, flows: Iterable[Flow]) -> None:
        self._tables: dict[int, dict[Signature, dict[tuple[int, ...], list[Flow]]]] = {}
        for flow in flows:
            signature = tuple([
                (one.field, FIELDS[one.field].ones if one.mask is None else one.mask) for one in flow.match
            ])  # fmt: skip
            values = tuple([one.value for one in flow.match])
            self._tables.setdefault(flow.table, {}).setdefault(signature, {}).setdefault(values, []).append(flow)

    def look_up(self, table: int, fields: dict[str, int]) -> Flow | None:
        """Return the flow that matches a packet with these fields."""
        hard, soft = self._matching(table, fields)
        best = max(hard, key=_priority, default=None)
        floor = -1 if best is None else best.priority
        for priority in sorted({flow.priority for flow in soft if flow.priority > floor}, reverse=True):
            for number in _met(flow for flow in soft if flow.priority == priority):
                found, _ = self._matching(table, {**fields, "conj_id": number})
                if found:
                    return max(found, key=_priority)
        return best

    def _matching(self, table: int, fields: dict[str, int]) -> tuple[list[Flow], list[Flow]]:
        hard: list[Flow] = []
        soft: list[Flow] = []
        for signature, by_values in self._tables.get(table, {}).items():
            values = tuple([fields.get(name, 0) & mask for name, mask in signature])
            for flow in by_values.get(values, ()):
                conjunctive = flow.actions and isinstance(flow.actions[0], Conjunction)
                (soft if conjunctive else hard).append(flow)
        return hard, soft


def _priority(flow: Flow) -> int:
    return flow.priority


def _met(flows: Iterable[Flow]) -> list[int]:
    """Return the conjunctions whose clauses are all satisfied by these flows."""
    clauses: dict[tuple[int, int], set[int]] = {}
    for flow in flows:
        for action in flow.actions:
            if isinstance(action, Conjunction):
                clauses.setdefault((action.id, action.of), set()).add(action.clause)
    return [number for (number, of), met in clauses.items() if len(met) == of]


def run(
    flows: Iterable[Flow] | Tables,
    packet: Packet,
    in_port: int,
    *,
    tracker: Tracker | None = None,
    seen: list[Flow] | None = None,
) -> list[Sent]:
    """Return what the switch sends for a packet; the executed flows are appended to `seen`, in order."""
    tables = flows if isinstance(flows, Tables) else Tables(flows)
    journey = _Journey(tables, in_port, packet, Tracker() if tracker is None else tracker, [] if seen is None else seen)
    journey.enter(0, {**packet.fields, "in_port": in_port}, (), 0)
    return journey.sent


@dataclass(slots=True)
class _Journey:
    """One packet on its way through the tables."""

    tables: Tables
    in_port: int
    packet: Packet
    tracker: Tracker
    seen: list[Flow]
    sent: list[Sent] = field(default_factory=list)

    def enter(self, table: int, fields: dict[str, int], meters: tuple[int, ...], depth: int) -> None:
        """Run a table on the packet; `fields` is modified."""
        if depth > DEEPEST:
            raise TooDeep(f"table {table}")
        flow = self.tables.look_up(table, fields)
        if flow is None:
            return
        self.seen.append(flow)
        for action in flow.actions:
            if isinstance(action, Meter):
                meters = (*meters, action.id)
            else:
                self._act(action, fields, meters, depth)

    def _act(self, action: Action, fields: dict[str, int], meters: tuple[int, ...], depth: int) -> None:
        match action:
            case Output(port):
                if port != fields.get("in_port"):
                    self._send(port, fields, meters)
            case InPort():
                self._send(fields.get("in_port", self.in_port), fields, meters)
            case SetField(name, value, mask):
                ones = FIELDS[name].ones if mask is None else mask
                fields[name] = fields.get(name, 0) & ~ones | value & ones
            case Move(src, dst):
                fields[dst] = fields.get(src, 0)
            case Resubmit(table) | Goto(table):
                self.enter(table, fields, meters, depth + 1)
            case Ct():
                self._track(action, fields, meters, depth)

    def _track(self, action: Ct, fields: dict[str, int], meters: tuple[int, ...], depth: int) -> None:
        zone = action.zone if isinstance(action.zone, int) else fields.get(action.zone, 0) & 0xFFFF
        packet = Packet(fields, self.packet.inner)
        state, mark = self.tracker.track(packet, zone)
        if action.commit and not state & INV:
            for one in action.exec:
                ones = FIELDS[one.field].ones if one.mask is None else one.mask
                mark = mark & ~ones | one.value & ones
            self.tracker.commit(packet, zone, mark if action.exec else None)
        if action.table is not None:
            tracked = {**fields, "ct_state": state, "ct_zone": zone, "ct_mark": mark}
            self.enter(action.table, tracked, meters, depth + 1)

    def _send(self, port: int, fields: dict[str, int], meters: tuple[int, ...]) -> None:
        left = {name: value for name, value in fields.items() if name != "in_port"}
        self.sent.append(Sent(port, Packet(left, self.packet.inner), meters))
