"""Kinds as a client needs them: their group, plural and URL path.

Netloom's own kinds are known without a request. Any other kind (a Namespace, a CRD of a Kubernetes cluster) is looked
up in the server's discovery, so that `netloom crds | netloom apply -f -` works without kubectl.
"""

from collections.abc import Iterable

from msgspec import Struct

from netloom.client.http import Client
from netloom.errors import NetloomError, NotFound
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import KINDS

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


class Resource(Struct, frozen=True):
    """One kind that an API server serves."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool

    @property
    def qualified(self) -> str:
        """`network.netloom.dev`, as `-o name` prints it."""
        return f"{self.singular}.{self.group}" if self.group else self.singular

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the URL path of the collection or of one object."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}{scope}/{self.plural}" + (f"/{name}" if name else "")


class Target(Struct, frozen=True):
    """One object, or the whole collection if the name is ""."""

    resource: Resource
    name: str = ""


def of_kind(kind: Kind) -> Resource:
    """Return one of Netloom's kinds as a resource."""
    return Resource(kind.group, kind.version, kind.plural, kind.singular, kind.name, kind.namespaced)


def of_document(client: Client, document: Document) -> Resource:
    """Return the resource of a manifest's apiVersion and kind."""
    api_version, kind = str(document.get("apiVersion", "")), str(document.get("kind", ""))
    try:
        return of_kind(KINDS.kind(api_version, kind))
    except NotFound:
        pass
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    group, _, version = api_version.rpartition("/")
    try:
        listed = client.get(root)
    except NotFound:
        raise NotFound(f'the server has no "{kind}" in {api_version or "the core group"}') from None
    for entry in listed.get("resources") or ():
        if entry.get("kind") == kind and "/" not in str(entry.get("name", "")):
            singular = str(entry.get("singularName") or kind.lower())
            return Resource(group, version, str(entry["name"]), singular, kind, bool(entry.get("namespaced")))
    raise NotFound(f'the server has no "{kind}" in {api_version}')


def named(client: Client, word: str) -> Resource:
    """Return the resource with this plural, singular, short or kind name, with or without its group."""
    try:
        return of_kind(KINDS.named(word))
    except NotFound as unknown:
        wanted, _, group = word.lower().partition(".")
        try:
            found = next((r for r, names in _discovered(client) if wanted in names and group in ("", r.group)), None)
        except NetloomError:
            raise unknown from None
        if found is None:
            raise
        return found


def all_kinds() -> list[Resource]:
    """Return every kind of Netloom's own group."""
    return [of_kind(kind) for kind in KINDS if kind.group == "netloom.dev"]


def _discovered(client: Client) -> Iterable[tuple[Resource, set[str]]]:
    for root in ("/api", "/apis"):
        for group in client.get(root, accept=AGGREGATED).get("items") or ():
            name = str(group.get("metadata", {}).get("name", ""))
            for version in group.get("versions", ())[:1]:
                for entry in version.get("resources") or ():
                    kind = str(entry.get("responseKind", {}).get("kind", ""))
                    singular = str(entry.get("singularResource") or kind.lower())
                    resource = Resource(
                        name,
                        str(version.get("version", "")),
                        str(entry.get("resource", "")),
                        singular,
                        kind,
                        entry.get("scope") == "Namespaced",
                    )
                    yield resource, {resource.plural, singular, kind.lower(), *(entry.get("shortNames") or ())}
