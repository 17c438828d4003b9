"""Authentication and authorization by a Kubernetes cluster: the API behind kube-apiserver.

    client ── kube-apiserver ── proxy certificate, X-Remote-User: alice ──► RequestHeaders ┐
   client ── a token of the cluster ─────────────────────────────────────► TokenReviews   ├─► AccessReviews ─► verb
    client ── a client certificate of the cluster ────────────────────────► Certificates   ┘

A request through kube-apiserver carries the user's name in headers. They count only on a connection whose certificate
is signed by the cluster's request-header CA, for an allowed name. A direct client authenticates with a token, which the
cluster reviews (TokenReview), or with a certificate of the cluster's client CA. The cluster also authorizes
(SubjectAccessReview); its answer to each distinct question is cached for some seconds. While the cluster does not
answer, requests fail with 503, not 403, because the same question may be answered yes a moment later.

The cluster's RBAC cannot describe agents: it knows kinds and names, not "the attachments of node n1". So for a node's
agent the cluster's yes is not enough: the built-in rules for nodes (roles.py) must agree. An agent is a user
`netloom:node:NAME` in the group `netloom:nodes`, or the configured service account of the agents, with a token that the
cluster bound to a Node. An agent without a node has no rights.

Built-in roles have no effect here: a group of the cluster named netloom:admin is a group like any other.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from netloom.errors import Forbidden, NetloomError, NotFound, Unauthorized, Unreachable
from netloom.front.api.auth.identity import Attributes, Authorizer, Credentials, Identity
from netloom.front.api.auth.review_cache import ExpiringCache
from netloom.front.api.auth.tokens import AUTHENTICATED
from netloom.model.document import Document

MASTERS = "system:masters"
ANONYMOUS = "system:anonymous"
NODES = "netloom:nodes"
NODE_PREFIX = "netloom:node:"
NODE_NAME = "authentication.kubernetes.io/node-name"
"""The key of the Node that a service account's token is bound to."""
AGENT = "netloom-agent"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105  # a path
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
KNOWN_SECONDS = 10.0
UNKNOWN_SECONDS = 2.0
ALLOWED_SECONDS = 10.0
DENIED_SECONDS = 2.0
_NODE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_TOKEN_LIMIT = 64 * 1024
_EXTRAS = 64
"""How many keys of a user's extra are accepted; the cluster itself sends a handful."""

Ask = Callable[[str, Document], Awaitable[Document]]
"""Posts a review to the cluster, and returns the answer."""
Issued = Callable[[bytes, bytes], bool]
"""Whether a certificate (DER) was signed by one of the CAs (PEM)."""


class Trust(Struct, frozen=True, kw_only=True):
    """The proxies that may name users, the headers they use, and the CA of client certificates."""

    proxy_ca: bytes = b""
    proxy_names: tuple[str, ...] = ()
    """Allowed common names of a proxy; none: any."""
    user_headers: tuple[str, ...] = ("x-remote-user",)
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ("x-remote-group",)
    extra_prefixes: tuple[str, ...] = ("x-remote-extra-",)
    client_ca: bytes = b""


