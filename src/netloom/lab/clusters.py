"""A lab whose API is somebody else's: that of a Kubernetes cluster, given by a kubeconfig.

The lab then runs `netloom controller` instead of `netloom serve`. The API is reached as in any other lab, at one port
of the loopback, here and on every node: the supervisor carries what comes there to the cluster, and the kubeconfigs of
the lab are copies that say so. TLS stays between client and cluster, so they name whose certificate to expect.
"""

from pathlib import Path
from urllib.parse import urlsplit

from netloom.errors import Invalid
from netloom.lab.layout import Layout
from netloom.model import codec
from netloom.run import credentials, files
from netloom.store import kubeconfig


def endpoint(path: Path) -> str:
    """Return where the API of a kubeconfig is, as HOST:PORT."""
    url = urlsplit(kubeconfig.load(str(path)).server)
    if url.scheme != "https" or not url.hostname or url.path.strip("/"):
        raise Invalid(f"{path}: a lab needs an API at https://HOST:PORT")
    return f"{url.hostname}:{url.port or 443}"


def target(cluster: str) -> tuple[str, int]:
    """Return host and port of an endpoint."""
    host, _, port = cluster.rpartition(":")
    return host, int(port)


def write_credentials(layout: Layout, admin: Path, folder: Path | None) -> None:
    """Write the lab's kubeconfigs: of the administrator, and, where `folder` has some, of its controller and agents."""

    def own(name: str) -> Path:
        found = folder / f"{name}.kubeconfig" if folder is not None else admin
        return found if found.exists() else admin

    wanted = {layout.kubeconfig: admin, layout.controller_kubeconfig: own("controller")}
    wanted |= {layout.agent_kubeconfig(node): own(node) for node in layout.nodes}
    for path, source in wanted.items():
        files.write_whole(path, _copy(source, layout).encode())


def _copy(source: Path, layout: Layout) -> str:
    cluster = kubeconfig.load(str(source))
    if cluster.login is not None:
        raise Invalid(f"{source}: a lab's nodes cannot run the login program of a kubeconfig: give one with a token")
    user: dict[str, str] = {}
    if cluster.token_file:
        user["tokenFile"] = cluster.token_file
    elif cluster.token:
        user["token"] = cluster.token
    if cluster.certificate:
        pair = {"client-certificate-data": cluster.certificate, "client-key-data": cluster.key}
        user |= {name: credentials.base64_text(data) for name, data in pair.items()}
    made = codec.decode(credentials.kubeconfig(layout.url, cluster.ca, "user", user).encode(), "application/yaml")
    made["clusters"][0]["cluster"]["tls-server-name"] = cluster.server_name or target(layout.state.cluster)[0]
    return codec.encode_yaml(made)
