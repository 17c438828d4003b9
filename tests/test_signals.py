"""A signal calls its listeners, all of them, in order."""

from netloom.signals import Signal


def test_all_listeners_are_called_in_the_order_they_were_connected() -> None:
    signal: Signal[[int]] = Signal()
    heard: list[tuple[str, int]] = []
    signal.connect(lambda number: heard.append(("first", number)))
    signal.connect(lambda number: heard.append(("second", number)))
    signal(1)
    signal(2)
    assert heard == [("first", 1), ("second", 1), ("first", 2), ("second", 2)]


def test_a_signal_without_listeners_does_nothing() -> None:
    signal: Signal[[str]] = Signal()
    signal("x")


def test_a_signal_can_be_connected_to_another() -> None:
    near: Signal[[str]] = Signal()
    far: Signal[[str]] = Signal()
    heard: list[str] = []
    near.connect(far)
    far.connect(heard.append)
    near("x")
    assert heard == ["x"]
