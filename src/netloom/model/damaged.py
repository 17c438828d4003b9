"""The answer of /apis/netloom.dev/v1alpha1/damaged: the objects that the store cannot decode."""

from msgspec import Struct

PATH = "/apis/netloom.dev/v1alpha1/damaged"


class DamagedItem(Struct, frozen=True):
    """One object."""

    kind: str
    namespace: str
    name: str
    revision: int
    reason: str


class DamagedList(Struct, frozen=True):
    """All of them."""

    kinds: int
    """The number of kinds that were checked."""
    items: list[DamagedItem]
