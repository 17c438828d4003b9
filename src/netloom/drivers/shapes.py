"""The two shapes of a driver.

`ReconciledSet`   objects of ours in another system that are made equal to a desired set: the whole set is compared once
                  for each connection, and after that each change of it is applied by itself. Flows are such a set; the
                  routes of a BGP speaker and the filters of tc are, too.
`PortRelays`      processes that impair the packets of single ports.
`PortDevices`     devices that are commanded one port at a time: the caller says what a port needs, and gets the
                  device. Each command reads the present state and writes only what differs.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol, TypeVar

from netloom.drivers.link.codec import Link
from netloom.plan.node.ports import PortPlan
from netloom.plan.policy.impairment import PortImpairment
from netloom.signals import Signal

K = TypeVar("K")
V = TypeVar("V", covariant=True)
DesiredT = TypeVar("DesiredT", contravariant=True)
DeltaT = TypeVar("DeltaT", contravariant=True)


class ReconciledSet(Protocol[K, V, DesiredT, DeltaT]):
    """Objects of ours in another system, by key."""

    @property
    def on_outdated(self) -> Signal[[]]:
        """Sent when `seen` is no longer known to be current: `compare` is due."""

    @property
    def connected(self) -> bool:
        """Whether the other system can be reached."""

    @property
    def current(self) -> bool:
        """Whether `seen` is what the other system has."""

    @property
    def seen(self) -> Mapping[K, V]:
        """The observed objects."""

    @property
    def refused(self) -> Mapping[K, str]:
        """The objects that the other system refused, and its errors."""

    def invalidate(self) -> None:
        """Read everything back before the next change."""

    async def recount(self) -> None:
        """Invalidate `seen` if the number of objects is not as expected."""

    async def compare(self, desired: DesiredT, *, remove: bool = True) -> None:
        """Read everything back, add what is missing, and with `remove` delete the rest of ours."""

    async def apply(self, delta: DeltaT) -> None:
        """Make one change of the desired set."""

    def numbers(self) -> Mapping[str, float]:
        """Return the values of the driver's metrics."""


class PortRelays(Protocol):
    """The processes between the devices of ports and the switch."""

    @property
    def on_end(self) -> Signal[[str]]:
        """Sent with the near device of a relay that ended."""

    async def ensure(self, near: str, far: str, wanted: PortImpairment) -> None:
        """Have a relay between two devices do what is wanted."""

    def close(self) -> None:
        """Leave the relays to themselves."""


class PortDevices(Protocol):
    """The devices of ports; a command raises `ProblemError` if the node prevents it."""

    async def device(self, name: str) -> Link | None:
        """Return a device of the node."""

    async def pair(self, plan: PortPlan, given: Collection[str]) -> Link:
        """Make a pair of veths as planned, or correct it; with a relay, another pair; return the switch's end."""

    async def same_pair(self, plan: PortPlan, given: Collection[str]) -> Link | None:
        """Correct an existing pair; return the switch's end, or None if the pair would have to be made."""

    async def inner(self, plan: PortPlan, given: Collection[str]) -> Link:
        """Configure a device of the node as planned."""

    async def set_up(self, name: str, *, up: bool) -> None:
        """Set a device up, or down."""

    async def enslave(self, name: str, master: str) -> None:
        """Put a device on a Linux bridge; "": take it off."""

    async def faults(self, plan: PortPlan, given: Collection[str]) -> list[str]:
        """Return what is wrong with the devices of a port that was given these addresses."""

    async def bridge_of(self, device: Link) -> str:
        """Return the Linux bridge that a device is on, or ""."""

    async def in_use(self, device: Link, *, switched: bool) -> str:
        """Return what the node itself uses a device for; "": nothing known."""

    async def namespace(self, path: str, root: str) -> str:
        """Return the identity of the network namespace at a path; "": there is none."""

    async def create_namespace(self, path: str, root: str, record: Callable[[str], Awaitable[None]]) -> None:
        """Create a network namespace; `record` is called with its identity before it gets its path."""

    async def remove_namespace(self, path: str, root: str, identity: str) -> None:
        """Remove the path of the network namespace with this identity; any other is left alone."""

    async def pairs(self) -> dict[str, str]:
        """Return the outer ends of our pairs, each with the uid it was made for."""

    async def remove_pair(self, name: str) -> None:
        """Remove a pair of ours by its outer end."""
