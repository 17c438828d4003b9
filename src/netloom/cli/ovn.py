"""`netloom ovn`: the certificates for OVN in a Kubernetes cluster."""

from pathlib import Path

import click

FOLDER = click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Folder of the files.",
)


@click.group()
def ovn() -> None:
    """Keep the certificates of OVN's connections in a Kubernetes cluster.

    The chart runs both commands: the authority beside OVN's databases, the other one on each node.
    """


@ovn.command()
@FOLDER
@click.option("--address", required=True, metavar="IP", help="Address at which OVN's databases are reached.")
def authority(folder: Path, address: str) -> int:
    """Keep the CAs, write the certificate of OVN's databases, and sign those of the nodes."""
    from netloom.run.identities import processes  # Only when asked.

    return processes.authority(_cluster(), folder=folder, address=address)


@ovn.command()
@FOLDER
@click.option("--node", required=True, metavar="NAME", help="Name of this node.")
@click.option(
    "--ca", type=click.Path(path_type=Path), required=True, metavar="FILE", help="Certificate of the CA of nodes."
)
def identity(folder: Path, node: str, ca: Path) -> int:
    """Keep the certificate of a node for OVN's southbound, signed by the authority."""
    from netloom.run.identities import processes  # As above.

    return processes.identity(_cluster(), folder=folder, node=node, ca=ca)


def _cluster() -> tuple[str | None, str | None]:
    root = click.get_current_context().find_root().params
    return root.get("kubeconfig"), root.get("context_name")