def trust(data: Mapping[str, str]) -> Trust:
    """Return the contents of ConfigMap extension-apiserver-authentication; `Unreachable` if it cannot be parsed."""

    def listed(key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        text = data.get(key, "")
        if not text:
            return default
        try:
            return tuple(msgspec.json.decode(text, type=list[str]))
        except msgspec.DecodeError as error:
            raise Unreachable(f"the cluster's {key} is not valid: {error}") from None

    def headers(key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name.lower() for name in listed(key, default))

    plain = Trust()
    return Trust(
        proxy_ca=data.get("requestheader-client-ca-file", "").encode(),
        proxy_names=listed("requestheader-allowed-names", ()),
        user_headers=headers("requestheader-username-headers", plain.user_headers),
        uid_headers=headers("requestheader-uid-headers", plain.uid_headers),
        group_headers=headers("requestheader-group-headers", plain.group_headers),
        extra_prefixes=headers("requestheader-extra-headers-prefix", plain.extra_prefixes),
        client_ca=data.get("client-ca-file", "").encode(),
    )


class ClusterIdentities:
    """Makes identities from the cluster's data about a user."""

    def __init__(self, agents: Collection[str] = ()) -> None:
        """`agents` are the users, as system:serviceaccount:NAMESPACE:NAME, that the nodes' agents share."""
        self._agents = frozenset(agents)

    def identity(
        self, name: str, groups: Iterable[str], uid: str = "", extra: Mapping[str, Iterable[str]] | None = None
    ) -> Identity:
        """Return the identity of a user."""
        found = tuple(dict.fromkeys(groups))
        if name != ANONYMOUS and AUTHENTICATED not in found:
            found = (*found, AUTHENTICATED)
        more = tuple((key, tuple(values)) for key, values in sorted((extra or {}).items()))
        return Identity(name, found, self._roles(name, found, dict(more)), uid, more)

    def _roles(self, name: str, groups: Collection[str], extra: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        if name in self._agents:
            node = (extra.get(NODE_NAME) or ("",))[0]
        elif NODES in groups or name.startswith(NODE_PREFIX):
            node = name.removeprefix(NODE_PREFIX) if NODES in groups and name.startswith(NODE_PREFIX) else ""
        else:
            return ()
        # A role without a node gives no rights, and is a role all the same: an agent without a node has no rights.
        return (f"{NODE_PREFIX}{node if _NODE.fullmatch(node) else ''}",)


class _ByCertificate:
    """The base of authenticators by the certificate of the connection."""

    def __init__(self, identities: ClusterIdentities, issued: Issued, trusted: Callable[[], Trust]) -> None:
        self._identities = identities
        self._issued = issued
        self._trusted = trusted


class RequestHeaders(_ByCertificate):
    """Authenticates users by the headers of a trusted proxy."""

    async def authenticate(self, offered: Credentials) -> Identity | None:
        """Return the user in the headers, if the connection is that of a trusted proxy."""
        trusted, shown = self._trusted(), offered.certificate
        if shown is None or not trusted.proxy_ca or not self._issued(shown.encoded, trusted.proxy_ca):
            return None
        if trusted.proxy_names and shown.name not in trusted.proxy_names:
            return None
        names = _values(offered, trusted.user_headers)
        if not names:
            return None
        uids = _values(offered, trusted.uid_headers)
        groups = _values(offered, trusted.group_headers)
        return self._identities.identity(
            names[0], groups, uids[0] if uids else "", _extra(offered, trusted.extra_prefixes)
        )


class Certificates(_ByCertificate):
    """Authenticates certificates of the cluster's client CA."""

    async def authenticate(self, offered: Credentials) -> Identity | None:
        """Return the user in the certificate."""
        shown, ca = offered.certificate, self._trusted().client_ca
        if shown is None or not shown.name or not ca or not self._issued(shown.encoded, ca):
            return None
        return self._identities.identity(shown.name, shown.organizations)


class TokenReviews:
    """Authenticates tokens by asking the cluster."""

    def __init__(self, identities: ClusterIdentities, ask: Ask) -> None:
        self._identities = identities
        self._ask = ask
        self._known = ExpiringCache[bytes, Identity | None](
            lambda who: KNOWN_SECONDS if who else UNKNOWN_SECONDS, weigh=lambda _, who: _weight(who)
        )

    async def authenticate(self, offered: Credentials) -> Identity | None:
        """Return the user of a token."""
        if (token := offered.bearer_token()) is None or len(token) > _TOKEN_LIMIT:
            return None
        # Cached by digest: nothing that stays in memory for long is a usable secret.
        return await self._known.get(hashlib.sha256(token).digest(), lambda: self._review(token))

    async def _review(self, token: bytes) -> Identity | None:
        review: Document = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token.decode("latin-1")},
        }
        status = (await _asked(self._ask, TOKEN_REVIEWS, review)).get("status") or {}
        user = status.get("user") or {}
        if not status.get("authenticated") or not user.get("username"):
            return None
        extra = {str(key): _texts(values) for key, values in (user.get("extra") or {}).items()}
        return self._identities.identity(
            str(user["username"]), _texts(user.get("groups")), str(user.get("uid", "")), extra
        )


