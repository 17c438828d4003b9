"""Sockets for a speaker: the only module of `bgp` that does IO, reads the clock and logs.

    running = SpeakerIO(speaker, listen=("10.0.0.1", 179), on_changes=…, on_event=…)
    running.add_peer(PeerConfig("10.0.0.2", remote_asn=65002), Endpoint("10.0.0.2"))
    await running.run()

Data is handled as it arrives; then the changes of the RIB are taken once, for the peers and for what imports routes. A
peer that does not read is written to again when its buffer has room, so it costs no memory beyond that; one that does
not read for long is given up (RFC 9687).

Connections are bounded: one from an unknown address is closed at once, and a peer has at most the one that we opened
and one that it opened, of which a newer one takes the place until its OPEN has come, for which there is a time limit.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from ipaddress import ip_address

from msgspec import Struct

from netloom.bgp.errors import Code, describe
from netloom.bgp.fsm import Close, Connect, Send
from netloom.bgp.nlri import Family
from netloom.bgp.peer import Side
from netloom.bgp.rib import Path
from netloom.bgp.speaker import PeerConfig, SessionEvent, Speaker

log = logging.getLogger(__name__)

Changes = dict[Family, dict[bytes, tuple[Path | None, Path | None]]]

PORT = 179
_TCP_MD5SIG, _IP_MINTTL, _IPV6_MINHOPCOUNT = 14, 21, 73
_BACKLOG = 64
SEND_HOLD_SECONDS = 480.0
"""How long a peer may not read (RFC 9687)."""
CLOSE_SECONDS = 5.0
"""How long a peer has to read what was sent before its connection was closed, and to close it, too."""


class Endpoint(Struct, frozen=True):
    """How to reach a peer, and how to authenticate it."""

    address: str
    port: int = PORT
    local: str = ""
    """The address to connect from."""
    password: bytes = b""
    """The key of TCP-MD5 signatures (RFC 2385)."""
    ttl_security: bool = False
    """Whether only packets from a directly connected peer are taken (RFC 5082)."""

    def __repr__(self) -> str:
        return f"Endpoint({self.address}, {self.port})"


class SpeakerIO:
    """A running speaker."""

    def __init__(
        self,
        speaker: Speaker,
        *,
        listen: tuple[str, int] | None = None,
        on_changes: Callable[[Changes], None],
        on_event: Callable[[SessionEvent], None],
        on_bytes: Callable[[str, Side, bytes, bool], None] | None = None,
    ) -> None:
        """Serve `speaker`.

        `on_changes` gets the routes whose best path has changed, `on_bytes` the bytes of each connection and whether
        they were sent, for dumps.
        """
        self.speaker = speaker
        self._listen = listen
        self._on_changes = on_changes
        self._on_event = on_event
        self._on_bytes = on_bytes
        self._endpoints: dict[str, Endpoint] = {}
        self._links: dict[tuple[str, Side], _Link] = {}
        self._dialing: dict[str, asyncio.Task[None]] = {}
        self._closing: dict[str, _Link] = {}
        """Connections that are closing, whose peers have not read the NOTIFICATION yet; one for each peer."""
        self._listener: socket.socket | None = None
        self._signed: set[str] = set()
        """The peers whose keys the listener has."""
        self._woken = asyncio.Event()
        self.port = 0
        """The port that is listened on."""

    async def run(self) -> None:
        """Serve until cancelled; then end all sessions as a restart: peers keep our routes."""
        loop = asyncio.get_running_loop()
        server: asyncio.Server | None = None
        if self._listen is not None:
            self._listener = _listener(*self._listen)
            self.port = self._listener.getsockname()[1]
            self._signed.clear()
            for name, endpoint in self._endpoints.items():
                self._sign(name, endpoint)
            server = await loop.create_server(self._accept, sock=self._listener, backlog=_BACKLOG)
        try:
            while True:
                self._pump()
                deadline = self.speaker.deadline()
                self._woken.clear()
                timeout = None if deadline is None else max(0.0, deadline - loop.time())
                try:
                    async with asyncio.timeout(timeout):
                        await self._woken.wait()
                except TimeoutError:
                    self.speaker.tick(loop.time())
        finally:
            self._listener = None
            if server is not None:
                server.close()
            for task in self._dialing.values():
                task.cancel()
            for link in (*self._links.values(), *self._closing.values()):
                link.abort()

    def add_peer(self, config: PeerConfig, endpoint: Endpoint) -> None:
        """Begin a session with a peer."""
        self._endpoints[config.name] = endpoint
        self._sign(config.name, endpoint)
        self.speaker.add_peer(config, asyncio.get_running_loop().time())
        self.wake()

    def remove_peer(self, name: str) -> None:
        """End the session with a peer."""
        self.speaker.remove_peer(name, asyncio.get_running_loop().time())
        self._pump()
        endpoint = self._endpoints.pop(name)
        if self._listener is not None and name in self._signed:
            self._signed.discard(name)
            _sign(self._listener, Endpoint(endpoint.address), remove=True)

    def _sign(self, name: str, endpoint: Endpoint) -> None:
        """Have the listener check the signatures of a peer; without its key, the peer's connections are refused."""
        if self._listener is None or not endpoint.password:
            return
        if self._listener.family == socket.AF_INET and ":" in endpoint.address:
            return  # Such a peer does not connect to an address of IPv4, and the kernel takes no key of it.
        try:
            _sign(self._listener, endpoint)
        except OSError as error:  # The memory for keys is limited.
            why = f"{error.strerror or error}: if there are many keys, raise net.core.optmem_max"
            log.warning("connections of %s are refused, its key cannot be set: %s", name, why)
        else:
            self._signed.add(name)

    async def shut_down(self, text: str = "") -> None:
        """End all sessions for good: peers remove our routes at once, and are told why (RFC 9003).

        Without this, what ends the process is a restart for the peers.
        """
        self.speaker.shut_down(text, asyncio.get_running_loop().time())
        closing = list(self._links.values())
        self._pump()
        if closing:
            await asyncio.wait([link.ended for link in closing], timeout=CLOSE_SECONDS)

    def wake(self) -> None:
        """Process changes that were made to the speaker."""
        self._woken.set()

    # Sockets

    def _accept(self) -> asyncio.Protocol:
        return _Link(self, None)

    def opened(self, link: "_Link", address: str) -> bool:
        """Accept a connection if its address is that of a peer; return whether it is."""
        self._act()  # What is pending is for earlier connections.
        name = str(_unmapped(address))
        now = asyncio.get_running_loop().time()
        endpoint = self._endpoints.get(name)
        is_checked = endpoint is not None and (not endpoint.password or name in self._signed)
        if endpoint is None or not is_checked or not self.speaker.accepted(name, now):
            log.info("refused a connection from %s", name)
            return False
        link.key = key = (name, Side.THEIRS)
        _protect(link.socket(), endpoint)
        # What is to be done until the earlier connection is closed is for that one.
        for action in self.speaker.take_actions():
            if key not in self._links:
                self._links[key] = link
            self._do(*action)
        self.wake()
        return True

    def received(self, link: "_Link", data: bytes) -> None:
        """Handle bytes from a peer."""
        assert link.key is not None
        if self._on_bytes is not None:
            self._on_bytes(*link.key, data, False)
        self.speaker.receive(*link.key, data, asyncio.get_running_loop().time())
        self.wake()

    def lost(self, link: "_Link", why: str) -> None:
        """Handle the end of a connection."""
        if link.key is not None and self._closing.get(link.key[0]) is link:
            del self._closing[link.key[0]]
        if link.key is not None and self._links.get(link.key) is link:
            del self._links[link.key]
            self.speaker.failed(*link.key, why, asyncio.get_running_loop().time())
            self.wake()

    def sent(self, link: "_Link", data: bytes) -> None:
        """Count what was written to a peer."""
        if self._on_bytes is not None and link.key is not None:
            self._on_bytes(*link.key, data, True)

    def _pump(self) -> None:
        """Execute the actions of the speaker, and send to each peer what its buffer has room for."""
        speaker = self.speaker
        while True:
            changes = speaker.take_changes()
            if any(changes.values()):
                self._on_changes(changes)
            self._act()
            for event in speaker.take_events():
                self._on_event(event)
            for name in speaker.configs():
                self._write(name)
            if not speaker.has_actions:
                return

    def _act(self) -> None:
        for action in self.speaker.take_actions():
            self._do(*action)

    def _write(self, name: str) -> None:
        """Send messages to a peer, as long as it reads them."""
        link = self._links.get((name, self.speaker.neighbor(name).side or Side.OURS))
        if link is not None and not link.is_paused:
            for _, data in self.speaker.messages(name):
                if not link.write(data):
                    break

    def _do(self, name: str, side: Side, action: Connect | Send | Close) -> None:
        match action:
            case Connect():
                self._dialing[name] = asyncio.get_running_loop().create_task(self._dial(name, self._endpoints[name]))
            case Send(data):
                if (link := self._links.get((name, side))) is not None:
                    link.write(data)
            case Close():
                if side is Side.OURS and (task := self._dialing.pop(name, None)) is not None:
                    task.cancel()
                if (link := self._links.pop((name, side), None)) is not None:
                    if (before := self._closing.pop(name, None)) is not None:
                        before.abort()
                    self._closing[name] = link
                    link.close()

    async def _dial(self, name: str, endpoint: Endpoint) -> None:
        loop = asyncio.get_running_loop()
        link = _Link(self, (name, Side.OURS))
        try:
            sock = _dialer(endpoint)
            try:
                await loop.sock_connect(sock, (endpoint.address, endpoint.port))
                await loop.create_connection(lambda: link, sock=sock)
            except BaseException:
                sock.close()
                raise
        except OSError as error:
            self._dialing.pop(name, None)
            self.speaker.failed(name, Side.OURS, error.strerror or str(error), loop.time())
        else:
            self._dialing.pop(name, None)
            self._links[name, Side.OURS] = link
            self.speaker.connected(name, loop.time())
        self.wake()


