"""Deciding, against all that must hold whatever the wish and whatever is held."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from netloom.plan.addresses.allocation import Decision, Held, Wish, decide
from netloom.plan.addresses.blocks import Address, Place, address, place

PLACES = {
    "a4": place("a4", "blue", "10.0.0.0/29"),
    "b4": place("b4", "blue", "10.0.1.0/30", exclude=["10.0.1.2"]),
    "a6": place("a6", "blue", "fd00::/125"),
    "bad": place("bad", "blue", "10.0.0.0/28", validated=False, errors=("it overlaps",)),
    "new": place("new", "blue", "10.0.2.0/29", validated=False),
    "red": place("red", "red", "10.0.3.0/29"),
}
IPS = ("10.0.0.2", "10.0.0.3", "10.0.0.7", "10.0.1.0", "10.0.1.2", "10.0.2.3", "10.9.9.9", "fd00::2", "fd00::3", "x")
NAMES = st.sampled_from([*PLACES, "missing"])
VNI = 7


@st.composite
def situations(draw: st.DrawFn) -> tuple[Wish, dict[str, Place], list[Held], frozenset[Address]]:
    """Return a wish, the Subnets it sees, what is held for it, and what others have."""
    subnets = tuple(draw(st.lists(NAMES, max_size=3, unique=True)))
    ips = tuple(draw(st.lists(st.sampled_from(IPS), max_size=3)))
    around = {name: one for name, one in PLACES.items() if one.network == "blue" and draw(st.booleans())}
    places = {name: PLACES[name] for name in subnets if name in PLACES} if subnets else around
    every = [one for text in IPS if (one := address(text)) is not None]
    mine = draw(st.lists(st.sampled_from(every), max_size=4, unique=True))
    held = [
        Held(one, draw(st.sampled_from([VNI, VNI, 8])), f"u{number}", draw(st.sampled_from(["1", "2"])))
        for number, one in enumerate(mine)
    ]
    named = tuple(draw(st.permutations([one.uid for one in held if draw(st.booleans())] + ["gone"])))
    others = frozenset(draw(st.sets(st.sampled_from(every)))) - {one.address for one in held}
    return Wish("ns1", "blue", subnets, ips, named), places, held, others


def decided(wish: Wish, places: dict[str, Place], held: list[Held], others: frozenset[Address]) -> Decision:
    return decide(wish, VNI, places, held, lambda one: "taken by x" if one in others else None)


@given(situations())
def test_what_is_held_is_kept_or_released_and_nothing_twice(
    situation: tuple[Wish, dict[str, Place], list[Held], frozenset[Address]],
) -> None:
    wish, _, held, others = situation
    decision = decided(*situation)
    kept, released = {one.uid for one in decision.keep}, {one.uid for one in decision.release}
    assert not kept & released
    assert kept | released == {one.uid for one in held} or decision.pending
    assert not set(decision.take) & (others | {one.address for one in held if one.vni == VNI and one.uid in kept})
    assert len(set(decision.take)) == len(decision.take)
    assert all(one.vni == VNI for one in decision.keep if one.uid not in wish.named)
    order = [wish.named.index(one.uid) for one in decision.keep if one.uid in wish.named]
    assert order == sorted(order)


@given(situations())
def test_every_part_of_a_wish_is_kept_taken_chosen_refused_or_waited_for(
    situation: tuple[Wish, dict[str, Place], list[Held], frozenset[Address]],
) -> None:
    wish, places, _, _ = situation
    decision = decided(*situation)
    have = {one.address for one in decision.keep} | set(decision.take)
    told = " ".join(refusal.text for refusal in decision.refusals)
    for text in wish.ips:
        one = address(text)
        said = text in told or (wish.subnets and "Subnet" in told) or "not validated" in told or "no Subnet" in told
        assert one in have or said or decision.pending
    ready = [one for one in places.values() if one.validated and one.network == "blue"]
    asked = {6 if ":" in text else 4 for text in wish.ips}
    for version in {one.version for one in ready} - asked:
        slots = [slot for slot in decision.choose if slot.version == version]
        served = [one for one in decision.keep if one.address.version == version]
        wanted = sum(one.version == version for one in ready) if wish.subnets else 1
        assert len(slots) + len(served) >= wanted
        if not decision.pending:
            assert len(slots) + len(served) == wanted
    assert all(place.validated for slot in decision.choose for place in slot.places)


@given(situations())
def test_the_order_of_what_is_held_means_nothing(
    situation: tuple[Wish, dict[str, Place], list[Held], frozenset[Address]],
) -> None:
    wish, places, held, others = situation
    outcomes = {
        tuple(sorted(one.uid for one in decided(wish, places, list(order), others).keep))
        for order in permutations(held)
    }
    assert len(outcomes) == 1


@given(situations())
def test_having_all_that_was_decided_there_is_nothing_left_to_do(
    situation: tuple[Wish, dict[str, Place], list[Held], frozenset[Address]],
) -> None:
    wish, places, _, others = situation
    first = decided(*situation)
    have = list(first.keep) + [Held(one, VNI, f"new{one}") for one in first.take]
    for number, slot in enumerate(first.choose):
        free = [
            one
            for where in slot.places
            for low, high in where.ranges
            for n in range(low, high + 1)
            if (one := Address(slot.version, n)) not in others | {held.address for held in have}
        ]
        have += [Held(free[0], VNI, f"chosen{number}")] if free else []
    wish = Wish(wish.namespace, wish.network, wish.subnets, wish.ips, tuple(one.uid for one in have))
    again = decided(wish, places, have, others)
    assert again.take == []
    assert again.release == []
    assert [one.uid for one in again.keep] == [one.uid for one in have]


def test_without_a_network_all_is_released_and_without_a_vni_nothing() -> None:
    held = [Held(Address(4, 1), 7, "u1"), Held(Address(4, 2), 7, "u2")]
    wish = Wish("ns1", "blue", named=("u2",))
    gone = decide(wish, None, {}, held, lambda _: None, network=False)
    assert (gone.release, gone.keep) == (held, [])
    waiting = decide(wish, None, PLACES, held, lambda _: None)
    assert (waiting.release, [one.uid for one in waiting.keep]) == ([], ["u2"])
