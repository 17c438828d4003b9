"""The next hops of tunnels are resolved when a tunnel appears, and again before the switch forgets them."""

import asyncio
from collections.abc import Collection
from random import Random

import pytest

from netloom.control.node.fabrics.tunnels import REFRESH_MAX, REFRESH_MIN, TunnelNeighbours
from netloom.drivers.link.codec import Neighbour
from netloom.errors import Unreachable
from netloom.sim import loop as sim
from tests.control.helpers import memory, run
from tests.control.host_world import World
from tests.control.test_host import eventually


class Switch:
    """The tunnels of a switch, which next hops were asked for, and which of them the switch was told."""

    def __init__(self) -> None:
        self.remotes = {"172.31.0.2"}
        self.asked: list[set[str]] = []
        self.looked = 0
        self.silent: set[str] = set()
        self.told: list[set[str]] = []
        self.userspace, self.failures, self.refusals = True, 0, 0
        self.tunnels = TunnelNeighbours(
            remotes=lambda: self.remotes, kernel=self, write=self.write, is_needed=lambda: self.userspace
        )

    async def resolve(self, ips: Collection[str]) -> None:
        if self.failures:
            self.failures -= 1
            raise Unreachable("the kernel: no buffer space available")
        self.asked.append(set(ips))

    async def neighbours(self, ips: Collection[str]) -> dict[str, Neighbour]:
        self.looked += 1
        return {ip: Neighbour(ip, "br-phys", f"02:00:00:00:00:0{ip[-1]}") for ip in ips if ip not in self.silent}

    async def write(self, neighbours: Collection[Neighbour]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise Unreachable("the control socket of ovs-vswitchd: connection refused")
        self.told.append({one.ip for one in neighbours})

    async def __aenter__(self) -> "Switch":
        self._task = asyncio.create_task(self.tunnels.run())
        await asyncio.sleep(0.001)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def test_a_new_tunnel_is_resolved_at_once_and_alone() -> None:
    async def main() -> None:
        async with Switch() as switch:
            assert switch.asked == [{"172.31.0.2"}]
            switch.remotes |= {"172.31.0.3", "fd31::4"}
            switch.tunnels.enqueue()
            switch.tunnels.enqueue()
            await asyncio.sleep(0.001)
            assert switch.asked[1:] == switch.told[1:] == [{"172.31.0.3", "fd31::4"}]

    run(main())


def test_the_switch_is_told_as_soon_as_a_neighbour_answers() -> None:
    async def main() -> None:
        switch = Switch()
        switch.silent = {"172.31.0.2"}
        async with switch:
            await asyncio.sleep(0.1)
            assert switch.told[-1] == set()
            switch.silent.clear()
            await asyncio.sleep(0.3)
            assert switch.told[-1] == {"172.31.0.2"}
            assert len(switch.asked) == 1
            looked, asked = switch.looked, len(switch.asked)
            await asyncio.sleep(REFRESH_MAX)
            assert switch.looked - looked == len(switch.asked) - asked, "what is known is not looked for again"

    run(main())


def test_a_neighbour_that_does_not_answer_is_asked_again_until_it_does() -> None:
    async def main() -> None:
        switch = Switch()
        switch.silent = {"172.31.0.2"}
        async with switch:
            await asyncio.sleep(REFRESH_MAX)
            early = len(switch.asked)
            assert 5 < early < 30
            await asyncio.sleep(10 * REFRESH_MAX)
            assert 20 < len(switch.asked) - early < 100, (
                "nine times a minute: another node says which addresses they are"
            )
            switch.silent.clear()
            await asyncio.sleep(REFRESH_MAX)
            assert {"172.31.0.2"} in switch.told

    run(main())


def test_a_switch_that_cannot_be_told_is_told_later(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        switch = Switch()
        switch.refusals = 3
        async with switch:
            await asyncio.sleep(0.5)
            assert switch.told == [{"172.31.0.2"}]

    with caplog.at_level("INFO"):
        run(main())
    assert caplog.text.count("connection refused") == 1


def test_all_are_resolved_again_soon_and_then_before_the_switch_forgets_them() -> None:
    async def main() -> None:
        async with Switch() as switch:
            await asyncio.sleep(REFRESH_MIN)
            assert switch.asked == switch.told == [{"172.31.0.2"}] * 2
            await asyncio.sleep(REFRESH_MAX)
            early = len(switch.asked)
            assert early < 10
            await asyncio.sleep(10 * REFRESH_MAX)
            assert 9 <= len(switch.asked) - early <= 10
            switch.remotes.clear()
            asked = len(switch.asked)
            await asyncio.sleep(2 * REFRESH_MAX)
            assert len(switch.asked) == asked

    run(main())


def test_new_tunnels_leave_the_schedule_of_the_others_alone() -> None:
    async def main() -> None:
        async with Switch() as switch:
            switch.remotes |= {f"172.31.0.{number}" for number in range(3, 8)}
            old = set(switch.remotes)
            switch.tunnels.enqueue()
            await asyncio.sleep(4 * REFRESH_MAX)
            before = len(switch.asked)
            for number in range(80):
                switch.remotes = old | {f"172.31.1.{number}"}
                switch.tunnels.enqueue()
                await asyncio.sleep(1.5 * REFRESH_MIN)
            asked = switch.asked[before:]
            for ip in old:
                assert sum(ip in one for one in asked) == 2, "once a minute, as before"
            assert sum(len(one - old) for one in asked) == 2 * 80, "each new address at once, and a second later"
            assert len(asked) <= 2 * 80 + 4, "what is due together is resolved together"

    run(main())


def test_each_tunnel_is_resolved_again_at_growing_intervals_of_its_own() -> None:
    async def main() -> None:
        async with Switch() as switch:
            await asyncio.sleep(40)
            switch.asked.clear()
            switch.remotes.add("172.31.0.3")
            switch.tunnels.enqueue()
            clock = asyncio.get_running_loop().time
            start, times = clock(), dict[str, list[int]]()
            while clock() < start + 200:
                await asyncio.sleep(0.1)
                for ip in set[str]().union(*switch.asked):
                    times.setdefault(ip, []).append(round(clock() - start))
                switch.asked.clear()
            assert times["172.31.0.3"] == [0, 1, 3, 7, 15, 31, 63, 123, 183]
            assert times["172.31.0.2"] == [23, 83, 143]

    run(main())


def test_a_tunnel_that_goes_and_comes_back_is_resolved_again() -> None:
    async def main() -> None:
        async with Switch() as switch:
            for remotes in (set[str](), {"172.31.0.2"}):
                switch.remotes = remotes
                switch.tunnels.enqueue()
                await asyncio.sleep(0.001)
            assert switch.asked == [{"172.31.0.2"}, {"172.31.0.2"}]

    run(main())


def test_what_could_not_be_resolved_is_tried_at_the_next_change() -> None:
    async def main() -> None:
        async with Switch() as switch:
            switch.failures = 1
            switch.remotes.add("172.31.0.3")
            for _ in range(2):
                switch.tunnels.enqueue()
                await asyncio.sleep(0.001)
            assert switch.asked[1:] == [{"172.31.0.3"}]

    run(main())


def test_the_kernels_datapath_is_left_alone() -> None:
    async def main() -> None:
        switch = Switch()
        switch.userspace = False
        async with switch:
            await asyncio.sleep(REFRESH_MAX)
            assert switch.asked == []

    run(main())


@pytest.mark.parametrize("seed", range(5))
def test_an_agent_resolves_the_tunnels_that_ovn_makes(seed: int) -> None:
    async def main() -> None:
        world = World(memory(), Random(sim.current().random.random()))
        async with asyncio.TaskGroup() as group:
            world.start(group)
            await eventually(lambda: bool(world.select("Bridge", ["name", "==", "br-int"])), "the switch is prepared")
            for name, remote in (("ovn-n2-0", "172.31.0.2"), ("by-flow", "flow")):
                world.add_port("br-int", name, type="vxlan", options=["map", [["remote_ip", remote], ["key", "flow"]]])
            await eventually(lambda: set(world.machine.resolved) == {"172.31.0.2"}, "the next hop is resolved")
            await world.kill()

    run(main(), seed)
