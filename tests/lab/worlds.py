"""Small worlds in the shared lab: one file of objects each, in a namespace of its own, proved with real packets.

with world(lab, "reach") as reach:
    assert reach.ping("left", "10.60.0.12")

The objects of a world are `manifests/NAME.yaml`. A machine at `/run/netns/left` in it is a workload `NAME-left` of the
lab, made for it. Everything is made by `netloom apply` and goes by `netloom delete`, as with a user; and everything
is waited for by its condition. What must arrive is tried until it does, for a port that is Ready on its own node may
not yet be known on another; what must not arrive is tried after something beside it did.
"""

import json
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from netloom.lab import Lab, probes, wiring
from netloom.lab.daemons.entering import inside
from netloom.model import codec
from tests.run.serving import Answer, netloom
from tests.support.process import wait_until

MANIFESTS = Path(__file__).parent / "manifests"
AWAITED = (
    "Subnet",
    "NetworkAttachment",
    "Router",
    "SecurityProfile",
    "LoadBalancer",
    "Shaping",
    "Mirror",
    "Sandbox",
)
PATIENCE = 60.0
_NETNS = re.compile(r"/run/netns/(?!nl-)([a-z0-9-]+)")

Way = tuple[str, str, "int | str"]
"""From whom, to which address, and how: a TCP port, "udp/PORT" or "ping"."""


