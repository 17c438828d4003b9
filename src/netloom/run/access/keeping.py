"""CAs and certificates that are kept in files: created when they are missing, and again a month before they expire."""

import os
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from netloom.run import files
from netloom.run.access import certificates
from netloom.run.access.certificates import Pair

MARGIN = timedelta(days=30)


def authority(folder: Path, name: str, *, title: str, now: datetime) -> Pair:
    """Return the CA `NAME-ca` of a folder; `title` is the common name of a new one."""
    certificate, key = folder / f"{name}-ca.crt", folder / f"{name}-ca.key"
    if certificate.exists() and key.exists():
        return Pair(certificate.read_bytes(), key.read_bytes())
    made = certificates.new_key()
    pair = Pair(certificates.make_ca(made, name=title, now=now), made)
    files.write_whole(key, pair.key)
    files.write_whole(certificate, pair.certificate)
    return pair


def peer(ca: Pair, name: str, hosts: Collection[str], now: datetime) -> Callable[[bytes], bytes]:
    """Return what makes the certificate of a server, which is a client too."""
    return lambda key: certificates.make_peer(ca, key, name=name, hosts=hosts, now=now)


def client(ca: Pair, name: str, now: datetime, *, groups: Sequence[str] = ()) -> Callable[[bytes], bytes]:
    """Return what makes the certificate of a client."""
    return lambda key: certificates.make_client(ca, key, name=name, groups=groups, now=now)


def keep(
    certificate: Path,
    key: Path,
    ca: Pair,
    make: Callable[[bytes], bytes],
    *,
    hosts: Collection[str] = (),
    now: datetime,
) -> None:
    """Create a certificate and its key, unless the existing ones are valid."""
    if certificate.exists() and key.exists():
        there, own = certificate.read_bytes(), key.read_bytes()
        if certificates.is_valid(there, key=own, ca=ca.certificate, hosts=hosts, now=now, margin=MARGIN):
            return
    made = certificates.new_key()
    write(key, made)
    write(certificate, make(made))


def write(path: Path, data: bytes) -> None:
    """Write a private file. A partial one, after a crash, is not a valid certificate and is created again."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, files.PRIVATE), "wb") as file:
        file.write(data)
