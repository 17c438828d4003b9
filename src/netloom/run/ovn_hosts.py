"""The documents that make hosts a deployment of OVN: one for each host, with its certificates.

Two CAs, as in a lab (lab/pki.py says why): `central` signs the master and clients of the northbound, `nodes` signs one
certificate for each network host, with its chassis name as common name. The northbound trusts the first one only.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from netloom.errors import BadRequest
from netloom.model.document import Document
from netloom.run.access.keeping import authority, client, keep, peer

NORTHBOUND, SOUTHBOUND = 6641, 6642
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,63}")


class Nic(Struct, frozen=True, kw_only=True):
    """A NIC that moves to a bridge of Open vSwitch."""

    host: str
    nic: str
    port: str = ""
    """The logical port that it becomes on br-int; "": it joins br-ex."""

    def document(self, datapath: str) -> Document:
        """Return it as a part of the document of its host."""
        if not self.port:
            return {"nic": self.nic, "bridge": "br-ex", "external_ids": {}, "datapath": datapath}
        ids = {"iface-id": self.port, "iface-status": "active", "vm-id": self.host}
        return {"nic": self.nic, "bridge": "br-int", "external_ids": ids, "datapath": datapath}


class Deployment(Struct, frozen=True, kw_only=True):
    """A master, and network hosts, each with the address that others reach it at."""

    master: str
    addresses: Mapping[str, str]
    hosts: Sequence[str]
    encap: str
    datapath: str = ""
    nics: tuple[Nic, ...] = ()
    back: tuple[Nic, ...] = ()


def documents(wanted: Deployment, folder: Path, *, now: datetime) -> dict[str, Document]:
    """Return the document of each host; keys and certificates are kept in `folder`."""
    for host in (wanted.master, *wanted.hosts):
        if not _NAME.fullmatch(host):
            raise BadRequest(
                f"{host!r} cannot be the name of a chassis and of a certificate: use a Host of at most 64 letters, "
                "digits, dots and dashes"
            )
    (folder / "hosts").mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    titles = {name: f"netloom OVN {name}" for name in ("central", "nodes")}
    central, nodes = (authority(folder, name, title=title, now=now) for name, title in titles.items())
    address = wanted.addresses[wanted.master]
    keep(folder / "netloom.crt", folder / "netloom.key", central, client(central, "netloom", now), now=now)
    found: dict[str, Document] = {}
    for host in {wanted.master: None, **dict.fromkeys(wanted.hosts)}:
        is_master = host == wanted.master
        certificate, key = (folder / "hosts" / f"{host}.{end}" for end in ("crt", "key"))
        # The certificate of a master that is a network host too has its name and both uses.
        make = peer(central, host, {address}, now) if is_master else client(nodes, host, now)
        signer = central if is_master else nodes
        keep(certificate, key, signer, make, hosts={address} if is_master else (), now=now)
        contents = {"key.pem": key.read_text(), "cert.pem": certificate.read_text()}
        contents["ca.pem"] = central.certificate.decode()
        if is_master:
            contents["central-ca.pem"] = central.certificate.decode()
            contents["both-ca.pem"] = (central.certificate + nodes.certificate).decode()
        found[host] = {
            "files": contents,
            "central": _central(address) if is_master else None,
            "host": _host(wanted, host, address) if host in wanted.hosts else None,
            "nics": [nic.document(wanted.datapath) for nic in wanted.nics if nic.host == host],
            "back": [nic.nic for nic in wanted.back if nic.host == host],
        }
    return found


def _central(address: str) -> Document:
    at = _bracketed(address)
    return {"northbound": f"pssl:{NORTHBOUND}:{at}", "southbound": f"pssl:{SOUTHBOUND}:{at}"}


def _host(wanted: Deployment, host: str, master: str) -> Document:
    return {
        "system_id": host,
        "remote": f"ssl:{_bracketed(master)}:{SOUTHBOUND}",
        "encap_type": wanted.encap,
        "encap_ip": wanted.addresses[host],
        "datapath": wanted.datapath,
    }


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
