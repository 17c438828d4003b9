"""Suggestions for unknown fields, where the server makes none.

A kube-apiserver refuses an unknown field of a server-side apply with just "field not declared in schema". The schemas
of Netloom's kinds are known here, so the command line adds the nearest field.
"""

import re

from netloom.errors import NotFound
from netloom.model.document import Document
from netloom.model.registry import KINDS
from netloom.model.schemas.checks import nearest
from netloom.model.schemas.schema import schema

_UNDECLARED = re.compile(r"(?P<path>(?:\.\w+(?:\[[^\]]*\])*)*)\.(?P<name>\w+): field not declared in schema")


def unknown_field(message: str, document: Document) -> str:
    """Return ` (did you mean "…"?)` if a message is about an unknown field that resembles a known one, else ""."""
    found = _UNDECLARED.search(message)
    if found is None or "did you mean" in message:
        return ""
    try:
        node = schema(KINDS.kind(str(document.get("apiVersion", "")), str(document.get("kind", ""))))
    except NotFound:
        return ""
    for word in re.findall(r"\.(\w+)|(\[)", found["path"]):
        node = node.get("properties", {}).get(word[0], {}) if word[0] else node.get("items", {})
    return nearest(found["name"], list(node.get("properties", {})))
