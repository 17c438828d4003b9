"""Two small kinds for the store tests, so that what is tested is the store and not some kind's validation."""

from typing import Any

from msgspec import field

from netloom.model.document import Document, Resource
from netloom.model.kind import Kind

GROUP = "test.netloom.dev"
HOLD = f"{GROUP}/hold"
"""A finalizer nobody but a test takes away."""


class Widget(Resource, frozen=True, kw_only=True):
    spec: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)


class Gadget(Resource, frozen=True, kw_only=True):
    spec: dict[str, Any] = field(default_factory=dict)


WIDGET = Kind(
    group=GROUP,
    version="v1",
    name="Widget",
    plural="widgets",
    singular="widget",
    type=Widget,
    selectable=("spec.node", "spec.size", "spec.shiny"),
)
GADGET = Kind(
    group=GROUP, version="v1", name="Gadget", plural="gadgets", singular="gadget", type=Gadget, namespaced=False
)


def widget(namespace: str, name: str, labels: dict[str, str] | None = None, **spec: Any) -> Document:
    """Return a widget to create."""
    metadata: Document = {"namespace": namespace, "name": name}
    if labels is not None:
        metadata["labels"] = labels
    return {"apiVersion": WIDGET.api_version, "kind": "Widget", "metadata": metadata, "spec": spec}


def gadget(name: str, **spec: Any) -> Document:
    """Return a gadget to create."""
    return {"apiVersion": GADGET.api_version, "kind": "Gadget", "metadata": {"name": name}, "spec": spec}


def lease(namespace: str, name: str, holder: str = "") -> Document:
    """Return a Lease to create."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"holderIdentity": holder} if holder else {},
    }


def crd(kind: Kind) -> Document:
    """Return the CustomResourceDefinition with which a Kubernetes API server keeps `kind`."""
    fields = {"node": "string", "size": "integer", "shiny": "boolean"}
    open_object: Document = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {**open_object, "properties": {name: {"type": type_} for name, type_ in fields.items()}}
    version: Document = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": open_object}}},
        "subresources": {"status": {}},
        "selectableFields": [{"jsonPath": f".{path}"} for path in kind.selectable],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.qualified},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {"kind": kind.name, "plural": kind.plural, "singular": kind.singular},
            "versions": [version],
        },
    }
