"""What machines are told: leases by real clients, advertisements, names."""

import ipaddress
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from netloom.lab import Lab
from netloom.lab.daemons.entering import inside
from tests.lab.worlds import World, world
from tests.support.process import scratch, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

ROUTER_SOLICITATION = struct.pack("!BBHI", 133, 0, 0, 0)
MULTICAST_HOPS = 255
MANAGED = 0x80
ON_LINK, AUTONOMOUS = 0x80, 0x40


@pytest.fixture(scope="module")
def dhcp(lab: Lab) -> Iterator[World]:
    """An office and an island."""
    with world(lab, "dhcp") as made:
        yield made


@pytest.mark.parametrize("who", ["bob", "carol"])
def test_a_client_is_given_its_address_and_all_it_needs_to_know(dhcp: World, who: str) -> None:
    ip = {"bob": "10.64.0.77", "carol": "10.64.0.78"}[who]
    lease = leased(dhcp, who)
    told = {key: lease.get(key, "") for key in ("ip", "mask", "router", "dns", "domain", "ntpsrv", "mtu", "lease")}
    assert told == {
        "ip": ip,
        "mask": "24",
        "router": "10.64.0.1",
        "dns": "10.64.0.53 198.51.100.53",
        "domain": "office.example",
        "ntpsrv": "10.64.0.123",
        "mtu": "1400",
        "lease": "1800",
    }


def test_a_machine_with_nothing_but_its_lease_is_on_the_network(dhcp: World) -> None:
    netns = dhcp.netns("bob")
    subprocess.run(["ip", "-n", netns, "-4", "address", "flush", "dev", "eth0"], check=True)
    assert not dhcp.ping("bob", "10.64.0.1")
    lease = leased(dhcp, "bob")
    own = f"{lease['ip']}/{lease['mask']}"
    subprocess.run(["ip", "-n", netns, "address", "add", own, "dev", "eth0"], check=True)
    subprocess.run(["ip", "-n", netns, "route", "replace", "default", "via", lease["router"]], check=True)
    alice = address(dhcp, "alice", 4)
    assert dhcp.answers("bob", alice, "ping") == "pong"
    assert dhcp.answers("bob", lease["router"], "ping") == "pong"


def test_a_network_without_a_router_has_leases_too(dhcp: World) -> None:
    assert leased(dhcp, "robinson")["ip"] == "10.65.0.9"


def test_a_client_is_given_its_ipv6_address(dhcp: World) -> None:
    lease = leased_v6(dhcp, "bob")
    assert (lease["new_ip6_address"], lease["new_dhcp6_name_servers"]) == ("fd64::77", "fd64::53")
    assert lease["said"] == "", "every option is well formed"


def test_the_router_advertises_itself_and_that_addresses_come_by_dhcp(dhcp: World) -> None:
    flags, options = advertised(dhcp, "alice")
    assert flags & MANAGED
    prefix = options[3]
    assert (prefix[2], ipaddress.IPv6Address(prefix[16:32])) == (64, ipaddress.IPv6Address("fd64::"))
    assert prefix[3] & (ON_LINK | AUTONOMOUS) == ON_LINK, "nobody makes itself an address"
    assert struct.unpack("!I", options[5][4:8]) == (1400,)
    assert ipaddress.IPv6Address(options[25][8:24]) == ipaddress.IPv6Address("fd64::53")
    assert b"\x06office\x07example\x00" in options[31]
    netns = dhcp.netns("alice")

    def shown(*args: str) -> str:
        return subprocess.run(["ip", "-n", netns, "-6", *args], check=True, capture_output=True, text=True).stdout

    wait_until(lambda: "proto ra" in shown("route", "show", "default"), what="the default route")
    made = [line for line in shown("address", "show", "dev", "eth0", "scope", "global").splitlines() if "inet6" in line]
    assert len(made) == 1, made