class AccessReviews:
    """Authorizes by asking the cluster; for agents the built-in rules for nodes must agree."""

    asks_others = True

    def __init__(self, ask: Ask, nodes: Authorizer) -> None:
        """`nodes` authorizes by the role of a node."""
        self._ask = ask
        self._nodes = nodes
        self._known = ExpiringCache[tuple[Identity, Attributes], bool](
            lambda allowed: ALLOWED_SECONDS if allowed else DENIED_SECONDS,
            size=16384,
            most_bytes=16 << 20,
            weigh=lambda question, _: _weight(*question),
        )

    def version(self, who: Identity) -> object | None:
        """Return None: a cluster's rules change without notice."""
        return None

    async def allows(self, who: Identity, what: Attributes) -> bool:
        """Whether the cluster allows it."""
        if MASTERS in who.groups:
            return True
        # Selectors are not part of the question: RBAC does not evaluate them, and there are many of them.
        question = Attributes(what.verb, what.kind, what.namespace, what.name, what.subresource, path=what.path)
        if not await self._known.get((who, question), lambda: self._review(who, question)):
            return False
        return not who.roles or await self._nodes.allows(who, what)

    async def _review(self, who: Identity, what: Attributes) -> bool:
        spec: dict[str, Any] = {"user": who.name, "groups": list(who.groups)}
        if who.uid:
            spec["uid"] = who.uid
        if who.extra:
            spec["extra"] = {key: list(values) for key, values in who.extra}
        if what.kind is None:
            spec["nonResourceAttributes"] = {"path": what.path, "verb": what.verb}
        else:
            named = {"namespace": what.namespace, "name": what.name, "subresource": what.subresource}
            spec["resourceAttributes"] = {
                "verb": what.verb,
                "group": what.kind.group,
                "version": what.kind.version,
                "resource": what.kind.plural,
                **{key: value for key, value in named.items() if value},
            }
        review: Document = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = (await _asked(self._ask, ACCESS_REVIEWS, review)).get("status") or {}
        return status.get("allowed") is True and status.get("denied") is not True


async def _asked(ask: Ask, path: str, review: Document) -> Document:
    """Ask the cluster; every failure is the server's and not the client's."""
    try:
        return await ask(path, review)
    except (Unauthorized, Forbidden, NotFound) as error:
        raise Unreachable(
            f"the cluster refuses this server's {review['kind']} ({error.message}): bind the server to the "
            "ClusterRole system:auth-delegator",
            retry_after=1,
        ) from error
    except NetloomError as error:
        raise Unreachable(f"no answer from the cluster ({review['kind']}): {error.message}", retry_after=1) from error


def _weight(who: Identity | None, what: Attributes | None = None) -> int:
    """Return about how many bytes a question takes in memory."""
    texts = [] if who is None else [who.name, who.uid, *who.groups, *who.roles]
    if who is not None:
        texts += [text for key, values in who.extra for text in (key, *values)]
    if what is not None:
        texts += (what.verb, what.namespace, what.name, what.subresource, what.path)
    return 512 + sum(64 + len(text) for text in texts)


def _values(offered: Credentials, names: Collection[str]) -> list[str]:
    """Return the values of these headers, in the order of the names."""
    wanted = [name.encode("latin-1") for name in names]
    found = [value.decode("utf-8", "replace") for name in wanted for key, value in offered.headers if key == name]
    return [value for value in found if value]


def _extra(offered: Credentials, prefixes: Collection[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for raw, value in offered.headers:
        name = raw.decode("latin-1")
        prefix = next((one for one in prefixes if name.startswith(one) and len(name) > len(one)), "")
        if not prefix:
            continue
        key = unquote(name[len(prefix) :]).lower()
        if key in found or len(found) < _EXTRAS:
            found.setdefault(key, []).append(value.decode("utf-8", "replace"))
    return found


def _texts(values: object) -> list[str]:
    return [str(value) for value in values] if isinstance(values, list) else []
