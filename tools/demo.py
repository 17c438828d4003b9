"""`make demo`: the networks of a small company on three hosts, tested with real packets.

    python tools/demo.py [--keep] [--root-of NODE=FOLDER ...]

Every connection that must work and every one that must not is tried and printed as a matrix; the exit status is 1 if
any result differs from the expectation. With --keep the lab stays up, to explore it; --root-of is that of `lab up`.
"""

import argparse
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from netloom.errors import NetloomError
from netloom.lab import Lab, probes, state, wiring

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "company.yaml"
NETLOOM = [sys.executable, "-m", "netloom.cli.main"]
WORKLOADS = ("alice", "bob", "web-1", "web-2", "db", "backup")
PATIENCE = 15.0
WRONG = """\
apiVersion: netloom.dev/v1alpha1
kind: Network
metadata: {name: wrong}
spec: {fabric: wool, vni: 16777216}
"""
BOLD, PLAIN = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")


class Way(NamedTuple):
    """A connection from a source to a target, and whether it must work."""

    source: str
    target: str
    expected: bool
    probe: Callable[[], bool]


class Fact(NamedTuple):
    """Another expectation: the expected and the observed result."""

    about: str
    expected: str
    seen: str
    holds: bool


class Company:
    """The running company."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.ips = {name: self._addresses(name) for name in WORKLOADS}
        self.listeners = probes.Listeners()
        for web in ("web-1", "web-2"):
            self.listeners.add(lab.netns(web), 8080, name=web)
            self.listeners.add(lab.netns(web), 22, name=web)
        self.listeners.add(lab.netns("db"), 5432, name="db")
        self.listeners.add(lab.netns("alice"), 631, name="alice")
        self.listeners.add(lab.netns("bob"), 631, name="bob")
        self.listeners.add(lab.netns("bob"), 53, name="bob", protocol="udp")
        self.listeners.add(lab.netns("outside"), 80, name="world")

    def _addresses(self, name: str) -> dict[int, str]:
        path = "{.status.ips[*]}"
        found = command("get", f"networkattachment/{name}", "-o", f"jsonpath={path}").split()
        return {6 if ":" in ip else 4: ip.partition("/")[0] for ip in found}

    def ping(self, source: str, target: str, *, family: int = 4, stolen: str = "") -> Callable[[], bool]:
        """Whether the target answers a ping."""
        address = self.ips[target][family] if target in self.ips else target
        return lambda: probes.ping(self.lab.netns(source), address, source=stolen)

    def reach(self, source: str, target: str, port: int, *, family: int = 4, udp: bool = False) -> Callable[[], bool]:
        """Whether the target answers at a port."""
        address = self.ips[target][family] if target in self.ips else target
        netns = self.lab.netns(source)
        return lambda: bool(probes.reach(netns, address, port, protocol="udp" if udp else "tcp"))

    def ways(self) -> list[Way]:
        """Return the matrix: the connections that must, and that must not, work."""
        found = []
        shop, world = "10.2.0.100", "198.51.100.1"
        # Columns: ping bob, bob:631, web-1:8080, web-1:22, web-1 over IPv6, db:5432, the shop, the world.
        table = {
            "alice": "yyynynyy",
            "bob": "--ynynyy",
            "web-1": "yy---yyy",
            "web-2": "yyynnyyy",
            "db": "yyynn-yy",
            "backup": "yyynnnyy",
        }
        for source, answers in table.items():
            tried = [
                ("ping bob", self.ping(source, "bob")),
                ("bob:631", self.reach(source, "bob", 631)),
                ("web-1:8080", self.reach(source, "web-1", 8080)),
                ("web-1:22", self.reach(source, "web-1", 22)),
                ("ping6 web-1", self.ping(source, "web-1", family=6)),
                ("db:5432", self.reach(source, "db", 5432)),
                ("shop:80", self.reach(source, shop, 80)),
                ("world:80", self.reach(source, world, 80)),
            ]
            found += [
                Way(source, target, answer == "y", probe)
                for answer, (target, probe) in zip(answers, tried, strict=True)
                if answer != "-"
            ]
        # From outside only one address is reachable: the floating IP of web-1.
        found += [
            Way("outside", "web-1:8080", True, self.reach("outside", "192.0.2.20", 8080)),
            Way("outside", "web-1:22", False, self.reach("outside", "192.0.2.20", 22)),
        ]
        return found

    def facts(self) -> Iterator[Fact]:
        """Yield the other expectations."""
        yield self._dhcp()
        yield self._stolen()
        yield self._snat()
        yield self._udp()
        yield self._balanced()
        yield self._dead_endpoint()
        yield self._shaped()
        yield self._unshaped()
        yield self._without_control_plane()
        yield self._failover()
        yield self._back()

    def _dhcp(self) -> Fact:
        expected = f"{self.ips['bob'][4]}/24 10.1.0.1"
        seen = probes.lease(self.lab.netns("bob"), "eth0")
        return Fact("DHCP offers bob its address and its router", expected, seen, seen == expected)

    def _stolen(self) -> Fact:
        bob, netns = self.ips["bob"][4], self.lab.netns("alice")
        run("ip", "-n", netns, "address", "add", f"{bob}/32", "dev", "eth0")
        try:
            seen = probes.ping(netns, self.ips["web-1"][4], source=bob)
        finally:
            run("ip", "-n", netns, "address", "delete", f"{bob}/32", "dev", "eth0")
        return Fact("packets from alice with bob's address", "dropped", "arrive" if seen else "dropped", not seen)

    def _snat(self) -> Fact:
        seen = probes.reach(self.lab.netns("alice"), "198.51.100.1", 80)
        return Fact("the world sees alice as", "192.0.2.10", seen.removeprefix("world "), seen == "world 192.0.2.10")

    def _udp(self) -> Fact:
        seen = probes.reach(self.lab.netns("alice"), self.ips["bob"][4], 53, protocol="udp")
        expected = f"bob {self.ips['alice'][4]}"
        return Fact("UDP works between alice and bob", expected, seen, seen == expected)

    def _shop(self, count: int) -> list[str]:
        answers = [probes.reach(self.lab.netns("alice"), "10.2.0.100", 80) for _ in range(count)]
        return [answer.partition(" ")[0] or "no answer" for answer in answers]

    def _balanced(self) -> Fact:
        seen = sorted(set(self._shop(20)))
        return Fact("the shop's VIP is answered by", "web-1, web-2", ", ".join(seen), seen == ["web-1", "web-2"])

    def _dead_endpoint(self) -> Fact:
        self.listeners.remove(self.lab.netns("web-2"), 8080)
        seen: set[str] = set()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            seen = set(self._shop(10))
            if seen == {"web-1"}:
                break
        return Fact("after web-2 dies, by", "web-1", ", ".join(sorted(seen)), seen == {"web-1"})

    def _shaped(self) -> Fact:
        seen = self._measured("backup", offered=30, good=lambda rate: abs(rate - 10) <= 1.5)
        about = "throughput from backup, which is shaped, to alice"
        return Fact(about, "10 Mbit/s ± 15 %", f"{seen:.1f} Mbit/s", abs(seen - 10) <= 1.5)

    def _unshaped(self) -> Fact:
        seen = self._measured("bob", offered=0, good=lambda rate: rate > 20)
        about = "throughput from bob, which is not shaped, to alice"
        return Fact(about, "more than 20 Mbit/s", f"{seen:.1f} Mbit/s", seen > 20)

    def _measured(self, source: str, *, offered: float, good: Callable[[float], bool]) -> float:
        """Return a rate; measure again if the machine may have been too busy to send or to receive."""
        seen = 0.0
        with probes.iperf_server(self.lab.netns("alice")):
            for _ in range(3):
                seen = probes.megabits(self.lab.netns(source), self.ips["alice"][4], offered=offered)
                if good(seen):
                    break
        return seen

    def _without_control_plane(self) -> Fact:
        argv = self.lab.command("alice", ["ping", "-n", "-q", "-i", "0.05", "-c", "60", self.ips["bob"][4]])
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as pinging:
            for name in ("serve", "ovn-northd", "ovn-nb", "ovn-sb", "agent-n1", "agent-n2"):
                self.lab.kill(name)
                time.sleep(0.2)
            said = pinging.communicate()[0]
        found = re.search(r"(\d+)% packet loss", said)
        seen = f"{found[1]} % lost" if found else "no answer"
        return Fact("packet loss between alice and bob without any control plane", "0 % lost", seen, seen == "0 % lost")

    def _failover(self) -> Fact:
        self.lab.off("n1")
        began = time.monotonic()
        try:
            while not probes.reach(self.lab.netns("bob"), "198.51.100.1", 80, timeout=0.2):
                if time.monotonic() - began > 4 * PATIENCE:
                    break
                time.sleep(0.05)
            seen = time.monotonic() - began
        finally:
            self.lab.on("n1")
        about = "gateway n1 is powered off; bob reaches the world again after"
        return Fact(about, "at most 5 s", f"{seen:.1f} s", seen <= 5)

    def _back(self) -> Fact:
        # The host was restarted, as after a reboot: its agent and its switch have recovered everything.
        back = _patient(Way("alice", "bob", True, self.reach("alice", "bob", 631)))
        return Fact("n1 is powered on again; alice reaches bob", "yes", "yes" if back else "no", back)


def main(args: Sequence[str]) -> int:
    """Run the demo and return the exit status."""
    parser = argparse.ArgumentParser(prog="demo", description="The networks of a small company on three hosts.")
    parser.add_argument("--keep", action="store_true", help="Do not take the lab down.")
    parser.add_argument("--root-of", action="append", default=[], metavar="NODE=FOLDER", help="As for netloom lab up.")
    given = parser.parse_args(args)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="netloom-demo-"))
    with _gone_afterwards(folder, keep=given.keep) as data:
        wrong = demo(data, dict(text.split("=", 1) for text in given.root_of))
    leftovers = [] if given.keep else wiring.namespaces(state.identity(data))
    if leftovers:
        print(f"demo: not cleaned up: {', '.join(leftovers)}", file=sys.stderr)
    if wrong or leftovers:
        print(f"demo: {wrong} results differ from the expectation", file=sys.stderr)
        return 1
    gone = "" if given.keep else "; the lab is removed"
    print(f"\nDone in {time.monotonic() - began:.0f} s: all results are as expected{gone}.")
    return 0


def demo(data: Path, roots: dict[str, str]) -> int:
    """Run all tests; return the number of unexpected results."""
    say("Three hosts on this machine, each with its own Open vSwitch and OVN; one OVN central; an outside router.")
    began = time.monotonic()

    def progress(text: str) -> None:
        print(f"{time.monotonic() - began:5.1f} s  {text}", flush=True)

    lab = Lab.up(data, nodes=3, outside=True, roots=roots, say=progress)
    os.environ["KUBECONFIG"] = str(lab.kubeconfig)

    say("A company: two networks, a router with a gateway, DHCP, a firewall, a load balancer, a shaped link.")
    manifest = EXAMPLE.read_text()
    for name in WORKLOADS:
        path = lab.workload(name)
        manifest = manifest.replace(f"/run/netns/{name},", f"{path},")
    file = data / "company.yaml"
    file.write_text(manifest)
    show("apply", "-f", file)
    show("wait", "networkattachments,routers,securityprofiles,loadbalancers,shapings", "--all", "--timeout", "60s")
    show("get", "networkattachments", "-o", "wide")
    show("lab", "status", "--data", data)

    say("Connectivity, with real packets.  In each cell: expected / observed.")
    company = Company(lab)
    try:
        wrong = matrix(company.ways())
        say("Other expectations.")
        wrong += sum(not report(fact) for fact in company.facts())
    finally:
        company.listeners.close()

    say("All killed processes are running again.  Check the whole system.")
    show("wait", "server")
    show("wait", "nodes", "--all", "--timeout", "30s")
    show("wait", "networkattachments", "--all", "--timeout", "30s")
    show("doctor", "--lab", str(data))
    say("An invalid object is refused, with every invalid field.")
    wrong += not refused(data)
    say("Remove everything.")
    show("delete", "-f", file, "--timeout", "60s")
    return wrong


def matrix(ways: Sequence[Way]) -> int:
    """Try all connections, print the matrix, and return the number of unexpected results."""
    with ThreadPoolExecutor(4) as pool:
        # First those that must work, with retries: the last port may just have come up. Then those that must not.
        must = [way for way in ways if way.expected]
        seen = dict(zip(must, pool.map(_patient, must), strict=True))
        never = [way for way in ways if not way.expected]
        seen |= dict(zip(never, pool.map(lambda way: way.probe(), never), strict=True))
    sources, targets = dict.fromkeys(w.source for w in ways), dict.fromkeys(w.target for w in ways)
    cells = {(way.source, way.target): _cell(way.expected, seen[way]) for way in ways}
    width = max(map(len, sources))
    print(" " * width, *(target.rjust(max(8, len(target))) for target in targets), sep="  ")
    for source in sources:
        row = [cells.get((source, target), "").rjust(max(8, len(target))) for target in targets]
        print(source.ljust(width), *row, sep="  ")
    wrong = sum(way.expected != seen[way] for way in ways)
    print(f"{len(must)} connections that must work, {len(never)} that must not: {wrong or 'no'} unexpected results.")
    return wrong


def _patient(way: Way) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not (seen := way.probe()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return seen


def _cell(expected: bool, seen: bool) -> str:
    words = {True: "yes", False: "no"}
    return f"{words[expected]}/{words[seen]}" if expected == seen else f"{words[expected]}/{words[seen].upper()} !"


def report(fact: Fact) -> bool:
    """Print a fact; return whether it holds."""
    mark = "as expected" if fact.holds else f"EXPECTED {fact.expected}"
    print(f"{fact.about}: {fact.seen or 'nothing'}  ({mark})", flush=True)
    return fact.holds


def refused(data: Path) -> bool:
    """Whether the server refuses an invalid object."""
    file = data / "wrong.yaml"
    file.write_text(WRONG)
    print(f"$ netloom apply -f {file.name}", flush=True)
    ended = subprocess.run([*NETLOOM, "apply", "-f", str(file)], check=False)
    return ended.returncode == 1


def say(text: str) -> None:
    """Print a heading."""
    print(f"\n{BOLD}# {text}{PLAIN}", flush=True)


def show(*args: str | Path) -> None:
    """Run a netloom command, with its output."""
    words = [str(arg) for arg in args]
    print("$", shlex.join(["netloom", *words]), flush=True)
    subprocess.run([*NETLOOM, *words], check=True)


def command(*args: str) -> str:
    """Run a netloom command and return its output."""
    return subprocess.run([*NETLOOM, *args], check=True, capture_output=True, text=True).stdout


def run(*argv: str) -> None:
    """Run any command."""
    subprocess.run(argv, check=True)


@contextlib.contextmanager
def _gone_afterwards(folder: Path, *, keep: bool) -> Iterator[Path]:
    data = folder / "lab"
    try:
        yield data
    except subprocess.CalledProcessError as error:
        print(f"demo: {shlex.join(map(str, error.cmd))} failed with status {error.returncode}", file=sys.stderr)
        sys.exit(1)
    except NetloomError as error:
        print(f"demo: {error.message}", file=sys.stderr)
        sys.exit(1)
    finally:
        if keep:
            print(f"\nThe lab is still up: netloom lab status --data {data}; netloom lab down --data {data}")
        else:
            if (data / state.FILE).exists():
                Lab(data).down()
            shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