class World:
    """A namespace of objects in a lab, and its machines."""

    def __init__(self, lab: Lab, name: str) -> None:
        """Begin with nothing in it."""
        self.lab, self.name = lab, name
        self.listeners = probes.Listeners()
        self._applied: dict[tuple[str, str], dict[str, Any]] = {}

    def netns(self, place: str) -> str:
        """Return the network namespace of one of its machines, or of a place of the lab."""
        return self.lab.netns(place if place in self.lab.layout.places else f"{self.name}-{place}")

    def cli(self, *args: str, stdin: str = "", check: bool = True) -> Answer:
        """Run a `netloom` command in its namespace."""
        return netloom(*args, "-n", self.name, kubeconfig=self.lab.kubeconfig, stdin=stdin, check=check)

    def apply(self, text: str, *, check: bool = True) -> Answer:
        """Apply objects; create their machines if they do not exist."""
        made = _NETNS.sub(lambda found: str(self.lab.workload(f"{self.name}-{found[1]}")), text)
        self._applied |= {(one["kind"], one["metadata"]["name"]): one for one in codec.documents(made)}
        return self.cli("apply", "-f", "-", stdin=made, check=check)

    def put(self, kind: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> None:
        """Apply one object."""
        self.apply(json.dumps(document(kind, name, spec, **metadata)))

    def ready(self, text: str) -> None:
        """Return when all objects of a manifest are Ready."""
        found = [(one["kind"], one["metadata"]["name"]) for one in codec.documents(text)]
        names = [f"{kind.lower()}/{name}" for kind, name in found if kind in AWAITED]
        answer = self.cli("wait", *names, "--timeout", "40s", check=False)
        assert answer.rc == 0, f"{answer.err}\n{self.cli('get', *names, '-o', 'yaml').out}"

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object."""
        found: dict[str, Any] = json.loads(self.cli("get", f"{kind}/{name}", "-o", "json").out)
        return found

    def condition(self, kind: str, name: str, wanted: str = "Ready") -> dict[str, Any]:
        """Return a condition of an object; an empty one where it has none, or an old one."""
        found = self.get(kind, name)
        for one in found.get("status", {}).get("conditions", ()):
            current = one.get("observedGeneration", 0) == found["metadata"].get("generation", 0)
            if one["type"] == wanted and current:
                return dict(one)
        return {}

    def becomes(
        self, kind: str, name: str, status: str, reason: str, *, condition: str = "Ready", message: str = ""
    ) -> str:
        """Wait until a condition is so and says this, and return its whole message."""

        def so() -> dict[str, Any] | None:
            seen = self.condition(kind, name, condition)
            matches = (seen.get("status"), seen.get("reason")) == (status, reason)
            return seen if matches and message in seen.get("message", "") else None

        what = f"{condition}={status} ({reason}) {message!r} of {kind}/{name}"
        try:
            found = wait_until(so, what=what, interval=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.get(kind, name).get('status')}") from None
        return str(found.get("message", ""))

    def delete(self, *names: str) -> None:
        """Delete objects, as "router/r1", and return when they are gone."""
        self.cli("delete", *names, "--timeout", "60s")

    def is_answered(self) -> bool:
        """Whether the API server answers."""
        return self.cli("get", "networks", check=False).rc == 0

    def ping(self, source: str, address: str, *, spoofed: str = "") -> bool:
        """Whether an address answers to one of its machines."""
        return probes.ping(self.netns(source), address, source=spoofed)

    def ask(self, source: str, address: str, how: int | str) -> str:
        """Return who answers: a name and the address it sees, "pong", or "" where nobody does."""
        if how == "ping":
            return "pong" if self.ping(source, address) else ""
        if isinstance(how, str):
            return probes.reach(self.netns(source), address, int(how.removeprefix("udp/")), protocol="udp")
        return probes.reach(self.netns(source), address, how)

    def refusal(self, source: str, address: str, port: int) -> str:
        """Return how a connection fails: "ConnectionRefusedError", "TimeoutError"; "" if it does not."""

        def tried() -> str:
            try:
                socket.create_connection((address, port), probes.SECONDS).close()
            except OSError as error:
                return type(error).__name__
            return ""

        return inside(self.netns(source), tried)

    def answers(self, source: str, address: str, how: int | str, *, patience: float = PATIENCE) -> str:
        """Wait until somebody answers, and return who; "" if nobody ever does."""
        try:
            return wait_until(lambda: self.ask(source, address, how), what="an answer", timeout=patience)
        except AssertionError:
            return ""

    def reaches(self, ways: Iterable[Way]) -> dict[Way, str]:
        """Try ways that must lead somewhere, together and with patience, and return who answered; "" for nobody."""
        return _together(lambda way: self.answers(*way), list(ways))

    def tries(self, ways: Iterable[Way]) -> dict[Way, str]:
        """Try ways once, together, and return who answered."""
        return _together(lambda way: self.ask(*way), list(ways))

    def blocked(self, *ways: Way) -> None:
        """Wait until nobody answers on any of some ways.

        Open vSwitch 3.1 in userspace now and then keeps a cached flow that its flow tables no longer allow, for as long
        as packets use it: so after a few attempts the ways are left alone for longer than the ten seconds of its life.
        """
        for pause in (*[0.2] * 10, *[12.0] * 8):
            if not any(self.tries(ways).values()):
                return
            time.sleep(pause)
        raise AssertionError(f"somebody answers on {[way for way, who in self.tries(ways).items() if who]}")

    def listen(self, place: str, *ports: int | str) -> None:
        """Have a machine answer with its name at ports: 80, or "udp/53"."""
        for port in ports:
            if isinstance(port, int):
                self.listeners.add(self.netns(place), port, name=place)
            else:
                self.listeners.add(self.netns(place), int(port.removeprefix("udp/")), name=place, protocol="udp")

    def end(self) -> None:
        """Take everything away again."""
        self.listeners.close()
        text = "\n---\n".join(map(json.dumps, self._applied.values()))
        self.cli("delete", "--ignore-not-found", "--timeout", "120s", "-f", "-", stdin=text)
        for netns in wiring.namespaces(self.lab.layout.id):
            if netns.startswith(f"{self.lab.layout.prefix}{self.name}-"):
                wiring.run(["ip", "netns", "delete", netns])


@contextmanager
def world(lab: Lab, name: str, text: str = "") -> Iterator[World]:
    """Give a world that is Ready; its objects are those of a `text`, or of the manifest of its name."""
    made = World(lab, name)
    try:
        text = text or (MANIFESTS / f"{name}.yaml").read_text()
        made.apply(text)
        made.ready(text)
        yield made
    finally:
        made.end()


def document(kind: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return an object as a document."""
    return {
        "apiVersion": "netloom.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": dict(spec),
    }


def _together(action: Callable[[Way], str], ways: Sequence[Way]) -> dict[Way, str]:
    with ThreadPoolExecutor(12) as pool:
        return dict(zip(ways, pool.map(action, ways), strict=True))
