"""The plan of a run, made before it begins.  Pure: the same seed gives the same plan.

   sizes ──► Networks and their Subnets          created first, deleted last
         └─► slots, one for each attachment that may exist: its Network, Subnet and node, and whether it is tested
               └─► steps: create and delete slots, each with the time at which it is due

      warm-up    creates, until the requested number exists
      cruise     alternately deletes the oldest, and creates the slot that was unused longest
      cool-down  deletes

Each create of a slot is a new attachment with its own name, so that it is never mistaken for its predecessor.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import islice
from random import Random

from msgspec import Struct

from netloom.errors import Invalid
from netloom.load.arrivals import Arrivals, times
from netloom.load.sizes import Shape, blocks, divided, sizes
from netloom.model.kinds.networks import Fabric

REST = 10.0
"""The longest quarantine of a released address, in seconds."""


class Placement(StrEnum):
    """How to distribute attachments over the nodes."""

    RANDOM = "random"
    ROUND_ROBIN = "round-robin"


class Phase(StrEnum):
    """The phase of a run."""

    WARM_UP = "warm-up"
    CRUISE = "cruise"
    COOL_DOWN = "cool-down"


class Doing(StrEnum):
    """The operation of a step."""

    CREATE = "create"
    DELETE = "delete"


class Load(Struct, frozen=True, kw_only=True):
    """The requested load."""

    run: str
    shape: Shape = Shape()
    fabric: Fabric = Fabric.OVN
    single_subnet: bool = False
    bases: tuple[str, ...] = ("172.24.0.0",)
    subnet_factor: float = 2.0
    alive: int = 0
    """How many attachments exist at a time; 0: all."""
    rate: float = 10.0
    """Operations per second: creates and deletes together."""
    edge_rate: float = 0.0
    """The same for warm-up and cool-down; 0: as in the cruise."""
    arrivals: Arrivals = Arrivals.STEADY
    cruise: float = 30.0
    """The duration in seconds."""
    cool_down: bool = True
    """Whether there is a cool-down; otherwise everything left is deleted at once."""
    placement: Placement = Placement.RANDOM
    test_share: float = 0.0
    seed: int = 0


class PlannedSubnet(Struct, frozen=True):
    """A Subnet to create."""

    name: str
    cidr: str


class PlannedGroup(Struct, frozen=True):
    """Attachments of one Network that share their Subnets, one of each family, and so reach each other."""

    size: int
    subnets: tuple[PlannedSubnet, ...]


class PlannedNetwork(Struct, frozen=True):
    """A Network to create."""

    name: str
    parts: tuple[PlannedGroup, ...]


class Slot(Struct, frozen=True):
    """One attachment that may exist."""

    number: int
    network: str
    subnets: tuple[str, ...]
    node: str
    tested: bool


class Step(Struct, frozen=True):
    """An operation that is due at a time."""

    at: float
    phase: Phase
    doing: Doing
    slot: int
    turn: int
    """The life of its slot that it begins or ends."""


def networks(load: Load) -> list[PlannedNetwork]:
    """Return the Networks of a run."""
    shares = [divided(size, number, single=load.single_subnet) for number, size in enumerate(sizes(load.shape))]
    total = sum(share for parts in shares for share in parts)
    # A released address is in quarantine for a while: others must be free meanwhile.
    each = load.subnet_factor + load.rate * REST / min(load.alive or total, total)
    wanted = [share * each for parts in shares for share in parts]
    columns = [iter(blocks(wanted, base)) for base in load.bases]
    digits = max(3, len(str(len(shares))))

    def part(name: str, share: int) -> PlannedGroup:
        named = (f"{name}{'abcdef'[column]}" for column in range(len(columns)))
        return PlannedGroup(
            share, tuple(PlannedSubnet(one, str(next(ones))) for one, ones in zip(named, columns, strict=True))
        )

    planned = []
    for number, parts in enumerate(shares, 1):
        name = f"{load.run}-{number:0{digits}}"
        planned.append(PlannedNetwork(name, tuple(part(f"{name}-{at}", share) for at, share in enumerate(parts, 1))))
    return planned


def slots(load: Load, planned: Sequence[PlannedNetwork], nodes: Sequence[str]) -> list[Slot]:
    """Return the slots, in the order in which they are first used."""
    if not nodes:
        raise Invalid("no node for the attachments")
    random = Random(f"slots {load.seed}")  # noqa: S311  # a seed's, not a secret
    pairs = []
    for network in planned:
        for part in network.parts:
            pairs += [(network.name, tuple(subnet.name for subnet in part.subnets))] * part.size
    random.shuffle(pairs)
    found = []
    for number, (name, subnets) in enumerate(pairs):
        node = nodes[number % len(nodes)] if load.placement is Placement.ROUND_ROBIN else random.choice(nodes)
        found.append(Slot(number, name, subnets, node, random.random() < load.test_share))
    return found


def steps(load: Load, count: int) -> Iterator[Step]:
    """Yield the steps of a run over `count` slots, in order."""
    alive = min(load.alive or count, count)
    random = Random(f"steps {load.seed}")  # noqa: S311  # as above
    resting, living = deque((slot, 0) for slot in range(count)), deque[tuple[int, int]]()

    def step(phase: Phase, doing: Doing, at: float) -> Step:
        if doing is Doing.CREATE:
            slot, turn = resting.popleft()
            living.append((slot, turn))
        else:
            slot, turn = living.popleft()
            resting.append((slot, turn + 1))
        return Step(at, phase, doing, slot, turn)

    def due(rate: float, start: float) -> Iterator[float]:
        return times(load.arrivals, rate, random, start=start)

    at, edge = 0.0, load.edge_rate or load.rate
    for at in islice(due(edge, 0.0), alive):
        yield step(Phase.WARM_UP, Doing.CREATE, at)
    at += 1 / edge
    end, doing = at + load.cruise, Doing.DELETE
    for moment in due(load.rate, at):
        at = moment
        if at > end:
            break
        yield step(Phase.CRUISE, doing, at)
        doing = Doing.CREATE if doing is Doing.DELETE else Doing.DELETE
    for moment in islice(due(edge, at), len(living) if load.cool_down else 0):
        yield step(Phase.COOL_DOWN, Doing.DELETE, moment)
