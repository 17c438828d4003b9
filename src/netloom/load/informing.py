"""Whether every simulated agent knows its relevant attachments, and since when.

An attachment is relevant to an agent that has one itself in the same Network. The driver knows which attachments exist,
and so what each agent must know; the agents report what they do know; when nothing changes the two must agree.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence

from netloom.errors import TimedOut
from netloom.load.agents import Knowledge, digest
from netloom.load.crowd import Report, Worker
from netloom.load.records import Life, RunResult

ASK_SECONDS = 0.25


def expected(namespace: str, lives: Iterable[Life]) -> dict[str, dict[str, Knowledge]]:
    """Return what each agent must know of each Network while these attachments exist."""
    networks: dict[str, list[Life]] = defaultdict(list)
    for life in lives:
        networks[life.network].append(life)
    found: dict[str, dict[str, Knowledge]] = defaultdict(dict)
    for network, members in networks.items():
        for node in {life.node for life in members}:
            others = digest(life.uid for life in members if life.node != node)
            found[node][f"{namespace}/{network}"] = others
    return found


def differences(wanted: dict[str, dict[str, Knowledge]], reports: Sequence[Report]) -> list[str]:
    """Return the agents whose knowledge differs, each with the Network."""
    known = {node: networks for report in reports for node, networks in report.knows.items()}
    wrong = []
    for node, networks in known.items():
        should = wanted.get(node, {})
        for network in sorted({*networks, *should}):
            if networks.get(network) != should.get(network):
                has, must = networks.get(network), should.get(network)
                counts = f"{has.count if has else 'nothing'} of {must.count if must else 'nothing'}"
                wrong.append(f"{node} knows {counts} in {network}")
    return wrong


async def wait_until_informed(
    workers: Sequence[Worker], wanted: dict[str, dict[str, Knowledge]], *, seconds: float
) -> Sequence[Report]:
    """Return the agents' reports once all of them know what they must; `TimedOut` if that takes too long."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        reports = await asyncio.gather(*(worker.report() for worker in workers))
        wrong = differences(wanted, reports)
        if not wrong:
            return reports
        if asyncio.get_running_loop().time() > deadline:
            raise TimedOut(f"{len(wrong)} agents are not up to date after {seconds:g} s: {'; '.join(wrong[:3])}, …")
        await asyncio.sleep(ASK_SECONDS)


def note(outcome: RunResult, reports: Sequence[Report]) -> None:
    """Add to a run's records when the last agent received each attachment, and the agents' costs."""
    last: dict[str, float] = {}
    for report in reports:
        for uid, at in report.informed.items():
            last[uid] = max(at, last.get(uid, at))
    for life in outcome.lives:
        life.informed = last.get(life.uid, life.informed)
    outcome.notes |= {
        "agents": sum(report.agents for report in reports),
        "events received by agents": sum(report.times for report in reports),
        "agents received, MB": sum(report.received for report in reports) / 1e6,
        "agents' memory, MB": sum(report.resident for report in reports) / 1e6,
        "agents' processor time, s": sum(report.cpu for report in reports),
        "agents' descriptors": sum(report.connections for report in reports),
    }
