"""`netloom credential`: kubeconfigs for people, programs and nodes, from a server's data directory."""

import contextlib
import os
import stat
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from netloom.cli.tables import align

if TYPE_CHECKING:
    from netloom.run.credentials import Credential, Directory, Revoked


@click.command()
@click.option("--data", required=True, metavar="DIR", help="The server's data directory.")
@click.option("--name", metavar="NAME", help="Who it is for.")
@click.option("--role", "role_name", metavar="ROLE", help="admin, editor, viewer or node:NAME.")
@click.option("--namespace", "-n", default="", metavar="NS", help="The one namespace the role holds in; otherwise all.")
@click.option("--certificate", "by_certificate", is_flag=True, help="A client certificate instead of a token.")
@click.option("--server", default="", metavar="URL", help="Where the server is reached, instead of as it last started.")
@click.option("--output", "-o", metavar="FILE", help="Write the kubeconfig to FILE, readable by its owner only.")
@click.option("--force", is_flag=True, help="With --output: overwrite FILE.")
@click.option("--list", "listing", is_flag=True, help="Show the tokens and certificates the server knows.")
@click.option("--revoke", "revoking", is_flag=True, help="Revoke the tokens and certificates of NAME.")
@click.option("--fingerprint", metavar="SHA256", help="With --revoke: the one token or certificate, as in --list.")
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
    """Print a kubeconfig for somebody new, list whom the server knows, or revoke.

    A running server notices within a second; it need not be started again. Watches that are open end within a minute.
    """
    from netloom.run import credentials  # imports cryptography: only when needed

    directory = credentials.Directory(Path(data))
    if listing:
        click.echo(align([["NAME", "ROLES", "TYPE", "SHA256"], *map(_row, directory.known())]))
        return
    if revoking:
        click.echo(_summary(_revoked(directory, name, fingerprint)))
        return
    if fingerprint is not None:
        raise click.UsageError("--fingerprint says what to --revoke.")
    if not name:
        raise click.UsageError("--name is required: the name of the user or node that the credential is for.")
    if not role_name:
        raise click.UsageError("Say what they may do, by --role.")
    if force and not output:
        raise click.UsageError("--force says that the file of --output may be overwritten.")
    roles = [credentials.role(role_name, namespace=namespace)]
    who = credentials.checked_name(name)
    url = server or directory.server_url()

    def made() -> str:
        if by_certificate:
            return directory.issue_certificate(who, roles, server=url, now=datetime.now(UTC))
        return directory.issue_token(who, roles, server=url)

    if output:
        _write(Path(output), made, force=force)
        click.echo(f"{output} written")
        return
    _warn_of_readers()
    click.echo(made(), nl=False)


def _write(path: Path, made: Callable[[], str], *, force: bool) -> None:
    """Write what `made` returns; nothing is made where it could not be written."""
    from netloom.run import files

    with files.reserved(path, overwrite=force):
        files.write_whole(path, made().encode())


def _revoked(directory: "Directory", name: str | None, fingerprint: str | None) -> "Revoked":
    if bool(name) == bool(fingerprint):
        raise click.UsageError("Say whose to revoke, by --name, or which one, by --fingerprint.")
    return directory.revoke_one(fingerprint) if fingerprint else directory.revoke(name or "")


def _summary(revoked: "Revoked") -> str:
    counts = ((revoked.tokens, "token"), (revoked.certificates, "certificate"))
    parts = [f"{count} {what}{'s' if count > 1 else ''}" for count, what in counts if count]
    return f"{revoked.name}: {' and '.join(parts)} revoked"


def _row(known: "Credential") -> list[str]:
    kind = "certificate" if known.certificate else "token"
    return [known.name, ",".join(known.roles), f"{kind} (revoked)" if known.revoked else kind, known.fingerprint]


def _warn_of_readers() -> None:
    """Warn where the output goes to a file that others can read."""
    with contextlib.suppress(OSError, ValueError):
        mode = os.fstat(sys.stdout.fileno()).st_mode
        if stat.S_ISREG(mode) and mode & (stat.S_IRGRP | stat.S_IROTH):
            click.echo("Warning: others can read this file: use --output FILE instead of >FILE", err=True)
