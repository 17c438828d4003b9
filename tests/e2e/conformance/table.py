"""The table of good and bad objects that Netloom and a real kube-apiserver must judge alike.

One YAML file for each kind: `good`, a spec that is right, and `cases`. A case is a name and

- `spec`, and where needed `metadata` or a whole `document`: it is created, and
- with `old`: that spec is created first, and the case's replaces it, or
- with `status`: `good` is created, the status `oldStatus` is written if there is one, and then `status`.

It is accepted, or, with `refuse`, refused, and the field at fault is the one named.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from netloom.model import codec
from netloom.model.document import Document, Json
from netloom.model.kind import Kind
from netloom.model.registry import KINDS

NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Case:
    """One object, or a change of one, and what must be said of it."""

    kind: Kind
    name: str
    steps: list[tuple[str, Document]] = field(repr=False)
    """What is written, in order: ("" for the object, "status" for its status, and the document)."""
    refuse: str
    """The field at fault; "" where the last step is accepted.  All others always are."""

    def __str__(self) -> str:
        """Return what pytest calls it."""
        return f"{self.kind.name}: {self.name}"


def cases() -> Iterator[Case]:
    """Give all cases of all files."""
    for path in sorted(Path(__file__).parent.glob("*.yaml")):
        (table,) = codec.documents(path.read_bytes())
        kind = KINDS.kind("netloom.dev/v1alpha1", table["kind"])
        for number, entry in enumerate(table["cases"]):
            yield _case(kind, f"case-{number}", table["good"], entry)


def _case(kind: Kind, object_name: str, good: Document, entry: Document) -> Case:
    def document(**parts: Json) -> Document:
        metadata = {"name": object_name} | ({"namespace": NAMESPACE} if kind.namespaced else {})
        made: Document = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **parts}
        return copy.deepcopy(made)

    steps: list[tuple[str, Document]] = []
    if "status" in entry:
        steps.append(("", document(spec=good)))
        if "oldStatus" in entry:
            steps.append(("status", document(spec=good, status=entry["oldStatus"])))
        steps.append(("status", document(spec=good, status=entry["status"])))
    else:
        if "old" in entry:
            steps.append(("", document(spec=entry["old"])))
        last = document(**({"spec": entry["spec"]} if "spec" in entry else {}), **entry.get("document", {}))
        last["metadata"] |= entry.get("metadata", {})
        steps.append(("", last))
    return Case(kind, entry["name"], steps, entry.get("refuse", ""))
