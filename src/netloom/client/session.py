"""A server and a namespace, from a kubeconfig: `--kubeconfig`, `--context` and `-n` mean what they mean to kubectl."""

from collections.abc import Callable

from msgspec import Struct

from netloom.client.http import Client


class Session(Struct, frozen=True):
    """A client, and the namespace of requests that name none."""

    client: Client
    namespace: str


def connect(
    kubeconfig: str | None = None,
    context_name: str | None = None,
    namespace: str | None = None,
    *,
    on_warning: Callable[[str], None] = lambda text: None,
) -> Session:
    """Return the session for a kubeconfig, its context and a namespace; nothing is sent yet.

    Without a kubeconfig, $KUBECONFIG or ~/.kube/config is read.
    """
    from netloom.store.kube import kubeconfig as kubeconfigs  # reads YAML: only when needed

    cluster = kubeconfigs.load(kubeconfig or None, context=context_name or None)
    client = Client(
        cluster.server,
        cluster.tls(),
        cluster.headers,
        server_name=cluster.server_name,
        login=cluster.login,
        on_warning=on_warning,
    )
    return Session(client, namespace or cluster.namespace or "default")


def is_configured(kubeconfig: str | None = None, context_name: str | None = None) -> bool:
    """Whether `connect` has a server to talk to; it may not answer."""
    from netloom.store.kube import kubeconfig as kubeconfigs  # as above

    return bool(kubeconfig or context_name) or kubeconfigs.is_there()
