"""`netloom version`: the versions of the client and of the server."""

import json

import click

from netloom import __version__
from netloom.cli import options
from netloom.errors import NetloomError


@click.command()
@click.option("--client", "client_only", is_flag=True, help="Show the client's version only.")
@options.KUBECONFIG
@options.CONTEXT
@options.lab_option()
@click.option("-o", "--output", type=click.Choice(["json"]), help="Output format.")
def version(client_only: bool, kubeconfig: object, context_name: object, lab: object, output: str | None) -> int:
    """Show the versions of client and server."""
    found = {"client": __version__}
    problem = ""
    if not client_only:
        try:
            found["server"] = str(options.session().client.get("/version").get("gitVersion", "unknown"))
        except NetloomError as error:
            problem = error.message
    if output == "json":
        click.echo(json.dumps(found))
    else:
        for name, text in found.items():
            click.echo(f"{name.capitalize()}: {text}")
    if problem:
        click.echo(f"Error: cannot get the server's version: {problem}", err=True)
    return 1 if problem else 0
