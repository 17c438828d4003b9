"""`netloom credential`: kubeconfigs for people, programs and nodes, from a server's data directory."""

from datetime import UTC, datetime
from pathlib import Path

import click

from netloom.cli.tables import align


@click.command()
@click.option("--data", required=True, metavar="DIR", help="The server's data directory.")
@click.option("--name", metavar="NAME", help="Who it is for.")
@click.option("--role", "role_name", metavar="ROLE", help="admin, editor, viewer or node:NAME.")
@click.option("--namespace", "-n", default="", metavar="NS", help="The one namespace the role holds in; otherwise all.")
@click.option("--certificate", "by_certificate", is_flag=True, help="A client certificate instead of a token.")
@click.option("--server", default="", metavar="URL", help="Where the server is reached, instead of as it last started.")
@click.option("--list", "listing", is_flag=True, help="Show whom the server knows by token.")
@click.option("--revoke", "revoking", is_flag=True, help="Take the tokens of NAME away.")
def credential(
    data: str,
    name: str | None,
    role_name: str | None,
    namespace: str,
    by_certificate: bool,
    server: str,
    listing: bool,
    revoking: bool,
) -> None:
    """Print a kubeconfig for somebody new, list whom the server knows, or revoke.

    A running server notices within a second; it need not be started again. Certificates cannot be revoked: they end
    after a year, or with the CA.
    """
    from netloom.run import credentials  # imports cryptography: only when needed

    directory = credentials.Directory(Path(data))
    if listing:
        rows = [[known.name, ",".join(known.roles), known.fingerprint] for known in directory.known()]
        click.echo(align([["NAME", "ROLES", "SHA256"], *rows]))
        return
    if not name:
        raise click.UsageError("Say for whom, by --name.")
    if revoking:
        count = directory.revoke(name)
        click.echo(f"{name}: {count} token{'s' if count > 1 else ''} revoked")
        return
    if not role_name:
        raise click.UsageError("Say what they may do, by --role.")
    roles = [credentials.role(role_name, namespace=namespace)]
    who = credentials.checked_name(name)
    url = server or directory.server_url()
    text = (
        directory.issue_certificate(who, roles, server=url, now=datetime.now(UTC))
        if by_certificate
        else directory.issue_token(who, roles, server=url)
    )
    click.echo(text, nl=False)
