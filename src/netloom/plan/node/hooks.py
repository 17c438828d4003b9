"""Programs that run at an interface: what is written down of them, so that none runs twice.  Pure.

    postCreateExec   when the interface is made: written with the port, in the transaction that makes it (`EXEC`)
    postDeleteExec   when it is gone: written with the port (`AFTER`), and by the transaction that removes the port
                     with the bridge, from where it is taken when it was run

A port's `EXEC` is a report, always of what would be true if the agent died now: without a `startTime` it is due; from
before its start on it says "interrupted"; when it ended, how. So whoever comes after a crash reads what is to be said,
and only what never started is run. What was written before this agent knew of programs has no `EXEC`: nothing is due.

A VLAN of another attachment's port has no interface of its own: what is written of its programs stands with the bridge
(`CHILD`), from when its parent's interface was first found to carry it until it is gone; where it has no programs,
nothing is written.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from netloom.model.attachments import ExecReport, NetworkAttachmentSpec

T = TypeVar("T")

CREATE, DELETE = "postCreateExec", "postDeleteExec"
EXEC, AFTER, CHILD = "netloom-exec", "netloom-after", "netloom-child"
LONGEST = 4096
"""How long a command may be, in bytes, before its variables are filled in: it is kept in the switch's database."""
REFUSED, NOT_STARTED, OVERDUE, INTERRUPTED, CROWDED = -1, -2, -3, -4, -5
"""Exit statuses of what did not end by itself; a program that was killed by signal N has 128 + N, as in a shell."""
_VARIABLE = re.compile(r"\$\{(ifname|ipv4|mac)\}")


class After(Struct, frozen=True, omit_defaults=True):
    """What is to be run when an interface is gone."""

    namespace: str
    name: str
    uid: str
    device: str
    """What goes with it; "": a device that was there before stays."""
    command: tuple[str, ...]
    started: str = ""
    """When it was started; "": not yet."""


class Mark(Struct, frozen=True, omit_defaults=True):
    """What a bridge carries of a child that has programs."""

    namespace: str
    name: str
    uid: str
    report: ExecReport | None = None
    """As an interface's `EXEC`; None: nothing is to be run for its coming."""
    then: tuple[str, ...] = ()
    """What is to be run when it is gone."""

    @property
    def after(self) -> After:
        """What is to be run when it is gone: the device stays."""
        return After(self.namespace, self.name, self.uid, "", self.then)


class Commands(NamedTuple):
    """What an attachment wants run, with its variables filled in; () where it is too long to be kept."""

    create: tuple[str, ...]
    delete: tuple[str, ...]


def commands(spec: NetworkAttachmentSpec, *, device: str, ips: Iterable[str], mac: str) -> Commands:
    """Return what an attachment wants run at its interface."""
    ipv4 = next((ip.partition("/")[0] for ip in ips if ":" not in ip), "")
    known = {"ifname": device, "ipv4": ipv4, "mac": mac}
    return Commands(*(filled(_kept(one), known) for one in (spec.post_create_exec, spec.post_delete_exec)))


def filled(command: Sequence[str], known: dict[str, str]) -> tuple[str, ...]:
    """Return a command with ${ifname}, ${ipv4} and ${mac} filled in, but for the program; whatever else stays."""
    return (*command[:1], *(_VARIABLE.sub(lambda found: known[found[1]], one) for one in command[1:]))


def refusal(what: str, command: Sequence[str], allowed: Collection[str]) -> str:
    """Return why a command is not run, for people; "": it is."""
    if not command or command[0] in allowed:
        return ""
    return f"{what}: {command[0][:512]} is not among the programs this agent allows (--allowed-programs)"


def complaints(spec: NetworkAttachmentSpec, allowed: Collection[str]) -> tuple[str, ...]:
    """Return what is wrong with what an attachment wants run."""
    wanted = ((CREATE, spec.post_create_exec), (DELETE, spec.post_delete_exec))
    found = (refusal(what, command, allowed) or _too_long(what, command) for what, command in wanted)
    return tuple(line for line in found if line)


def due(command: tuple[str, ...]) -> dict[str, str]:
    """Return what a port that is made carries of what is to be run then."""
    return {EXEC: written(ExecReport(command=command))} if command else {}


def kept(carried: Mapping[str, str]) -> dict[str, str]:
    """Return what a port that is made again with the same device carries of what the one before carried."""
    return {EXEC: carried[EXEC]} if EXEC in carried else {}


def after(one: After) -> dict[str, str]:
    """Return what a port carries of what is to be run when it is gone."""
    return {AFTER: msgspec.json.encode(one).decode()} if one.command else {}


def marked(mark: Mark) -> str:
    """Return a mark as a bridge carries it."""
    return msgspec.json.encode(mark).decode()


def read_mark(text: str | None) -> Mark | None:
    """Return what a bridge carries of a child, or None."""
    return _read(text, Mark)


def written(report: ExecReport) -> str:
    """Return a report as a port carries it."""
    return msgspec.json.encode(report).decode()


def read_report(text: str | None) -> ExecReport | None:
    """Return the report a port carries, or None."""
    found = _read(text, ExecReport)
    return found if found is not None and found.command else None


def read_after(text: str | None) -> After | None:
    """Return what is to be run when a port is gone, or None."""
    found = _read(text, After)
    return found if found is not None and found.command else None


def _read(text: str | None, kind: type[T]) -> T | None:
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        return None  # Somebody else's hand, or a version to come: nothing is run because of it.


def _kept(command: tuple[str, ...]) -> tuple[str, ...]:
    return () if _size(command) > LONGEST else command


def _too_long(what: str, command: Sequence[str]) -> str:
    size = _size(command)
    return f"{what}: too long: it has {size} bytes, and {LONGEST} is the most" if size > LONGEST else ""


def _size(command: Sequence[str]) -> int:
    return sum(len(one.encode()) for one in command)
