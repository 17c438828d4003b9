"""Discovery documents, made once from the registry, in the old form and the aggregated one.

kubectl reads these before anything else. The aggregated form (v2, and v2beta1 for clients from 1.26 to 1.29) is one
document for all groups, which a client requests by its Accept header and caches by its ETag.
"""

import hashlib
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from netloom.front.api.http.exchange import Exchange, Tagged
from netloom.front.api.http.negotiation import clauses
from netloom.front.api.schemas.served import VERSIONS
from netloom.model.document import Document, Resource
from netloom.model.kind import Kind

GROUP = "apidiscovery.k8s.io"
_VERSIONS = ("v2", "v2beta1")
_VARY = (b"vary", b"Accept")


def _review(group: str, name: str) -> Kind:
    """Return a kind that answers a question and is not stored."""
    return Kind(
        group=group,
        version="v1",
        name=name,
        plural=f"{name.lower()}s",
        singular=name.lower(),
        type=Resource,
        namespaced=False,
        has_status=False,
        verbs=("create",),
    )


REVIEWS = (
    _review("authorization.k8s.io", "SelfSubjectAccessReview"),
    _review("authorization.k8s.io", "SelfSubjectRulesReview"),
    _review("authentication.k8s.io", "SelfSubjectReview"),
)
_Groups = Mapping[str, list[Kind]]
"""The kinds by their apiVersion; each group has one version."""


class Discovery:
    """The discovery documents, encoded."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        kinds = tuple(kinds)
        others = [replace(one.kind, group=one.group, version=one.version) for one in VERSIONS if one.kind in kinds]
        core: dict[str, list[Kind]] = {}
        named: dict[str, list[Kind]] = {}
        for kind in (*kinds, *others, *REVIEWS):
            (named if kind.group else core).setdefault(kind.api_version, []).append(kind)
        anywhere = {"clientCIDR": "0.0.0.0/0", "serverAddress": ""}
        groups = [_group(first) for first, *_ in named.values()]
        plain: dict[str, Document] = {
            "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [anywhere]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
        }
        plain |= {f"/apis/{group['name']}": {"kind": "APIGroup", "apiVersion": "v1", **group} for group in groups}
        for version, members in (core | named).items():
            lines = [line for kind in members for line in _lines(kind)]
            head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version}
            plain[members[0].path().rpartition("/")[0]] = {**head, "resources": lines}
        self._encoded = {path: msgspec.json.encode(document) for path, document in plain.items()}
        self._aggregated = {
            (path, version): Tagged.of(msgspec.json.encode(_aggregated(which, version)))
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
                    media = f"application/json;g={GROUP};v={version};as=APIGroupDiscoveryList".encode()
                    return await exchange.reply_tagged(self._aggregated[path, version], media, [_VARY])
                if clause.media == "application/json" and not clause.get("as"):
                    break
        await exchange.reply(200, self._encoded[path], headers=[_VARY])


def _group(kind: Kind) -> Document:
    preferred = {"groupVersion": kind.api_version, "version": kind.version}
    return {"name": kind.group, "versions": [preferred], "preferredVersion": preferred}


def _lines(kind: Kind) -> list[Document]:
    common = {"namespaced": kind.namespaced, "kind": kind.name}
    line: Document = {"name": kind.plural, "singularName": kind.singular, **common, "verbs": kind.verbs, **_names(kind)}
    if "list" in kind.verbs:
        text = f"{kind.group}/{kind.version}/{kind.name}"
        line["storageVersionHash"] = hashlib.sha256(text.encode()).hexdigest()[:11] + "="
    beneath = [
        {"name": f"{kind.plural}/{name}", "singularName": "", **common, "verbs": verbs}
        for name, verbs in kind.subresources.items()
    ]
    return [line, *beneath]


def _names(kind: Kind) -> Document:
    named = {"shortNames": kind.short_names, "categories": kind.categories}
    return {key: names for key, names in named.items() if names}


def _aggregated(groups: _Groups, version: str) -> Document:
    items = [
        {
            "metadata": {"name": first.group, "creationTimestamp": None}
            if first.group
            else {"creationTimestamp": None},
            "versions": [
                {"version": first.version, "resources": [*map(_entry, (first, *rest))], "freshness": "Current"}
            ],
        }
        for first, *rest in groups.values()
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": f"{GROUP}/{version}", "metadata": {}, "items": items}


def _entry(kind: Kind) -> Document:
    response = {"group": kind.group, "version": kind.version, "kind": kind.name}
    entry: Document = {
        "resource": kind.plural,
        "responseKind": response,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": kind.verbs,
        **_names(kind),
    }
    if kind.subresources:
        entry["subresources"] = [
            {"subresource": name, "responseKind": response, "verbs": verbs} for name, verbs in kind.subresources.items()
        ]
    return entry
