"""The live state of BGP speakers, from the control sockets of nodes.

A socket answers a line with lines, an item each. They are read as fast as the speaker sends them, checked, kept as the
bytes that came, and decoded one at a time: 100,000 MAC addresses are some megabytes, and the speaker does not wait for
a pager. An answer is bounded in size, because any program may be behind a path that a user gives.
"""

import contextlib
import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from netloom.control.evpn.answers import Request
from netloom.control.evpn.live import SOCKET
from netloom.diagnose.access import Switch
from netloom.errors import BY_REASON, NetloomError, NotFound, Unreachable

ANSWER_SECONDS = 30.0
"""How long a speaker may send nothing."""
LONGEST_LINE = 64 << 20
MOST_BYTES = 2 << 30
"""How long one item, and the answer of one node, may be."""
DATABASE = "unix:/run/openvswitch/db.sock"
"""The switch of this machine, beside which the socket is by default."""
Item = dict[str, Any]


class Place(Struct, frozen=True):
    """A control socket."""

    path: Path
    node: str = ""
    """"": the node of this machine."""


_ITEM = msgspec.json.Decoder(Item)


class _Last(Struct):
    """The last line of an answer; any other line has no `end`."""

    end: bool = False
    error: str = ""
    reason: str = ""


class Answer:
    """The items of an answer, in the order in which they were received."""

    def __init__(self) -> None:
        self.nodes: list[str] = []
        """The nodes that have answered."""
        self.silent: list[str] = []
        """Why others did not."""
        self._lines: list[tuple[str, bytes]] = []

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[Item]:
        """Decode and yield the items."""
        for node, line in self._lines:
            item: Item = msgspec.json.decode(line)
            yield {"node": node, **item} if node else item

    def add(self, node: str, lines: Sequence[bytes]) -> None:
        """Add what one node has answered."""
        self.nodes.append(node)
        self._lines += [(node, line) for line in lines]


def places(switches: Sequence[Switch], sockets: Sequence[str] = ()) -> list[Place]:
    """Return the control sockets: those that are named, else those beside switches; by default of this machine's."""
    if sockets:
        return [Place(Path(one)) for one in sockets]
    return [Place(one.folder / SOCKET, one.node) for one in switches or (Switch(DATABASE),)]


def ask(where: Sequence[Place], request: Request, *, seconds: float = ANSWER_SECONDS, most: int = MOST_BYTES) -> Answer:
    """Ask all speakers.  Raise an error if none of them answers, or if what is asked for is found at none.

    A speaker may be silent for some `seconds`, and send `most` bytes.
    """
    found, absent, errors = Answer(), list[Place](), list[NetloomError]()
    for place in where:
        try:
            found.add(place.node, list(_lines(place.path, request, seconds, most)))
        except (FileNotFoundError, ConnectionRefusedError):
            absent.append(place)
        except PermissionError:
            errors.append(Unreachable(f"{place.path}: permission denied: run this command as root, as the agent"))
        except NetloomError as error:
            errors.append(error)
    if found.nodes:
        found.silent = [error.message for error in errors if not isinstance(error, NotFound)]
        return found
    if errors:
        raise errors[0]
    raise Unreachable(_nobody(absent))


def summary(found: Iterable[Item]) -> dict[str, list[Item]]:
    """Return the items of a summary by kind: speakers, peers, networks."""
    sorted_by: dict[str, list[Item]] = {"speakers": [], "peers": [], "networks": []}
    for item in found:
        sorted_by[f"{item.pop('kind')}s"].append(item)
    return sorted_by


def next_steps(item: Item) -> list[str]:
    """Return the commands that show what a route became, of an item of `explain`."""
    namespace, _, name = str(item["evpnNetwork"]).partition("/")
    on = f" on node {item['node']}" if item.get("node") else " on this node"
    steps = [f"netloom explain evpnnetwork/{name} -n {namespace}"]
    if item["attachedAs"] and str(item["attachedAs"][0]).startswith("attachment "):
        space, _, attachment = str(item["attachedAs"][0]).removeprefix("attachment ").partition("/")
        steps.append(f"netloom explain networkattachment/{attachment} -n {space}")
    if item["object"]:
        steps.append(f"netloom get remotevtep {item['object']} -n {namespace} -o yaml")
    if item["port"]:
        steps.append(f"ovn-nbctl list logical_switch_port {item['port']}")
        steps.append(f"ovs-vsctl list interface {item['port']}{on}")
    if item["flow"]:
        steps.append(f"ovs-ofctl dump-flows br-vxlan {item['flow']} on a node of Network {item['network']}")
    return steps


def _nobody(absent: Sequence[Place]) -> str:
    paths = ", ".join(str(one.path) for one in absent[:3]) + (" and others" if len(absent) > 3 else "")
    where = "this node" if len(absent) == 1 else "these nodes"
    return (
        f"no BGP speaker answers at {paths}: check that `netloom agent` or `netloom speaker` runs on {where}, and that "
        "a BGPSpeaker names it in spec.node (`netloom get bgpspeakers -A`); elsewhere, use --ovs, --socket or --lab"
    )


def _lines(path: Path, request: Request, seconds: float, most: int) -> Iterator[bytes]:
    """Yield the lines of an answer without the last; raise the error that the last line has."""
    allowed = most
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(str(path))
            with contextlib.suppress(
                BrokenPipeError, ConnectionResetError
            ):  # It may have refused us already, in words.
                connection.sendall(msgspec.json.encode(request) + b"\n")
            with connection.makefile("rb", buffering=1 << 16) as reader:
                while line := reader.readline(LONGEST_LINE + 1):
                    most -= len(line)
                    if len(line) > LONGEST_LINE:
                        raise Unreachable(f"{path} has sent a line of more than {LONGEST_LINE >> 20} MiB")
                    if line.startswith(b'{"end":'):
                        _check(msgspec.json.decode(line, type=_Last))
                        return
                    if most < 0:
                        text = f"{path} has sent more than {allowed} bytes: ask for less, with --network or --peer"
                        raise Unreachable(text)
                    if line.endswith(b"\n"):
                        _ITEM.decode(line)
                        yield line
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Unreachable(f"{path} does not answer as a BGP speaker does: {error}") from None
        except TimeoutError:
            raise Unreachable(f"{path} has sent nothing for {seconds:g} s: read the log of the agent") from None
        except (FileNotFoundError, ConnectionRefusedError, PermissionError):
            raise
        except (BrokenPipeError, ConnectionResetError):
            pass
        except OSError as error:
            raise Unreachable(f"{path}: {error.strerror or error}") from None
    raise Unreachable(f"{path} closed the connection before the end of the answer: read the log of the agent")


def _check(last: _Last) -> None:
    if last.error:
        raise BY_REASON.get(last.reason, Unreachable)(last.error)
