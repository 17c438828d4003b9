"""Programs at interfaces, on a node in memory: each runs once for its event, and what became of it is told."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from netloom.control.node.local_ports.hooks import CONCURRENT
from netloom.model.document import Document
from netloom.model.registry import EVENT, NETWORK_ATTACHMENT
from netloom.plan.node.hooks import INTERRUPTED, OVERDUE, REFUSED
from tests.control.host_world import World
from tests.control.test_host import SPACES, eventually, is_ready, with_agent

INTERNAL = {"type": "internal"}
NOTE = {"postCreateExec": ["/bin/note", "made", "${ifname}", "${ipv4}", "${mac}", "$HOME ${PATH}"]}


async def status(world: World, name: str) -> Document:
    found: Document = (await world.attachments())[name]["status"]
    return found


async def report(world: World, name: str) -> Document:
    """Return an attachment's report, once it has one."""
    await eventually(lambda: has_report(world, name), f"a report of {name}")
    found: Document = (await status(world, name))["postCreateExecReport"]
    return found


async def has_report(world: World, name: str) -> bool:
    return "postCreateExecReport" in await status(world, name)


async def events(world: World) -> list[tuple[str, str, str]]:
    """Return what people were told of programs: about what, the reason and the words."""
    page = await world.store.list(EVENT)
    found = [one.document() for one in page.items]
    return [
        (one["involvedObject"]["name"], one["reason"], one["message"])
        for one in found
        if one["reason"].startswith("Exec")
    ]


async def told(world: World, *wanted: tuple[str, str, str]) -> None:
    """Be there once exactly this was told."""

    async def so() -> bool:
        return sorted(await events(world)) == sorted(wanted)

    try:
        await eventually(so, "Events")
    except AssertionError as error:
        raise AssertionError(f"{error}: {await events(world)}") from None


def records(world: World) -> list[str]:
    """Return what is still to be run, or to be told, for interfaces that are gone."""
    ids = [dict(row["external_ids"][1]) for row in world.select("Bridge")]
    return [key for one in ids for key in one if key.startswith("netloom-after/")]


def test_a_program_runs_when_its_interface_works_with_its_variables_filled_in_and_is_reported() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("a", 9, INTERNAL, spec=NOTE)
        found = await report(world, "a")
        command = ["/bin/note", "made", "nl020000000009", "10.0.0.9", "02:00:00:00:00:09", "$HOME ${PATH}"]
        device = (await status(world, "a"))["ifcName"]
        assert world.programs.written == [("/bin/note", "made", device, *command[3:])]
        assert found["command"] == [*command[:2], device, *command[3:]]
        assert (found["exitStatus"], found["stdOut"]) == (0, "there\n")
        assert "T" in found["startTime"] < found["stopTime"]
        await told(world, ("a", "ExecSucceeded", "postCreateExec: /bin/note succeeded"))
        assert await is_ready(world)

    with_agent(main)


def test_a_program_that_is_not_allowed_is_not_run_and_its_interface_works() -> None:
    refusal = "{}: /bin/no is not among the programs this agent allows (--allowed-programs)"

    async def main(world: World, group: asyncio.TaskGroup) -> None:
        spec = {"postCreateExec": ["/bin/no", "x"], "postDeleteExec": ["/bin/no"]}
        await world.attach("a", 9, INTERNAL, spec=spec)
        await world.attach("b", 10, INTERNAL, spec={"postCreateExec": ["/bin/../bin/note"]})
        found = await report(world, "a")
        assert (found["exitStatus"], found["stdErr"]) == (REFUSED, refusal.format("postCreateExec"))
        assert (await report(world, "b"))["exitStatus"] == REFUSED
        lines = [refusal.format("postCreateExec"), refusal.format("postDeleteExec")]
        assert (await status(world, "a"))["errors"]["host"] == lines
        assert await is_ready(world)
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "b")
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "a")
        await eventually(lambda: not world.interfaces() and not records(world), "an end")
        other = refusal.format("postCreateExec").replace("/bin/no ", "/bin/../bin/note ")
        await told(world, ("a", "ExecRefused", lines[0]), ("a", "ExecRefused", lines[1]), ("b", "ExecRefused", other))
        assert world.programs.written == []

    with_agent(main)


def test_a_program_runs_when_its_interface_is_gone_not_before() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        spec = {"postDeleteExec": ["/bin/note", "gone", "${ifname}"]}
        for name, number, port in (("a", 9, INTERNAL), ("b", 10, {"type": "veth", "netns": SPACES[0], "name": "e"})):
            await world.attach(name, number, port, spec=spec)
        await eventually(lambda: is_ready(world), "Ready")
        devices = [(await status(world, name))["ifcName"] for name in "ab"]
        seen = watch(world, devices)
        for name in "ab":
            await world.store.delete(NETWORK_ATTACHMENT, "ns1", name)
        await told(world, *((name, "ExecSucceeded", "postDeleteExec: /bin/note succeeded") for name in "ab"))
        assert sorted(world.programs.written) == sorted(("/bin/note", "gone", device) for device in devices)
        assert seen == [False, False]
        await eventually(lambda: not records(world), "nothing to remember")

    with_agent(main)


