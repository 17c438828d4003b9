"""Which server, as whom, in which namespace: `--kubeconfig`, `--context` and `-n` mean what they mean to kubectl."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click
from msgspec import Struct

from netloom.client.http import Client

F = TypeVar("F", bound=Callable[..., Any])


class Session(Struct, frozen=True):
    """A server to talk to and the namespace that is meant where none is named."""

    client: Client
    namespace: str


def connect(kubeconfig: str | None = None, context_name: str | None = None, namespace: str | None = None) -> Session:
    """Return the session the flags and the environment mean; nothing is sent yet."""
    from netloom.store import kubeconfig as kubeconfigs  # reads YAML: only when needed

    cluster = kubeconfigs.load(kubeconfig or None, context=context_name or None)
    client = Client(
        cluster.server, cluster.tls(), cluster.headers, server_name=cluster.server_name, login=cluster.login
    )
    return Session(client, namespace or cluster.namespace or "default")


def connected(command: F) -> F:
    """Give a command the flags that say where to connect, and the `session` they make."""

    @functools.wraps(command)
    def wrapped(connecting: Callable[[], Session], **rest: object) -> object:
        session = connecting()
        try:
            return command(session=session, **rest)
        finally:
            session.client.close()

    return connectable(wrapped)  # type: ignore[return-value]  # click takes it as the callable it is


def connectable(command: F) -> F:
    """Give a command the same flags, and `connecting`, which makes the session when it is called."""

    @click.option("--kubeconfig", metavar="FILE", help="The kubeconfig to use.")
    @click.option("--context", "context_name", metavar="NAME", help="The context in it.")
    @click.option("-n", "--namespace", metavar="NS", help="The namespace.")
    @functools.wraps(command)
    def wrapped(kubeconfig: str | None, context_name: str | None, namespace: str | None, **rest: object) -> object:
        given = click.get_current_context().find_root().obj or {}

        def connecting() -> Session:
            return connect(
                kubeconfig or given.get("kubeconfig"),
                context_name or given.get("context_name"),
                namespace or given.get("namespace"),
            )

        return command(connecting=connecting, **rest)

    return wrapped  # type: ignore[return-value]  # as above
