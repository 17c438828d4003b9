"""A node of a cluster in namespaces: a client outside, the node, and what is behind nl-host, which stands for OVN.

    client 192.0.2.9 ── eth0 192.0.2.1 [node] nl-host 10.244.1.2 ── 10.244.1.1, pods, cluster IPs [ovn]

OVN balances a cluster IP on the port of nl-host; here, a server has the cluster IP itself. Nothing but the node's table
brings the client to a pod or back: the client has no route to pods or Services.
"""

import contextlib
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from netloom.drivers.link import kernel as link
from netloom.drivers.nft import forwarding
from netloom.drivers.nft.driver import NftTable
from netloom.plan.kube.node.table import TABLE, ClusterNode
from tests.run.agents import in_thread
from tests.support.ovn import namespace, own, run, within

NODE = ClusterNode(
    pods=("10.244.0.0/16", "fd00:1::/48"),
    services=("10.96.0.0/12", "fd00:2::/108"),
    own=("10.244.1.0/24", "fd00:1:0:1::/64", "192.0.2.1/32"),
)
SECONDS = 5.0
"""For packets that must arrive."""
SILENCE = 0.5
"""For those that must not; a packet beside each arrives."""


def nft(netns: str) -> NftTable:
    """Return our table in a namespace."""
    return NftTable(TABLE, program=("ip", "netns", "exec", netns, "nft"))


def ruleset(netns: str, *what: str) -> str:
    """Return what nft lists in a namespace."""
    return run(*within(netns, "nft", "list", *(what or ("ruleset",))))


def load(netns: str, text: str) -> None:
    """Run commands of nft in a namespace."""
    subprocess.run(within(netns, "nft", "-f", "-"), input=text, text=True, check=True)


@dataclass
class Place:
    """The three namespaces, by name."""

    client: str
    node: str
    ovn: str

    @contextlib.contextmanager
    def serving(self, netns: str, ip: str, port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> Iterator[None]:
        """Answer with the own address and that of the client."""
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET

        server = in_namespace(netns, family, kind)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((ip, port))
        if kind is socket.SOCK_STREAM:
            server.listen(64)
        thread = threading.Thread(target=_serve, args=(server, ip), daemon=True)
        thread.start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            server.close()

    def ask(self, netns: str, ip: str, port: int, *, source: str = "", seconds: float = SECONDS) -> str:
        """Return what a server answers, or "" if there is no answer."""
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET

        with in_namespace(netns, family, socket.SOCK_STREAM) as client:
            client.settimeout(seconds)
            if source:
                client.bind((source, 0))
            try:
                client.connect((ip, port))
                return client.recv(256).decode()
            except OSError:
                return ""

    def ask_udp(self, netns: str, ip: str, port: int) -> str:
        """Return what a server answers to a datagram, or ""."""
        with in_namespace(netns, socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(SECONDS)
            client.connect((ip, port))
            client.send(b"?")
            try:
                return client.recv(256).decode()
            except OSError:
                return ""


def in_namespace(netns: str, family: int, kind: socket.SocketKind) -> socket.socket:
    """Return a socket of a namespace."""

    def made() -> socket.socket:
        with link.entered(f"/run/netns/{netns}"):
            return socket.socket(family, kind)

    found: socket.socket = in_thread(made)
    return found


def _serve(server: socket.socket, ip: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            if server.type is socket.SOCK_DGRAM:
                question, peer = server.recvfrom(64)
                if not question:
                    return  # It was shut down.
                server.sendto(f"{ip} {peer[0]}".encode(), peer)
                continue
            connection, peer = server.accept()
            connection.sendall(f"{ip} {peer[0]}".encode())
            connection.close()


@contextlib.contextmanager
def place() -> Iterator[Place]:
    """Yield the namespaces, connected, and the node's kernel set to forward."""
    found = Place(own("nlt-nft-client"), own("nlt-nft-node"), own("nlt-nft-ovn"))
    with namespace(found.client), namespace(found.node), namespace(found.ovn):
        _connect(found.client, "eth0", found.node, "eth0")
        _connect(found.ovn, "eth0", found.node, "nl-host")
        for netns, device, *addresses in (
            (found.client, "eth0", "192.0.2.9/24", "2001:db8::9/64", "198.51.100.9/32"),
            (found.node, "eth0", "192.0.2.1/24", "2001:db8::1/64"),
            (found.node, "nl-host", "10.244.1.2/24", "fd00:1:0:1::2/64"),
            (found.ovn, "eth0", "10.244.1.1/24", "fd00:1:0:1::1/64", "10.244.1.7/24", "fd00:1:0:1::7/64"),
            (found.ovn, "eth0", "10.244.1.8/24", "10.244.2.7/32", "10.96.0.10/32", "fd00:2::10/128"),
        ):
            for address in addresses:
                more = ("nodad",) if ":" in address else ()
                run("ip", "-n", netns, "address", "add", address, "dev", device, *more)
        for to, via in (
            ("10.244.0.0/16", "10.244.1.1"),
            ("10.96.0.0/12", "10.244.1.1"),
            ("fd00:1::/48", "fd00:1:0:1::1"),
            ("fd00:2::/108", "fd00:1:0:1::1"),
            ("0.0.0.0/0", "192.0.2.9"),
        ):
            run("ip", "-n", found.node, "route", "add", to, "via", via)
        for netns, to, via in (
            (found.ovn, "default", "10.244.1.2"),
            (found.ovn, "default", "fd00:1:0:1::2"),
            (found.client, "203.0.113.0/24", "192.0.2.1"),
        ):
            run("ip", "-n", netns, "route", "add", to, "via", via)

        def forward() -> list[str]:
            with link.entered(f"/run/netns/{found.node}"):
                return forwarding.enable("nl-host", (4, 6))

        in_thread(forward)
        yield found


def _connect(one: str, device: str, other: str, peer: str) -> None:
    run("ip", "-n", one, "link", "add", device, "type", "veth", "peer", "name", peer, "netns", other)
    run("ip", "-n", one, "link", "set", device, "up")
    run("ip", "-n", other, "link", "set", peer, "up")