def test_names_are_answered_for_in_the_domain(dhcp: World) -> None:
    alice = address(dhcp, "alice", 4)
    expected = [("bob", 1, "10.64.0.77"), ("bob", 28, "fd64::77"), ("alice", 1, alice)]
    for name, kind, ip in expected:
        asked = partial(resolved, dhcp, "alice", f"{name}.office.example", kind)
        assert wait_until(asked, what=f"the answer for {name}") == ip


def leased(made: World, who: str) -> dict[str, str]:
    """Return what udhcpc is told."""
    with scratch("lease") as folder:
        answer, script = folder / "lease", written(folder / "script", '[ "$1" = bound ] && env >"$LEASE"')
        argv = ["udhcpc", "-i", "eth0", "-f", "-n", "-q", "-t", "8", "-T", "1", "-s", str(script)]
        subprocess.run(
            made.lab.command(f"{made.name}-{who}", argv),
            env={"PATH": os.environ["PATH"], "LEASE": str(answer)},
            capture_output=True,
            timeout=120,
            check=True,
        )
        return variables(answer)


def leased_v6(made: World, who: str) -> dict[str, str]:
    """Return what dhclient is told, and under `said` what it has against it."""
    with scratch("lease") as folder:
        answer, pid = folder / "lease", folder / "pid"
        script = written(folder / "script", f'[ "$reason" = BOUND6 ] && env >{answer}')
        argv = ["dhclient", "-6", "-1", "-sf", str(script), "-lf", str(folder / "leases"), "-pf", str(pid), "eth0"]

        def tried() -> "subprocess.CompletedProcess[str] | None":
            # Not before the device has an address of its own, which takes it a second or two.
            ended = subprocess.run(
                made.lab.command(f"{made.name}-{who}", argv), capture_output=True, text=True, timeout=120, check=False
            )
            return ended if ended.returncode == 0 else None

        ended = wait_until(tried, what="a lease", interval=0.2)
        try:
            said = [line for line in ended.stderr.splitlines() if "suspect" in line]
            return {**variables(answer), "said": "\n".join(said)}
        finally:
            # The one that goes on in the background writes its number after the one that we started has ended.
            number = wait_until(lambda: pid.read_text().strip() if pid.exists() else "", what="the number of dhclient")
            os.kill(int(number), signal.SIGKILL)


def advertised(made: World, who: str) -> tuple[int, dict[int, bytes]]:
    """Ask for a router and return the flags and the options of what it says."""

    def asked() -> bytes:
        with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as raw:
            raw.settimeout(1)
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, MULTICAST_HOPS)
            raw.sendto(ROUTER_SOLICITATION, ("ff02::2", 0, 0, socket.if_nametoindex("eth0")))
            try:
                while (message := raw.recv(1500))[0] != 134:
                    pass
            except OSError:
                return b""
            return message

    message = wait_until(lambda: inside(made.netns(who), asked), what="an advertisement", interval=0.2)
    options, rest = {}, message[16:]
    while rest:
        options[rest[0]] = rest[: 8 * rest[1]]
        rest = rest[8 * rest[1] :]
    return message[5], options


def resolved(made: World, who: str, name: str, kind: int) -> str:
    """Ask for a name and return its address."""
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    query = struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)

    def asked() -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(1)
            try:
                client.sendto(query, ("10.64.0.1", 53))
                return client.recv(512)
            except OSError:
                return b""

    answer = inside(made.netns(who), asked)
    length = 4 if kind == 1 else 16
    return str(ipaddress.ip_address(answer[-length:])) if len(answer) >= len(query) + 12 + length else ""


def address(made: World, who: str, family: int) -> str:
    """Return an address that was chosen."""
    ips = [ip.partition("/")[0] for ip in made.get("networkattachment", who)["status"]["ips"]]
    return str(next(ip for ip in ips if (":" in ip) == (family == 6)))


def written(path: Path, line: str) -> Path:
    """Write a script of one line."""
    path.write_text(f"#!/bin/sh\n{line}\nexit 0\n")
    path.chmod(0o700)
    return path


def variables(path: Path) -> dict[str, str]:
    """Read what `env` printed."""
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
