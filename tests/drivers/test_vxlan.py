"""Our flows on a switch: read back, compared, and written in as few bundles as there are changes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import pytest

from netloom.drivers.vxlan.driver import FabricFlows
from netloom.errors import Unreachable
from netloom.openflow.flows import Flow, Key, Meter, MeterSpec, Output, match
from netloom.openflow.memory import Memory
from netloom.openflow.switch import Put
from netloom.plan.vxlan.fabric import COOKIE, COOKIE_MASK
from netloom.plan.vxlan.flow_claims import Delta


def flow(vni: int, port: int = 1, *, cookie: int = COOKIE, meter: int = 0) -> Flow:
    actions = (*((Meter(meter),) if meter else ()), Output(port))
    return Flow(1, 10, match(tun_id=vni), actions, cookie)


OURS = range(1, 100)

BAD = Flow(1, 10, match(nw_src=1), (Output(1),), COOKIE)
"""It lacks its prerequisite."""


class Desired(NamedTuple):
    flows: Mapping[Key, Flow]
    meters: Mapping[int, MeterSpec]


def keyed(*flows: Flow) -> dict[Key, Flow]:
    return {one.key: one for one in flows}


def working(main: Callable[[Memory, FabricFlows], Awaitable[None]], *flows: Flow) -> None:
    async def there() -> None:
        switch = Memory(flows)
        await main(switch, FabricFlows(switch, cookie=COOKIE, cookie_mask=COOKIE_MASK, meters=OURS))

    asyncio.run(there())


def test_what_is_there_already_costs_no_write() -> None:
    async def main(switch: Memory, fabric: FabricFlows) -> None:
        await fabric.compare(Desired(keyed(flow(1), flow(2)), {}))
        await fabric.apply(Delta((flow(1),), (flow(7),)))
        assert switch.counters.bundles == 0
        assert fabric.current

    working(main, flow(1), flow(2))


def test_all_that_differs_is_one_bundle_and_flows_of_others_stay() -> None:
    foreign = flow(9, cookie=7)

    async def main(switch: Memory, fabric: FabricFlows) -> None:
        await fabric.compare(Desired(keyed(flow(1), flow(2, 5), flow(3)), {}))
        assert switch.counters.bundles == 1
        assert switch.table == keyed(flow(1), flow(2, 5), flow(3), foreign)
        assert fabric.seen == keyed(flow(1), flow(2, 5), flow(3))
        assert (fabric.counters.puts, fabric.counters.drops) == (2, 1)

    working(main, flow(1), flow(2), flow(4), foreign)


def test_flows_that_somebody_removed_or_added_are_noticed_by_their_number() -> None:
    async def main(switch: Memory, fabric: FabricFlows) -> None:
        await fabric.compare(Desired(keyed(flow(1), flow(2)), {}))
        switch.table |= keyed(flow(9, cookie=7))
        await fabric.recount()
        believed = fabric.current
        assert believed
        for others in (keyed(flow(1)), keyed(flow(1), flow(2), flow(3))):
            switch.table = others
            await fabric.recount()
            assert not fabric.current
            await fabric.compare(Desired(keyed(flow(1), flow(2)), {}))
            assert switch.table == keyed(flow(1), flow(2))

    working(main, flow(1), flow(2))


def test_what_may_still_be_wanted_is_left() -> None:
    async def main(switch: Memory, fabric: FabricFlows) -> None:
        await fabric.compare(Desired(keyed(flow(1)), {}), remove=False)
        assert switch.table == keyed(flow(1), flow(4))

    working(main, flow(4))


def test_a_switch_that_was_started_again_is_given_everything_at_once() -> None:
    async def main(switch: Memory, fabric: FabricFlows) -> None:
        wanted = keyed(*(flow(vni) for vni in range(100)))
        await fabric.compare(Desired(wanted, {}))
        told: list[int] = []
        fabric.on_outdated.connect(lambda: told.append(switch.generation))
        switch.restart()
        assert not fabric.current
        assert told == [switch.generation]
        await fabric.compare(Desired(wanted, {}))
        assert switch.table == wanted
        assert switch.counters.bundles == 2

    working(main)


def test_a_change_that_was_not_answered_is_compared_and_not_sent_again() -> None:
    async def main(switch: Memory, fabric: FabricFlows) -> None:
        await fabric.compare(Desired({}, {}))
        switch.lossy = True
        with pytest.raises(Unreachable):
            await fabric.apply(Delta((flow(1),), ()))
        switch.lossy = False
        switch.reconnect()
        assert not fabric.current
        before = switch.counters.bundles
        await fabric.compare(Desired(keyed(flow(1)), {}))
        assert switch.counters.bundles == before
        assert fabric.seen == keyed(flow(1))

    working(main)


def test_a_flow_that_is_refused_costs_itself() -> None:
    async def main(switch: Memory, fabric: FabricFlows) -> None:
        wanted = keyed(flow(1), BAD, flow(2), flow(3))
        await fabric.compare(Desired(wanted, {}))
        assert switch.table == keyed(flow(1), flow(2), flow(3))
        assert list(fabric.refused) == [BAD.key]
        await fabric.apply(Delta((flow(4),), (BAD,)))
        assert fabric.refused == {}
        assert switch.table == keyed(flow(1), flow(2), flow(3), flow(4))

    working(main)


def test_a_flow_that_was_refused_and_is_taken_now_is_forgiven() -> None:
    async def main(switch: Memory, fabric: FabricFlows) -> None:
        metered = flow(1, meter=5)
        await fabric.compare(Desired(keyed(metered), {}))
        assert list(fabric.refused) == [metered.key]
        await fabric.apply(Delta((metered,), (), {5: MeterSpec(1000, 300)}))
        assert fabric.refused == {}
        assert switch.table == keyed(metered)

    working(main)


def test_meters_are_there_before_their_flows_and_go_after_them() -> None:
    async def main(switch: Memory, fabric: FabricFlows) -> None:
        await fabric.compare(Desired(keyed(flow(1, meter=5)), {5: MeterSpec(1000, 300)}))
        assert switch.metered == {5: MeterSpec(1000, 300)}
        assert fabric.refused == {}
        await fabric.apply(Delta((), (), {5: MeterSpec(2000, 600)}))
        assert switch.metered == {5: MeterSpec(2000, 600)}
        assert switch.table == keyed(flow(1, meter=5))
        await fabric.apply(Delta((flow(1),), (), {5: None}))
        assert (switch.metered, switch.table) == ({}, keyed(flow(1)))

    working(main)


def test_meters_of_others_stay_and_so_do_their_flows() -> None:
    foreign = flow(9, cookie=7, meter=200)

    async def main(switch: Memory, fabric: FabricFlows) -> None:
        await switch.set_meter(3, 1, 1)
        await switch.set_meter(200, 10, 10)
        await switch.change([Put(foreign)])
        await fabric.compare(Desired(keyed(flow(1)), {}))
        assert switch.metered == {200: MeterSpec(10, 10)}
        assert switch.table == keyed(flow(1), foreign)

    working(main)


def test_who_does_not_hold_the_switch_writes_nothing() -> None:
    async def main(switch: Memory, fabric: FabricFlows) -> None:
        mine = True
        one = FabricFlows(switch, cookie=COOKIE, cookie_mask=COOKIE_MASK, meters=OURS, may_write=lambda: mine)
        await one.compare(Desired(keyed(flow(1)), {}))
        mine = False
        with pytest.raises(Unreachable):
            await one.apply(Delta((), (flow(1),)))
        assert switch.table == keyed(flow(1))
        assert not one.current  # What was to be written is not forgotten: everything is compared.

    working(main, flow(1))
