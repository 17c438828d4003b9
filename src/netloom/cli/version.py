"""`netloom version`: ours, and the server's where one answers."""

import json

import click

from netloom import __version__
from netloom.cli.options import connect
from netloom.errors import NetloomError


@click.command()
@click.option("--client", "client_only", is_flag=True, help="Ask no server.")
@click.option("--kubeconfig", metavar="FILE", help="The kubeconfig to use.")
@click.option("--context", "context_name", metavar="NAME", help="The context in it.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="As JSON.")
@click.pass_context
def version(
    ctx: click.Context, client_only: bool, kubeconfig: str | None, context_name: str | None, output: str | None
) -> int:
    """Show the versions of client and server."""
    found = {"client": __version__}
    problem = ""
    if not client_only:
        given = ctx.find_root().obj or {}
        try:
            session = connect(kubeconfig or given.get("kubeconfig"), context_name or given.get("context_name"))
            found["server"] = str(session.client.get("/version").get("gitVersion", "unknown"))
        except NetloomError as error:
            problem = error.message
    if output == "json":
        click.echo(json.dumps(found))
    else:
        for name, text in found.items():
            click.echo(f"{name.capitalize()}: {text}")
    if problem:
        click.echo(f"Error: no server version: {problem}", err=True)
    return 1 if problem else 0