def watch(world: World, devices: list[str]) -> list[bool]:
    """Return a list that is to say, of each program that runs, whether its device was there."""
    seen: list[bool] = []
    before = world.programs.run

    async def run(command: Any) -> Any:
        seen.append(command[-1] in world.machine.node)
        return await before(command)

    world.programs.run = run  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize(
    ("program", "reason", "words", "exit_status"),
    [
        ("/bin/fail", "ExecFailed", "ended with status 3", 3),
        ("/bin/hang", "ExecTimedOut", "did not end in time and was killed", OVERDUE),
    ],
)
def test_a_program_that_does_not_end_well_costs_its_interface_nothing(
    program: str, reason: str, words: str, exit_status: int
) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await world.attach("a", 9, INTERNAL, spec={"postCreateExec": [program], "postDeleteExec": [program]})
        assert (await report(world, "a"))["exitStatus"] == exit_status
        assert await is_ready(world)
        assert "errors" not in await status(world, "a")
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "a")
        await told(
            world,
            ("a", reason, f"postCreateExec: {program} {words}"),
            ("a", reason, f"postDeleteExec: {program} {words}"),
        )
        assert world.programs.written == [(program,)] * 2

    with_agent(main)


def test_slow_programs_hold_up_nobody_and_few_run_at_a_time() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        for at in range(30):
            await world.attach(f"a{at}", 10 + at, INTERNAL, spec={"postCreateExec": ["/bin/slow"]})
        await eventually(lambda: is_ready(world), "Ready")
        assert len(world.programs.written) <= CONCURRENT
        await world.attach("b", 9, INTERNAL)
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "a0")
        await eventually(lambda: is_ready(world), "Ready")
        assert len(world.programs.written) <= CONCURRENT
        for at in range(1, 30):
            await report(world, f"a{at}")
        assert world.programs.most == CONCURRENT

    with_agent(main)


async def _while_it_runs(world: World, then: Callable[[], Any]) -> None:
    await eventually(lambda: world.programs.running == 1, "the program")
    await world.kill()
    assert world.programs.running == 0
    then()


def test_an_agent_that_ends_ends_what_runs_and_the_next_one_says_so_and_does_not_run_it_again() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        slow = {"postCreateExec": ["/bin/slow", "made"], "postDeleteExec": ["/bin/slow", "gone"]}
        await world.attach("a", 9, INTERNAL, spec=slow)
        await _while_it_runs(world, lambda: world.start(group))
        found = await report(world, "a")
        assert (found["exitStatus"], found.get("stopTime", "")) == (INTERRUPTED, "")
        assert found["stdErr"] == "[interrupted: the agent ended while the program ran; it is not run again]"
        await world.store.delete(NETWORK_ATTACHMENT, "ns1", "a")
        await _while_it_runs(world, lambda: world.start(group))
        words = "was interrupted when the agent ended, and is not run again"
        await told(
            world,
            ("a", "ExecInterrupted", f"postCreateExec: /bin/slow {words}"),
            ("a", "ExecInterrupted", f"postDeleteExec: /bin/slow {words}"),
        )
        assert world.programs.written == [("/bin/slow", "made"), ("/bin/slow", "gone")]
        assert records(world) == []

    with_agent(main)


def test_what_had_not_begun_when_the_agent_ended_runs_when_the_next_one_is_there() -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        for at in range(CONCURRENT + 1):
            await world.attach(f"a{at}", 10 + at, INTERNAL, spec={"postCreateExec": ["/bin/slow", str(at)]})
        await eventually(lambda: is_ready(world), "Ready")
        await eventually(lambda: world.programs.running == CONCURRENT, "the programs")
        await world.kill()
        world.start(group)
        for at in range(CONCURRENT + 1):
            await report(world, f"a{at}")
        assert sorted(world.programs.written) == [("/bin/slow", str(at)) for at in range(CONCURRENT + 1)]

    with_agent(main)


async def churn(world: World, group: asyncio.TaskGroup) -> None:
    random = world.random
    living: set[str] = set()
    for at in range(2, 60):
        match random.choice(("attach", "attach", "attach", "detach", "kill", "crash", "cut")):
            case "attach":
                programs = [random.choice(("/bin/note", "/bin/fail", "/bin/slow")) for _ in range(2)]
                spec = {
                    "postCreateExec": [programs[0], "made", f"a{at}"],
                    "postDeleteExec": [programs[1], "gone", f"a{at}"],
                }
                veth = {"type": "veth", "netns": random.choice(SPACES), "name": f"e{at}"}
                await world.attach(f"a{at}", at, random.choice((INTERNAL, veth)), spec=spec)
                living.add(f"a{at}")
            case "detach" if living:
                name = random.choice(sorted(living))
                living.remove(name)
                await world.store.delete(NETWORK_ATTACHMENT, "ns1", name)
            case "kill":
                await world.kill()
                await asyncio.sleep(random.choice((0, 2)))
                world.start(group)
            case "crash":
                world.crash_switch()
            case "cut":
                world.cut()
        await asyncio.sleep(random.choice((0, 0.01, 0.1, 5)))


@pytest.mark.parametrize("seed", range(12))
def test_whatever_dies_and_comes_back_no_program_runs_twice_and_none_is_forgotten(seed: int) -> None:
    async def main(world: World, group: asyncio.TaskGroup) -> None:
        await churn(world, group)
        await eventually(lambda: is_ready(world), "all Ready")
        for name in await world.attachments():
            await report(world, name)
        await eventually(lambda: not records(world) and not world.programs.running, "rest")
        await asyncio.sleep(60)
        runs = [(what, name) for _, what, name in world.programs.written]
        assert len(runs) == len(set(runs))
        interrupted = {
            ("made" if "postCreate" in message else "gone", name)
            for name, reason, message in await events(world)
            if reason == "ExecInterrupted"
        }
        there = await world.attachments()
        known = set(runs) | interrupted
        assert {("made", name) for name in there} <= known
        # One that went may never have been made; one that was made, and is gone, has been seen to.
        assert {name for what, name in runs if what == "made"} - there.keys() <= {
            name for what, name in known if what == "gone"
        }

    with_agent(main, seed)
