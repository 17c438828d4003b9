"""`netloom crds`: the CustomResourceDefinitions, for `kubectl apply -f -`."""

import json

import click

AGGREGATE_EDIT = click.option(
    "--aggregate-edit",
    is_flag=True,
    help="Also aggregate netloom:edit and netloom:admin into the cluster's edit and admin roles.",
)
WITH_KUBE = click.option(
    "--with-kube",
    is_flag=True,
    help="Also print what Netloom needs to be the network of the cluster's pods: a namespace, and rights to read them.",
)


@click.command()
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="Output format."
)
@click.option(
    "--with-roles", is_flag=True, help="Also print service accounts, roles and the admission policies for agents."
)
@click.option("--nodes", default="", metavar="A,B", help="Also create a user for the agent of each of these nodes.")
@AGGREGATE_EDIT
@WITH_KUBE
@click.option(
    "--with-ovn", is_flag=True, help="Also print what OVN's databases need to run in the cluster with certificates."
)
def crds(output: str, with_roles: bool, nodes: str, aggregate_edit: bool, with_kube: bool, with_ovn: bool) -> None:
    """Print the CustomResourceDefinitions for a Kubernetes cluster."""
    from netloom.model import codec  # builds every schema: only when asked
    from netloom.model.schemas import crds as definitions

    found = definitions.crds()
    if with_roles or nodes or aggregate_edit or with_kube or with_ovn:
        from netloom.run.cluster import (
            manifests,
            node_policies,  # as above
            ovn_identities,
        )

        named = tuple(part.strip() for part in nodes.split(",") if part.strip())
        roles = manifests.common(named, aggregate_edit=aggregate_edit, privileged=with_ovn)
        found = [*found, *roles, *node_policies.objects(), *node_policies.events()]
        found += manifests.pod_network() if with_kube else []
        found += ovn_identities.objects() if with_ovn else []
    if output == "json":
        click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}, indent=2))
        return
    click.echo("---\n".join(codec.encode_yaml(document) for document in found), nl=False)
