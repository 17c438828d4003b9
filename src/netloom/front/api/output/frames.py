"""Watch events as bytes: `{"type":"ADDED","object":{...}}` and a newline, made once and sent to many.

A change reaches all watchers of a collection as the same `Event` (the hub ensures that), so its frame is cached, under
the event's identity, for the other watchers. The cache is bounded by bytes; the oldest frame is evicted first.
"""

from collections.abc import Callable

from netloom.front.api.http.negotiation import Output
from netloom.store.base import Event

CACHE_BYTES = 8 * 1024 * 1024

Renderer = Callable[[Event], bytes]


class Frames:
    """The frames of recent events."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._limit = limit
        self._size = 0
        # The reference to the event keeps its id from being reused.
        self._kept: dict[tuple[int, Output, object], tuple[Event, bytes]] = {}

    def of(self, event: Event, render: Renderer, form: tuple[Output, object]) -> bytes:
        """Return an event's frame; `form` identifies the output of `render`."""
        key = (id(event), *form)
        found = self._kept.get(key)
        if found is not None:
            return found[1]
        made = render(event)
        self._kept[key] = (event, made)
        self._size += len(made)
        while self._size > self._limit:
            oldest = next(iter(self._kept))
            self._size -= len(self._kept.pop(oldest)[1])
        return made


def frame(type_: str, body: bytes) -> bytes:
    """Return one event with its object."""
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), body)
