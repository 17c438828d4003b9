"""Authentication and authorization: two small interfaces between the API and their implementations.

The built-in implementations are tokens.py (bearer tokens, client certificates) and roles.py; behind kube-apiserver the
cluster decides (delegated.py). The rest of the API does not know how an identity is established.
"""

from collections.abc import Sequence
from math import inf
from typing import Protocol

from msgspec import Struct

from netloom.errors import Forbidden
from netloom.model.kind import Kind
from netloom.model.values.selectors import EVERYTHING, Selector


class Identity(Struct, frozen=True):
    """An authenticated user, program or node."""

    name: str
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    """As `netloom:viewer:team-a`; see roles.py."""
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The extra data of a Kubernetes cluster about a user, by key."""


class Certificate(Struct, frozen=True):
    """The contents of a verified client certificate."""

    name: str
    organizations: tuple[str, ...] = ()
    encoded: bytes = b""
    """The whole certificate (DER), for authenticators with several CAs that must know which one signed it."""
    expires: float = inf
    """When it expires, in seconds since the epoch: a connection may last longer."""


class Credentials(Struct, frozen=True):
    """What a request offers as proof of identity."""

    headers: Sequence[tuple[bytes, bytes]] = ()
    """Names in lower case."""
    certificate: Certificate | None = None
    client: str = ""
    """The client's address."""

    def header(self, name: bytes) -> bytes:
        """Return the first header of that name, or b""."""
        return next((value for key, value in self.headers if key == name), b"")

    def bearer_token(self) -> bytes | None:
        """Return the bearer token, or None."""
        scheme, _, token = self.header(b"authorization").partition(b" ")
        return token.strip() if scheme.lower() == b"bearer" and token else None


class Attributes(Struct, frozen=True):
    """What a request does: to a resource, or (`kind` is None) to a path."""

    verb: str
    kind: Kind | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    selector: Selector = EVERYTHING
    path: str = ""


def namespace_of(kind: Kind, namespace: str, name: str) -> str:
    """Return the namespace of a request about an object; a Namespace is in itself, as in Kubernetes."""
    if kind.namespaced:
        return namespace
    return name if kind.holds_objects else ""


class Authenticator(Protocol):
    """Establishes the identity of a client."""

    async def authenticate(self, offered: Credentials) -> Identity | None:
        """Return the identity of these credentials, or None if they prove none."""


class Authorizer(Protocol):
    """Decides whether a request is allowed."""

    asks_others: bool
    """Whether an answer may cost a request to another server."""

    async def allows(self, who: Identity, what: Attributes) -> bool:
        """Whether `who` may do `what`."""

    def version(self, who: Identity) -> object | None:
        """Return the same object as long as no right of `who` can have ended; None if that is not known."""


class AnyOf:
    """Tries several authenticators in turn."""

    def __init__(self, *authenticators: Authenticator) -> None:
        self._authenticators = authenticators

    async def authenticate(self, offered: Credentials) -> Identity | None:
        """Return the identity from the first authenticator that knows the credentials."""
        for authenticator in self._authenticators:
            who = await authenticator.authenticate(offered)
            if who is not None:
                return who
        return None


def forbidden(who: Identity, what: Attributes, reason: str = "") -> Forbidden:
    """Return the error for a refused request, in the words of Kubernetes."""
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
