"""The options that commands share, above all those of every command that talks to an API server.

--kubeconfig, --context, -n and --lab may be given before the command's name or after it. The first three mean what they
mean to kubectl. `--lab DIR` stands for the kubeconfig of the lab in DIR; a --kubeconfig takes precedence.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from netloom.client.session import Session, connect

F = TypeVar("F", bound=Callable[..., Any])

KUBECONFIG = click.option("--kubeconfig", metavar="FILE", help="Use this kubeconfig file.")
CONTEXT = click.option("--context", "context_name", metavar="NAME", help="Use this context of the kubeconfig.")
NAMESPACE = click.option("-n", "--namespace", metavar="NS", help="Use this namespace.")
SELECTOR = click.option(
    "-l", "--selector", "labels", default="", metavar="LABELS", help="Label selector, such as `app=web`."
)
FIELD_SELECTOR = click.option(
    "--field-selector", "fields", default="", metavar="FIELDS", help="Field selector, such as `spec.node=n1`."
)
ALL_NAMESPACES = click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Include all namespaces.")
OUTPUT = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format.")
DRY_RUN = click.option(
    "--dry-run",
    type=click.Choice(["none", "server"]),
    default="none",
    is_flag=False,
    flag_value="server",
    help="With `server`: submit the request, but do not store the result.",
)
LAB_HELP = "Use the API server of the lab in DIR."


def lab_option(text: str = LAB_HELP) -> Callable[[F], F]:
    """Return the option `--lab DIR`, with this help."""
    return click.option("--lab", metavar="DIR", type=click.Path(path_type=Path), help=text)


def connected(command: F) -> F:
    """Add the connection options to a command, and pass it the `session` that they describe."""

    @functools.wraps(command)
    def wrapped(connecting: Callable[[], Session], **rest: object) -> object:
        session = connecting()
        try:
            return command(session=session, **rest)
        finally:
            session.client.close()

    return connectable(wrapped)  # type: ignore[return-value]  # click takes it as the callable it is


def connectable(command: F, *, lab_help: str = LAB_HELP) -> F:
    """Add the connection options to a command, and pass it `connecting`, which returns the session when called."""

    @KUBECONFIG
    @CONTEXT
    @NAMESPACE
    @lab_option(lab_help)
    @functools.wraps(command)
    def wrapped(kubeconfig: object, context_name: object, namespace: object, lab: object, **rest: object) -> object:
        return command(connecting=session, **rest)

    return wrapped  # type: ignore[return-value]  # as above


def session() -> Session:
    """Return the session that the options of the current command describe; nothing is sent yet."""
    return connect(kubeconfig(), given("context_name"), given("namespace"), on_warning=_warn)


def kubeconfig() -> str | None:
    """Return the kubeconfig file that the options name, if any."""
    file: str | None = given("kubeconfig")
    return file or (str(layout(lab).kubeconfig) if (lab := given("lab")) else None)


def given(name: str) -> Any:  # noqa: ANN401  # what click parsed
    """Return the value of an option, given after the command's name or before it."""
    context = click.get_current_context()
    return context.params.get(name) or context.find_root().params.get(name)


def layout(lab: Path) -> Any:  # noqa: ANN401  # its type is what is not to be loaded
    """Return where the parts of a lab are."""
    from netloom.lab import state  # only where a lab is named
    from netloom.lab.layout import Layout

    found = Layout(lab.absolute(), state.load(lab.absolute()))
    if not found.has_api:
        raise click.BadParameter(f"{lab} has several sites: choose one, as --lab {lab / 'site1'}.", param_hint="--lab")
    return found


def _warn(text: str) -> None:
    click.echo(f"Warning: {text}", err=True)
