"""CustomResourceDefinitions of the kinds, to run on the API server of a Kubernetes cluster."""

from netloom.model.document import Document
from netloom.model.kind import Column, Kind
from netloom.model.registry import GROUP, KINDS
from netloom.model.schemas.schema import schema


def crds() -> list[Document]:
    """Return a CustomResourceDefinition for each kind of Netloom; Kubernetes has the other kinds built in."""
    return [crd(kind) for kind in KINDS if kind.group == GROUP]


def crd(kind: Kind) -> Document:
    """Return the CustomResourceDefinition of one kind."""
    names: Document = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.singular,
        "shortNames": list(kind.short_names),
        "categories": list(kind.categories),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.qualified},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": names,
            "versions": [_version(kind)],
        },
    }


def established(definition: Document, now: str) -> Document:
    """Return the status of a definition that is served."""
    conditions = [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]
    return {
        "acceptedNames": definition["spec"]["names"],
        "storedVersions": [version["name"] for version in definition["spec"]["versions"]],
        "conditions": [
            {"type": name, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
            for name, reason, message in conditions
        ],
    }


def _version(kind: Kind) -> Document:
    version: Document = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema(kind)},
        "subresources": {"status": {}} if kind.has_status else {},
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
    }
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": f".{field}"} for field in kind.selectable]
    return version


def _column(column: Column) -> Document:
    written: Document = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.wide:
        written["priority"] = 1
    if column.description:
        written["description"] = column.description
    return written
