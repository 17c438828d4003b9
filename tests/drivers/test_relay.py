"""Relays: what a direction does to packets, and real packets through a real process."""

import asyncio
import os
import re
import signal
import socket
import struct
import subprocess
from collections.abc import Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from netloom.drivers.link import kernel as link
from netloom.drivers.link.worker import Links
from netloom.drivers.relay.process import Line, tagged
from netloom.drivers.relay.relays import Relays
from netloom.lab.daemons.entering import inside
from netloom.model.kinds.attachments import PortType
from netloom.plan import names
from netloom.plan.node.ports import PortPlan
from netloom.plan.policy.impairment import Impairment, PortImpairment
from netloom.plan.problem import ProblemError
from tests.run.agents import in_thread
from tests.support.ovn import namespace, own, run, within
from tests.support.process import wait_until

T = TypeVar("T")
NODE, WORK, FAR = own("nlt-re-node"), own("nlt-re-work"), own("nlt-re-far")
MAC = "02:00:00:00:00:0a"
SLOW = PortImpairment(sent=Impairment(0.03), received=Impairment(0.02), userspace=True)
PLAN = PortPlan(
    uid="u1",
    namespace="ns1",
    name="a",
    type=PortType.VETH,
    device=names.relay(MAC)[0],
    inner="eth0",
    netns=f"/run/netns/{WORK}",
    mac=MAC,
    mtu=1400,
    addresses=("10.0.0.9/24",),
    impairment=SLOW,
)

arrivals = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 200)), max_size=60)


# One direction, without IO.


@given(arrivals, st.floats(0, 2), st.floats(0, 2), st.integers(0, 2**32))
def test_without_loss_every_packet_passes_once_and_in_order(
    packets: list[tuple[float, int]], delay: float, jitter: float, seed: int
) -> None:
    line, now = Line(Random(seed)), 0.0
    sent: list[bytes] = []
    passed: list[bytes] = []
    line.set(delay, jitter, 0.0)
    for number, (later, size) in enumerate(packets):
        now += later
        packet = number.to_bytes(2, "big") * size
        sent.append(packet)
        line.put(packet, now)
        passed += line.due(now)
    passed += line.due(now + delay + jitter)
    assert passed == sent
    assert (line.passed, line.lost, line.overflowed) == (len(sent), 0, 0)
    assert line.deadline() is None


@given(arrivals, st.floats(0, 2), st.floats(0, 2), st.integers(0, 2**32))
def test_a_packet_is_due_within_the_jitter_around_the_delay_or_with_the_one_before(
    packets: list[tuple[float, int]], delay: float, jitter: float, seed: int
) -> None:
    line, now, last = Line(Random(seed)), 0.0, 0.0
    line.set(delay, jitter, 0.0)
    for later, size in packets:
        now = max(now + later, last)
        line.put(bytes(size), now)
        due = line.deadline()
        assert due is not None
        assert now + max(0.0, delay - jitter) - 1e-9 <= due <= now + delay + jitter + 1e-9
        last = due
        assert list(line.due(due)) == [bytes(size)]


@given(arrivals, st.floats(0, 1), st.integers(0, 2**32))
def test_every_packet_is_passed_lost_or_too_many_and_memory_is_limited(
    packets: list[tuple[float, int]], loss: float, seed: int
) -> None:
    line = Line(Random(seed), packets=10, octets=500)
    line.set(1.0, 0.0, loss)
    for _, size in packets:
        line.put(bytes(size), 0.0)
    held = list(line.due(1.0))
    assert len(held) <= 10
    assert sum(map(len, held)) <= 500
    assert line.passed + line.lost + line.overflowed == len(packets)
    assert line.lost == 0 or loss > 0


def test_the_loss_is_that_part_of_the_packets() -> None:
    line = Line(Random(1))
    line.set(0.0, 0.0, 0.25)
    for _ in range(10_000):
        line.put(b".", 0.0)
        list(line.due(0.0))
    assert line.lost == pytest.approx(2500, rel=0.1)


