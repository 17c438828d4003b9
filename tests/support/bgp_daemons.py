"""GoBGP and ExaBGP as peers of our speaker, each in a namespace of its own.

Both tell alike what they have received, and announce and withdraw routes.
"""

import contextlib
import json
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from netloom.bgp.attributes import OPTIONAL, Type
from netloom.bgp.nlri import EVPN, EvpnRoute, IpPrefix, MacIp, Multicast, encode_evpn
from netloom.bgp.update import encode_reach, encode_unreach
from netloom.lab.daemons.entering import entered
from tests.support.frr import OURS, THEIRS, cabled
from tests.support.process import Program, scratch, wait_until

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Session:
    """The session with our speaker, and the network whose routes are exchanged."""

    ours: str = OURS
    theirs: str = THEIRS
    asn: int = 65001
    """That of our speaker."""
    target: str = "65001:10"
    vni: int = 10


class Daemon(ABC):
    """Another BGP speaker, whose only peer is ours."""

    def __init__(self, folder: Path, netns: str, asn: int, session: "Session | None" = None) -> None:
        self.folder = folder
        self.netns = netns
        self.asn = asn
        self.session = session or Session()
        self.configure()
        self.start()

    def start(self) -> None:
        """Start it, also again."""
        self.program = Program(
            entered(self.argv(), netns=self.netns, folder=self.folder), log=self.folder / "log", env=self.environment()
        )

    def environment(self) -> dict[str, str]:
        """Return its environment."""
        return dict(os.environ)

    def kill(self) -> None:
        """End it like a crash."""
        self.program.kill()

    @abstractmethod
    def configure(self) -> None:
        """Write its configuration."""

    @abstractmethod
    def argv(self) -> list[str]:
        """Return its command."""

    @abstractmethod
    def announce(self, *routes: EvpnRoute) -> None:
        """Announce routes with the route target of the session."""

    @abstractmethod
    def withdraw(self, *routes: EvpnRoute) -> None:
        """Withdraw them."""

    @abstractmethod
    def routes(self) -> dict[str, str]:
        """Return the routes that it has from us, as `TYPE|MAC|IP`, and all that it tells of each."""


class GoBgp(Daemon):
    """gobgpd."""

    @staticmethod
    def _programs() -> Path:
        made = subprocess.run([ROOT / "tools/gobgp/build"], capture_output=True, text=True, check=True)
        return Path(made.stdout.strip())

    def configure(self) -> None:
        self.programs = self._programs()
        (self.folder / "gobgpd.toml").write_text(f"""
[global.config]
  as = {self.asn}
  router-id = "{self.session.theirs}"
[[neighbors]]
  [neighbors.config]
    neighbor-address = "{self.session.ours}"
    peer-as = {self.session.asn}
  [neighbors.timers.config]
    hold-time = 9
    keepalive-interval = 3
    connect-retry = 1
    idle-hold-time-after-reset = 1
  [neighbors.graceful-restart.config]
    enabled = true
    restart-time = 60
    notification-enabled = true
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "l2vpn-evpn"
    [neighbors.afi-safis.mp-graceful-restart.config]
      enabled = true
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "rtc"
    [neighbors.afi-safis.mp-graceful-restart.config]
      enabled = true
""")

    def argv(self) -> list[str]:
        return [str(self.programs / "gobgpd"), "-f", str(self.folder / "gobgpd.toml"), "--api-hosts", "127.0.0.1:50051"]

    def _client(self, *words: str) -> str:
        argv = entered([str(self.programs / "gobgp"), *words], netns=self.netns, folder=self.folder)
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True).stdout

    def _change(self, verb: str, routes: tuple[EvpnRoute, ...]) -> None:
        for route in routes:
            more = f"rd {self.session.theirs}:10 rt {self.session.target} encap vxlan"
            match route:
                case MacIp():
                    text = f"macadv {route.mac.hex(':')} {route.ip or '0.0.0.0'} etag {route.tag} label {route.label}"
                case Multicast():
                    text = f"multicast {route.originator} etag {route.tag}"
                    more += f" pmsi ingress-repl {self.session.vni} {self.session.theirs}"
                case IpPrefix():
                    prefix, gateway = f"{route.address}/{route.length}", route.gateway
                    text = f"prefix {prefix} gw {gateway} etag {route.tag} label {route.label}"
                case _:
                    raise ValueError(route)
            self._client("global", "rib", verb, "-a", "evpn", *text.split(), *more.split())

    def announce(self, *routes: EvpnRoute) -> None:
        self._change("add", routes)

    def withdraw(self, *routes: EvpnRoute) -> None:
        self._change("del", routes)

    def routes(self) -> dict[str, str]:
        try:
            shown = json.loads(self._client("global", "rib", "-a", "evpn", "-j"))
        except subprocess.CalledProcessError:
            return {}  # It does not answer yet, or there is nothing.
        found = {}
        for [path] in shown.values():
            if path.get("peer-address") == self.session.ours:
                nlri = path["nlri"]["value"]
                where = nlri.get("ip") or nlri.get("prefix", "")
                found[f"{path['nlri']['type']}|{nlri.get('mac', '')}|{where}"] = json.dumps(path)
        return found

    def request_target(self) -> None:
        """Import the route target of the session, of which it tells peers with route target constraint."""
        vrf = f"vrf add wide rd {self.session.theirs}:11 rt both {self.session.target}".split()

        def done() -> bool:
            with contextlib.suppress(subprocess.CalledProcessError):  # It does not answer yet.
                self._client(*vrf)
                return True
            return False

        wait_until(done, what="GoBGP's API")

    def stale(self) -> int:
        """Return how many of our routes it keeps while it waits for us."""
        return sum('"stale": true' in text for text in self.routes().values())


