import asyncio
import itertools
import os
import subprocess
import sys

import pytest

from netloom.sim import loop as sim


async def _order() -> list[str]:
    seen: list[str] = []

    async def one(name: str) -> None:
        for step in range(3):
            await asyncio.sleep(0)
            seen.append(f"{name}{step}")

    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(one(name))
    return seen


def test_an_hour_takes_no_time_and_is_an_hour() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert sim.run(main(), seed=0) == 3600


def test_a_seed_gives_one_order_and_seeds_give_many() -> None:
    orders = [sim.run(_order(), seed=seed) for seed in range(20)]
    assert orders == [sim.run(_order(), seed=seed) for seed in range(20)]
    assert len({tuple(order) for order in orders}) > 10


def test_the_trace_is_the_same_for_the_same_seed_and_differs_between_seeds() -> None:
    traces = [sim.traced(_order(), seed=seed) for seed in range(20)]
    assert traces == [sim.traced(_order(), seed=seed) for seed in range(20)]
    assert len(set(traces)) == 20


def test_a_note_is_part_of_the_trace() -> None:
    async def main(text: str) -> None:
        sim.current().note(text)

    assert sim.traced(main("a"), seed=1) == sim.traced(main("a"), seed=1)
    assert sim.traced(main("a"), seed=1) != sim.traced(main("b"), seed=1)


def test_another_process_with_another_hash_seed_gives_the_same_trace() -> None:
    program = (
        "import asyncio\nfrom netloom.sim import loop as sim\n"
        "async def fail():\n    await asyncio.sleep(1)\n    raise OSError\n"
        "async def main():\n"
        "    try:\n"
        "        async with asyncio.TaskGroup() as group:\n"
        "            for n in range(20): group.create_task(asyncio.sleep(9))\n"
        "            group.create_task(fail())\n"
        "    except* OSError: pass\n"
        "print(sim.traced(main(), seed=5))\n"
    )
    traces = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": salt},
            capture_output=True,
            check=True,
        ).stdout
        for salt in ("1", "2", "3")
    }
    assert len(traces) == 1


def test_timers_come_in_order_of_time_and_cancelled_ones_not_at_all() -> None:
    async def main() -> list[int]:
        loop, seen = asyncio.get_running_loop(), list[int]()
        loop.call_later(3, seen.append, 3)
        loop.call_later(1, seen.append, 1)
        loop.call_at(2, seen.append, 2)
        loop.call_later(1.5, seen.append, 9).cancel()
        await asyncio.sleep(4)
        return seen

    assert sim.run(main(), seed=0) == [1, 2, 3]


def test_a_timer_cancelled_at_its_own_instant_does_not_run() -> None:
    async def main() -> list[int]:
        loop, seen = asyncio.get_running_loop(), list[int]()
        later = loop.call_later(1, seen.append, 9)
        loop.call_later(1, later.cancel)
        await asyncio.sleep(2)
        return seen

    assert {tuple(sim.run(main(), seed=seed)) for seed in range(20)} == {(), (9,)}


def test_a_deadlock_is_an_error_that_says_who_waits_where() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await stuck()

    with pytest.raises(sim.Deadlock, match=r"waiting: task-1 in Event\.wait:\d+"):
        sim.run(main(), seed=0)


def test_a_livelock_is_an_error() -> None:
    async def main() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(sim.Livelock):
        sim.run(main(), seed=0, max_steps=1000)


def test_timeouts_happen_in_virtual_time() -> None:
    async def main() -> float:
        try:
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        except TimeoutError:
            return asyncio.get_running_loop().time()
        raise AssertionError

    assert sim.run(main(), seed=0) == 30


def test_threads_are_refused() -> None:
    async def main() -> None:
        await asyncio.to_thread(print)

    async def wake() -> None:
        asyncio.get_running_loop().call_soon_threadsafe(print)

    with pytest.raises(RuntimeError, match="no threads"):
        sim.run(main(), seed=0)
    with pytest.raises(RuntimeError, match="no threads"):
        sim.run(wake(), seed=0)