def test_packets_that_wait_keep_their_time_and_later_ones_do_not_overtake_them() -> None:
    line = Line(Random(0))
    line.set(1.0, 0.0, 0.0)
    line.put(b"slow", 0.0)
    line.set(0.0, 0.0, 0.0)
    line.put(b"fast", 0.1)
    assert list(line.due(0.9)) == []
    assert list(line.due(1.0)) == [b"slow", b"fast"]


@pytest.mark.parametrize(("flags", "start"), [(0, 0), (1, 34)])
def test_a_vlan_tag_that_the_kernel_reports_apart_is_put_back(flags: int, start: int) -> None:
    header = struct.pack("=BBHHHH", flags, 0, 0, 0, start, 16)
    auxiliary = struct.pack("=IIIHHHH", 0x10 | 0x40, 0, 0, 0, 0, 0x2005, 0x8100)
    whole = tagged(header + bytes(range(12)) + b"\x08\x00rest", auxiliary)
    assert whole[10:] == bytes(range(12)) + b"\x81\x00\x20\x05\x08\x00rest"
    assert struct.unpack_from("=BBHHHH", whole)[4] == (start + 4 if flags else start)
    untagged = struct.pack("=IIIHHHH", 0, 0, 0, 0, 0, 0, 0)
    assert tagged(header + b"packet", untagged) == tagged(header + b"packet", b"") == header + b"packet"


# Real packets.


@pytest.fixture
def work() -> Iterator[str]:
    with namespace(NODE), namespace(WORK), namespace(FAR):
        yield WORK


def on_node(main: Coroutine[Any, Any, T]) -> T:
    """Run something as if the node were the namespace `NODE`."""

    def there() -> T:
        with link.entered(f"/run/netns/{NODE}"):
            return asyncio.run(main)

    result: T = in_thread(there)
    return result


async def made(impairment: PortImpairment) -> None:
    """Make a port with a relay; what would be on the switch is in another namespace."""
    links = Links(owner="x")
    await links.pair(replace(PLAN, impairment=impairment), ())
    links.close()
    await told(impairment)


async def told(impairment: PortImpairment) -> None:
    """Have the port's relay do something else, as an agent that has just started."""
    relays = Relays(owner="x")
    await relays.ensure(PLAN.outer, names.relay(MAC)[1], impairment)
    relays.close()


def plug() -> None:
    run(*within(NODE, "ip", "link", "set", PLAN.device, "netns", FAR))
    run(*within(FAR, "ip", "address", "add", "10.0.0.1/24", "dev", PLAN.device))
    run(*within(FAR, "ip", "link", "set", PLAN.device, "up"))
    run(*within(FAR, "ethtool", "-K", PLAN.device, "tx", "off"))


def ping(count: int, *more: str) -> str:
    """Return what ping prints."""
    argv = within(WORK, "ping", "-q", "-n", "-c", str(count), "-i", "0.02", "-W", "2", *more, "10.0.0.1")
    return run(*argv, check=False)


def trip(text: str) -> float:
    """Return the mean round trip of a ping in milliseconds."""
    found = re.search(r"= [0-9.]+/([0-9.]+)/", text)
    assert found is not None, text
    return float(found[1])


def pids() -> list[int]:
    """Return the relays in the node's namespace."""
    every = [Path("/proc") / one for one in run("ip", "netns", "pids", NODE).split()]
    return [int(one.name) for one in every if one.exists() and PLAN.outer in (one / "cmdline").read_text()]


@pytest.mark.lab
@pytest.mark.root
def test_packets_take_the_delay_of_both_directions_and_a_change_needs_no_restart(work: str) -> None:
    on_node(made(SLOW))
    plug()
    ping(2)
    assert 50 <= trip(ping(10)) < 50 + 40
    (relay,) = pids()
    on_node(told(PortImpairment(sent=Impairment(0.0, 1.0), userspace=True)))
    assert "100% packet loss" in ping(5)
    on_node(told(PortImpairment(userspace=True)))
    assert " 0% packet loss" in ping(20, "-s", "1372", "-M", "do")
    assert pids() == [relay]


