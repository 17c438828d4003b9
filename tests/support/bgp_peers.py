"""Our speaker in a namespace, with another daemon as its peer: what the interoperability tests share."""

import asyncio
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address
from random import Random
from typing import Any

from netloom.bgp import communities as ext
from netloom.bgp.attributes import Attributes
from netloom.bgp.fsm import State
from netloom.bgp.io import Changes, Endpoint, SpeakerIO
from netloom.bgp.nlri import EVPN, EvpnRoute, IpPrefix, MacIp, Multicast, decode_evpn, encode_evpn, split
from netloom.bgp.speaker import PeerConfig, SessionEvent, Speaker
from netloom.lab.daemons.entering import inside
from tests.support.frr import OURS, THEIRS

RD = ext.route_distinguisher(f"{OURS}:10")
TARGET = ext.route_target("65001:10")
MAC = bytes.fromhex("020000000001")
ROUTES: list[EvpnRoute] = [
    MacIp(RD, MAC, None, 10),
    MacIp(RD, MAC, IPv4Address("10.1.0.1"), 10),
    MacIp(RD, MAC, IPv6Address("fd00::1"), 10),
    Multicast(RD, IPv4Address(OURS)),
    IpPrefix(RD, IPv4Address("10.7.0.0"), 16, IPv4Address(0), 10),
]


class Ours:
    """Our speaker, running in its namespace."""

    def __init__(self, *, restarting: bool = False, on_bytes: Any = None) -> None:
        self.speaker = Speaker(65001, IPv4Address(OURS), random=Random(1), restarting=restarting)
        self.events: list[SessionEvent] = []
        self.changes: list[Changes] = []
        self.io = SpeakerIO(
            self.speaker,
            listen=(OURS, 179),
            on_changes=self.changes.append,
            on_event=self.events.append,
            on_bytes=on_bytes,
        )

    def originate(self, *routes: EvpnRoute, extended: tuple[bytes, ...] = (), **options: Any) -> None:
        attributes = Attributes(
            next_hop=IPv4Address(OURS), extended=(TARGET, ext.encapsulation(), *extended), **options
        )
        self.speaker.originate(EVPN, attributes, split(EVPN, b"".join(map(encode_evpn, routes))))
        self.io.wake()

    def retract(self, *routes: EvpnRoute) -> None:
        self.speaker.retract(EVPN, split(EVPN, b"".join(map(encode_evpn, routes))))
        self.io.wake()

    def received(self) -> list[EvpnRoute]:
        best = self.speaker.rib.best.get(EVPN, {}).values()
        return [decode_evpn(path.route) for path in best if path.source is not self.speaker.local]

    @property
    def state(self) -> State:
        return self.speaker.neighbor(THEIRS).peer.state

    async def until(self, condition: Callable[[], object], what: str) -> None:
        async with asyncio.timeout(120):
            while not await asyncio.to_thread(condition):  # noqa: ASYNC110  # another program is asked
                await asyncio.sleep(0.05)
        assert condition(), what


def play(
    netns: str, asn: int, scene: Callable[[Ours], Awaitable[None]], *, restarting: bool = False, **options: Any
) -> None:
    """Run our speaker with another daemon as its peer, and a scene; with `restarting`, that says when all is there."""

    async def go() -> None:
        ours = Ours(restarting=restarting, on_bytes=options.pop("on_bytes", None))
        endpoint = {key: options.pop(key) for key in ("password", "ttl_security") if key in options}
        running = asyncio.create_task(ours.io.run())
        try:
            ours.io.add_peer(PeerConfig(THEIRS, asn, 9, **options), Endpoint(THEIRS, local=OURS, **endpoint))
            if not restarting:
                ours.speaker.complete()
            await ours.until(lambda: ours.state is State.ESTABLISHED, "the session")
            await scene(ours)
        finally:
            running.cancel()
            await asyncio.wait([running])

    inside(netns, lambda: asyncio.run(go()))
