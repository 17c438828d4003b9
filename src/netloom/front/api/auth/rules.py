"""The rights of an identity in a namespace, as a list: the output of `kubectl auth can-i --list`.

The authorizer is asked about every verb of every kind, so the list always agrees with the decisions. Rights that depend
on the object (a node may read the objects of its attachments) are not in the list, which is then marked as incomplete.
"""

from collections.abc import Iterable, Iterator

from netloom.front.api.auth.identity import Attributes, Authorizer, Identity
from netloom.front.api.auth.roles import METRICS, node_of
from netloom.front.api.http.paths import Verb
from netloom.front.api.schemas.discovery import REVIEWS
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import NAMESPACE, NODE

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


async def rules(authorizer: Authorizer, kinds: Iterable[Kind], who: Identity, namespace: str) -> Document:
    """Return the status of a SelfSubjectRulesReview."""
    if authorizer.asks_others:
        return _status([], [], why="another server authorizes each request; ask that server for its rules")
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
    return _status(found, paths, why="a node may also read what its attachments use" if node else "")


def _asked(kind: Kind, namespace: str, node: str) -> Iterator[tuple[Attributes, tuple[str, ...]]]:
    """Yield the questions about a kind, each with its verbs."""
    scope = namespace if kind.namespaced else ""
    name = ""
    if kind is NODE:
        name = node
    yield Attributes("", kind, scope, name), kind.verbs
    if kind is NAMESPACE and namespace:
        yield Attributes("", kind, namespace, namespace), (Verb.GET,)
    for subresource, verbs in kind.subresources.items():
        yield Attributes("", kind, scope, name, subresource), verbs


def _status(found: Iterable[_Rule], paths: list[str], *, why: str) -> Document:
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
