"""The processes: `netloom serve`, `apiserver`, `controller`, `agent`, `speaker` and `vtep`."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from netloom.cli.crds import AGGREGATE_EDIT, WITH_KUBE
from netloom.cli.settings import effective, flags
from netloom.run.config import (
    AgentSettings,
    ApiserverSettings,
    ControllerSettings,
    ServeSettings,
    SpeakerSettings,
    VtepSettings,
    listed,
)

F = TypeVar("F", bound=Callable[..., Any])


@click.command()
@flags(ServeSettings)
def serve(**given: object) -> int:
    """Run the whole control plane in one process.

    The first start creates the data directory, with a CA, certificates, an admin token and admin.kubeconfig.
    """
    from netloom.run import serve as process  # the server and its dependencies: only when it runs

    return process.main(effective(ServeSettings, given)[0])


def _manifest_option(name: str, metavar: str, text: str) -> Callable[[F], F]:
    return click.option(name, default="", metavar=metavar, help=f"With --print-manifests: {text}")


@click.command()
@flags(ApiserverSettings)
@click.option(
    "--print-manifests", is_flag=True, help="Print the manifests that add this API to a Kubernetes cluster, and exit."
)
@_manifest_option("--address", "HOST[:PORT]", "the address of this server, as seen from the cluster.")
@_manifest_option("--image", "IMAGE", "run the server in the cluster, from this image.")
@_manifest_option("--ca-bundle", "FILE", "the CA that signed the server's certificate.")
@_manifest_option("--nodes", "A,B", "create a user for the agent of each of these nodes.")
@AGGREGATE_EDIT
@WITH_KUBE
def apiserver(
    print_manifests: bool,
    address: str,
    image: str,
    ca_bundle: str,
    nodes: str,
    aggregate_edit: bool,
    with_kube: bool,
    **given: object,
) -> int:
    """Run the API server, on sqlite or etcd; with --aggregated, as an extension of a Kubernetes API server.

    `netloom apiserver --aggregated --print-manifests | kubectl apply -f -` registers it with the cluster.
    """
    settings = effective(ApiserverSettings, _with_root_options(given))[0]
    if print_manifests:
        from netloom.model import codec
        from netloom.run.cluster.joining import ClusterOptions, manifests  # as above

        wanted = ClusterOptions(
            address=address,
            image=image,
            ca_bundle=ca_bundle,
            nodes=tuple(listed(nodes)),
            aggregate_edit=aggregate_edit,
            with_kube=with_kube,
        )
        click.echo("---\n".join(codec.encode_yaml(document) for document in manifests(settings, wanted)), nl=False)
        return 0
    from netloom.run import apiserver as process  # as above

    return process.main(settings)


@click.command()
@flags(ControllerSettings)
def controller(**given: object) -> int:
    """Run the controllers; of several processes, only the elected leader is active."""
    from netloom.run import controller as process  # as above

    return process.main(effective(ControllerSettings, _with_root_options(given))[0])


@click.command()
@flags(AgentSettings)
def agent(**given: object) -> int:
    """Run the agent of a node, which plugs the attachments of that node.

    Run it as root in the node's network namespace. It uses the node's credential, and changes only what Netloom owns.
    With --prepare, it first sets up a bare Open vSwitch.
    """
    from netloom.run.node import agent as process  # as above

    return process.main(effective(AgentSettings, _with_root_options(given))[0])


@click.command()
@flags(SpeakerSettings)
def speaker(**given: object) -> int:
    """Run the BGP speakers of a node, in a process of their own.

    The agent of the node runs them too, unless it is started with --no-speaker; the process that starts first does. Run
    it in the node's network namespace, with the node's credential.
    """
    from netloom.run.node import speaker as process  # as above

    return process.main(effective(SpeakerSettings, _with_root_options(given))[0])


@click.command()
@flags(VtepSettings)
def vtep(**given: object) -> int:
    """Serve the REST API of ryu's rest_vtep and of evpn-for-ovn, and with --rabbit the same operations as RPC.

    Requests become objects of the API that the kubeconfig names: BGPSpeaker, BGPPeer, EVPNNetwork, Network. Clients
    authenticate as to `netloom serve`.
    """
    from netloom.run import vtep as process  # as above

    return process.main(effective(VtepSettings, _with_root_options(given))[0])


def _with_root_options(given: dict[str, object]) -> dict[str, object]:
    """Return the options, with --kubeconfig and --context taken from before the command's name if they stand there."""
    root = click.get_current_context().find_root().params
    given["kubeconfig"] = given.get("kubeconfig") or root.get("kubeconfig")
    given["context"] = given.get("context") or root.get("context_name")
    return given
