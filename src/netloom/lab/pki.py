"""The certificates for connections to OVN's databases in a lab.

Two CAs, because an ovsdb-server trusts every certificate of its CA alike, and because OVS's programs do not compare a
server's certificate with the address of the connection:

   central    signs the servers, ovn-northd and the control plane. The northbound trusts this one only
   nodes      signs one certificate for each node, with the chassis name as common name: OVN's role `ovn-controller`
              compares it with the rows that a node writes. The southbound trusts both

So no node can connect to the northbound, and no node can pose as a server to another: nodes trust `central` only.
Valid certificates are kept; the CAs last for years, the others are renewed a month before they expire.
"""

from datetime import datetime
from pathlib import Path

from msgspec import Struct

from netloom.lab.layout import Layout, suffix
from netloom.run.access.keeping import authority, client, keep, peer, write


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
    central, nodes = (
        authority(layout.tls, name, title=f"netloom lab OVN {name}", now=now) for name in ("central", "nodes")
    )
    write(layout.tls / "both-ca.crt", central.certificate + nodes.certificate)
    for number, place in enumerate(layout.centrals, start=1):
        hosts = {"127.0.0.1", layout.central_ip(place), layout.management_ip(place)}
        for database in ("nb", "sb"):
            own = Files.of_server(layout, database, number)
            keep(own.certificate, own.key, central, peer(central, place, hosts, now), hosts=hosts, now=now)
    for name in ("northd", "netloom"):
        own = Files.of_central(layout, name)
        keep(own.certificate, own.key, central, client(central, name, now), now=now)
    for node in layout.nodes:
        own = Files.of_node(layout, node)
        keep(own.certificate, own.key, nodes, client(nodes, node, now), now=now)
        write(own.ca, central.certificate)
