"""The certificates for connections to OVN's databases in a lab.

Two CAs, because an ovsdb-server trusts every certificate of its CA alike, and because OVS's programs do not compare a
server's certificate with the address of the connection:

   central    signs the servers, ovn-northd and the control plane. The northbound trusts this one only
   nodes      signs one certificate for each node, with the chassis name as common name: OVN's role `ovn-controller`
              compares it with the rows that a node writes. The southbound trusts both

So no node can connect to the northbound, and no node can pose as a server to another: nodes trust `central` only.
Valid certificates are kept; the CAs last for years, the others are renewed a month before they expire.
"""

import os
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct

from netloom.lab.layout import Layout, suffix
from netloom.run import files
from netloom.run.access import certificates
from netloom.run.access.certificates import Pair

MARGIN = timedelta(days=30)


class Files(Struct, frozen=True):
    """The certificate of a program, and the CA that it trusts."""

    certificate: Path
    key: Path
    ca: Path

    @classmethod
    def of_server(cls, layout: Layout, database: str, number: int) -> "Files":
        """Return the files of a server of `nb` or `sb`."""
        name = f"{database}{suffix(number)}"
        trusted = "central" if database == "nb" else "both"
        return cls(layout.tls / f"{name}.crt", layout.tls / f"{name}.key", layout.tls / f"{trusted}-ca.crt")

    @classmethod
    def of_central(cls, layout: Layout, name: str) -> "Files":
        """Return the files of a program that connects to the servers without a role."""
        return cls(layout.tls / f"{name}.crt", layout.tls / f"{name}.key", layout.tls / "central-ca.crt")

    @classmethod
    def of_node(cls, layout: Layout, node: str) -> "Files":
        """Return the files of a node."""
        own = layout.node(node)
        return cls(own / "ovn.crt", own / "ovn.key", own / "ovn-ca.crt")

    def options(self) -> list[str]:
        """Return the files as options that every program of OVS and OVN accepts."""
        return [f"--private-key={self.key}", f"--certificate={self.certificate}", f"--ca-cert={self.ca}"]


def prepare(layout: Layout, *, now: datetime) -> None:
    """Create certificates that are missing or about to expire."""
    layout.tls.mkdir(mode=0o700, exist_ok=True)
    central, nodes = (_authority(layout.tls, name, now) for name in ("central", "nodes"))
    _write(layout.tls / "both-ca.crt", central.certificate + nodes.certificate)
    for number, place in enumerate(layout.centrals, start=1):
        hosts = {"127.0.0.1", layout.central_ip(place), layout.management_ip(place)}
        for database in ("nb", "sb"):
            own = Files.of_server(layout, database, number)
            _keep(own, central, _peer(central, place, hosts, now), hosts=hosts, now=now)
    for name in ("northd", "netloom"):
        _keep(Files.of_central(layout, name), central, _client(central, name, now), now=now)
    for node in layout.nodes:
        own = Files.of_node(layout, node)
        _keep(own, nodes, _client(nodes, node, now), now=now)
        _write(own.ca, central.certificate)


def _authority(folder: Path, name: str, now: datetime) -> Pair:
    certificate, key = folder / f"{name}-ca.crt", folder / f"{name}-ca.key"
    if certificate.exists() and key.exists():
        return Pair(certificate.read_bytes(), key.read_bytes())
    made = certificates.new_key()
    pair = Pair(certificates.make_ca(made, name=f"netloom lab OVN {name}", now=now), made)
    files.write_whole(key, pair.key)
    files.write_whole(certificate, pair.certificate)
    return pair


def _peer(ca: Pair, name: str, hosts: Collection[str], now: datetime) -> Callable[[bytes], bytes]:
    return lambda key: certificates.make_peer(ca, key, name=name, hosts=hosts, now=now)


def _client(ca: Pair, name: str, now: datetime) -> Callable[[bytes], bytes]:
    return lambda key: certificates.make_client(ca, key, name=name, groups=[], now=now)


def _keep(own: Files, ca: Pair, make: Callable[[bytes], bytes], *, hosts: Collection[str] = (), now: datetime) -> None:
    """Create a certificate and its key, unless the existing ones are valid."""
    if own.certificate.exists() and own.key.exists():
        there, key = own.certificate.read_bytes(), own.key.read_bytes()
        if certificates.is_valid(there, key=key, ca=ca.certificate, hosts=hosts, now=now, margin=MARGIN):
            return
    key = certificates.new_key()
    _write(own.key, key)
    _write(own.certificate, make(key))


def _write(path: Path, data: bytes) -> None:
    """Write a private file. A partial one, after a crash, is not a valid certificate and is created again."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, files.PRIVATE), "wb") as file:
        file.write(data)
