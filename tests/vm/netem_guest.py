"""Runs in the virtual machine: netem by our own driver, and what packets say of it."""

import asyncio
import ctypes
import json
import os
import socket
import statistics
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from netloom.cli.sandbox import traffic
from netloom.drivers.link import codec, kernel
from netloom.drivers.link.kernel import Kernel, Step
from netloom.drivers.link.worker import Links
from netloom.model.kinds.attachments import PortType
from netloom.plan.node.ports import PortPlan
from netloom.plan.policy.impairment import Impairment, PortImpairment
from netloom.plan.problem import ProblemError

LIBC = ctypes.CDLL(None, use_errno=True)
FINIT_MODULE = 313
WORK = "work"
PLAN = PortPlan(
    uid="u1",
    namespace="ns1",
    name="a",
    type=PortType.VETH,
    device="nl020000000009",
    inner="eth0",
    netns=f"/run/netns/{WORK}",
    mac="02:00:00:00:00:09",
    mtu=1400,
    addresses=("10.0.0.9/24",),
)
SLOW = PortImpairment(sent=Impairment(0.030), received=Impairment(0.020))
LOSSY = PortImpairment(sent=Impairment(0.0, 0.2))


def mount(kind: str, place: str) -> None:
    if LIBC.mount(kind.encode(), place.encode(), kind.encode(), 0, None):
        raise OSError(ctypes.get_errno(), f"mounting {kind}")


def load_modules() -> None:
    for file in sorted(Path("/modules").iterdir()):
        with file.open("rb") as module:
            if LIBC.syscall(FINIT_MODULE, module.fileno(), b"", 0):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(file))


def trips(count: int) -> traffic.Trips:
    with traffic.Responder(WORK, "10.0.0.9") as far, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near:
        near.bind(("10.0.0.1", 0))
        near.setblocking(False)
        traffic.answers(near, far)
        return traffic.round_trips(near, far, count=count, interval=0.005, wait=3.0)


def qdiscs() -> list[str]:
    """Return the root qdiscs of the workload's device, and of the node's."""
    node = Kernel()
    try:
        with kernel.visit(PLAN.netns, root="") as (there, _):
            found = [there.link("eth0"), node.link(PLAN.device)]
            return [one.qdisc for one in found if one is not None]
    finally:
        node.close()


def let_node_answer() -> None:
    """Let the node itself be the peer: else its kernel is silent, because a switch has the device."""
    for name in ("arp_ignore", "rp_filter"):
        Path(f"/proc/sys/net/ipv4/conf/{PLAN.device}/{name}").write_text("0")


async def measure() -> dict[str, Any]:
    links = Links(owner="x", userspace=False)
    found: dict[str, Any] = {"before": (await links.probe())["netem"]}
    load_modules()
    found["after"] = (await links.probe())["netem"]
    namespace, _ = kernel.new_namespace()
    kernel.give_path(namespace, PLAN.netns, root="")
    outer = await links.pair(PLAN, ())
    node = Kernel()
    node.change([Step(codec.address("10.0.0.1/24", outer.index), "setting an address")])
    let_node_answer()
    found["plain"] = statistics.median(trips(50).seconds)
    await links.pair(replace(PLAN, impairment=SLOW), ())
    found["slow"], found["slow_qdiscs"] = statistics.median(trips(50).seconds), qdiscs()
    before = links.counters.writes
    await links.pair(replace(PLAN, impairment=SLOW), PLAN.addresses)
    found["rewritten"] = links.counters.writes - before
    await links.pair(replace(PLAN, impairment=LOSSY), ())
    some = trips(1000)
    found["lost"] = 1 - len(some.seconds) / some.sent
    await links.pair(PLAN, ())
    after = trips(50)
    found["restored"], found["restored_qdiscs"] = statistics.median(after.seconds), qdiscs()
    found["restored_lost"] = after.sent - len(after.seconds)
    # A qdisc of another program stays, and is a problem.
    node.change([Step(codec.set_netem(outer.index, codec.netem(Impairment(0.001))).replace(b"LN", b"YX", 1), "theirs")])
    await links.pair(PLAN, ())
    found["theirs"] = qdiscs()[1]
    try:
        await links.pair(replace(PLAN, impairment=SLOW), ())
    except ProblemError as error:
        found["taken"] = error.problem.reason
    links.close()
    node.close()
    return found


if __name__ == "__main__":
    try:
        mount("proc", "/proc")
        mount("sysfs", "/sys")
        mount("tmpfs", "/run")
        sys.stdout.write(f"RESULT {json.dumps(asyncio.run(measure()))}\n")
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001  # the console shows it; the first process must not end
        traceback.print_exc()
    finally:
        Path("/proc/sysrq-trigger").write_text("o")
        os.sync()
        time.sleep(60)
