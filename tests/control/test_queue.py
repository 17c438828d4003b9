import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.control.runtime.counters import Histogram
from netloom.control.runtime.queue import Backoff, Pace, Queue
from netloom.errors import Conflict, Expired, Forbidden, Internal, Invalid, NotFound, TooManyRequests, Unreachable
from tests.control.helpers import run


def queue() -> Queue[str]:
    return Queue(random=Random(1))


def test_a_key_added_twice_is_taken_once() -> None:
    async def main() -> None:
        keys = queue()
        keys.update(["a", "a", "b"])
        assert len(keys) == 2
        assert [await keys.get(), await keys.get()] == ["a", "b"]
        assert len(keys) == 0
        assert keys.working == 2
        assert keys.counters.adds == 2

    run(main())


def test_a_key_added_while_worked_on_comes_again_once_and_only_after_done() -> None:
    async def main() -> None:
        keys = queue()
        keys.add("a")
        await keys.get()
        keys.add("a")
        keys.add("a")
        assert len(keys) == 0
        keys.done("a")
        assert await keys.get() == "a"
        keys.done("a")
        assert len(keys) == 0

    run(main())


def test_a_delayed_key_comes_at_its_time_and_the_earliest_time_counts() -> None:
    async def main() -> None:
        keys, loop = queue(), asyncio.get_running_loop()
        keys.add_after("a", 10)
        keys.add_after("a", 3)
        keys.add_after("a", 5)
        keys.add_after("b", 4)
        assert keys.waiting == 2
        assert await keys.get() == "a"
        assert loop.time() == 3
        keys.done("a")
        assert await keys.get() == "b"
        assert loop.time() == 4
        keys.done("b")
        assert keys.waiting == 0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await keys.get()

    run(main())


def test_failures_in_a_row_wait_longer_and_success_forgets_them() -> None:
    async def main() -> None:
        keys = queue()
        delays = [keys.retry("a", Unreachable("away")) for _ in range(12)]
        assert delays[0] <= 0.2
        assert 15 <= delays[-1] <= 30
        keys.forget("a")
        assert keys.retry("a", Unreachable("away")) <= 0.2
        assert keys.counters.retries == 13

    run(main())


@pytest.mark.parametrize(
    ("error", "first", "longest"),
    [
        (Conflict("x"), 0.02, 1.0),
        (Expired("x"), 0.02, 1.0),
        (Unreachable("x"), 0.2, 30.0),
        (NotFound("x"), 0.2, 30.0),
        (Invalid("x"), 30.0, 900.0),
        (Forbidden("x"), 30.0, 900.0),
        (Internal("x"), 0.2, 300.0),
        (KeyError("x"), 0.2, 300.0),
    ],
)
def test_each_class_of_error_has_its_pace(error: Exception, first: float, longest: float) -> None:
    backoff, random = Backoff(), Random(2)
    assert first / 2 <= backoff.delay(error, 1, random) <= first
    assert longest / 2 <= backoff.delay(error, 1000, random) <= longest


def test_what_the_other_side_asked_for_is_the_least_wait() -> None:
    assert Backoff().delay(TooManyRequests("busy", retry_after=7), 1, Random(1)) == 7


@given(st.integers(1, 2000), st.floats(0.001, 10), st.floats(10, 1000), st.integers())
def test_a_pace_never_exceeds_its_longest(failures: int, first: float, longest: float, seed: int) -> None:
    assert 0 < Pace(first, longest).delay(failures, Random(seed)) <= longest


def test_idle_waits_for_all_workers() -> None:
    async def main() -> None:
        keys = queue()
        await keys.idle()
        keys.add("a")
        keys.add("b")
        await keys.get()
        await keys.get()

        async def finish() -> None:
            await asyncio.sleep(1)
            keys.done("a")
            await asyncio.sleep(1)
            keys.done("b")

        async with asyncio.TaskGroup() as group:
            group.create_task(finish())
            await keys.idle()
            assert asyncio.get_running_loop().time() == 2

    run(main())


def test_latency_work_and_the_longest_running_are_measured() -> None:
    async def main() -> None:
        keys = queue()
        assert keys.longest_running == 0
        keys.add("a")
        await asyncio.sleep(2)
        await keys.get()
        await asyncio.sleep(5)
        assert keys.longest_running == keys.unfinished == 5
        keys.add("b")
        await keys.get()
        await asyncio.sleep(1)
        assert (keys.longest_running, keys.unfinished) == (6, 7)
        keys.done("b")
        keys.done("a")
        assert keys.counters.latency.total == 2
        assert keys.unfinished == 0
        assert keys.counters.work.total == 7
        assert keys.counters.work.count == 2

    run(main())


def test_a_histogram_counts_into_the_bucket_above() -> None:
    histogram = Histogram()
    for seconds in (0.0005, 0.001, 0.002, 1000):
        histogram.observe(seconds)
    assert histogram.counts[0] == 2
    assert histogram.counts[1] == 1
    assert histogram.counts[-1] == 1
    assert histogram.count == 4


@pytest.mark.parametrize("seed", range(50))
def test_no_key_is_worked_on_by_two_and_no_add_is_lost(seed: int) -> None:
    async def main() -> None:
        keys, random = queue(), Random(seed)
        version = dict.fromkeys("abc", 0)
        seen = dict.fromkeys("abc", 0)
        busy: set[str] = set()

        async def worker() -> None:
            while True:
                key = await keys.get()
                assert key not in busy
                busy.add(key)
                seen[key] = version[key]
                await asyncio.sleep(random.random())
                busy.remove(key)
                keys.done(key)

        async def writer() -> None:
            for _ in range(30):
                key = random.choice("abc")
                version[key] += 1
                if random.random() < 0.5:
                    keys.add(key)
                else:
                    keys.add_after(key, random.random())
                await asyncio.sleep(random.random() / 4)
            await asyncio.sleep(10)
            for task in workers:
                task.cancel()

        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(worker()) for _ in range(3)]
            group.create_task(writer())
        assert seen == version

    run(main(), seed)
