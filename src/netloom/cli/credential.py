"""`netloom credential`: create, list and revoke kubeconfigs for users and nodes, in a server's data directory."""

import contextlib
import os
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from netloom.cli.tables import align

if TYPE_CHECKING:
    from netloom.run.access.credentials import Credential, Directory, Revoked


@click.command()
@click.option("--data", required=True, metavar="DIR", help="The server's data directory.")
@click.option("--name", metavar="NAME", help="Name of the user or node.")
@click.option("--role", "role_name", metavar="ROLE", help="Role: admin, editor, viewer or node:NAME.")
@click.option("--namespace", "-n", default="", metavar="NS", help="Limit the role to this namespace.")
@click.option("--certificate", "by_certificate", is_flag=True, help="Issue a client certificate instead of a token.")
@click.option(
    "--server",
    default="",
    metavar="URL",
    help="URL of the server in the kubeconfig.  [default: where it last listened]",
)
@click.option("--output", "-o", metavar="FILE", help="Write the kubeconfig to FILE, readable by its owner only.")
@click.option("--force", is_flag=True, help="With --output: overwrite FILE.")
@click.option("--list", "listing", is_flag=True, help="List all tokens and certificates.")
@click.option("--revoke", "revoking", is_flag=True, help="Revoke all tokens and certificates of NAME.")
@click.option("--fingerprint", metavar="SHA256", help="With --revoke: revoke only this token or certificate.")
def credential(
    data: str,
    name: str | None,
    role_name: str | None,
    namespace: str,
    by_certificate: bool,
    server: str,
    output: str | None,
    force: bool,
    listing: bool,
    revoking: bool,
    fingerprint: str | None,
) -> None:
    """Create a kubeconfig for a user or node, list credentials, or revoke them.

    A running server applies changes within a second, without a restart. Open watches end within a minute.
    """
    from netloom.run.access import credentials  # imports cryptography: only when needed

    directory = credentials.Directory(Path(data))
    if listing:
        click.echo(align([["NAME", "ROLES", "TYPE", "SHA256"], *map(_row, directory.known())]))
        return
    if revoking:
        click.echo(_summary(_revoked(directory, name, fingerprint)))
        return
    if fingerprint is not None:
        raise click.UsageError("--fingerprint requires --revoke.")
    if not name:
        raise click.UsageError("--name is required: the name of the user or node that the credential is for.")
    if not role_name:
        raise click.UsageError("--role is required: admin, editor, viewer or node:NAME.")
    if force and not output:
        raise click.UsageError("--force requires --output.")
    roles = [credentials.role(role_name, namespace=namespace)]
    who = credentials.checked_name(name)
    url = server or directory.server_url()

    def made() -> str:
        if by_certificate:
            return directory.issue_certificate(who, roles, server=url, now=datetime.now(UTC))
        return directory.issue_token(who, roles, server=url)

    if output:
        from netloom.run import files

        with files.reserved(Path(output), overwrite=force):  # Nothing is issued if the file cannot be written.
            files.write_whole(Path(output), made().encode())
        click.echo(f"{output} written")
        return
    _warn_of_readers()
    click.echo(made(), nl=False)


def _revoked(directory: "Directory", name: str | None, fingerprint: str | None) -> "Revoked":
    if bool(name) == bool(fingerprint):
        raise click.UsageError("--revoke requires either --name or --fingerprint.")
    return directory.revoke_one(fingerprint) if fingerprint else directory.revoke(name or "")


def _summary(revoked: "Revoked") -> str:
    counts = ((revoked.tokens, "token"), (revoked.certificates, "certificate"))
    parts = [f"{count} {what}{'s' if count > 1 else ''}" for count, what in counts if count]
    return f"{revoked.name}: {' and '.join(parts)} revoked"


def _row(known: "Credential") -> list[str]:
    kind = "certificate" if known.certificate else "token"
    return [known.name, ",".join(known.roles), f"{kind} (revoked)" if known.revoked else kind, known.fingerprint]


def _warn_of_readers() -> None:
    """Warn if the output goes to a file that others can read."""
    with contextlib.suppress(OSError, ValueError):
        mode = os.fstat(sys.stdout.fileno()).st_mode
        if stat.S_ISREG(mode) and mode & (stat.S_IRGRP | stat.S_IROTH):
            click.echo("Warning: other users can read this file; use --output FILE instead of >FILE", err=True)
