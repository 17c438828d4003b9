"""A signal: an event that one part announces and any number of others listen to.

    class Switch:
        def __init__(self) -> None:
            self.on_connect: Signal[[]] = Signal()

    switch.on_connect.connect(reconciler.enqueue)      the listener's signature is checked
    switch.on_connect()                                calls the listeners in the order in which they were connected

Use it where the announcing part works without any listener. What a part cannot work without is an argument of its
constructor, so that leaving it out is a type error.
"""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Signal(Generic[P]):
    """One kind of event, and its listeners."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: list[Callable[P, object]] = []

    def connect(self, listener: Callable[P, object]) -> None:
        """Call `listener` each time the signal is sent from now on."""
        self._listeners.append(listener)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Send the signal.  An argument that can be read once only, as a generator, is for a single listener."""
        for listener in self._listeners:
            listener(*args, **kwargs)
