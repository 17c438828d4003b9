"""`netloom apiserver --print-manifests`: the objects that a cluster needs for a server with these settings.

The settings are the server's own, so that the manifests match the server: the certificate is the one of --data, created
now if it is missing, or the one given; the port is the one that the server listens on.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from netloom.model.document import Document
from netloom.run import apiserver, config, files, frontends
from netloom.run.access.credentials import Directory
from netloom.run.cluster import node_policies
from netloom.run.cluster.manifests import TLS_FOLDER, ServerPlacement, aggregated, common, pod_network
from netloom.run.config import ApiserverSettings


class ClusterOptions(Struct, frozen=True, kw_only=True):
    """What the cluster needs to know, beyond the server's settings."""

    address: str = ""
    """Where kube-apiserver reaches a server outside the cluster: an IP or a name, optionally with a port."""
    image: str = ""
    """The image for a server in the cluster."""
    ca_bundle: str = ""
    """The file of the CA that signed a given certificate."""
    nodes: tuple[str, ...] = ()
    aggregate_edit: bool = False
    """Whether netloom:edit and netloom:admin are aggregated to the cluster's edit and admin."""
    with_kube: bool = False
    """Whether Netloom is the network of the cluster's pods."""


def manifests(settings: ApiserverSettings, cluster: ClusterOptions) -> list[Document]:
    """Return the manifests, in the order in which to apply them."""
    settings = msgspec.structs.replace(settings, aggregated=True)
    _check(settings, cluster)
    host, port = _address(settings, cluster)
    directory = Directory(Path(settings.data)) if settings.data else None
    if directory is not None:
        apiserver.prepare(directory, settings, "")
    identity = frontends.of_directory(directory) if directory is not None else apiserver.from_files(settings)
    ca = Path(cluster.ca_bundle) if cluster.ca_bundle else identity.client_ca or identity.certificate
    server = ServerPlacement(
        ca=files.read(ca),
        address=host,
        port=port,
        image=cluster.image,
        certificate=files.read(identity.certificate),
        key=files.read(identity.key),
        args=_inside(settings, port),
    )
    roles = common(cluster.nodes, aggregate_edit=cluster.aggregate_edit)
    roles += pod_network() if cluster.with_kube else []
    return [*roles, *node_policies.events(), *aggregated(server)]


def _check(settings: ApiserverSettings, cluster: ClusterOptions) -> None:
    if cluster.address and cluster.image:
        raise config.invalid("image", "use either --image, for a server in the cluster, or --address, for one outside")
    if cluster.image:
        config.require(settings, "store")
    if not settings.data:
        config.require(settings, "tls_cert", "tls_key")


def _address(settings: ApiserverSettings, cluster: ClusterOptions) -> tuple[str, int]:
    """Return the address of the server; the port is the one that it listens on, unless --address has one."""
    _, listens = config.address(settings.listen)
    text = cluster.address
    if text.startswith("[") or text.count(":") == 1:
        host, port = config.address(text if not text.endswith("]") else f"{text}:{listens}", "address")
        return host, port
    return text, listens


def _inside(settings: ApiserverSettings, port: int) -> tuple[str, ...]:
    """Return the arguments of a server in the cluster."""
    return (
        "--aggregated",
        f"--listen=:{port}",
        f"--store={settings.store}",
        f"--tls-cert={TLS_FOLDER}/tls.crt",
        f"--tls-key={TLS_FOLDER}/tls.key",
    )
