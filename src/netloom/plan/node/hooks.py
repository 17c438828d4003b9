"""The records of programs that run at an interface, by which none runs twice. Pure.

    postCreateExec   after the interface is made: recorded at the port, in the transaction that makes it (`EXEC`)
    postDeleteExec   after it is removed: recorded at the port (`AFTER`), moved to the bridge by the transaction that
                     removes the port, and deleted after it ran

A port's `EXEC` is a report that is always correct if the agent dies now: without a `startTime` the program is due; from
before its start on it says "interrupted"; after its end it has the outcome. So an agent that starts after a crash reads
what to report, and runs only programs that never started. Ports of agents that did not know programs have no `EXEC`:
nothing is due.

A VLAN of another attachment's port has no interface of its own: the record of its programs is at the bridge (`CHILD`),
from the time its parent's interface first carries it until it is removed; without programs there is no record.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from netloom.model.kinds.attachments import ExecReport, NetworkAttachmentSpec

T = TypeVar("T")

CREATE, DELETE = "postCreateExec", "postDeleteExec"
EXEC, AFTER, CHILD = "netloom-exec", "netloom-after", "netloom-child"
LONGEST = 4096
"""The most bytes of a command, before its variables are filled in: it is kept in the switch's database."""
REFUSED, NOT_STARTED, OVERDUE, INTERRUPTED, CROWDED = -1, -2, -3, -4, -5
"""Exit statuses of programs that did not end by themselves; one that signal N killed has 128 + N, as in a shell."""
_VARIABLE = re.compile(r"\$\{(ifname|ipv4|mac)\}")


class After(Struct, frozen=True, omit_defaults=True):
    """The program to run after an interface is removed."""

    namespace: str
    name: str
    uid: str
    device: str
    """The device that is removed with it; "": a device that existed before stays."""
    command: tuple[str, ...]
    started: str = ""
    """The time of its start; "": not started."""


class Mark(Struct, frozen=True, omit_defaults=True):
    """The record of a child that has programs, at its bridge."""

    namespace: str
    name: str
    uid: str
    report: ExecReport | None = None
    """As an interface's `EXEC`; None: no program runs after it is made."""
    then: tuple[str, ...] = ()
    """The program to run after it is removed."""

    @property
    def after(self) -> After:
        """The record of the program to run after it is removed: the device stays."""
        return After(self.namespace, self.name, self.uid, "", self.then)


class Commands(NamedTuple):
    """The programs of an attachment, with their variables filled in; () if one is too long to be kept."""

    create: tuple[str, ...]
    delete: tuple[str, ...]


def commands(spec: NetworkAttachmentSpec, *, device: str, ips: Iterable[str], mac: str) -> Commands:
    """Return the programs of an attachment."""
    ipv4 = next((ip.partition("/")[0] for ip in ips if ":" not in ip), "")
    known = {"ifname": device, "ipv4": ipv4, "mac": mac}
    return Commands(*(filled(_kept(one), known) for one in (spec.post_create_exec, spec.post_delete_exec)))


def filled(command: Sequence[str], known: dict[str, str]) -> tuple[str, ...]:
    """Return a command with ${ifname}, ${ipv4} and ${mac} filled in, in the arguments but not in the program."""
    return (*command[:1], *(_VARIABLE.sub(lambda found: known[found[1]], one) for one in command[1:]))


def refusal(what: str, command: Sequence[str], allowed: Collection[str]) -> str:
    """Return why a command is not run, as text; "": it is."""
    if not command or command[0] in allowed:
        return ""
    return f"{what}: {command[0][:512]} is not among the programs this agent allows (--allowed-programs)"


def complaints(spec: NetworkAttachmentSpec, allowed: Collection[str]) -> tuple[str, ...]:
    """Return what is wrong with the programs of an attachment."""
    wanted = ((CREATE, spec.post_create_exec), (DELETE, spec.post_delete_exec))
    found = (refusal(what, command, allowed) or _too_long(what, command) for what, command in wanted)
    return tuple(line for line in found if line)


def due(command: tuple[str, ...]) -> dict[str, str]:
    """Return the entry of a new port for the program to run after it is made."""
    return {EXEC: written(ExecReport(command=command))} if command else {}


def kept(carried: Mapping[str, str]) -> dict[str, str]:
    """Return the entry that a port that is made again with the same device takes over."""
    return {EXEC: carried[EXEC]} if EXEC in carried else {}


def after(one: After) -> dict[str, str]:
    """Return the entry of a port for the program to run after it is removed."""
    return {AFTER: msgspec.json.encode(one).decode()} if one.command else {}


def marked(mark: Mark) -> str:
    """Return a child's record as text."""
    return msgspec.json.encode(mark).decode()


def read_mark(text: str | None) -> Mark | None:
    """Return a child's record from text, or None."""
    return _read(text, Mark)


def written(report: ExecReport) -> str:
    """Return a report as text."""
    return msgspec.json.encode(report).decode()


def read_report(text: str | None) -> ExecReport | None:
    """Return the report of a port from text, or None."""
    found = _read(text, ExecReport)
    return found if found is not None and found.command else None


def read_after(text: str | None) -> After | None:
    """Return the record of a program to run after a port is removed from text, or None."""
    found = _read(text, After)
    return found if found is not None and found.command else None


def _read(text: str | None, kind: type[T]) -> T | None:
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        return None  # Written by another program, or by a later version: nothing is run because of it.


def _kept(command: tuple[str, ...]) -> tuple[str, ...]:
    return () if _size(command) > LONGEST else command


def _too_long(what: str, command: Sequence[str]) -> str:
    size = _size(command)
    return f"{what}: too long: it has {size} bytes, and {LONGEST} is the most" if size > LONGEST else ""


def _size(command: Sequence[str]) -> int:
    return sum(len(one.encode()) for one in command)
