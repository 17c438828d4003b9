"""Against a real Open vSwitch: what is put comes back, what is wrong changes nothing, and the one in memory agrees."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netloom.openflow.flows import Drop, Flow, Meter, MeterSpec, Mod, Output, Put, Unknown, match
from netloom.openflow.io import Connection
from netloom.openflow.memory import Memory
from netloom.openflow.switch import ChangeRefused
from tests.openflow import building
from tests.openflow.building import METERS
from tests.openflow.real import Real, by_key, connection, within

pytestmark = [pytest.mark.ovn, pytest.mark.root]

EXAMPLES = int(os.environ.get("NETLOOM_TEST_FLOWS", "20"))
many = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


async def forget(switch: Connection | Memory) -> None:
    """Remove everything but the meters, which are as the flows of these tests want them."""
    await switch.change([Drop(flow) for flow in await switch.flows()])
    there = await switch.meters()
    for meter in METERS:
        if meter not in there:
            await switch.set_meter(meter, 1000, 100)


@many
@given(wanted=st.lists(building.flows(), min_size=1, max_size=30))
def test_every_flow_comes_back_as_it_was_put_and_is_printed_as_we_print_it(switch: Real, wanted: list[Flow]) -> None:
    async def story(made: Connection) -> None:
        await forget(made)
        await made.change([Put(flow) for flow in wanted])
        expected = by_key(wanted)
        assert by_key(await made.flows()) == expected
        printed = [str(flow).replace("cookie=0x0, ", "").replace("table=0, ", "") for flow in expected.values()]
        assert await asyncio.to_thread(switch.dump) == sorted(printed)  # Which leaves out what is 0.

    within(switch.socket, story)


@many
@given(wanted=st.lists(building.flows(masked=False), min_size=1, max_size=10))  # It would write several actions.
def test_what_we_print_is_read_by_ovs_ofctl_as_the_same_flows(switch: Real, tmp_path: Path, wanted: list[Flow]) -> None:
    async def story(made: Connection) -> None:
        await forget(made)
        expected = by_key(wanted)
        file = tmp_path / "flows"
        file.write_text("".join(f"{flow}\n" for flow in expected.values()))
        await asyncio.to_thread(switch.ofctl, "add-flows", file)
        assert by_key(await made.flows()) == expected

    within(switch.socket, story)


def test_a_bundle_with_one_bad_flow_changes_nothing_and_names_it(switch: Real) -> None:
    async def story(made: Connection) -> None:
        await forget(made)
        there = Flow(9, 9, (), (Output(1),), 5)
        await made.change([Put(there)])
        for flow in (*building.BAD, *building.ODD):
            with pytest.raises(ChangeRefused) as refused:
                await made.change([Put(Flow(1, 1, (), ())), Drop(there), Put(flow), Put(Flow(1, 2, (), ()))])
            assert (refused.value.index, refused.value.mod) == (2, Put(flow)), flow
            assert await made.flows() == [there]
        assert made.counters.connects == 1
        assert made.counters.refusals == len(building.BAD) + len(building.ODD)

    within(switch.socket, story)


def test_the_words_for_what_is_wrong_are_those_of_the_switch_in_memory(switch: Real) -> None:
    async def story(made: Connection) -> None:
        memory = Memory()
        for flow in building.BAD:
            errors = []
            for one in (made, memory):
                with pytest.raises(ChangeRefused) as refused:
                    await one.change([Put(flow)])
                errors.append(refused.value.error)
            assert errors[0] == errors[1], flow

    within(switch.socket, story)


def history() -> st.SearchStrategy[list[list[Mod]]]:
    """Give changes of which some are wrong."""
    bad = st.sampled_from(building.BAD).map(Put)

    @st.composite
    def change(draw: st.DrawFn) -> list[Mod]:
        mods = draw(building.mods())
        if draw(st.integers(0, 3)) == 0:
            mods.insert(draw(st.integers(0, len(mods))), draw(bad))
        return mods

    return st.lists(change(), min_size=1, max_size=6)


@many
@given(changes=history(), meter=st.sampled_from(METERS))
def test_the_switch_in_memory_agrees_on_random_histories(switch: Real, changes: list[list[Mod]], meter: int) -> None:
    async def outcome(one: Connection | Memory, mods: list[Mod]) -> int | None:
        try:
            await one.change(mods)
        except ChangeRefused as problem:
            return problem.index
        return None

    async def story(made: Connection) -> None:
        memory = Memory()
        await forget(made)
        await forget(memory)
        for mods in changes:
            assert await outcome(made, mods) == await outcome(memory, mods)
            assert by_key(await made.flows()) == memory.table
        assert by_key(await made.flows(0x8000, 0xF000)) == by_key(await memory.flows(0x8000, 0xF000))
        for one in (made, memory):
            await one.remove_meter(meter)
        assert by_key(await made.flows()) == memory.table
        assert (await made.meters()).keys() == memory.metered.keys()

    within(switch.socket, story)


def test_meters_are_made_changed_read_and_removed(switch: Real) -> None:
    async def story(made: Connection) -> None:
        await made.set_meter(1, 5000, 500)
        await made.set_meter(3, 100, 0)
        await made.set_meter(1, 6000, 600)
        assert await made.meters() == {1: MeterSpec(6000, 600), 3: MeterSpec(100, 0)}
        await made.change([Put(Flow(0, 1, (), (Meter(1), Output(1)))), Put(Flow(0, 2, (), (Output(1),)))])
        await made.remove_meter(1)
        await made.remove_meter(77)
        assert await made.meters() == {3: MeterSpec(100, 0)}
        assert [flow.priority for flow in await made.flows()] == [2]
        with pytest.raises(ChangeRefused, match="meter mod failed"):
            await made.set_meter(0, 1, 1)

    within(switch.socket, story)


def test_flows_of_others_are_shown_as_far_as_they_can_be_and_do_not_disturb(switch: Real) -> None:
    lines = [
        "cookie=0x1,table=0,priority=1,actions=NORMAL",
        "cookie=0x2,table=0,priority=2,pkt_mark=7,actions=drop",
        "cookie=0x3,table=0,priority=3,actions=load:5->NXM_NX_REG0[4..7],ct_clear,resubmit(5,2),move:NXM_NX_REG0[0..3]->NXM_NX_REG1[4..7]",
        "cookie=0x4,table=0,priority=4,ip,actions=ct(commit,zone=NXM_NX_REG0[4..19]),ct(force,commit),ct(nat),output:NXM_NX_REG1[]",
        "cookie=0x5,table=0,priority=5,actions=write_actions(output:3),goto_table:1",
        "cookie=0x6,table=0,priority=6,actions=set_field:7->vlan_vid,set_field:5->pkt_mark,push_vlan:0x8100,dec_ttl",
    ]

    async def story(made: Connection) -> None:
        for line in lines[:5]:
            await asyncio.to_thread(switch.ofctl, "add-flow", line)
        await asyncio.to_thread(
            switch.ofctl,
            "add-flow",
            lines[5].replace("priority=6,", "priority=6,ip,").replace("set_field:7->vlan_vid,", ""),
        )
        shown = {flow.cookie: flow for flow in await made.flows()}
        assert sorted(shown) == [1, 3, 4, 5, 6]
        assert (await made.count(), await made.count(3, 0xFF)) == (6, 1)
        assert all(any(isinstance(one, Unknown) for one in flow.actions) for flow in shown.values())
        await made.change([Put(Flow(0, 1, (), (Output(2),), 1)), Drop(shown[3])])
        assert Flow(0, 1, (), (Output(2),), 1) in await made.flows()
        with pytest.raises(ChangeRefused, match="invalid flow"):
            await made.change([Put(shown[4])])

    within(switch.socket, story)


def test_changes_that_are_asked_at_once_are_made_in_that_order(switch: Real) -> None:
    async def story(made: Connection) -> None:
        changes = [[Put(Flow(0, 1, (), (Output(n + 1),), n)), Put(Flow(0, 2 + n, (), ()))] for n in range(50)]
        async with asyncio.TaskGroup() as group:
            for mods in changes:
                group.create_task(made.change(mods))
        flows = by_key(await made.flows())
        assert flows[0, 1, ()].cookie == 49
        assert len(flows) == 51
        assert (made.counters.bundles, made.counters.mods) == (50, 100)

    within(switch.socket, story)


def test_a_change_that_is_given_up_while_it_is_written_is_not_made(switch: Real) -> None:
    async def story(made: Connection) -> None:
        many = [Put(Flow(0, 1, match(reg0=n), ())) for n in range(5000)]
        task = asyncio.create_task(made.change(many))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await made.flows() == []
        await made.change(many)
        assert len(await made.flows()) == 5000

    within(switch.socket, story)


@pytest.mark.slow
def test_a_switch_that_is_killed_and_comes_back_is_another_generation_without_flows(switch: Real) -> None:
    async def story() -> None:
        async with connection(switch.socket, probe=1.0) as made:
            await made.change([Put(Flow(0, 1, (), ()))])
            before = made.generation
            await asyncio.to_thread(switch.kill)
            while made.connected.is_set():  # noqa: ASYNC110 - Nobody would set an event.
                await asyncio.sleep(0.01)
            switch.start()
            async with asyncio.timeout(120):
                await made.connected.wait()
            assert made.generation == before + 1
            assert await made.flows() == []
            await made.change([Put(Flow(0, 1, (), ()))])
            assert await made.flows() == [Flow(0, 1, (), ())]

    asyncio.run(story())
