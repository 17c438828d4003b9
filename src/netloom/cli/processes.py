"""`netloom serve`, `apiserver`, `controller` and `agent`: flags in, a process of run/ out."""

import click

from netloom.cli.crds import AGGREGATE_EDIT
from netloom.cli.settings import effective, flags
from netloom.run.config import AgentSettings, ApiserverSettings, ControllerSettings, ServeSettings


@click.command()
@flags(ServeSettings)
def serve(**given: object) -> int:
    """Run the whole control plane in one process.

    The first start makes the data directory with a CA, certificates, an admin token and admin.kubeconfig.
    """
    from netloom.run import serve as process  # the server and all it needs: only when it runs

    return process.main(effective(ServeSettings, given)[0])


@click.command()
@flags(ApiserverSettings)
@click.option("--print-manifests", is_flag=True, help="Print what a Kubernetes must be told to have this API, and end.")
@click.option("--address", default="", metavar="HOST[:PORT]", help="With it: where the cluster reaches this server.")
@click.option("--image", default="", help="With it: run the server in the cluster, from this image.")
@click.option("--ca-bundle", default="", metavar="FILE", help="With it: the CA that signed the certificate given.")
@click.option("--nodes", default="", metavar="A,B", help="With it: nodes whose agents are users of their own.")
@AGGREGATE_EDIT
def apiserver(
    print_manifests: bool,
    address: str,
    image: str,
    ca_bundle: str,
    nodes: str,
    aggregate_edit: bool,
    **given: object,
) -> int:
    """Run the API alone, over sqlite or etcd; with --aggregated, as a part of a Kubernetes cluster's own.

    `netloom apiserver --aggregated --print-manifests | kubectl apply -f -` tells the cluster.
    """
    root = click.get_current_context().find_root().obj or {}
    given["kubeconfig"] = given.get("kubeconfig") or root.get("kubeconfig")
    given["context"] = given.get("context") or root.get("context_name")
    settings = effective(ApiserverSettings, given)[0]
    if print_manifests:
        from netloom.model import codec
        from netloom.run.joining import ClusterOptions, manifests  # as above

        wanted = ClusterOptions(
            address=address, image=image, ca_bundle=ca_bundle, nodes=_listed(nodes), aggregate_edit=aggregate_edit
        )
        click.echo("---\n".join(codec.encode_yaml(document) for document in manifests(settings, wanted)), nl=False)
        return 0
    from netloom.run import apiserver as process  # as above

    return process.main(settings)


@click.command()
@flags(ControllerSettings)
def controller(**given: object) -> int:
    """Run the controllers alone; of several, one leads."""
    from netloom.run import controller as process  # as above

    root = click.get_current_context().find_root().obj or {}
    given["kubeconfig"] = given.get("kubeconfig") or root.get("kubeconfig")
    given["context"] = given.get("context") or root.get("context_name")
    return process.main(effective(ControllerSettings, given)[0])


@click.command()
@flags(AgentSettings)
def agent(**given: object) -> int:
    """Run a node's agent: plug the attachments of this node.

    In the node's network namespace, as root. Reads what the node's credential may read, and changes nothing that is not
    its own; --prepare makes a bare Open vSwitch ready for OVN first.
    """
    from netloom.run import agent as process  # as above

    root = click.get_current_context().find_root().obj or {}
    given["kubeconfig"] = given.get("kubeconfig") or root.get("kubeconfig")
    given["context"] = given.get("context") or root.get("context_name")
    return process.main(effective(AgentSettings, given)[0])


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
