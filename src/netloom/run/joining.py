"""`netloom apiserver --print-manifests`: what a cluster must be told for a server of these settings to be part of it.

The settings are the server's own, so that what is printed fits what runs: the certificate is the one of --data, made
now if it is not there, or the one given; the port is the one it listens on.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from netloom.errors import Cause, Invalid
from netloom.model.document import Document
from netloom.run import apiserver, config, doors, node_policies
from netloom.run.config import ApiserverSettings
from netloom.run.credentials import Directory
from netloom.run.manifests import TLS_FOLDER, Place, aggregated, common


class Wanted(Struct, frozen=True, kw_only=True):
    """What only the cluster must know."""

    address: str = ""
    """Where kube-apiserver reaches the server outside the cluster: an IP or a name, perhaps with a port."""
    image: str = ""
    """The image to run the server from in the cluster."""
    ca_bundle: str = ""
    """The file of the CA that signed a certificate that was given."""
    nodes: tuple[str, ...] = ()
    aggregate_edit: bool = False
    """Whether netloom:edit and netloom:admin are parts of the cluster's edit and admin."""


def manifests(settings: ApiserverSettings, wanted: Wanted) -> list[Document]:
    """Return them, in the order in which they are to be applied."""
    settings = msgspec.structs.replace(settings, aggregated=True)
    _check(settings, wanted)
    host, port = _address(settings, wanted)
    directory = Directory(Path(settings.data)) if settings.data else None
    if directory is not None:
        apiserver.prepare(directory, settings, "")
    identity = doors.of_directory(directory) if directory is not None else apiserver.from_files(settings)
    ca = Path(wanted.ca_bundle) if wanted.ca_bundle else identity.client_ca or identity.certificate
    place = Place(
        ca=_contents(ca),
        address=host,
        port=port,
        image=wanted.image,
        certificate=_contents(identity.certificate),
        key=_contents(identity.key),
        args=_inside(settings, port),
    )
    roles = common(wanted.nodes, aggregate_edit=wanted.aggregate_edit)
    return [*roles, *node_policies.events(), *aggregated(place)]


def _check(settings: ApiserverSettings, wanted: Wanted) -> None:
    if wanted.address and wanted.image:
        raise _wrong("image", "either --image, for a server in the cluster, or --address, for one outside")
    if wanted.image:
        config.require(settings, "store")
    if not settings.data:
        config.require(settings, "tls_cert", "tls_key")


def _address(settings: ApiserverSettings, wanted: Wanted) -> tuple[str, int]:
    """Return where the server is; the port is the one it listens on, unless another leads there."""
    _, listens = config.address(settings.listen)
    text = wanted.address
    if text.startswith("[") or text.count(":") == 1:
        host, port = config.address(text if not text.endswith("]") else f"{text}:{listens}", "address")
        return host, port
    return text, listens


def _inside(settings: ApiserverSettings, port: int) -> tuple[str, ...]:
    """Return what the server is told that runs in the cluster."""
    return (
        "--aggregated",
        f"--listen=:{port}",
        f"--store={settings.store}",
        f"--tls-cert={TLS_FOLDER}/tls.crt",
        f"--tls-key={TLS_FOLDER}/tls.key",
    )


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}") from None


def _wrong(key: str, message: str) -> Invalid:
    return Invalid("the configuration is not right", causes=[Cause(key, message)])
