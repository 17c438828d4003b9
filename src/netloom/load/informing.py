"""Whether every simulated agent knows what concerns it, and since when.

An agent is concerned by an attachment when it has one itself in the same Network. The driver knows which attachments
are alive, and so what each agent must know; the agents say what they do know; when nothing moves the two are the same.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence

from netloom.errors import TimedOut
from netloom.load.agents import Knowledge, digest
from netloom.load.crowd import Report, Worker
from netloom.load.records import Life, Outcome

ASK_SECONDS = 0.25


def expected(namespace: str, lives: Iterable[Life]) -> dict[str, dict[str, Knowledge]]:
    """Return what each agent must know of each Network when these attachments are alive."""
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
    """Return which agents know something else than they should, and of which Network."""
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


async def everybody(
    workers: Sequence[Worker], wanted: dict[str, dict[str, Knowledge]], *, seconds: float
) -> Sequence[Report]:
    """Return what the agents say once all of them know what they should; `TimedOut` if that takes too long."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        reports = await asyncio.gather(*(worker.report() for worker in workers))
        wrong = differences(wanted, reports)
        if not wrong:
            return reports
        if asyncio.get_running_loop().time() > deadline:
            raise TimedOut(f"{len(wrong)} are not informed after {seconds:g} s: {'; '.join(wrong[:3])}, …")
        await asyncio.sleep(ASK_SECONDS)


def note(outcome: Outcome, reports: Sequence[Report]) -> None:
    """Put into a run's records when the last agent was told of each attachment, and what the agents cost."""
    last: dict[str, float] = {}
    for report in reports:
        for uid, at in report.informed.items():
            last[uid] = max(at, last.get(uid, at))
    for life in outcome.lives:
        life.informed = last.get(life.uid, life.informed)
    outcome.notes |= {
        "agents": sum(report.agents for report in reports),
        "agents told": sum(report.times for report in reports),
        "agents received, MB": sum(report.received for report in reports) / 1e6,
        "agents' memory, MB": sum(report.resident for report in reports) / 1e6,
        "agents' processor time, s": sum(report.cpu for report in reports),
        "agents' descriptors": sum(report.connections for report in reports),
    }
