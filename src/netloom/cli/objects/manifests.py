"""Files of objects: read, split into documents, put in the order in which they can be made.

One bad document costs that document: each is read by itself and its error kept beside it, with the file and the line it
starts on. Documents are split where YAML itself splits them, at lines that begin with `---`.
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
    "NetworkAttachment",
    "IPLock",
    "VNILock",
    "PortPool",
    "LoadBalancer",
    "Shaping",
    "Mirror",
    "ServiceChain",
    "Sandbox",
)
"""What is used before what uses it.  A kind not named here comes last."""
_SEPARATOR = re.compile(r"^---(?=\s|$)", re.MULTILINE)


class Manifest(Struct, frozen=True):
    """One document of a file, or why it cannot be read."""

    where: str
    document: Document
    error: NetloomError | None = None

    @property
    def name(self) -> str:
        """What to call it in messages: `Network/blue`."""
        metadata = self.document.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        return f"{self.document.get('kind', '')}/{name}"


def read(files: Sequence[str]) -> list[Manifest]:
    """Return all documents of files, folders (their files, sorted) and `-`, in the order in which to make them."""
    manifests = [manifest for file in files for manifest in _file(file)]
    return sorted(manifests, key=lambda m: _rank(str(m.document.get("kind", ""))))


def _rank(kind: str) -> int:
    return ORDER.index(kind) if kind in ORDER else len(ORDER)


def _file(file: str) -> Iterable[Manifest]:
    if file == "-":
        return _documents("standard input", sys.stdin.buffer.read(MAX_FILE + 1))
    path = Path(file)
    if re.match(r"https?://", file):
        raise BadRequest(f"{file}: a file, a folder or -, not a URL")
    if not path.is_dir():
        with path.open("rb") as opened:
            return _documents(file, opened.read(MAX_FILE + 1))
    inside = sorted(child for child in path.iterdir() if child.suffix in SUFFIXES and child.is_file())
    if not inside:
        raise BadRequest(f"{file}: no {', '.join(SUFFIXES)} files in this folder")
    return [manifest for child in inside for manifest in _file(str(child))]


def _documents(where: str, data: bytes) -> Iterator[Manifest]:
    if len(data) > MAX_FILE:
        raise TooLarge(f"{where}: larger than {MAX_FILE >> 20} MB")
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
    error = BadRequest(f"{' and '.join(missing)} not given") if missing else None
    return Manifest(where, document, error)