@pytest.mark.lab
@pytest.mark.root
def test_a_relay_outlives_who_started_it_and_ends_with_its_devices(work: str) -> None:
    on_node(made(SLOW))
    assert len(pids()) == 1
    run(*within(NODE, "ip", "link", "delete", PLAN.device))
    wait_until(lambda: not pids(), what="the relay to end")


@pytest.mark.lab
@pytest.mark.root
def test_a_killed_relay_is_announced_and_made_again(work: str) -> None:
    async def main() -> None:
        await made(SLOW)
        relays, ended = Relays(owner="x"), asyncio.Event()
        relays.on_end.connect(lambda device: ended.set() if device == PLAN.outer else None)
        await relays.ensure(PLAN.outer, names.relay(MAC)[1], SLOW)
        (before,) = pids()
        os.kill(before, signal.SIGKILL)
        await ended.wait()
        await relays.ensure(PLAN.outer, names.relay(MAC)[1], SLOW)
        assert [one for one in pids() if one != before]
        relays.close()

    on_node(main())


@pytest.mark.lab
@pytest.mark.root
def test_a_relay_of_a_missing_device_is_refused_with_its_error(work: str) -> None:
    async def main() -> None:
        relays = Relays(owner="x")
        with pytest.raises(ProblemError, match=r"no interface|No such device"):
            await relays.ensure("nl-missing", "np-missing", SLOW)
        relays.close()

    on_node(main())


@pytest.mark.lab
@pytest.mark.root
def test_tcp_passes_whole(work: str) -> None:
    on_node(made(PortImpairment(sent=Impairment(0.001), userspace=True)))
    plug()
    size = 3_000_000
    server = "import socket as s; l=s.create_server(('10.0.0.1',7)); print(flush=True); c=l.accept()[0]\n"
    server += "n=0\nwhile d:=c.recv(1<<16): n+=len(d)\nprint(n)"
    client = f"import socket as s; c=s.create_connection(('10.0.0.1',7),5); c.sendall(bytes({size})); c.close()"
    with subprocess.Popen(within(FAR, "python3", "-c", server), stdout=subprocess.PIPE, text=True) as there:
        assert there.stdout is not None
        there.stdout.readline()
        run(*within(WORK, "python3", "-c", client))
        assert there.stdout.read() == f"{size}\n"


@pytest.mark.lab
@pytest.mark.root
def test_a_tagged_packet_arrives_with_its_tag(work: str) -> None:
    def packet_socket(device: str) -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        opened.setsockopt(263, 8, 1)  # PACKET_AUXDATA
        opened.bind((device, 3))  # ETH_P_ALL: for one protocol only, the kernel drops the tag.
        opened.settimeout(5)
        return opened

    on_node(made(SLOW))
    plug()
    frame = b"\xff" * 6 + bytes.fromhex(MAC.replace(":", "")) + b"\x81\x00\x20\x05\x88\xb5" + bytes(50)
    with inside(WORK, lambda: packet_socket("eth0")) as near, inside(FAR, lambda: packet_socket(PLAN.device)) as far:
        near.send(frame)
        packet, auxiliary, _, _ = far.recvmsg(2000, 64)
        while packet != frame[:12] + frame[16:]:
            packet, auxiliary, _, _ = far.recvmsg(2000, 64)
    assert struct.unpack_from("=IIIHHHH", auxiliary[0][2])[5] == 0x2005


@pytest.mark.lab
@pytest.mark.root
def test_a_port_without_its_relay_is_as_it_was(work: str) -> None:
    async def main() -> None:
        links = Links(owner="x")
        plain = replace(PLAN, device=PLAN.outer, impairment=None)
        first = (await links.pair(plain, ())).index
        await links.pair(PLAN, ())
        assert await links.same_pair(PLAN, ()) is not None
        await links.remove_pair(PLAN.device)
        assert await links.same_pair(PLAN, ()) is None
        assert (await links.pair(plain, ())).index == first
        links.close()

    on_node(main())
    shown = run(*within(NODE, "ip", "-br", "link"))
    assert PLAN.outer in shown
    assert PLAN.device not in shown