_RELAY = """
import sys, threading
def commands():
    while True:
        with open(sys.argv[1]) as fifo:
            for line in fifo:
                print(line, end="", flush=True)
threading.Thread(target=commands, daemon=True).start()
with open(sys.argv[2], "a") as log:
    for line in sys.stdin:
        if line.startswith("{"):  # The others are answers to commands.
            log.write(line)
            log.flush()
"""


class ExaBgpDaemon(Daemon):
    """ExaBGP.  It has no text for EVPN routes: they are announced as the bytes of attributes, beside an IPv4 route."""

    _count = 0

    def configure(self) -> None:
        os.mkfifo(self.folder / "commands")
        (self.folder / "relay.py").write_text(_RELAY)
        relay = f"{sys.executable} {self.folder}/relay.py {self.folder}/commands {self.folder}/received"
        (self.folder / "exabgp.conf").write_text(f"""
process relay {{
    run {relay};
    encoder json;
}}
neighbor {self.session.ours} {{
    router-id {self.session.theirs};
    local-address {self.session.theirs};
    local-as {self.asn};
    peer-as {self.session.asn};
    hold-time 9;
    capability {{ graceful-restart 60; }}
    family {{ l2vpn evpn; ipv4 unicast; }}
    api {{ processes [ relay ]; neighbor-changes; receive {{ parsed; update; }} }}
}}
""")

    def argv(self) -> list[str]:
        return [str(Path(sys.executable).with_name("exabgp")), str(self.folder / "exabgp.conf")]

    def environment(self) -> dict[str, str]:
        settings = {"exabgp.daemon.user": "root", "exabgp.api.cli": "false", "exabgp.tcp.attempts": "0"}
        return {**os.environ, **settings, "exabgp.daemon.drop": "false", "exabgp.log.destination": "stderr"}

    def start(self) -> None:
        (self.folder / "received").write_text("")
        super().start()

    def _say(self, kind: Type, value: bytes) -> None:
        raw = f"attribute [ {kind:#04x} {OPTIONAL:#04x} 0x{value.hex()} ]"
        more = f"extended-community [ target:{self.session.target} 0x030c000000000008 ]"
        self._count += 1  # Each is another route for it, so it is sent.
        with (self.folder / "commands").open("w") as fifo:
            fifo.write(f"announce route 192.0.2.{self._count}/32 next-hop {self.session.theirs} {more} {raw}\n")

    def announce(self, *routes: EvpnRoute) -> None:
        for route in routes:
            self._say(Type.MP_REACH, encode_reach(EVPN, ip_address(self.session.theirs), encode_evpn(route)))

    def withdraw(self, *routes: EvpnRoute) -> None:
        for route in routes:
            self._say(Type.MP_UNREACH, encode_unreach(EVPN, encode_evpn(route)))

    def routes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in (self.folder / "received").read_text().splitlines():
            neighbor = json.loads(line)["neighbor"]
            if neighbor.get("state") == "down":
                found.clear()
            update = neighbor.get("message", {}).get("update", {})
            for routes in update.get("announce", {}).get("l2vpn evpn", {}).values():
                found |= {self._name(route): line for route in routes}
            for route in update.get("withdraw", {}).get("l2vpn evpn", []):
                found.pop(self._name(route), None)
        return found

    @staticmethod
    def _name(route: dict[str, object]) -> str:
        where = f"{route['ip']}/{route['iplen']}" if "iplen" in route else route.get("ip", "")
        return f"{route['code']}|{str(route.get('mac', '')).lower()}|{where}"


Kind = Callable[[Path, str, int, Session | None], Daemon]


@contextlib.contextmanager
def daemon(kind: Kind, asn: int) -> Iterator[tuple[str, Daemon]]:
    """Yield a namespace of ours and a daemon in another one."""
    with cabled() as (ours, theirs), running(kind, theirs, asn) as made:
        yield ours, made


@contextlib.contextmanager
def running(kind: Kind, netns: str, asn: int, session: Session | None = None) -> Iterator[Daemon]:
    """Yield a daemon in a namespace that is there."""
    with scratch("bgp") as folder:
        made = kind(folder, netns, asn, session)
        try:
            yield made
        except BaseException:
            sys.stderr.write((folder / "log").read_text()[-4000:])
            raise
        finally:
            made.program.stop()
