"""Manifests: files of objects, split into documents and sorted so that each follows those it depends on.

Each document is parsed by itself, and its error is kept with the file and the line it starts on, so one bad document
does not affect the others. Documents are split where YAML splits them, at lines that begin with `---`.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from netloom.errors import BadRequest, NetloomError, TooLarge
from netloom.model import codec
from netloom.model.document import Document

SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILE = 64 * 1024 * 1024
ORDER = (
    "Namespace",
    "CustomResourceDefinition",
    "Node",
    "Network",
    "Subnet",
    "SecurityProfile",
    "Router",
    "BGPSpeaker",
    "BGPPeer",
    "EVPNNetwork",
    "RemoteVTEP",
    "NetworkAttachment",
    "IPLock",
    "VNILock",
    "PortPool",
    "LoadBalancer",
    "Shaping",
    "Mirror",
    "ServiceChain",
    "Sandbox",
    "HostDocument",
)
"""Kinds in the order of creation: each after those that it refers to.  Kinds not listed here come last."""
_SEPARATOR = re.compile(r"^---(?=\s|$)", re.MULTILINE)


class Manifest(Struct, frozen=True):
    """One document of a file, or the error in it."""

    where: str
    document: Document
    error: NetloomError | None = None

    @property
    def name(self) -> str:
        """Its name in messages: `Network/blue`."""
        metadata = self.document.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        return f"{self.document.get('kind', '')}/{name}"


def read(files: Sequence[str]) -> list[Manifest]:
    """Return all documents of files, directories (their files, sorted) and `-`, in the order of creation."""
    manifests = [manifest for file in files for manifest in _file(file)]
    rank = {kind: place for place, kind in enumerate(ORDER)}
    return sorted(manifests, key=lambda m: rank.get(str(m.document.get("kind", "")), len(ORDER)))


def _file(file: str) -> Iterable[Manifest]:
    if file == "-":
        return _documents("standard input", sys.stdin.buffer.read(MAX_FILE + 1))
    path = Path(file)
    if re.match(r"https?://", file):
        raise BadRequest(f"{file}: URLs are not supported; use a file, a directory or -")
    if not path.is_dir():
        with path.open("rb") as opened:
            return _documents(file, opened.read(MAX_FILE + 1))
    inside = sorted(child for child in path.iterdir() if child.suffix in SUFFIXES and child.is_file())
    if not inside:
        raise BadRequest(f"{file}: this directory has no {', '.join(SUFFIXES)} files")
    return [manifest for child in inside for manifest in _file(str(child))]


def _documents(where: str, data: bytes) -> Iterator[Manifest]:
    if len(data) > MAX_FILE:
        raise TooLarge(f"{where}: the file is larger than {MAX_FILE >> 20} MB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield Manifest(where, {}, BadRequest(f"not UTF-8 at byte {error.start}"))
        return
    starts = [0, *(found.start() for found in _SEPARATOR.finditer(text) if found.start())]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        line = text.count("\n", 0, start) + 1
        yield from _document(f"{where}:{line}" if len(starts) > 1 else where, text[start:end])


def _document(where: str, text: str) -> Iterator[Manifest]:
    try:
        found = codec.documents(text, limit=MAX_FILE)
    except NetloomError as error:
        yield Manifest(where, {}, error)
        return
    for document in found:
        items = document.get("items")
        if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
            yield from (_checked(where, item) for item in items)
        else:
            yield _checked(where, document)


def _checked(where: str, document: object) -> Manifest:
    if not isinstance(document, dict):
        return Manifest(where, {}, BadRequest("not an object: expected apiVersion, kind, metadata and spec"))
    missing = [key for key in ("apiVersion", "kind") if not isinstance(document.get(key), str) or not document[key]]
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        missing.append("metadata.name")
    error = BadRequest(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} required") if missing else None
    return Manifest(where, document, error)
