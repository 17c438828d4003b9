"""Properties of every decision, for any request and any locks held."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from netloom.plan.addresses.allocation import Decision, Held, Request, decide
from netloom.plan.addresses.blocks import Address, Pool, address, pool

POOLS = {
    "a4": pool("a4", "blue", "10.0.0.0/29"),
    "b4": pool("b4", "blue", "10.0.1.0/30", exclude=["10.0.1.2"]),
    "a6": pool("a6", "blue", "fd00::/125"),
    "bad": pool("bad", "blue", "10.0.0.0/28", validated=False, errors=("it overlaps",)),
    "new": pool("new", "blue", "10.0.2.0/29", validated=False),
    "red": pool("red", "red", "10.0.3.0/29"),
}
IPS = ("10.0.0.2", "10.0.0.3", "10.0.0.7", "10.0.1.0", "10.0.1.2", "10.0.2.3", "10.9.9.9", "fd00::2", "fd00::3", "x")
NAMES = st.sampled_from([*POOLS, "missing"])
VNI = 7


@st.composite
def situations(draw: st.DrawFn) -> tuple[Request, dict[str, Pool], list[Held], frozenset[Address]]:
    """Return a request, the pools it may use, the locks held for it, and the addresses that others have."""
    subnets = tuple(draw(st.lists(NAMES, max_size=3, unique=True)))
    ips = tuple(draw(st.lists(st.sampled_from(IPS), max_size=3)))
    around = {name: one for name, one in POOLS.items() if one.network == "blue" and draw(st.booleans())}
    pools = {name: POOLS[name] for name in subnets if name in POOLS} if subnets else around
    every = [one for text in IPS if (one := address(text)) is not None]
    mine = draw(st.lists(st.sampled_from(every), max_size=4, unique=True))
    held = [
        Held(one, draw(st.sampled_from([VNI, VNI, 8])), f"u{number}", draw(st.sampled_from(["1", "2"])))
        for number, one in enumerate(mine)
    ]
    named = tuple(draw(st.permutations([one.uid for one in held if draw(st.booleans())] + ["gone"])))
    others = frozenset(draw(st.sets(st.sampled_from(every)))) - {one.address for one in held}
    return Request("ns1", "blue", subnets, ips, named), pools, held, others


def decided(request: Request, pools: dict[str, Pool], held: list[Held], others: frozenset[Address]) -> Decision:
    return decide(request, VNI, pools, held, lambda one: "taken by x" if one in others else None)


@given(situations())
def test_what_is_held_is_kept_or_released_and_nothing_twice(
    situation: tuple[Request, dict[str, Pool], list[Held], frozenset[Address]],
) -> None:
    request, _, held, others = situation
    decision = decided(*situation)
    kept, released = {one.uid for one in decision.keep}, {one.uid for one in decision.release}
    assert not kept & released
    assert kept | released == {one.uid for one in held} or decision.pending
    assert not set(decision.take) & (others | {one.address for one in held if one.vni == VNI and one.uid in kept})
    assert len(set(decision.take)) == len(decision.take)
    assert all(one.vni == VNI for one in decision.keep if one.uid not in request.named)
    order = [request.named.index(one.uid) for one in decision.keep if one.uid in request.named]
    assert order == sorted(order)


@given(situations())
def test_every_part_of_a_request_is_kept_taken_chosen_refused_or_waited_for(
    situation: tuple[Request, dict[str, Pool], list[Held], frozenset[Address]],
) -> None:
    request, pools, _, _ = situation
    decision = decided(*situation)
    have = {one.address for one in decision.keep} | set(decision.take)
    texts = " ".join(refusal.message for refusal in decision.refusals)
    for text in request.ips:
        one = address(text)
        said = (
            text in texts or (request.subnets and "Subnet" in texts) or "not validated" in texts or "no Subnet" in texts
        )
        assert one in have or said or decision.pending
    ready = [one for one in pools.values() if one.validated and one.network == "blue"]
    asked = {6 if ":" in text else 4 for text in request.ips}
    for version in {one.version for one in ready} - asked:
        slots = [slot for slot in decision.choose if slot.version == version]
        served = [one for one in decision.keep if one.address.version == version]
        wanted = sum(one.version == version for one in ready) if request.subnets else 1
        assert len(slots) + len(served) >= wanted
        if not decision.pending:
            assert len(slots) + len(served) == wanted
    assert all(pool.validated for slot in decision.choose for pool in slot.pools)


@given(situations())
def test_the_order_of_what_is_held_means_nothing(
    situation: tuple[Request, dict[str, Pool], list[Held], frozenset[Address]],
) -> None:
    request, pools, held, others = situation
    outcomes = {
        tuple(sorted(one.uid for one in decided(request, pools, list(order), others).keep))
        for order in permutations(held)
    }
    assert len(outcomes) == 1


@given(situations())
def test_having_all_that_was_decided_there_is_nothing_left_to_do(
    situation: tuple[Request, dict[str, Pool], list[Held], frozenset[Address]],
) -> None:
    request, pools, _, others = situation
    first = decided(*situation)
    have = list(first.keep) + [Held(one, VNI, f"new{one}") for one in first.take]
    for number, slot in enumerate(first.choose):
        free = [
            one
            for where in slot.pools
            for low, high in where.ranges
            for n in range(low, high + 1)
            if (one := Address(slot.version, n)) not in others | {held.address for held in have}
        ]
        have += [Held(free[0], VNI, f"chosen{number}")] if free else []
    request = Request(request.namespace, request.network, request.subnets, request.ips, tuple(one.uid for one in have))
    again = decided(request, pools, have, others)
    assert again.take == []
    assert again.release == []
    assert [one.uid for one in again.keep] == [one.uid for one in have]


def test_without_a_network_all_is_released_and_without_a_vni_nothing() -> None:
    held = [Held(Address(4, 1), 7, "u1"), Held(Address(4, 2), 7, "u2")]
    request = Request("ns1", "blue", named=("u2",))
    gone = decide(request, None, {}, held, lambda _: None, network=False)
    assert (gone.release, gone.keep) == (held, [])
    waiting = decide(request, None, POOLS, held, lambda _: None)
    assert (waiting.release, [one.uid for one in waiting.keep]) == ([], ["u2"])
