"""Who asks, and whether they may: two small interfaces between the API and whoever decides.

The built-in answers are tokens.py (bearer tokens, client certificates) and roles.py; behind kube-apiserver it is the
cluster that answers (delegated.py). Nothing else in the API knows how identity is established.
"""

from collections.abc import Sequence
from math import inf
from typing import Protocol

from msgspec import Struct

from netloom.errors import Forbidden
from netloom.model.kind import Kind
from netloom.model.selectors import EVERYTHING, Selector


class Identity(Struct, frozen=True):
    """Somebody we know."""

    name: str
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    """As `netloom:viewer:team-a`; roles.py knows what they mean."""
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What else a Kubernetes cluster says about them, by key."""


class Certificate(Struct, frozen=True):
    """What a client certificate that our CA signed says about its bearer."""

    name: str
    organizations: tuple[str, ...] = ()
    encoded: bytes = b""
    """The whole certificate (DER), for who trusts several CAs and must know which of them signed it."""
    expires: float = inf
    """When it ends, in seconds since the epoch: a connection may last longer."""


class Credentials(Struct, frozen=True):
    """What a request offers as proof."""

    headers: Sequence[tuple[bytes, bytes]] = ()
    """Names in lower case."""
    certificate: Certificate | None = None
    client: str = ""
    """The address it comes from."""

    def header(self, name: bytes) -> bytes:
        """Return the first header of that name, or nothing."""
        return next((value for key, value in self.headers if key == name), b"")


class Attributes(Struct, frozen=True):
    """What somebody wants to do: to a resource, or (`kind` is None) to a path."""

    verb: str
    kind: Kind | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    selector: Selector = EVERYTHING
    path: str = ""


def namespace_of(kind: Kind, namespace: str, name: str) -> str:
    """Return the namespace that a request about an object is in; a Namespace is in itself, as in Kubernetes."""
    if kind.namespaced:
        return namespace
    return name if kind.holds_objects else ""


class Authenticator(Protocol):
    """Finds out who asks."""

    async def authenticate(self, offered: Credentials) -> Identity | None:
        """Return whose credentials these are, or None where they prove nothing."""


class Authorizer(Protocol):
    """Decides who may do what."""

    asks_others: bool
    """Whether an answer may cost a request to another server."""

    async def allows(self, who: Identity, what: Attributes) -> bool:
        """Whether they may."""

    def version(self, who: Identity) -> object | None:
        """Return the same object for as long as no right of theirs can have ended; None where that is not known."""


class AnyOf:
    """Asks several authenticators in turn."""

    def __init__(self, *authenticators: Authenticator) -> None:
        self._authenticators = authenticators

    async def authenticate(self, offered: Credentials) -> Identity | None:
        """Return what the first one that knows them says."""
        for authenticator in self._authenticators:
            who = await authenticator.authenticate(offered)
            if who is not None:
                return who
        return None


def forbidden(who: Identity, what: Attributes, reason: str = "") -> Forbidden:
    """Return the refusal, in Kubernetes' words."""
    tail = f": {reason}" if reason else ""
    if what.kind is None:
        return Forbidden(f'forbidden: User "{who.name}" cannot {what.verb} path "{what.path}"{tail}')
    kind = what.kind
    resource = f"{kind.plural}/{what.subresource}" if what.subresource else kind.plural
    scope = f'in the namespace "{what.namespace}"' if what.namespace else "at the cluster scope"
    subject = f'{kind.qualified} "{what.name}"' if what.name else kind.qualified
    return Forbidden(
        f'{subject} is forbidden: User "{who.name}" cannot {what.verb} resource "{resource}" '
        f'in API group "{kind.group}" {scope}{tail}'
    )
