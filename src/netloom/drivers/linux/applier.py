"""Turn one host into what its document says: bridges, VXLAN, network namespaces, routes, filters, shaping, DHCP.

    python3 applier.py apply|plan|remove|show OWNER [FOLDER] < document.json

It needs Python 3.9 and root, and no other file: it is sent to hosts as it is. `plan` prints what `apply` would do.
Everything of an owner is inside network namespaces that this program created. One of them, the fabric, has the
bridges and the VXLAN devices, whose packets leave through the host's own namespace; each member of a bridge is a veth
pair between the fabric and another namespace. So nothing of a document is visible in the host's namespace, and nothing
there can be in its way.

How it stays correct. The state file, OWNER.json in FOLDER or in /run/netloom/linux, has the device and inode of each
namespace, written before the namespace gets its path: only a namespace that is recorded is ever changed or removed. It
also has the document that was applied, and those that were begun: what one of them has and the new one lacks is
removed. Everything else is observed, compared and changed step by step, so a second run changes nothing, and a run
after a kill at any point completes what is missing. If a step fails, the host is turned back into the document before.

The output is one JSON object per line: {"step": ...} for each change, {"problem": ...} for what this host cannot do,
and at the end {"result": "done" | "failed", "changes": N, "error": ..., "problems": [...]}.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import ipaddress
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

Json = dict[str, Any]
Route = tuple[str, str, int]

VERSION = 1
FOLDER = "/run/netloom/linux"
MADE = ".netns"
"""The file with what was made of the folder of namespaces, for all owners."""
NETNS = "/run/netns"
LARGEST = 64 * 2**20
LOCK_SECONDS = 60.0
STOP_SECONDS = 5.0
MOST_PENDING = 16
TOGETHER = 200
"""Namespaces that are created at a time: each needs a file descriptor until it has its path."""
PACKAGES = {"ip": "iproute2", "bridge": "iproute2", "tc": "iproute2", "nft": "nftables", "dnsmasq": "dnsmasq-base"}
EMPTY: Json = {
    "fabric": "",
    "mtu": 0,
    **{key: [] for key in ("namespaces", "bridges", "tunnels", "members", "partitions", "routes", "copies", "dhcp")},
}
ZERO_MAC = "00:00:00:00:00:00"
NETEM = "qdisc add dev lo root netem delay 1ms"
NETEM_LIMIT = 10_000
"""Packets that netem holds, as the agent's does: with its own 1000, a fast link with a delay loses what it must not."""
ALL = "protocol all u32 match u32 0 0"
COPYING = ("qdisc add dev lo clsact", f"filter add dev lo ingress {ALL} action mirred egress mirror dev lo")
NOUNS = {"bridge": "bridge", "vxlan": "tunnel", "veth": "member"}


class Failure(Exception):
    """Why the document cannot be applied, and what to do."""


# The document.

_OWNER = re.compile(r"[a-z0-9][a-z0-9.-]{0,250}")
_SPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
_MAC = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")

Check = Callable[[Any], bool]


def _matches(pattern: re.Pattern[str]) -> Check:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _parses(parse: Callable[[str], object]) -> Check:
    def check(value: Any) -> bool:  # noqa: ANN401  # any JSON
        try:
            return isinstance(value, str) and bool(parse(value)) and "%" not in value
        except ValueError:
            return False

    return check


def _between(low: int, high: int, *kinds: type) -> Check:
    return lambda value: type(value) in (int, *kinds) and low <= value <= high


