"""A lab without its own API: it uses that of a Kubernetes cluster, given by a kubeconfig.

The lab then runs `netloom controller` instead of `netloom serve`. The API is reached as in any other lab, at one port
of the loopback, here and on every node: the supervisor forwards that port to the cluster, and the lab's kubeconfigs are
copies with that address. TLS stays between client and cluster, so they name the host to expect in the certificate.
"""

from pathlib import Path
from urllib.parse import urlsplit

from netloom.errors import Invalid
from netloom.lab.kube.places import PLACE as KUBE
from netloom.lab.kube.places import PORT
from netloom.lab.layout import Layout
from netloom.model import codec
from netloom.run import files
from netloom.run.access import credentials
from netloom.store.kube import kubeconfig


def endpoint(path: Path) -> str:
    """Return the API endpoint of a kubeconfig, as HOST:PORT."""
    url = urlsplit(kubeconfig.load(str(path)).server)
    if url.scheme != "https" or not url.hostname or url.path.strip("/"):
        raise Invalid(f"{path}: the server must be https://HOST:PORT")
    return f"{url.hostname}:{url.port or 443}"


def target(cluster: str) -> tuple[str, int]:
    """Return host and port of an endpoint."""
    host, _, port = cluster.rpartition(":")
    return host, int(port)


def api(layout: Layout) -> tuple[str, int, str]:
    """Return the host and port of a lab's API, and the place in which they are; "": this machine."""
    if layout.state.kube:
        return "127.0.0.1", PORT, KUBE
    if layout.state.cluster:
        return (*target(layout.state.cluster), "")
    return "127.0.0.1", layout.state.port, ""


def write_credentials(layout: Layout, admin: Path, folder: Path | None) -> None:
    """Write the lab's kubeconfigs: the administrator's and, from `folder` if given, the controller's and agents'."""

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
        raise Invalid(f"{source}: a login program (exec) does not work on a lab's nodes: use a kubeconfig with a token")
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
