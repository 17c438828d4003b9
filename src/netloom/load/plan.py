"""What a run is made of, all of it decided before it begins.  Pure: the same seed gives the same run.

    sizes ──► Networks and their Subnets          made first, removed last
          └─► slots, one for each attachment that may be alive: its Network, Subnet and node, and whether it is tested
                └─► steps: create and delete slots, each with the time at which it is due

       warm-up    creates, until as many are alive as were asked for
       cruise     a delete of the oldest, a create of the slot that rested longest, turn about
       cool-down  deletes

Each create of a slot is a new attachment with a name of its own, so that nothing is ever taken for its predecessor.
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
from netloom.model.networks import Fabric

REST = 10.0
"""For how many seconds an address may rest after it was given back, at most."""


class Placement(StrEnum):
    """How attachments are spread over the nodes."""

    RANDOM = "random"
    ROUND_ROBIN = "round-robin"


class Phase(StrEnum):
    """Where a run stands."""

    WARM_UP = "warm-up"
    CRUISE = "cruise"
    COOL_DOWN = "cool-down"


class Doing(StrEnum):
    """What a step does."""

    CREATE = "create"
    DELETE = "delete"


class Load(Struct, frozen=True, kw_only=True):
    """What is asked for."""

    run: str
    shape: Shape = Shape()
    fabric: Fabric = Fabric.OVN
    single_subnet: bool = False
    bases: tuple[str, ...] = ("172.24.0.0",)
    subnet_factor: float = 2.0
    alive: int = 0
    """How many attachments are alive at a time; 0: all there are."""
    rate: float = 10.0
    """Operations per second: creates and deletes together."""
    edge_rate: float = 0.0
    """The same for warm-up and cool-down; 0: as for the cruise."""
    arrivals: Arrivals = Arrivals.STEADY
    cruise: float = 30.0
    """How many seconds it lasts."""
    cool_down: bool = True
    """Whether there is one; otherwise all that is left is removed at once."""
    placement: Placement = Placement.RANDOM
    test_share: float = 0.0
    seed: int = 0


class PlannedSubnet(Struct, frozen=True):
    """A Subnet to be made."""

    name: str
    cidr: str


class Part(Struct, frozen=True):
    """Attachments of one Network that share their Subnets, one of each family, and so reach each other."""

    size: int
    subnets: tuple[PlannedSubnet, ...]


class PlannedNetwork(Struct, frozen=True):
    """A Network to be made."""

    name: str
    parts: tuple[Part, ...]


class Slot(Struct, frozen=True):
    """One attachment that may be alive."""

    number: int
    network: str
    subnets: tuple[str, ...]
    node: str
    tested: bool


class Step(Struct, frozen=True):
    """Something that is due."""

    at: float
    phase: Phase
    doing: Doing
    slot: int
    turn: int
    """Which life of its slot it begins or ends."""


def networks(load: Load) -> list[PlannedNetwork]:
    """Return the Networks of a run."""
    shares = [divided(size, number, single=load.single_subnet) for number, size in enumerate(sizes(load.shape))]
    total = sum(share for parts in shares for share in parts)
    # An address that is given back rests for a while: there must be others meanwhile.
    each = load.subnet_factor + load.rate * REST / min(load.alive or total, total)
    wanted = [share * each for parts in shares for share in parts]
    columns = [iter(blocks(wanted, base)) for base in load.bases]
    digits = max(3, len(str(len(shares))))

    def part(name: str, share: int) -> Part:
        named = (f"{name}{'abcdef'[column]}" for column in range(len(columns)))
        return Part(share, tuple(PlannedSubnet(one, str(next(ones))) for one, ones in zip(named, columns, strict=True)))

    planned = []
    for number, parts in enumerate(shares, 1):
        name = f"{load.run}-{number:0{digits}}"
        planned.append(PlannedNetwork(name, tuple(part(f"{name}-{at}", share) for at, share in enumerate(parts, 1))))
    return planned


def slots(load: Load, planned: Sequence[PlannedNetwork], nodes: Sequence[str]) -> list[Slot]:
    """Return the slots, in the order in which they are first filled."""
    if not nodes:
        raise Invalid("there is no node to put attachments on")
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
    """Give the steps of a run over `count` slots, in order."""
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