def _list(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _pairs(*checks: Check) -> Check:
    def check(value: Any) -> bool:  # noqa: ANN401  # any JSON
        if not isinstance(value, list) or len(value) != len(checks):
            return False
        return all(check(part) for check, part in zip(checks, value))  # noqa: B905  # Python 3.9 has no strict

    return _list(check)


_space, _device, _mac = _matches(_SPACE), _matches(_DEVICE), _matches(_MAC)
_ip, _block = _parses(ipaddress.ip_address), _parses(ipaddress.ip_network)
_flag: Check = lambda value: isinstance(value, bool)  # noqa: E731  # as short as the others
FIELDS: dict[str, dict[str, Check]] = {
    "namespaces": {"name": _space, "create": _flag, "forward": _flag, "filter": lambda value: value is None},
    "bridges": {"name": _device},
    "tunnels": {
        "name": _device,
        "bridge": lambda value: value == "" or _device(value),
        "vni": _between(1, 2**24 - 1),
        "remotes": _list(_ip),
        "macs": _pairs(_mac, _ip),
    },
    "members": {
        "name": _device,
        "bridge": _device,
        "namespace": _space,
        "interface": _device,
        "mac": _mac,
        "addresses": _list(_parses(ipaddress.ip_interface)),
        "shape": lambda value: value is None,
        "down": _flag,
    },
    "partitions": {"port": _device, "closed": _list(_ip)},
    "routes": {"namespace": _space, "to": _block, "via": _ip, "metric": _between(1, 2**31)},
    "copies": {"source": _device, "received": _flag, "sent": _flag, "target": _device},
    "dhcp": {
        "namespace": _space,
        "interface": _device,
        "network": _block,
        "router": lambda value: value == "" or _ip(value),
        "leases": _pairs(_mac, _ip),
    },
}
PARTS: dict[str, dict[str, Check]] = {
    "filter": {
        "closed": _list(_block),
        "leaving": _pairs(_block, _list(_block)),
        "blocked": _list(_ip),
        "inside": _list(_block),
    },
    "shape": {
        "rate": _between(0, 10**13),
        "burst": _between(0, 2**31),
        "delay": _between(0, 10**8),
        "jitter": _between(0, 10**8),
        "loss": _between(0, 100, float),
    },
}
TOP: dict[str, Check] = {
    "version": lambda value: value == VERSION,
    "fabric": _space,
    "mtu": _between(576, 65535),
    "local": lambda value: value == "" or _ip(value),
    "port": _between(1, 65535),
}


def parse(data: bytes) -> Json:
    """Return a document, or raise Failure with the field at fault."""
    if len(data) > LARGEST:
        raise Failure(f"the document has {len(data)} bytes: at most {LARGEST} are read")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Failure(f"the document is not JSON: {error}") from None
    _object("document", document, {**TOP, **{kind: _list(lambda one: isinstance(one, dict)) for kind in FIELDS}})
    for kind, fields in FIELDS.items():
        for number, one in enumerate(document[kind]):
            at = f"document.{kind}[{number}]"
            for part in fields.keys() & PARTS.keys():
                if one.get(part) is not None:
                    _object(f"{at}.{part}", one[part], PARTS[part])
            _object(at, {key: None if key in PARTS else value for key, value in one.items()}, fields)
    _references(document)
    return dict(document)


def _object(at: str, value: Any, fields: dict[str, Check]) -> None:  # noqa: ANN401  # any JSON
    if not isinstance(value, dict):
        raise Failure(f"{at}: must be an object")
    for key in sorted(value.keys() ^ fields.keys()):
        raise Failure(f"{at}.{key}: " + ("unknown field" if key in value else "is missing"))
    for key, check in fields.items():
        if not check(value[key]):
            raise Failure(f"{at}.{key}: {json.dumps(value[key])[:80]} is not valid")


def _references(document: Json) -> None:
    """Refuse names that are used twice, or that nothing has."""
    spaces = [one["name"] for one in document["namespaces"]]
    devices = [one["name"] for kind in ("bridges", "tunnels", "members") for one in document[kind]]
    ends = [f"{one['interface']} in {one['namespace']}" for one in document["members"]]
    for names in (spaces, devices, ends):
        for first, second in zip(sorted(names), sorted(names)[1:]):  # noqa: B905  # Python 3.9 has neither
            if first == second:
                raise Failure(f"document: {first} is used twice")
    if document["fabric"] not in spaces:
        raise Failure("document.fabric: is not one of the namespaces")
    known = {"bridge": {one["name"] for one in document["bridges"]}, "namespace": {*spaces} - {document["fabric"]}}
    known["bridge"].add("")
    known["port"] = {one["name"] for one in document["members"]}
    known["source"] = known["target"] = {one["name"] for kind in ("tunnels", "members") for one in document[kind]}
    for kind in ("tunnels", "members", "partitions", "routes", "copies", "dhcp"):
        for number, one in enumerate(document[kind]):
            for field in known.keys() & one.keys():
                if one[field] not in known[field]:
                    raise Failure(f"document.{kind}[{number}].{field}: there is no {one[field]}")
    if document["tunnels"] and not document["local"]:
        raise Failure("document.local: is empty, and tunnels need it")


# The kernel.

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEWNET, _BIND, _REC, _SHARED, _DETACH = 0x40000000, 4096, 16384, 1 << 20, 2
_DEATH_SIGNAL, _SETUID = 1, 7
_HERE = "/proc/thread-self/ns/net"


def _libc(name: str, *arguments: object) -> None:
    if getattr(_LIBC, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _identity(path: str) -> list[int] | None:
    """Return the device and inode of a path; None: there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_dev, found.st_ino]


@contextmanager
def _staying() -> Iterator[None]:
    """Come back to the present network namespace at the end."""
    home = os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        _libc("setns", home, _NEWNET)
        os.close(home)


@contextmanager
def inside(space: str) -> Iterator[None]:
    """Be in a network namespace, and start programs in it; "": the host's own."""
    with _staying():
        if space:
            there = os.open(f"{NETNS}/{space}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _libc("setns", there, _NEWNET)
            finally:
                os.close(there)
        yield


def run(argv: Sequence[str], *, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(argv, input=text, capture_output=True, text=True, check=False)


def listed(argv: Sequence[str]) -> list[Json]:
    """Return the JSON list that a program prints."""
    done = run(argv)
    if done.returncode:
        raise Failure(f"{' '.join(argv)}: {done.stderr.strip()}")
    return [one for one in json.loads(done.stdout or "[]") if one]


def _supports(*lines: str) -> bool:
    """Try lines of tc in a namespace that is gone afterwards."""
    with _staying():
        _libc("unshare", _NEWNET)
        return run(["tc", "-batch", "-"], text="".join(f"{line}\n" for line in lines)).returncode == 0


# The state file.


class State:
    """What is recorded about an owner."""

    def __init__(self, owner: str, home: str = FOLDER) -> None:
        if not _OWNER.fullmatch(owner):
            raise Failure(f"the owner {owner!r} is not a name of a-z, 0-9, . and -")
        if not os.path.isabs(home):
            raise Failure(f"the folder {home!r} is not an absolute path")
        self.path, self.folder, self._lock = (f"{home}/{owner}{end}" for end in (".json", ".d", ".lock"))
        self._owner, self._home, self._made = owner, home, f"{home}/{MADE}"
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            self._boot = file.read().strip()
        self.spaces: dict[str, list[int]] = {}
        """The identity of each namespace that was created."""
        self.applied: Json = EMPTY
        self.pending: list[Json] = []
        """Documents whose runs have not ended: the present one, and those that were killed."""
        self.seen: Json = {}
        """Filters and queues: what was wanted, and what the kernel showed then."""

    def read(self) -> None:
        """Read the file, if there is one."""
        try:
            with open(self.path, "rb") as file:
                found = json.loads(file.read(2 * LARGEST))
            same = found["boot"] == self._boot
            self.applied, *self.pending = [{**EMPTY, **one} for one in (found["applied"], *found["pending"])]
            self.seen = found["seen"]
            self.spaces = found["spaces"] if same else {}
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError) as error:
            raise Failure(f"{self.path} cannot be read ({error}): remove it and the namespaces by hand") from None

    def write(self) -> None:
        """Replace the file as a whole."""
        keys = ("applied", "pending", "spaces", "seen")
        _replace(self.path, {"boot": self._boot, **{key: getattr(self, key) for key in keys}})

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other runs for this owner; leave no empty folder at the end."""
        until = time.monotonic() + LOCK_SECONDS
        while True:
            os.makedirs(self._home, mode=0o700, exist_ok=True)
            try:
                file = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # Another run removed the folder.
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found = os.fstat(file)
                if _identity(self._lock) == [found.st_dev, found.st_ino]:
                    break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Failure(f"another run for {self._owner} holds {self._lock}: wait until it ends") from None
                time.sleep(0.05)
            os.close(file)
        try:
            yield
        finally:
            if not os.path.exists(self.path):
                os.unlink(self._lock)
                for folder in (self._home, os.path.dirname(self._home)):
                    _remove_empty(folder)
            os.close(file)

    def forget(self) -> None:
        """Remove the files; what they allow to remove goes before them."""
        with self._folder_of_namespaces() as made:
            # The last owner returns the folder of namespaces as the first one found it.
            if made and not self.others():
                _LIBC.umount2(NETNS.encode(), 0)  # It fails, and should, while somebody else has namespaces there.
                if made == "folder":
                    _remove_empty(NETNS)
                os.unlink(self._made)
            for path in (f"{self.path}.part", self.path):
                if os.path.exists(path):
                    os.unlink(path)

    def share_folder(self) -> None:
        """Prepare the folder of namespaces as `ip netns add` does: mounts in it reach other mount namespaces."""
        folder = NETNS.encode()
        with self._folder_of_namespaces() as made:
            try:
                _libc("mount", b"", folder, b"none", _SHARED | _REC, None)
            except OSError:  # It is no mount, or does not exist.
                made = made or ("mount" if os.path.isdir(NETNS) else "folder")
                _replace(self._made, {"boot": self._boot, "made": made})
                os.makedirs(NETNS, mode=0o755, exist_ok=True)
                _libc("mount", folder, folder, b"none", _BIND | _REC, None)
                _libc("mount", b"", folder, b"none", _SHARED | _REC, None)

    @contextmanager
    def _folder_of_namespaces(self) -> Iterator[str]:
        """Exclude other owners from the folder of namespaces; yield what was made of it: "", "mount" or "folder".

        The lock of this owner is in the locked folder, so that nobody removes it.
        """
        lock = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = _read_json(self._made)
            yield str(found.get("made", "")) if found.get("boot") == self._boot else ""
        finally:
            os.close(lock)

    def others(self) -> list[str]:
        """Return the paths of the state files of other owners."""
        names = sorted(os.listdir(self._home)) if os.path.isdir(self._home) else []
        return [path for name in names if name.endswith(".json") and (path := f"{self._home}/{name}") != self.path]

    def known(self) -> list[Json]:
        """Return the documents whose parts may exist."""
        return [self.applied, *self.pending]


def _replace(path: str, content: Json) -> None:
    """Replace a private file as a whole."""
    with open(os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(content))
    os.replace(f"{path}.part", path)


def _read_json(path: str) -> Json:
    """Return the object that a file of ours has; a file that is missing or damaged has none."""
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read(2 * LARGEST))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _remove_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        pass  # It is not empty, or another run was faster.


# What is observed.


class Space:
    """What one network namespace has now; "": nothing."""

    def __init__(self, name: str, *, versions: Sequence[int] = ()) -> None:
        self.links: dict[str, Json] = {}
        self.routes: set[Route] = set()
        if not name:
            return
        self.links = {one["ifname"]: one for one in listed(["ip", "-n", name, "-j", "-d", "addr", "show"])}
        for version in versions:
            everything = "::/0" if version == 6 else "0.0.0.0/0"
            for one in listed(["ip", "-n", name, "-j", f"-{version}", "route", "show"]):
                to = everything if one["dst"] == "default" else one["dst"]
                self.routes.add((str(ipaddress.ip_network(to)), one.get("gateway", ""), one.get("metric", 0)))

    def addresses(self, device: str) -> set[str]:
        """Return the addresses of a device, as 10.0.0.1/24."""
        found = self.links.get(device, {}).get("addr_info", ())
        return {f"{one['local']}/{one['prefixlen']}" for one in found}

    def is_up(self, device: str) -> bool:
        """Whether a device is set up."""
        return "UP" in self.links.get(device, {}).get("flags", ())


def queues(space: str, device: str = "") -> dict[str, list[Json]]:
    """Return the queues of devices of a namespace, of all or of one, that have other ones than the kernel's own."""
    found: dict[str, list[Json]] = {}
    for one in listed(["tc", "-n", space, "-j", "qdisc", "show", *(["dev", device] if device else [])]):
        if one["kind"] in ("tbf", "netem"):
            place = "root" if one.get("root") else one.get("parent", "")
            found.setdefault(one.get("dev", device), []).append(
                {"kind": one["kind"], "at": place, "options": one.get("options")}
            )
    return found


def filters(space: str, device: str) -> list[Json]:
    """Return the queue of filters of a device, and the filters, as tc prints them; none: there is no such queue."""
    argv = ["tc", "-n", space, "-j"]
    if not run([*argv, "qdisc", "show", "dev", device, "clsact"]).stdout.strip(" []\n"):
        return []
    found = [one for way in ("ingress", "egress") for one in listed([*argv, "filter", "show", "dev", device, way])]
    return [{"kind": "clsact"}, *found]


def table(space: str, family: str = "inet") -> str:
    """Return the filter of a namespace as nft prints it."""
    with inside(space):
        return run(["nft", "list", "table", family, "netloom"]).stdout


def differing(space: str, settings: dict[str, str]) -> dict[str, str]:
    """Return the settings that have another value in a namespace."""
    found = {}
    with inside(space):
        for path, value in settings.items():
            try:
                with open(path, encoding="ascii") as file:
                    if file.read().strip() != value:
                        found[path] = value
            except FileNotFoundError:
                pass  # This kernel does not have it: it has no IPv6, for example.
    return found


# The comparison.


class Step(NamedTuple):
    """One change: lines for a program in batch mode in a namespace, or a call."""

    text: str
    tool: str = ""
    space: str = ""
    lines: tuple[str, ...] = ()
    call: Callable[[], None] | None = None


class Host:
    """The host, as far as it belongs to one owner."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.changes = 0
        self.problems: list[str] = []

    def converge(self, wanted: Json, *, dry: bool = False) -> None:
        """Turn the host into what a document says; dry: only print the steps."""
        self.problems = []
        self._require_tools(wanted)
        # Each phase observes what those before it have made. Filters come before there is an interface.
        self._carry_out(self._removals(wanted), dry=dry)
        self._carry_out(self._namespaces(wanted), dry=dry)
        self._carry_out(self._settings(wanted), dry=dry)
        self._carry_out(self._fabric(wanted), dry=dry)
        self._carry_out(self._partitions(wanted), dry=dry)
        self._carry_out(self._interiors(wanted), dry=dry)
        self._carry_out(self._shapes(wanted), dry=dry)
        self._carry_out(self._copies(wanted), dry=dry)
        self._carry_out(self._servers(wanted), dry=dry)

    def _report(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
            emit({"problem": problem})

    def _carry_out(self, steps: Sequence[Step], *, dry: bool) -> None:
        at = 0
        while at < len(steps):
            end = at + 1
            while end < len(steps) and steps[at].tool and steps[end][1:3] == steps[at][1:3]:
                end += 1
            if not dry:
                _run_steps(steps[at:end])
            for one in steps[at:end]:
                self.changes += 1
                emit({"step": one.text})
            at = end

    def _require_tools(self, wanted: Json) -> None:
        needed = {"ip", "bridge", "tc"}
        is_filtered = wanted["partitions"] or any(one["filter"] for one in wanted["namespaces"])
        needed |= {"nft"} if is_filtered else set()
        needed |= {"dnsmasq"} if wanted["dhcp"] else set()
        missing = sorted(tool for tool in needed if shutil.which(tool) is None)
        if missing:
            packages = " ".join(sorted({PACKAGES[tool] for tool in missing}))
            raise Failure(f"this host lacks {', '.join(missing)}: run apt-get install {packages}")

    # Namespaces.

    def _is_ours(self, name: str) -> bool:
        return name in self._state.spaces and _identity(f"{NETNS}/{name}") == self._state.spaces[name]

    def _is_unfinished(self, name: str) -> bool:
        """Whether a path is the empty file on which a recorded namespace was to be mounted."""
        path = f"{NETNS}/{name}"
        if name not in self._state.spaces or not os.path.isfile(path):
            return False
        return os.stat(path).st_dev == os.stat(NETNS).st_dev and os.path.getsize(path) == 0

    def _present(self, wanted: Json) -> dict[str, bool]:
        """Return the namespaces to put interfaces into, and whether each exists: in a dry run it may not."""
        every = {one["name"]: self._is_ours(one["name"]) for one in wanted["namespaces"] if one["create"]}
        others = (one["name"] for one in wanted["namespaces"] if not one["create"])
        return {**every, **{name: True for name in others if os.path.exists(f"{NETNS}/{name}")}}

    def _removals(self, wanted: Json) -> list[Step]:
        """Return what removes servers, links and namespaces that the document does not have."""
        servers = self._configs(wanted)
        steps = [
            Step(f"DHCP server {space} stopped", call=partial(self._stop, path, pid))
            for path, space, pid in self._running()
            if path not in servers or not self._is_ours(space) or not os.path.exists(path)
        ]
        # A namespace that is gone keeps its links for a moment, and a VXLAN device its number: remove them by name.
        for fabric in sorted({one["fabric"] for one in (*self._state.known(), wanted)}):
            if self._is_ours(fabric):
                steps += self._stale_links(fabric, wanted if fabric == wanted["fabric"] else EMPTY)
        kept = {one["name"] for one in wanted["namespaces"] if one["create"]}
        for name in sorted(self._state.spaces.keys() - kept):
            steps.append(Step(f"namespace {name} removed", call=partial(self._discard, name)))
        return steps

    def _stale_links(self, fabric: str, wanted: Json) -> Iterator[Step]:
        present = self._present(wanted)
        bridges = {one["name"] for one in wanted["bridges"]}
        tunnels = {one["name"]: one for one in wanted["tunnels"]}
        members = {one["name"]: one for one in wanted["members"] if present.get(one["namespace"])}
        inner = {name: Space(name).links for name in sorted({one["namespace"] for one in members.values()})}
        for name, link in sorted(Space(fabric).links.items()):
            kind = link.get("linkinfo", {}).get("info_kind", "")
            keep = name == "lo" or (kind == "bridge" and name in bridges)
            if kind == "vxlan" and name in tunnels:
                keep = _same_tunnel(link["linkinfo"]["info_data"], tunnels[name], wanted)
            elif kind == "veth" and name in members:
                peer = inner[members[name]["namespace"]].get(members[name]["interface"], {})
                keep = (peer.get("ifindex"), peer.get("link_index")) == (link.get("link_index"), link["ifindex"])
            if not keep:
                yield Step(f"{NOUNS.get(kind, 'device')} {name} removed", "ip", fabric, (f"link del {name}",))

    def _discard(self, name: str) -> None:
        path = f"{NETNS}/{name}"
        if self._is_ours(name):
            _libc("umount2", path.encode(), _DETACH)
        if self._is_unfinished(name):
            os.unlink(path)
        # The file has it until the next write: a record without a namespace does no harm.
        del self._state.spaces[name]

    def _namespaces(self, wanted: Json) -> list[Step]:
        """Return what creates the namespaces."""
        present = self._present(wanted)
        missing: list[Json] = []
        for one in wanted["namespaces"]:
            name = one["name"]
            if present.get(name):
                continue
            if not one["create"]:
                self._report(f"namespace {name} does not exist: create it, then apply again")
                continue
            if os.path.lexists(f"{NETNS}/{name}") and not self._is_unfinished(name):
                raise Failure(f"namespace {name} exists and is not of this owner: remove it, or choose another name")
            missing.append(one)
        steps: list[Step] = []
        for at in range(0, len(missing), TOGETHER):
            first, *others = missing[at : at + TOGETHER]
            create = partial(self._create, [first, *others], wanted["fabric"])
            steps.append(Step(f"namespace {first['name']} created", call=create))
            steps += [Step(f"namespace {one['name']} created", call=_nothing) for one in others]
        return steps

    def _create(self, spaces: Sequence[Json], fabric: str) -> None:
        """Create namespaces: all of them without a path, then the record, then their paths."""
        self._state.share_folder()
        files: dict[str, int] = {}
        try:
            with _staying():
                for one in spaces:
                    _libc("unshare", _NEWNET)
                    files[one["name"]] = os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)
                    _set_all("", _sysctls(one, fabric))
            for name, file in files.items():
                if self._is_unfinished(name):
                    os.unlink(f"{NETNS}/{name}")
                found = os.fstat(file)
                self._state.spaces[name] = [found.st_dev, found.st_ino]
            self._state.write()
            for name, file in files.items():
                path = f"{NETNS}/{name}"
                os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o444))
                _libc("mount", f"/proc/thread-self/fd/{file}".encode(), path.encode(), b"none", _BIND, None)
        finally:
            for file in files.values():
                os.close(file)

    def _settings(self, wanted: Json) -> list[Step]:
        """Return what sets sysctls that differ, and filters."""
        steps = []
        before = {one["name"] for known in self._state.known() for one in known["namespaces"] if one["filter"]}
        for one in wanted["namespaces"]:
            name = one["name"]
            if not one["create"]:
                continue
            there = self._is_ours(name)
            found = differing(name, _sysctls(one, wanted["fabric"])) if there else {}
            if found:
                steps.append(Step(f"sysctls of {name} set", call=partial(_set_all, name, found)))
            if one["filter"] or (there and name in before):
                script = _nft(one["filter"])
                if not there or self._state.seen.get(f"{name} filter") != [script, table(name)]:
                    steps.append(
                        Step(f"filter of {name} set", call=partial(self._filter, name, script, "inet", "filter"))
                    )
        return steps

    def _filter(self, name: str, script: str, family: str, word: str) -> None:
        with inside(name):
            done = run(["nft", "-f", "-"], text=script)
        if done.returncode:
            raise Failure(f"{word} of {name}: {done.stderr.strip()}")
        self._state.seen[f"{name} {word}"] = [script, table(name, family)]

    def _partitions(self, wanted: Json) -> list[Step]:
        """Return what makes ports drop frames for the other side of a partition, or no longer."""
        fabric, ours = wanted["fabric"], self._is_ours(wanted["fabric"])
        had = any(known["partitions"] and known["fabric"] == fabric for known in self._state.known())
        if not wanted["partitions"] and not (had and ours):
            return []
        # Without a port there is nothing to drop from it, and nft would refuse the script.
        ports = Space(fabric).links if ours else {}
        script = _nft_ports([one for one in wanted["partitions"] if not ours or one["port"] in ports])
        if ours and self._state.seen.get(f"{fabric} partitions") == [script, table(fabric, "netdev")]:
            return []
        call = partial(self._filter, fabric, script, "netdev", "partitions")
        return [Step(f"partitions of {fabric} set", call=call)]

    # Links.

    def _fabric(self, wanted: Json) -> list[Step]:
        """Return what creates bridges, tunnels and members, and connects them."""
        fabric, mtu, present = wanted["fabric"], wanted["mtu"], self._present(wanted)
        seen = Space(fabric if present.get(fabric) else "")
        steps: list[Step] = []

        def change(text: str, *lines: str, space: str = fabric) -> None:
            steps.append(Step(text, "ip", space, lines))

        members = [one for one in wanted["members"] if one["namespace"] in present]
        for one in wanted["bridges"]:
            if one["name"] not in seen.links:
                bridge = "bridge mcast_snooping 0 forward_delay 0"
                change(f"bridge {one['name']} created", f"link add name {one['name']} mtu {mtu} type {bridge}")
        for one in wanted["tunnels"]:
            if one["name"] not in seen.links:
                # Created from the host's namespace, which its packets leave through, in that of the fabric.
                vxlan = f"vxlan id {one['vni']} local {wanted['local']} dstport {wanted['port']} nolearning ttl 64"
                line = f"link add name {one['name']} netns {fabric} mtu {mtu} type {vxlan}"
                change(f"tunnel {one['name']} created", line, space="")
        for one in members:
            if one["name"] not in seen.links:
                peer = f"peer name {one['interface']} netns {one['namespace']} address {one['mac']} mtu {mtu}"
                change(f"member {one['name']} created", f"link add name {one['name']} mtu {mtu} type veth {peer}")
        for one in (*wanted["bridges"], *wanted["tunnels"], *members):
            name, bridge = one["name"], one.get("bridge", "")
            link = seen.links.get(name, {"mtu": mtu})
            state = "down" if one.get("down") else "up"
            if link.get("master", "") != bridge:
                master = f"master {bridge}" if bridge else "nomaster"
                change(f"{name} joined {bridge or 'no bridge'}", f"link set {name} {master} mtu {mtu} {state}")
            elif seen.is_up(name) != (state == "up") or link["mtu"] != mtu:
                change(f"{name} {state}, MTU {mtu}", f"link set {name} mtu {mtu} {state}")
        return steps + self._forwarding(wanted)

    def _forwarding(self, wanted: Json) -> list[Step]:
        """Return what sets the forwarding entries of tunnels: addresses behind other hosts, and floods to all."""
        fabric, steps = wanted["fabric"], []
        seen: dict[str, set[tuple[str, str]]] = {}
        if wanted["tunnels"] and self._is_ours(fabric):
            for one in listed(["bridge", "-n", fabric, "-j", "fdb", "show"]):
                if "dst" in one:
                    seen.setdefault(one["ifname"], set()).add((one["mac"], one["dst"]))
        for one in wanted["tunnels"]:
            pairs = {(mac, ip) for mac, ip in one["macs"]} | {(ZERO_MAC, ip) for ip in one["remotes"]}
            found, name = seen.get(one["name"], set()), one["name"]
            lines = [
                f"fdb {'append' if mac == ZERO_MAC else 'replace'} {mac} dev {name} dst {ip} self permanent"
                for mac, ip in sorted(pairs - found)
            ]
            moved = {mac for mac, _ in pairs} - {ZERO_MAC}
            gone = [(mac, ip) for mac, ip in sorted(found - pairs) if mac not in moved]
            lines += [f"fdb del {mac} dev {name} dst {ip} self" for mac, ip in gone]
            if lines:
                text = f"forwarding of {name} set: {len(lines)} entries"
                steps.append(Step(text, "bridge", fabric, tuple(lines)))
        return steps

    def _interiors(self, wanted: Json) -> list[Step]:
        """Return what sets the addresses and routes inside namespaces."""
        steps: list[Step] = []
        known = self._state.known()
        members, routes = _by_space([wanted], "members"), _by_space([wanted], "routes")
        members_before, routes_before = _by_space(known, "members"), _by_space(known, "routes")
        every = [ipaddress.ip_address(one["via"]) for document in (wanted, *known) for one in document["routes"]]
        versions = sorted({one.version for one in every})
        created = {one["name"] for one in wanted["namespaces"] if one["create"]}
        for name, there in sorted(self._present(wanted).items()):
            if name == wanted["fabric"]:
                continue
            seen = Space(name if there else "", versions=versions)
            old = {(one["interface"], ip) for one in members_before.get(name, ()) for ip in one["addresses"]}
            desired = {_route(one) for one in routes.get(name, ())}
            for to, via, metric in sorted(
                ({_route(one) for one in routes_before.get(name, ())} - desired) & seen.routes
            ):
                line = f"route del {to} via {via} metric {metric}"
                steps.append(Step(f"route to {to} via {via} in {name} removed", "ip", name, (line,)))
            if name in created and not seen.is_up("lo"):
                steps.append(Step(f"lo in {name} up", "ip", name, ("link set lo up",)))
            for one in members.get(name, ()):
                steps += _interface(one, seen, old, wanted["mtu"])
            for to, via, metric in sorted(desired - seen.routes):
                line = f"route add {to} via {via} metric {metric}"
                steps.append(Step(f"route to {to} via {via} in {name} added", "ip", name, (line,)))
        return steps

    # Shaping and copies.

    def _shapes(self, wanted: Json) -> list[Step]:
        """Return what sets the queues of shaped links, at both ends, and removes those of others."""
        present = self._present(wanted)
        shaped = [one for one in wanted["members"] if one["shape"] and one["namespace"] in present]
        netem = any(one["shape"]["delay"] or one["shape"]["loss"] for one in shaped) and _supports(NETEM)
        ends: dict[tuple[str, str], list[str]] = {}
        for known in self._state.known():
            ends.update({end: [] for one in known["members"] if one["shape"] for end in _ends(known, one)})
        for one in shaped:
            if (one["shape"]["delay"] or one["shape"]["loss"]) and not netem:
                text = f"{one['interface']} in {one['namespace']}: delay, jitter and loss are not applied"
                self._report(f"{text}: the kernel of this host has no netem (module sch_netem)")
            ends.update({end: _queue(one["shape"], end[1], netem=netem) for end in _ends(wanted, one)})
        seen = {space: queues(space) for space, _ in ends if present.get(space)}
        found = {(space, device): seen.get(space, {}).get(device, []) for space, device in ends if space in present}
        return self._queueing("shaped", "root", ends, found)

    def _copies(self, wanted: Json) -> list[Step]:
        """Return what copies frames between devices of the fabric, and ends the copies of others."""
        fabric = wanted["fabric"]
        if wanted["copies"] and not _supports(*COPYING):
            self._report("frames are not copied: the kernel of this host has no cls_u32 or act_mirred")
            wanted = {**wanted, "copies": []}
        present = self._present(wanted)
        devices = {one["name"] for kind in ("tunnels", "members") for one in wanted[kind]}
        ends: dict[tuple[str, str], list[str]] = {
            (fabric, one["source"]): []
            for known in self._state.known()
            for one in known["copies"]
            if known["fabric"] == fabric and one["source"] in devices
        }
        ends.update({(fabric, device): lines for device, lines in _copy_lines(wanted["copies"]).items()})
        found = {(space, device): filters(space, device) if present[space] else [] for space, device in ends}
        return self._queueing("copied", "clsact", ends, found)

    def _queueing(
        self, word: str, place: str, ends: dict[tuple[str, str], list[str]], found: dict[tuple[str, str], list[Json]]
    ) -> list[Step]:
        """Return what gives devices the queues of `ends`; found: those that they have."""
        steps = []
        for (space, device), seen in sorted(found.items()):
            lines, key = ends[space, device], f"{space} {device} {word}"
            clear = [f"qdisc del dev {device} {place}"] if seen else []
            if self._state.seen.get(key, [[], []]) != [lines, seen] and (lines or clear):
                text = f"{device} in {space} {word if lines else 'no longer ' + word}"
                steps.append(Step(text, call=partial(self._queue, key, place, [*clear, *lines], lines)))
        return steps

    def _queue(self, key: str, place: str, batch: list[str], lines: list[str]) -> None:
        space, device, _ = key.split(" ")
        _run_steps([Step(key, "tc", space, tuple(batch))])
        seen = queues(space, device).get(device, []) if place == "root" else filters(space, device)
        self._state.seen[key] = [lines, seen]

    # DHCP.

    def _configs(self, wanted: Json) -> dict[str, tuple[str, str]]:
        """Return the namespace and the configuration of each server, by the path of the configuration."""
        found = {}
        for one in wanted["dhcp"]:
            text = _dnsmasq(one, wanted["mtu"])
            digest = hashlib.sha256(f"{one['namespace']}\n{text}".encode()).hexdigest()[:32]
            found[f"{self._state.folder}/{digest}.conf"] = (one["namespace"], text)
        return found

    def _running(self) -> list[tuple[str, str, int]]:
        """Return the servers of this owner: the path of the configuration, the namespace and the process."""
        if not os.path.isdir(self._state.folder):
            return []
        every = (int(one) for one in os.listdir("/proc") if one.isdigit())
        return sorted((*found, pid) for pid in every if (found := self._server(pid)))

    def _server(self, pid: int) -> tuple[str, str] | None:
        """Return the configuration and the namespace of a process, if it is a server of ours that still runs.

        Both the argument and the network namespace must be ours: a process of anybody else does not have both.
        """
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                arguments = os.fsdecode(file.read(65536)).split("\0")
        except OSError:
            return None
        start = f"--conf-file={self._state.folder}/"
        path = next((one for one in arguments if one.startswith(start)), "").partition("=")[2]
        here = _identity(f"/proc/{pid}/ns/net") if path else None
        space = next((name for name, known in self._state.spaces.items() if known == here), "")
        return (path, space) if space else None

    def _stop(self, path: str, pid: int) -> None:
        # First of all its configuration goes: if this run ends now, the next one knows that the server is ending.
        if os.path.exists(path):
            os.unlink(path)
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            # From now on the number cannot mean another process: is it still the server?
            for number in (signal.SIGTERM, signal.SIGKILL):
                if (self._server(pid) or ("", ""))[0] == path:
                    signal.pidfd_send_signal(process, number)
                    waiting = select.poll()
                    waiting.register(process, select.POLLIN)
                    waiting.poll(STOP_SECONDS * 1000)
        except ProcessLookupError:
            return
        finally:
            os.close(process)

    def _servers(self, wanted: Json) -> list[Step]:
        running = {path for path, _, _ in self._running() if os.path.exists(path)}
        return [
            Step(f"DHCP server {space} started", call=partial(self._start, path, space, text))
            for path, (space, text) in sorted(self._configs(wanted).items())
            if path not in running
        ]

    def _start(self, path: str, space: str, text: str) -> None:
        os.makedirs(self._state.folder, mode=0o755, exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        with inside(space):
            done = run(["dnsmasq", f"--conf-file={path}"])
        if done.returncode:
            raise Failure(f"DHCP server {space}: {done.stderr.strip()}")

    # The end.

    def finish(self, reached: Json) -> None:
        """Record the document that the host has reached, and remove what it does not need."""
        state = self._state
        if os.path.isdir(state.folder):
            for name in set(os.listdir(state.folder)) - {os.path.basename(path) for path in self._configs(reached)}:
                os.unlink(f"{state.folder}/{name}")
            _remove_empty(state.folder)
        state.applied, state.pending = reached, []
        present = self._present(reached)
        state.seen = {key: seen for key, seen in state.seen.items() if key.split(" ")[0] in present}
        if reached == EMPTY:
            state.forget()
        else:
            state.write()

    def show(self) -> Json:
        """Return what there is of this owner; VNIs of other owners, and the MTU at each address of the host."""
        fabric = self._state.applied["fabric"]
        return {
            "document": None if self._state.applied == EMPTY else self._state.applied,
            "namespaces": {name: self._is_ours(name) for name in sorted(self._state.spaces)},
            "devices": sorted(Space(fabric if self._is_ours(fabric) else "").links),
            "vnis": sorted(one["vni"] for one in self._state.applied["tunnels"]),
            "dhcp": {space: pid for _, space, pid in self._running()},
            "unfinished": bool(self._state.pending),
            "taken": sorted({vni for path in self._state.others() for vni in _vnis(_read_json(path))}),
            "mtus": _mtus(),
        }


def _run_steps(group: Sequence[Step]) -> None:
    """Carry out a call, or the lines of several steps by one program."""
    call, tool, space = group[0].call, group[0].tool, group[0].space
    if call is not None:
        try:
            call()
        except OSError as error:
            raise Failure(f"{group[0].text}: {error}") from None
        return
    lines = [(line, one.text) for one in group for line in one.lines]
    argv = [tool, *(["-n", space] if space else []), "-batch", "-"]
    done = run(argv, text="".join(f"{line}\n" for line, _ in lines))
    if done.returncode:
        found = re.search(r"Command failed -:(\d+)", done.stderr)
        line, text = lines[min(int(found[1]), len(lines)) - 1] if found else lines[0]
        raise Failure(f"{text}: {tool} {line}: {done.stderr.partition('Command failed')[0].strip()}")


def _vnis(state: Json) -> Iterator[int]:
    """Yield the VNIs of the documents in a state file."""
    for document in (state.get("applied", EMPTY), *state.get("pending", ())):
        yield from (one["vni"] for one in document["tunnels"])


def _mtus() -> dict[str, int]:
    """Return the MTU of the device that has each address of the host; loopback devices are none for other hosts."""
    found = listed(["ip", "-j", "addr", "show"]) if shutil.which("ip") else []
    links = [one for one in found if "LOOPBACK" not in one["flags"]]
    return {ip["local"]: one["mtu"] for one in links for ip in one.get("addr_info", ()) if "local" in ip}


def _nothing() -> None:
    """Do nothing: the step before has done it."""


def _same_tunnel(found: Json, wanted: Json, document: Json) -> bool:
    local = found.get("local") or found.get("local6") or "::"
    here = (found.get("id"), found.get("port"), found.get("learning"), ipaddress.ip_address(local))
    return here == (wanted["vni"], document["port"], False, ipaddress.ip_address(document["local"]))


def _by_space(documents: Sequence[Json], kind: str) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for one in (one for document in documents for one in document[kind]):
        found.setdefault(one["namespace"], []).append(one)
    return found


def _route(one: Json) -> Route:
    return str(ipaddress.ip_network(one["to"])), str(ipaddress.ip_address(one["via"])), one["metric"]


def _interface(one: Json, seen: Space, old: set[tuple[str, str]], mtu: int) -> Iterator[Step]:
    """Return what sets up the interface of a member; new addresses come before old ones go."""
    name, device = one["namespace"], one["interface"]
    link = seen.links.get(device, {"address": one["mac"], "mtu": mtu})
    if (link["address"], link["mtu"]) != (one["mac"], mtu):
        line = f"link set {device} address {one['mac']} mtu {mtu}"
        yield Step(f"MAC and MTU of {device} in {name} set", "ip", name, (line,))
    wanted, found = {str(ipaddress.ip_interface(ip)) for ip in one["addresses"]}, seen.addresses(device)
    for ip in sorted(wanted - found):
        line = f"addr add {ip} dev {device}{' nodad' if ':' in ip else ''}"
        yield Step(f"address {ip} of {device} in {name} added", "ip", name, (line,))
    for ip in sorted({str(ipaddress.ip_interface(ip)) for where, ip in old if where == device} & found - wanted):
        yield Step(f"address {ip} of {device} in {name} removed", "ip", name, (f"addr del {ip} dev {device}",))
    if not seen.is_up(device):
        yield Step(f"{device} in {name} up", "ip", name, (f"link set {device} up",))


def _copy_lines(copies: Sequence[Json]) -> dict[str, list[str]]:
    """Return the lines of tc that copy frames, by source."""
    found: dict[str, dict[str, str]] = {}
    for one in copies:
        ways = found.setdefault(one["source"], {})
        for way in [way for way, key in (("ingress", "received"), ("egress", "sent")) if one[key]]:
            ways[way] = f"{ways.get(way, '')} action mirred egress mirror dev {one['target']}"
    return {
        device: [
            f"qdisc add dev {device} clsact",
            *(f"filter add dev {device} {way} {ALL}{actions}" for way, actions in sorted(ways.items())),
        ]
        for device, ways in found.items()
    }


def _ends(document: Json, member: Json) -> list[tuple[str, str]]:
    return [(document["fabric"], member["name"]), (member["namespace"], member["interface"])]


def _queue(shape: Json, device: str, *, netem: bool) -> list[str]:
    """Return the lines of tc for one end of a shaped link."""
    lines, parent = [], "root"
    if netem and (shape["delay"] or shape["loss"]):
        quality = f"limit {NETEM_LIMIT} delay {shape['delay']}us {shape['jitter']}us loss {shape['loss']}%"
        lines.append(f"qdisc add dev {device} root handle 1: netem {quality}")
        parent = "parent 1:"
    if shape["rate"]:
        rate = f"rate {shape['rate']}bit burst {shape['burst']}b latency 50ms"
        lines.append(f"qdisc add dev {device} {parent} tbf {rate}")
    return lines


def _sysctls(space: Json, fabric: str) -> dict[str, str]:
    """Return the settings of a namespace, which inherits some from the host.

    Without redirects and reverse path filters, packets take the ways that the document gives. The fabric forwards
    frames only.
    """
    forward = str(int(space["forward"]))
    found = {"ipv4/ip_forward": forward}
    for scope in ("all", "default"):
        at = f"ipv4/conf/{scope}"
        found.update({f"{at}/{key}": "0" for key in ("rp_filter", "send_redirects", "accept_redirects")})
        found[f"{at}/promote_secondaries"] = "1"
        at = f"ipv6/conf/{scope}"
        found.update({f"{at}/disable_ipv6": str(int(space["name"] == fabric)), f"{at}/forwarding": forward})
        found.update({f"{at}/accept_redirects": "0", f"{at}/accept_ra": "0"})
    return {f"/proc/sys/net/{key}": value for key, value in found.items()}


def _set_all(space: str, settings: dict[str, str]) -> None:
    """Set what differs in a namespace; "": the present one."""
    for path, value in differing(space, settings).items():
        with inside(space), open(path, "w", encoding="ascii") as file:
            file.write(value)


def _nft(rules: Json | None) -> str:
    """Return the script that replaces the filter of a router; None: removes it."""
    lines = []
    for family, version in (("ip", 4), ("ip6", 6)):
        closed, blocked, inner = (_set(rules, key, version) for key in ("closed", "blocked", "inside"))
        if closed:
            lines.append(f"{family} daddr {closed} drop")
        for source, joined in (rules or {}).get("leaving", ()):
            if ipaddress.ip_network(source).version == version:
                others = _set({"joined": joined}, "joined", version)
                lines.append(f"{family} saddr {source} {f'{family} daddr != {others} ' if others else ''}drop")
        if blocked:
            lines.append(f"{family} saddr {blocked} {f'{family} daddr != {inner} ' if inner else ''}drop")
    chain = "\n".join(["type filter hook forward priority 0; policy accept;", *lines])
    made = f"table inet netloom {{\nchain forward {{\n{chain}\n}}\n}}\n" if lines else ""
    return f"table inet netloom\ndelete table inet netloom\n{made}"


def _nft_ports(partitions: Sequence[Json]) -> str:
    """Return the script that replaces the filters of ports of the fabric; none: removes them."""
    chains = []
    for number, one in enumerate(partitions):
        lines = [f'type filter hook ingress device "{one["port"]}" priority 0; policy accept;']
        for family, version in (("ip", 4), ("ip6", 6)):
            if closed := _set(one, "closed", version):
                lines.append(f"{family} daddr {closed} drop")
        body = "\n".join(lines)
        chains.append(f"chain port{number} {{\n{body}\n}}\n")
    made = f"table netdev netloom {{\n{''.join(chains)}}}\n" if chains else ""
    return f"table netdev netloom\ndelete table netdev netloom\n{made}"


def _set(rules: Json | None, key: str, version: int) -> str:
    found = sorted({one for one in (rules or {}).get(key, ()) if ipaddress.ip_network(one).version == version})
    return f"{{ {', '.join(found)} }}" if found else ""


def _may_change_user() -> bool:
    """Whether this process may run a program as another user: root in a container, or under systemd, may not."""
    with open("/proc/self/status", encoding="ascii") as file:
        found = re.search(r"^CapEff:\s*([0-9a-f]+)$", file.read(), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> _SETUID & 1)


def _dnsmasq(one: Json, mtu: int) -> str:
    """Return the configuration of a DHCP server: fixed leases only, no DNS, no file of its own."""
    network = ipaddress.ip_network(one["network"])
    lines = ["port=0", "no-resolv", "no-hosts", "no-ping", "leasefile-ro", "pid-file=", "dhcp-authoritative"]
    lines += [f"interface={one['interface']}", "bind-interfaces", "except-interface=lo"]
    lines += [f"dhcp-range={network.network_address},static,{network.netmask},12h", f"dhcp-option=26,{mtu}"]
    lines += [f"dhcp-option=3{',' + one['router'] if one['router'] else ''}", "dhcp-option=6"]
    lines += [f"dhcp-host={mac},{ip}" for mac, ip in sorted(map(tuple, one["leases"]))]
    lines += [] if _may_change_user() else ["user=root", "group="]
    return "\n".join(lines) + "\n"


# The verbs.


def emit(line: Json) -> None:
    """Print one line; without a reader the work goes on."""
    try:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def apply(state: State, host: Host, wanted: Json) -> None:
    """Turn the host into a document, or back into the one before if a step fails."""
    state.pending = [*[one for one in state.pending if one != wanted][1 - MOST_PENDING :], wanted]
    state.write()
    try:
        host.converge(wanted)
    except Exception as error:  # noqa: BLE001  # whatever it is, the host must not stay half way
        reason = str(error) if isinstance(error, (Failure, OSError)) else f"{type(error).__name__}: {error}"
        try:
            host.converge(state.applied)
        except (Failure, OSError) as second:
            raise Failure(f"{reason}; and not rolled back: {second}: apply or remove again") from None
        host.changes = 0
        host.finish(state.applied)
        raise Failure(f"{reason}; rolled back") from None
    host.finish(wanted)


def _end_with(parent: str) -> None:
    """End when a process ends that has started this one; "": it does not matter."""
    if parent:
        _libc("prctl", _DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != int(parent):
            sys.exit(1)  # It ended before.


def main(argv: list[str], document: bytes) -> int:
    """Do what `argv`, a verb, an owner and perhaps a folder, asks for; print lines; return the exit status."""
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin"
    os.environ["LC_ALL"] = "C"
    host: Host | None = None
    error = ""
    try:
        if len(argv) not in (2, 3) or argv[0] not in ("apply", "plan", "remove", "show"):
            raise Failure("usage: applier.py apply|plan|remove|show OWNER [FOLDER] < document.json")
        if os.geteuid() != 0:
            raise Failure("this needs root: run it with sudo")
        verb, state = argv[0], State(*argv[1:])
        host = Host(state)
        # A plan without a document is that of a removal.
        wanted = parse(document) if verb == "apply" or (verb == "plan" and document) else EMPTY
        if verb in ("apply", "remove"):
            with state.locked():
                state.read()
                apply(state, host, wanted)
        else:
            state.read()
            if verb == "plan":
                host.converge(wanted, dry=True)
            else:
                emit({"show": host.show()})
    except (Failure, OSError) as failure:
        error = str(failure)
    result = {"result": "failed" if error else "done", "changes": host.changes if host else 0, "error": error}
    emit({**result, "problems": host.problems if host else []})
    return 1 if error else 0


if __name__ == "__main__":
    _end_with(os.environ.pop("NETLOOM_PARENT", ""))
    sys.exit(main(sys.argv[1:], sys.stdin.buffer.read(LARGEST + 1)))
