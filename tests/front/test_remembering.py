"""Answers that are kept for a while, and asked for once."""

import asyncio

import pytest

from netloom.errors import Unreachable
from netloom.front.api.auth.review_cache import ExpiringCache


class Oracle:
    """Answers when told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.open = asyncio.Event()
        self.error: Unreachable | None = None

    async def answer(self) -> int:
        self.asked += 1
        number = self.asked
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return number


def test_one_question_serves_all_who_ask_at_the_same_time_and_for_a_while() -> None:
    async def main() -> None:
        now = 0.0
        oracle, kept = Oracle(), ExpiringCache[str, int](lambda value: 10.0, clock=lambda: now)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(kept.get("a", oracle.answer)) for _ in range(5)]
            await asyncio.sleep(0)
            oracle.open.set()
        assert {task.result() for task in tasks} == {1}
        now = 9.0
        assert await kept.get("a", oracle.answer) == 1
        now = 10.0
        assert await kept.get("a", oracle.answer) == 2

    asyncio.run(main())


def test_a_failure_is_told_to_all_who_waited_and_is_not_kept() -> None:
    async def main() -> None:
        oracle, kept = Oracle(), ExpiringCache[str, int](lambda value: 10.0)
        oracle.error = Unreachable("nobody answers")
        oracle.open.set()
        found = await asyncio.gather(*(kept.get("a", oracle.answer) for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in found] == [Unreachable] * 3
        oracle.error = None
        assert await kept.get("a", oracle.answer) == oracle.asked

    asyncio.run(main())


def test_who_waits_asks_again_when_the_one_who_asked_goes_away() -> None:
    async def main() -> None:
        oracle, kept = Oracle(), ExpiringCache[str, int](lambda value: 10.0)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(kept.get("a", oracle.answer))
            second = group.create_task(kept.get("a", oracle.answer))
            await asyncio.sleep(0)
            first.cancel()
            oracle.open.set()
        assert second.result() == 2
        with pytest.raises(asyncio.CancelledError):
            first.result()

    asyncio.run(main())


def test_no_more_is_kept_than_there_is_room_for() -> None:
    async def main() -> None:
        oracle, kept = Oracle(), ExpiringCache[int, int](lambda value: 10.0, size=3)
        oracle.open.set()
        for number in range(5):
            await kept.get(number, oracle.answer)
        assert len(kept) == 3
        assert await kept.get(4, oracle.answer) == 5
        assert await kept.get(0, oracle.answer) == 6

    asyncio.run(main())
