"""Turns: callers have equal shares of the server, whatever they ask for."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from netloom.errors import TooLarge, TooManyRequests
from netloom.front.api.http.fair_queue import Turn, Turns
from netloom.front.api.http.limits import Limits
from tests.front.serving import Serving, network, path, serving


def spend(turns: Turns, spent: list[float]) -> Callable[[Turn, float], Awaitable[None]]:
    """Return requests that use time of a clock which only they move."""

    async def request(turn: Turn, seconds: float) -> None:
        async def work() -> None:
            spent[0] += seconds

        await turn.take()
        await turn.metered(work())

    return request


def test_callers_have_equal_shares_whatever_they_ask_for() -> None:
    async def main() -> Counter[str]:
        spent = [0.0]
        turns = Turns(clock=lambda: spent[0])
        request = spend(turns, spent)
        used: Counter[str] = Counter()

        async def caller(name: str, cost: float, at_once: int) -> None:
            async def one() -> None:
                while spent[0] < 10.0:
                    await request(Turn(turns, turns.flow(name)), cost)
                    used[name] += round(cost * 1000)

            await asyncio.gather(*(one() for _ in range(at_once)))

        await asyncio.gather(caller("modest", 0.001, 1), caller("many", 0.001, 50), caller("dear", 0.1, 10))
        return used

    used = asyncio.run(main())
    assert all(2_500 < used[name] < 5_000 for name in ("modest", "many", "dear")), used


def test_a_caller_who_comes_back_neither_owes_nor_has_credit() -> None:
    async def main() -> None:
        spent = [0.0]
        turns = Turns(clock=lambda: spent[0])
        request = spend(turns, spent)
        busy = turns.flow("busy")
        await request(Turn(turns, turns.flow("idle")), 0.001)
        for _ in range(100):
            await request(Turn(turns, busy), 0.1)
            await asyncio.sleep(0)
        idle = turns.flow("idle")
        await request(Turn(turns, idle), 0.001)
        assert idle.used > busy.used - 0.2

    asyncio.run(main())


def test_a_request_that_is_given_up_while_it_waits_takes_no_turn() -> None:
    async def main() -> None:
        turns = Turns()
        flow = turns.flow("a")
        waiting = [asyncio.create_task(turns.take(flow)) for _ in range(5)]
        await asyncio.sleep(0)
        for task in waiting[1:4]:
            task.cancel()
        await asyncio.wait(waiting, timeout=120)
        assert [task.cancelled() for task in waiting] == [False, True, True, True, False]
        assert not flow.waiting

    asyncio.run(main())


def test_flows_are_forgotten() -> None:
    turns = Turns()
    for number in range(20_000):
        turns.flow(number)
    assert len(turns) <= 4096


def test_unknown_tokens_wait_together(server: Serving) -> None:
    for number in range(50):
        assert server.get(path("networks"), who=f"guess{number}").code == 401
    assert server.get(path("networks"), who="viewer").code == 200
    assert len(server.api.turns) <= 4


def test_the_bodies_of_one_caller_are_bounded_together() -> None:
    turns = Turns(most_held=100)
    first, second = Turn(turns, turns.flow("a")), Turn(turns, turns.flow("a"))
    first.hold(80)
    with pytest.raises(TooManyRequests):
        second.hold(30)
    Turn(turns, turns.flow("b")).hold(100)
    first.release()
    second.hold(30)


def test_too_many_large_requests_at_once_are_refused(credentials: Path) -> None:
    with serving(credentials, limits=Limits(bodies_per_identity=50_000)) as server:
        body = network()
        body["metadata"]["annotations"] = {"a": "x" * 60_000}
        answer = server.post(path("networks"), body)
        assert (answer.code, answer.headers["Retry-After"]) == (429, "1")
        assert server.post(path("networks"), network()).code == 201


def test_work_is_charged_though_it_fails_or_is_cancelled() -> None:
    async def main() -> None:
        turns = Turns(clock=time.perf_counter)
        turn = Turn(turns, turns.flow("a"))

        async def failing() -> None:
            await asyncio.sleep(0)
            raise TooLarge("no")

        with pytest.raises(TooLarge):
            await turn.metered(failing())
        task = asyncio.create_task(_awaited(turn, asyncio.sleep(60)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert turn.flow.used > 0

    asyncio.run(main())


async def _awaited(turn: Turn, work: Any) -> None:
    await turn.metered(work)


@pytest.mark.parametrize("form", ["application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io"])
def test_others_are_answered_while_a_large_list_is_made(server: Serving, form: str) -> None:
    """The list is made in steps: between two of them a request of another caller is served."""
    for i in range(60):
        body = network(f"n{i:02}")
        body["metadata"]["annotations"] = {"text": "x" * 20_000}
        assert server.post(path("networks"), body).code == 201
    seen: Counter[str] = Counter()
    take = Turns.take

    async def counted(self: Turns, flow: Any) -> None:
        seen["turns"] += 1
        await take(self, flow)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Turns, "take", counted)
        assert server.get(path("networks"), Accept=form).code == 200
    assert seen["turns"] > 8