class _Link(asyncio.Protocol):
    """One connection."""

    def __init__(self, owner: SpeakerIO, key: tuple[str, Side] | None) -> None:
        self.key = key
        self.is_paused = False
        self._is_closing = False
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self._why = "the peer has closed the connection"
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start; refuse an address that is not that of a peer."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self.key is None and not self._owner.opened(self, transport.get_extra_info("peername")[0]):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Pass data on."""
        if self.key is not None and not self._is_closing:
            self._owner.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end."""
        self._give_up_after(None)
        if not self.ended.done():
            self.ended.set_result(None)
        self._owner.lost(self, str(exc) if exc is not None else self._why)

    def pause_writing(self) -> None:
        """Stop writing: the peer does not read."""
        self.is_paused = True
        self._give_up_after(SEND_HOLD_SECONDS)

    def resume_writing(self) -> None:
        """Resume writing."""
        self.is_paused = False
        self._give_up_after(None)
        self._owner.wake()

    def write(self, data: bytes) -> bool:
        """Send; return whether there is room for more."""
        assert self._transport is not None
        self._transport.write(data)
        self._owner.sent(self, data)
        return not self.is_paused

    def close(self) -> None:
        """Close after what has been written; a peer that does not read is not waited for.

        What the peer still sends is read and ignored: the kernel would answer it with a reset, and a reset makes the
        peer's kernel forget what it has not read yet, which is the NOTIFICATION.
        """
        assert self._transport is not None
        self._is_closing = True
        if self.is_paused:
            self._transport.abort()
            return
        try:
            self._transport.write_eof()
        except OSError:  # The peer has reset the connection in this moment.
            self._transport.abort()
        else:
            self._give_up_after(CLOSE_SECONDS)

    def abort(self) -> None:
        """Close at once."""
        assert self._transport is not None
        self._transport.abort()

    def _give_up_after(self, seconds: float | None) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
        loop = asyncio.get_running_loop()
        self._giving_up = None if seconds is None or self.ended.done() else loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if self.is_paused:
            self._why = describe(Code.SEND_HOLD_TIMER, 0)
        self.abort()

    def socket(self) -> socket.socket:
        """Return the socket, for its options."""
        assert self._transport is not None
        found: socket.socket = self._transport.get_extra_info("socket")
        return found


def _unmapped(text: str) -> object:
    """Return an address; an IPv4 address in IPv6 form as IPv4."""
    found = ip_address(text.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _listener(address: str, port: int) -> socket.socket:
    sock = socket.socket(_family(address) if address else socket.AF_INET6, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if not address:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # A peer that checks it drops even the SYN-ACK if it is lower (RFC 5082); others do not mind.
        _set_highest_ttl(sock)
        sock.bind((address or "::", port))
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _dialer(endpoint: Endpoint) -> socket.socket:
    sock = socket.socket(_family(endpoint.address), socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if endpoint.local:
            sock.bind((endpoint.local, 0))
        _sign(sock, endpoint)
        _protect(sock, endpoint)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def _sign(sock: socket.socket, endpoint: Endpoint, *, remove: bool = False) -> None:
    """Set the key with which the kernel signs and verifies the segments of a peer."""
    if not endpoint.password and not remove:
        return
    address = endpoint.address
    if sock.family == socket.AF_INET6 and ":" not in address:
        address = f"::ffff:{address}"
    if ":" in address:
        packed = struct.pack("=HHI16sI", socket.AF_INET6, 0, 0, socket.inet_pton(socket.AF_INET6, address), 0)
    else:
        packed = struct.pack("=HH4s", socket.AF_INET, 0, socket.inet_pton(socket.AF_INET, address))
    key = endpoint.password
    value = packed.ljust(128, b"\0") + struct.pack("=BBHi", 0, 0, len(key), 0) + key.ljust(80, b"\0")
    sock.setsockopt(socket.IPPROTO_TCP, _TCP_MD5SIG, value)


def _set_highest_ttl(sock: socket.socket) -> None:
    """Send with the highest TTL; on a socket for IPv6, IPv4 in IPv6 form, too."""
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 255)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)


def _protect(sock: socket.socket, endpoint: Endpoint) -> None:
    """Accept only packets that no router has forwarded, if the peer has TTL security."""
    if not endpoint.ttl_security:
        return
    _set_highest_ttl(sock)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MINHOPCOUNT, 255)
    if sock.family == socket.AF_INET or ":" not in endpoint.address:
        sock.setsockopt(socket.IPPROTO_IP, _IP_MINTTL, 255)
