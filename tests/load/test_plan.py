"""What a run is made of."""

from collections import Counter
from ipaddress import ip_network
from itertools import islice, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from netloom.errors import Invalid
from netloom.load import plan
from netloom.load.arrivals import Arrivals, times
from netloom.load.plan import Doing, Load, Phase, Placement
from netloom.load.sizes import Shape, sizes

LOADS = st.builds(
    Load,
    run=st.just("r1"),
    shape=st.builds(Shape, count=st.integers(1, 12), top=st.integers(1, 20), exponent=st.floats(0, 2)),
    bases=st.sampled_from([("172.24.0.0",), ("172.24.0.0", "fd00::"), ("fd00::",)]),
    single_subnet=st.booleans(),
    alive=st.integers(0, 60),
    rate=st.floats(1, 200),
    edge_rate=st.sampled_from([0.0, 5.0, 500.0]),
    arrivals=st.sampled_from(list(Arrivals)),
    cruise=st.floats(0, 2),
    cool_down=st.booleans(),
    placement=st.sampled_from(list(Placement)),
    test_share=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
NODES = ["n1", "n2", "n3"]


@given(LOADS)
def test_networks_have_their_sizes_and_disjoint_subnets_of_each_family(load: Load) -> None:
    found = plan.networks(load)
    assert [sum(part.size for part in one.parts) for one in found] == sizes(load.shape)
    parts = [part for one in found for part in one.parts]
    assert all(len(part.subnets) == len(load.bases) for part in parts)
    names = [subnet.name for part in parts for subnet in part.subnets]
    assert len(set(names)) == len(names)
    for family in (4, 6):
        of_family = [b for part in parts for s in part.subnets if (b := ip_network(s.cidr)).version == family]
        ordered = sorted(of_family, key=lambda block: int(block.network_address))
        assert not any(one.overlaps(other) for one, other in pairwise(ordered))


@given(LOADS)
def test_each_attachment_has_a_slot_and_the_same_seed_gives_the_same(load: Load) -> None:
    networks = plan.networks(load)
    slots = plan.slots(load, networks, NODES)
    assert slots == plan.slots(load, networks, NODES)
    assert [slot.number for slot in slots] == list(range(len(slots)))
    assert Counter(slot.network for slot in slots) == {
        one.name: sum(part.size for part in one.parts) for one in networks
    }
    assert {slot.node for slot in slots} <= set(NODES)
    if load.placement is Placement.ROUND_ROBIN:
        each = Counter(slot.node for slot in slots)
        assert max(each.values()) - min(each[node] for node in NODES) <= 1


@given(LOADS)
def test_steps_fill_keep_and_empty_and_are_in_time(load: Load) -> None:
    count = sum(sizes(load.shape))
    steps = list(plan.steps(load, count))
    most = min(load.alive or count, count)
    assert steps == list(plan.steps(load, count))
    assert [step.at for step in steps] == sorted(step.at for step in steps)
    assert [step.phase for step in steps] == sorted((step.phase for step in steps), key=list(Phase).index)
    alive: set[tuple[int, int]] = set()
    seen: set[tuple[int, int]] = set()
    for step in steps:
        life = (step.slot, step.turn)
        if step.doing is Doing.CREATE:
            assert life not in seen
            assert step.slot not in {slot for slot, _ in alive}
            seen.add(life)
            alive.add(life)
        else:
            alive.remove(life)
        assert len(alive) <= most
        assert step.phase is not Phase.CRUISE or len(alive) >= most - 1
    assert len(alive) in ((0,) if load.cool_down else (most, most - 1))
    assert sum(step.phase is Phase.WARM_UP for step in steps) == most


@given(st.floats(0.5, 500), st.integers(0, 1000))
def test_both_ways_of_arriving_keep_the_rate(rate: float, seed: int) -> None:
    steady = list(islice(times(Arrivals.STEADY, rate, Random(seed)), 1000))
    assert steady[999] == pytest.approx(999 / rate)
    poisson = list(islice(times(Arrivals.POISSON, rate, Random(seed)), 4000))
    assert poisson == sorted(poisson)
    assert poisson[-1] * rate / 4000 == pytest.approx(1, abs=0.1)


def test_without_nodes_there_is_no_plan() -> None:
    load = Load(run="r1")
    with pytest.raises(Invalid, match="no node"):
        plan.slots(load, plan.networks(load), [])


def test_another_seed_gives_another_run() -> None:
    load = Load(run="r1", arrivals=Arrivals.POISSON)
    other = replace(load, seed=1)
    networks = plan.networks(load)
    assert plan.slots(load, networks, NODES) != plan.slots(other, networks, NODES)
    assert list(plan.steps(load, 20)) != list(plan.steps(other, 20))
