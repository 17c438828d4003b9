"""Discovery documents, made once from the registry, in the old form and the aggregated one.

kubectl reads these before anything else. The aggregated form (v2, and v2beta1 for clients from 1.26 to 1.29) is one
document for all groups, which a client requests by its Accept header and caches by its ETag.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from netloom.front.api.http.exchange import Exchange, Headers
from netloom.front.api.http.negotiation import clauses
from netloom.front.api.schemas.served import VERSIONS, Served
from netloom.model.document import Document
from netloom.model.kind import Kind

GROUP = "apidiscovery.k8s.io"
_VERSIONS = ("v2", "v2beta1")
_VARY = (b"vary", b"Accept")


class Review(Struct, frozen=True):
    """A resource that answers a question and is not stored."""

    group: str
    version: str
    name: str
    plural: str
    singular: str


REVIEWS = (
    Review(
        "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", "selfsubjectaccessreview"
    ),
    Review("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", "selfsubjectrulesreview"),
    Review("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", "selfsubjectreview"),
)


class Resource(Struct, frozen=True):
    """One resource in a discovery document."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: Mapping[str, tuple[str, ...]] = {}


class Discovery:
    """The discovery documents, encoded."""

    def __init__(self, kinds: Iterable[Kind], *, address: str = "") -> None:
        """`address` is the address in /api for clients inside the cluster; no client needs it."""
        kinds = tuple(kinds)
        others = [_of_served(served) for served in VERSIONS if served.kind in kinds]
        resources = [*map(_of_kind, kinds), *others, *map(_of_review, REVIEWS)]
        groups: dict[tuple[str, str], list[Resource]] = {}
        for resource in resources:
            groups.setdefault((resource.group, resource.version), []).append(resource)
        self._plain = {"/api": _versions(address), "/apis": _group_list(groups)}
        for (group, version), members in groups.items():
            root = f"/apis/{group}/{version}" if group else f"/api/{version}"
            self._plain[root] = _resource_list(group, version, members)
            if group:
                self._plain[f"/apis/{group}"] = {"kind": "APIGroup", "apiVersion": "v1", **_group(group, version)}
        self._encoded = {path: msgspec.json.encode(document) for path, document in self._plain.items()}
        core = {key: members for key, members in groups.items() if not key[0]}
        named = {key: members for key, members in groups.items() if key[0]}
        self._aggregated = {
            (path, version): _Tagged.of(_aggregated(which, version))
            for path, which in (("/api", core), ("/apis", named))
            for version in _VERSIONS
        }

    def serves(self, path: str) -> bool:
        """Whether a path is that of a discovery document."""
        return path in self._encoded

    async def reply(self, exchange: Exchange, path: str) -> None:
        """Answer with the document of a path."""
        if path in ("/api", "/apis"):
            for clause in clauses(exchange.header(b"accept")):
                version = clause.get("v")
                if clause.get("as") == "APIGroupDiscoveryList" and clause.get("g") == GROUP and version in _VERSIONS:
                    return await self._reply_aggregated(exchange, path, version)
                if clause.media == "application/json" and not clause.get("as"):
                    break
        await exchange.reply(200, self._encoded[path], headers=[_VARY])

    async def _reply_aggregated(self, exchange: Exchange, path: str, version: str) -> None:
        tagged = self._aggregated[path, version]
        media = f"application/json;g={GROUP};v={version};as=APIGroupDiscoveryList".encode()
        headers: Headers = [_VARY, (b"etag", tagged.etag)]
        if exchange.header(b"if-none-match").encode() == tagged.etag:
            await exchange.reply(304, b"", media, headers)
            return
        await exchange.reply(200, tagged.body, media, headers)


class _Tagged(Struct, frozen=True):
    body: bytes
    etag: bytes

    @classmethod
    def of(cls, document: Document) -> "_Tagged":
        body = msgspec.json.encode(document)
        return cls(body, f'"{hashlib.sha256(body).hexdigest().upper()}"'.encode())


def _of_kind(kind: Kind) -> Resource:
    return Resource(
        kind.group,
        kind.version,
        kind.name,
        kind.plural,
        kind.singular,
        kind.namespaced,
        kind.verbs,
        kind.short_names,
        kind.categories,
        kind.subresources,
    )


def _of_served(served: Served) -> Resource:
    return replace(_of_kind(served.kind), group=served.group, version=served.version)


def _of_review(review: Review) -> Resource:
    return Resource(
        review.group, review.version, review.name, review.plural, review.singular, namespaced=False, verbs=("create",)
    )


def _versions(address: str) -> Document:
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def _group(group: str, version: str) -> Document:
    preferred = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [preferred], "preferredVersion": preferred}


def _group_list(groups: Iterable[tuple[str, str]]) -> Document:
    named = [_group(group, version) for group, version in groups if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}


def _resource_list(group: str, version: str, members: Iterable[Resource]) -> Document:
    lines = [line for resource in members for line in _lines(resource)]
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": lines}


def _lines(resource: Resource) -> list[Document]:
    line: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    }
    if resource.short_names:
        line["shortNames"] = resource.short_names
    if resource.categories:
        line["categories"] = resource.categories
    if "list" in resource.verbs:
        line["storageVersionHash"] = _hash(f"{resource.group}/{resource.version}/{resource.kind}")
    beneath = [
        {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": verbs,
        }
        for name, verbs in resource.subresources.items()
    ]
    return [line, *beneath]


def _aggregated(groups: dict[tuple[str, str], list[Resource]], version: str) -> Document:
    items = [
        {
            "metadata": {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None},
            "versions": [{"version": of, "resources": [_entry(r) for r in members], "freshness": "Current"}],
        }
        for (group, of), members in groups.items()
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": f"{GROUP}/{version}", "metadata": {}, "items": items}


def _entry(resource: Resource) -> Document:
    response = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": response,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    }
    if resource.short_names:
        entry["shortNames"] = resource.short_names
    if resource.categories:
        entry["categories"] = resource.categories
    if resource.subresources:
        entry["subresources"] = [
            {"subresource": name, "responseKind": response, "verbs": verbs}
            for name, verbs in resource.subresources.items()
        ]
    return entry


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:11] + "="
