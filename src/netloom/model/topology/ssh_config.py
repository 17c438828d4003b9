"""SSH configs as the tools of the old platform wrote them: which machine is where, and through which others.

    Host sandbox                     the master
    Host sandbox-x 172.16.1.*        the machines of networks, through the master
    Host sandbox-host1               a host, through the machine of its network

Only what places machines is read: names, HostName, ProxyJump, and ProxyCommand with `ssh -W`.
"""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from netloom.model.kinds.sandbox import Placement, Topology
from netloom.model.schemas import rules
from netloom.model.topology.findings import Finding

MOST_MACHINES = 4096
MOST_JUMPS = 16
MOST_PATTERNS = 64
"""Patterns of names that a jump host is compared with."""
_DIRECTIVE = re.compile(r"[ \t]*([A-Za-z]+)(?:[ \t]*=[ \t]*|[ \t]+|$)(.*)")
_WITH_VALUE = frozenset(("-W", "-F", "-i", "-p", "-o", "-l", "-J"))
_NODE_NAME = re.compile(rules.SUBDOMAIN_PATTERN[1:-1])


class Machine(Struct, frozen=True):
    """A Host block."""

    names: tuple[str, ...]
    """Names and patterns."""
    address: str = ""
    jump: str = ""
    """The machine through which it is reached: the last one, if there are several."""
    line: int = 0


def parse(text: str) -> tuple[tuple[Machine, ...], list[Finding]]:
    """Return the machines of an SSH config, and its problems."""
    found: list[Finding] = []
    machines: list[Machine] = []
    block: dict[str, str] = {}
    names: tuple[str, ...] = ()
    line = 0
    for number, content in enumerate(text.split("\n"), start=1):
        stripped = content.strip()
        if not stripped or stripped.startswith("#"):
            continue
        directive = _DIRECTIVE.fullmatch(content.rstrip())
        if directive is None or not directive[2]:
            column = len(content) - len(content.lstrip()) + 1
            found.append(Finding(number, column, f'"{stripped:.64}" has no value'))
            continue
        key, value = directive[1].lower(), directive[2].strip('"')
        if key in ("host", "match"):
            if names:
                machines.append(_machine(names, block, line))
            names, block, line = tuple(name[:253] for name in value.split()) if key == "host" else (), {}, number
        else:
            block.setdefault(key, value)  # The first value counts, as for ssh.
        if len(machines) > MOST_MACHINES:
            found.append(Finding(number, 1, f"the config has more than {MOST_MACHINES} machines"))
            break
    if names:
        machines.append(_machine(names, block, line))
    known = {name for machine in machines for name in machine.names}
    known |= {machine.address for machine in machines}
    patterns = [name for name in sorted(known) if "*" in name or "?" in name][:MOST_PATTERNS]
    for machine in machines:
        if not machine.jump or machine.jump in known:
            continue
        if not any(fnmatchcase(machine.jump, pattern) for pattern in patterns):
            message = f'the jump host "{machine.jump:.64}" is not in this file'
            found.append(Finding(machine.line, 1, message, is_warning=True))
    return tuple(machines), found


def _machine(names: tuple[str, ...], block: dict[str, str], line: int) -> Machine:
    jump = block.get("proxyjump", "").split(",")[-1]
    if not jump and (command := block.get("proxycommand")):
        jump = _jump(command.split())
    host = jump.rpartition("@")[2].partition(":")[0]
    return Machine(names, block.get("hostname", ""), "" if host == "none" else host, line)


def _jump(words: Sequence[str]) -> str:
    """Return the host of a command such as `ssh -q -W %h:%p sandbox`."""
    if not words or words[0].rpartition("/")[2] != "ssh":
        return ""
    skip = True
    for word in words:
        if not skip and not word.startswith("-"):
            return word
        skip = word in _WITH_VALUE
    return ""


def distances(machines: Iterable[Machine]) -> dict[str, int]:
    """Return through how many others each machine is reached, by name or pattern."""
    by_name: dict[str, Machine] = {}
    every = tuple(machines)
    for one in every:
        for name in (*one.names, one.address):
            by_name.setdefault(name.lower(), one)
    found: dict[str, int] = {}
    for machine in every:
        way: list[Machine] = []
        at: Machine | None = machine
        # A way in a circle ends where it began.
        while at is not None and at.jump and at not in way and len(way) < MOST_JUMPS:
            way.append(at)
            at = by_name.get(at.jump.lower())
        for name in machine.names:
            found.setdefault(name, len(way))
    return found


def machines_of(topology: Topology, machines: Iterable[Machine]) -> dict[str, tuple[str, ...]]:
    """Return the names in an SSH config of each host of a topology that it has.

    A machine is a host if its name is the host's, perhaps behind that of the sandbox and a dash.
    """
    hosts = {host.name for host in topology.hosts}
    found: dict[str, list[str]] = {}
    for machine in machines:
        for name in machine.names:
            parts = name.split("-")
            matching = ("-".join(parts[i:]) for i in range(len(parts)))
            host = next((one for one in matching if one in hosts), "")
            if host:
                found.setdefault(host, []).append(name)
    return {host: tuple(names) for host, names in found.items()}


def placement(topology: Topology, machines: Iterable[Machine]) -> Placement | None:
    """Return the placement of hosts: each on the machine through which it is reached."""
    found: dict[str, str] = {}
    for machine in machines:
        node = machine.jump.lower()
        if _NODE_NAME.fullmatch(node):
            for host in machines_of(topology, (machine,)):
                found.setdefault(host, node)
    return Placement(hosts=found) if found else None
