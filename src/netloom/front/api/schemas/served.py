"""Other versions of a kind that is stored once: `events.k8s.io/v1` serves the same Events as `v1`, as in Kubernetes.

The two differ only in the names of fields. The verbs do not know of the second version: a request for it becomes one
for the stored kind, fields are renamed when a document is decoded and again when it is encoded. So the rules for Events
(permissions, size, retention) apply under both names.
"""

from msgspec import Struct

from netloom.errors import BadRequest
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import EVENT


class Served(Struct, frozen=True):
    """A version of a kind besides the stored one."""

    kind: Kind
    group: str
    version: str
    names: tuple[tuple[str, str], ...]
    """Names of fields: the stored one, and the one in this version."""

    @property
    def api_version(self) -> str:
        """The value of `apiVersion:`."""
        return f"{self.group}/{self.version}"

    @property
    def root(self) -> str:
        """The path below which it is served."""
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
    """Return the path of the stored kind, and the other version if the path has one; return other paths unchanged."""
    for served in VERSIONS:
        root = served.root + "/"
        if path.startswith(root):
            stored = served.kind.path().rpartition("/")[0]
            return f"{stored}/{path.removeprefix(root)}", served
    return path, None
