"""A real Open vSwitch with one bridge, in a namespace of its own, and a connection to it for the length of a test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from netloom.openflow.flows import Flow
from netloom.openflow.io import Connection
from tests.support.ovn import OvnNode, ovn_node, own, run
from tests.support.process import scratch, wait_until

T = TypeVar("T")
BRIDGE = "br-of"
PATIENCE = 60.0


class Real:
    """One switch."""

    def __init__(self, node: OvnNode) -> None:
        self.node = node

    @property
    def socket(self) -> Path:
        """Where it speaks OpenFlow."""
        return self.node.folder / f"{BRIDGE}.mgmt"

    def start(self) -> None:
        """Start ovs-vswitchd again."""
        self.node.start_vswitchd()
        self.wait()

    def kill(self) -> None:
        """Stop ovs-vswitchd as a crash would; what it leaves behind stays."""
        assert self.node.vswitchd is not None
        pid = int((self.node.folder / "vswitchd.pid").read_text())
        run("kill", "-9", str(pid))
        self.node.vswitchd.wait()

    def wait(self) -> None:
        """Wait until it answers."""
        assert self.node.vswitchd is not None
        self.node.vswitchd.wait_ready(lambda: "OFPT_FEATURES_REPLY" in self.ofctl("show", check=False))

    def ofctl(self, command: str, *argv: str | Path, check: bool = True) -> str:
        """Run ovs-ofctl on the bridge."""
        options = ("-O", "OpenFlow14", "--no-names", "--no-stats", "--timeout=120")
        return run("ovs-ofctl", *options, command, f"unix:{self.socket}", *argv, check=check)

    def dump(self) -> list[str]:
        """Return the flows as ovs-ofctl prints them, sorted."""
        return sorted(line.strip() for line in self.ofctl("dump-flows").splitlines() if "actions=" in line)

    def add_port(self, name: str, number: int) -> None:
        """Let there be a port of this number."""
        self.node.vsctl("--may-exist", "add-port", BRIDGE, name, "--", "set", "interface", name, "type=internal",
                        f"ofport_request={number}")  # fmt: skip
        wait_until(lambda: f" {number}({name}):" in self.ofctl("show"), what=f"port {number}")

    def trace(self, packet: str) -> str:
        """Return what the switch would do with a packet."""
        return self.node.appctl("ofproto/trace", BRIDGE, packet)


@contextlib.contextmanager
def real_switch() -> Iterator[Real]:
    """Give a switch without flows."""
    with scratch("openflow") as folder, ovn_node(folder, own("nlt-openflow"), "n1") as node:
        node.vsctl(
            "add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev", "fail-mode=secure",
            "other_config:disable-in-band=true",
        )  # fmt: skip
        switch = Real(node)
        switch.wait()
        yield switch


@contextlib.asynccontextmanager
async def connection(path: Path, *, wait: bool = True, **options: Any) -> AsyncIterator[Connection]:
    """Give a connection, once it is made."""
    made = Connection(str(path), random=Random(1), **options)
    task = asyncio.create_task(made.run())
    try:
        if wait:
            async with asyncio.timeout(PATIENCE):
                await made.connected.wait()
        yield made
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - Nobody would set an event.
            await asyncio.sleep(0.01)


def within(path: Path, story: Callable[[Connection], Awaitable[T]], **options: Any) -> T:
    """Run a story that needs a connection."""

    async def whole() -> T:
        async with connection(path, **options) as made:
            return await story(made)

    return asyncio.run(whole())


def by_key(flows: list[Flow]) -> dict[Any, Flow]:
    """Return flows by what a table holds once."""
    return {flow.key: flow for flow in flows}
