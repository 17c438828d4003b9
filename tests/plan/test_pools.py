"""How many ports a pool keeps, and what its ports are called."""

from itertools import islice, pairwise

from hypothesis import given
from hypothesis import strategies as st

from netloom.model.document import ObjectMeta
from netloom.model.kinds.attachments import PortPool, PortPoolSpec
from netloom.model.registry import NETWORK_ATTACHMENT, PORT_POOL
from netloom.plan.pools import HOLD, WINDOW, Demand, free_names, is_free, label_of, owner_of, port


def pool(size: int, most: int | None = None, name: str = "pool") -> PortPool:
    spec = PortPoolSpec(node="n1", network="blue", size=size, max_size=most, security_profiles=("web",))
    meta = ObjectMeta(name=name, namespace="ns1", uid="pool-uid")
    return PortPool(api_version=PORT_POOL.api_version, kind=PORT_POOL.name, metadata=meta, spec=spec)


def test_without_a_bound_a_pool_keeps_its_size_whatever_is_needed() -> None:
    demand = Demand(0.0)
    for _ in range(100):
        demand.add(1.0)
    assert demand.target(pool(8), 1.0) == 8


def test_a_pool_grows_at_once_up_to_its_bound_and_shrinks_late() -> None:
    demand = Demand(0.0)
    for _ in range(20):
        demand.add(1.0)
    assert demand.target(pool(8, 64), 1.0) == 20
    for _ in range(100):
        demand.add(2.0)
    assert demand.target(pool(8, 64), 2.0) == 64
    assert demand.target(pool(8, 64), 2.0 + WINDOW + 1) == 64
    assert demand.target(pool(8, 64), 2.0 + HOLD) == 8


def test_what_an_earlier_controller_made_is_kept_for_a_while() -> None:
    demand = Demand(100.0, 40)
    assert demand.target(pool(8, 64), 101.0) == 40
    assert demand.target(pool(8, 30), 101.0) == 30
    assert demand.target(pool(8, 64), 100.0 + HOLD) == 8


@given(st.lists(st.tuples(st.floats(0.1, 30.0), st.integers(0, 40)), min_size=1, max_size=60), st.integers(0, 60))
def test_a_pool_stays_within_its_bounds_and_shrinks_seldom(steps: list[tuple[float, int]], most: int) -> None:
    demand, now, shrunk, before = Demand(0.0), 0.0, list[float](), 0
    wanted = pool(4, 4 + most)
    for rest, needed in steps:
        now += rest
        for _ in range(needed):
            demand.add(now)
        target = demand.target(wanted, now)
        assert 4 <= target <= 4 + most
        assert target >= min(needed, 4 + most)
        if target < before:
            shrunk.append(now)
        before = target
    assert all(later - earlier >= HOLD for earlier, later in pairwise(shrunk))


def test_names_of_ports_are_free_valid_and_always_the_same() -> None:
    assert list(islice(free_names("pool", {"pool.0", "pool.2"}), 3)) == ["pool.1", "pool.3", "pool.4"]
    assert all(len(name) <= 253 for name in islice(free_names("p" * 253, ()), 5000))
    assert label_of("pool.n1") == "pool.n1"
    long = {label_of("p" * 100 + str(number)) for number in range(9)}
    assert len(long) == 9
    assert all(len(one) <= 63 for one in long)


def test_a_port_is_a_valid_attachment_that_the_pool_owns() -> None:
    made = port(pool(8), "pool.0")
    assert is_free(made.metadata)
    owner = owner_of(made.metadata)
    assert owner is not None
    assert (owner.name, owner.uid) == ("pool", "pool-uid")
    document = NETWORK_ATTACHMENT.document(made)
    assert document["spec"]["port"] == {"type": "pod"}
    assert document["spec"]["securityProfiles"] == ["web"]
