"""Other versions of a kind that is stored once: `events.k8s.io/v1` shows the same Events as `v1`, as in Kubernetes.

The two differ in the names of fields alone. Nothing behind the verbs knows of the second: a request for it becomes one
for the stored kind, what comes in is renamed before it is looked at, and what goes out is renamed when it is written.
So whatever holds of Events (who may write which, how large, how long they stay) holds of them under both names.
"""

from msgspec import Struct

from netloom.errors import BadRequest
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import EVENT


class Served(Struct, frozen=True):
    """A version of a kind beside the stored one."""

    kind: Kind
    group: str
    version: str
    names: tuple[tuple[str, str], ...]
    """Fields by the name they are stored under, and the name that this version has for them."""

    @property
    def api_version(self) -> str:
        """What stands under `apiVersion:`."""
        return f"{self.group}/{self.version}"

    @property
    def root(self) -> str:
        """The path under which it is served."""
        return f"/apis/{self.api_version}"

    def shown(self, document: Document) -> Document:
        """Return a stored document in this version."""
        names = dict(self.names)
        return {names.get(key, key): value for key, value in document.items()} | {"apiVersion": self.api_version}

    def stored(self, document: Document) -> Document:
        """Return a document of this version as it is stored."""
        given = document.get("apiVersion") or self.api_version
        if given != self.api_version:
            raise BadRequest(
                f"the API version in the data ({str(given)[:64]}) does not match the expected API version"
                f" ({self.api_version})"
            )
        names = {shown: stored for stored, shown in self.names}
        for name in names.values():
            if name in document:
                raise BadRequest(f'strict decoding error: unknown field "{name}" in {self.api_version}')
        renamed = {names.get(key, key): value for key, value in document.items()}
        return renamed | {"apiVersion": self.kind.api_version}


EVENTS = Served(
    EVENT,
    "events.k8s.io",
    "v1",
    (
        ("involvedObject", "regarding"),
        ("message", "note"),
        ("reportingComponent", "reportingController"),
        ("source", "deprecatedSource"),
        ("firstTimestamp", "deprecatedFirstTimestamp"),
        ("lastTimestamp", "deprecatedLastTimestamp"),
        ("count", "deprecatedCount"),
    ),
)
VERSIONS = (EVENTS,)


def at(path: str) -> tuple[str, Served | None]:
    """Return the path of the stored kind for one of another version, and which; other paths as they are."""
    for served in VERSIONS:
        root = served.root + "/"
        if path.startswith(root):
            stored = served.kind.path().rpartition("/")[0]
            return f"{stored}/{path.removeprefix(root)}", served
    return path, None
