"""`netloom crds`: the CustomResourceDefinitions, for `kubectl apply -f -`."""

import json

import click


@click.command()
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="The format."
)
def crds(output: str) -> None:
    """Print the CustomResourceDefinitions for a Kubernetes cluster."""
    from netloom.model import codec  # builds every schema: only when asked
    from netloom.model import crds as definitions

    found = definitions.crds()
    if output == "json":
        click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}, indent=2))
        return
    click.echo("---\n".join(codec.encode_yaml(document) for document in found), nl=False)
