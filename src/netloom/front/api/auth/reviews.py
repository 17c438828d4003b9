"""Reviews of a client's own rights, not stored: `kubectl auth can-i`, also with `--list`, and `kubectl auth whoami`.

For the list, the authorizer is asked about every verb of every kind, so the list always agrees with the decisions.
Rights that depend on the object (a node may read the objects of its attachments) are not in the list, which is then
marked as incomplete.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from netloom.errors import BadRequest, MethodNotAllowed
from netloom.front.api.auth.identity import Attributes, Authorizer, Identity, namespace_of
from netloom.front.api.auth.roles import METRICS, node_of
from netloom.front.api.http.exchange import Exchange
from netloom.front.api.http.paths import Verb
from netloom.front.api.output import protobuf_kinds
from netloom.front.api.schemas.discovery import REVIEWS
from netloom.front.api.schemas.served import VERSIONS
from netloom.front.api.verbs.calls import is_protobuf
from netloom.model import codec
from netloom.model.document import Document
from netloom.model.kind import Kind, Registry
from netloom.model.registry import NAMESPACE, NODE
from netloom.model.values.selectors import LENGTH_LIMIT, selector

BODY_LIMIT = 64 * 1024
NAME_LIMIT = 253
LENGTH_LIMITS = {"path": 1024, "rawSelector": LENGTH_LIMIT}
"""The longest allowed fields of a review, where that is not `NAME_LIMIT`."""

OPEN = (
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
)
"""Paths that every authenticated client may get."""

_Rule = tuple[str, str, tuple[str, ...], tuple[str, ...]]
"""Group, resource, names, verbs."""
_PATHS = {review.path(): review for review in REVIEWS}


class Reviews:
    """Answers the reviews of clients about themselves."""

    def __init__(self, kinds: Registry, authorizer: Authorizer) -> None:
        self._kinds = kinds
        self._authorizer = authorizer

    def serves(self, path: str) -> bool:
        """Whether a path is that of a review."""
        return path in _PATHS

    async def reply(self, exchange: Exchange, path: str, who: Identity) -> None:
        """Answer one review."""
        if exchange.method != "POST":
            raise MethodNotAllowed("the server does not allow this method on the requested resource")
        review = _PATHS[path]
        body = await exchange.body(BODY_LIMIT)
        media = exchange.header(b"content-type") or "application/json"
        if is_protobuf(media):
            question = protobuf_kinds.decode(body, review.api_version, review.name)
        else:
            question = codec.decode(body, media)
        if question.get("kind", review.name) != review.name:
            raise BadRequest(f"the kind in the data does not match the expected kind ({review.name})")
        answer = _answer(review, question, await self._status(review, question, who))
        try:
            await exchange.reply_status(201, answer)
        except (AttributeError, TypeError) as error:  # Only the contents of the review can cause these.
            raise BadRequest(f"spec is not valid for a {review.name}: {error}") from None

    async def _status(self, review: Kind, question: Document, who: Identity) -> Document:
        match review.name:
            case "SelfSubjectAccessReview":
                return await self._can(question, who)
            case "SelfSubjectRulesReview":
                spec = _spec(question)
                if not (namespace := _text(spec, "namespace")):
                    raise BadRequest("no namespace on request: specify spec.namespace")
                return await _rules(self._authorizer, self._kinds, who, namespace)
            case _:
                return {"userInfo": {"username": who.name, "groups": [*who.groups, *who.roles]}}

    async def _can(self, question: Document, who: Identity) -> Document:
        spec = _spec(question)
        resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if isinstance(path, dict) == isinstance(resource, dict):
            raise BadRequest("exactly one of spec.nonResourceAttributes or spec.resourceAttributes must be specified")
        if isinstance(path, dict):
            what = Attributes(verb=_text(path, "verb"), path=_text(path, "path"))
            return {"allowed": await self._authorizer.allows(who, what)}
        assert isinstance(resource, dict)
        kind = self._kind(resource)
        if kind is None:
            return {"allowed": False, "reason": "no such resource"}
        fields = resource.get("fieldSelector") or {}
        wanted = selector(
            "", _text(fields, "rawSelector") if isinstance(fields, dict) else "", selectable=kind.selectable
        )
        what = Attributes(
            verb=_text(resource, "verb"),
            kind=kind,
            namespace=namespace_of(kind, _text(resource, "namespace"), _text(resource, "name")),
            name=_text(resource, "name"),
            subresource=_text(resource, "subresource"),
            selector=wanted,
        )
        return {"allowed": await self._authorizer.allows(who, what)}

    def _kind(self, resource: Document) -> Kind | None:
        group, plural = _text(resource, "group"), _text(resource, "resource")
        found = [kind for kind in self._kinds if (kind.group, kind.plural) == (group, plural)]
        found += [served.kind for served in VERSIONS if (served.group, served.kind.plural) == (group, plural)]
        return found[0] if found else None


def _spec(question: Document) -> Document:
    spec = question.get("spec") or {}
    if not isinstance(spec, dict):
        raise BadRequest("spec must be an object")
    return spec


def _answer(review: Kind, question: Document, status: Document) -> Document:
    metadata: Document = {"creationTimestamp": None}
    answer: Document = {"kind": review.name, "apiVersion": review.api_version, "metadata": metadata}
    if "spec" in question:
        answer["spec"] = question["spec"]
    return answer | {"status": status}


def _text(given: dict[str, Any], key: str) -> str:
    value = given.get(key) or ""
    if not isinstance(value, str):
        raise BadRequest(f"{key} must be a string")
    limit = LENGTH_LIMITS.get(key, NAME_LIMIT)
    if len(value) > limit:
        raise BadRequest(f"{key}: Too long: may not be more than {limit} characters")
    return value


async def _rules(authorizer: Authorizer, kinds: Iterable[Kind], who: Identity, namespace: str) -> Document:
    """Return the rights of an identity in a namespace: the status of a SelfSubjectRulesReview."""
    if authorizer.asks_others:
        return _rules_status([], [], why="another server authorizes each request; ask that server for its rules")
    node = node_of(who)
    found: list[_Rule] = [(review.group, review.plural, (), (Verb.CREATE,)) for review in REVIEWS]
    for kind in kinds:
        for what, verbs in _asked(kind, namespace, node):
            asked = [Attributes(verb, kind, what.namespace, what.name, what.subresource) for verb in verbs]
            allowed = tuple([one.verb for one in asked if await authorizer.allows(who, one)])
            if allowed:
                resource = f"{kind.plural}/{what.subresource}" if what.subresource else kind.plural
                found.append((kind.group, resource, (what.name,) if what.name else (), allowed))
    paths = list(OPEN)
    if await authorizer.allows(who, Attributes("get", path=METRICS)):
        paths.append(METRICS)
    return _rules_status(found, paths, why="a node may also read what its attachments use" if node else "")


def _asked(kind: Kind, namespace: str, node: str) -> Iterator[tuple[Attributes, tuple[str, ...]]]:
    """Yield the questions about a kind, each with its verbs."""
    scope = namespace if kind.namespaced else ""
    name = node if kind is NODE else ""
    yield Attributes("", kind, scope, name), kind.verbs
    if kind is NAMESPACE and namespace:
        yield Attributes("", kind, namespace, namespace), (Verb.GET,)
    for subresource, verbs in kind.subresources.items():
        yield Attributes("", kind, scope, name, subresource), verbs


def _rules_status(found: Iterable[_Rule], paths: list[str], *, why: str) -> Document:
    """Return the rules; rules of one group with equal verbs and names become one."""
    alike: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for group, resource, names, verbs in found:
        alike.setdefault((group, names, verbs), []).append(resource)
    resource_rules: list[Document] = [
        {"verbs": list(verbs), "apiGroups": [group], "resources": resources}
        | ({"resourceNames": list(names)} if names else {})
        for (group, names, verbs), resources in alike.items()
    ]
    status: Document = {
        "resourceRules": resource_rules,
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": paths}] if paths else [],
        "incomplete": bool(why),
    }
    return status | ({"evaluationError": why} if why else {})
