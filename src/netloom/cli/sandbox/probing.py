"""Pings between all hosts of a Sandbox, compared with what its plan lets pass."""

import sys
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

import click
from msgspec import Struct, structs

from netloom.model.kinds.sandbox import Sandbox
from netloom.plan.sandbox.reachability import Difference, Kind, Verification

BLOCKED_ROUNDS = 3
"""How often a pair that must not reach is tried, after all others."""


class Pair(NamedTuple):
    """A network namespace, by its name, and the address to ping from it."""

    netns: str
    address: str


class Probes(Struct, frozen=True, kw_only=True):
    """What real packets showed."""

    reached: int = 0
    blocked: int = 0
    elsewhere: tuple[str, ...] = ()
    """Hosts whose network namespace is not known."""
    differences: tuple[Difference, ...] = ()


class Ask(Protocol):
    """Ping from network namespaces."""

    def __call__(self, pairs: Collection[Pair], rounds: int, on_answer: Callable[[int], object]) -> set[Pair]:
        """Return the pairs that answer within some rounds of a second each; `on_answer` is told how many more did."""


def probe(
    sandbox: Sandbox,
    plan: Verification,
    live: Verification,
    here: Mapping[str, str],
    rounds: int,
    *,
    ask: Ask,
    quiet: bool,
) -> Probes:
    """Ping every address from every host whose namespace is known, and compare the answers with the plan."""
    wanted: dict[bool, dict[Pair, tuple[str, str]]] = {True: {}, False: {}}
    wrong = {(one.source, one.target): one.kind is Kind.GAP for one in plan.differences}
    for host, netns in here.items():
        row = {**plan.matrix[host], **dict.fromkeys(live.strangers, False)}
        for target, reaches in row.items():
            declared = wrong.get((host, target), reaches)
            wanted[declared][Pair(netns, target.rpartition(" ")[2])] = host, target
    total = len(wanted[True]) + len(wanted[False])
    hidden = quiet or not sys.stderr.isatty()
    with click.progressbar(length=total, label="Probing", file=sys.stderr, hidden=hidden) as bar:
        good = ask(wanted[True], rounds, bar.update)
        # Afterwards, when everything is known everywhere: what does not answer now is blocked.
        bad = ask(wanted[False], BLOCKED_ROUNDS, lambda number: None)
        bar.update(total - len(good))
    answered = {wanted[True][pair] for pair in good} | {wanted[False][pair] for pair in bad}
    differences = [_leak(*wanted[False][pair], live) for pair in bad]
    differences += [
        structs.replace(one, reason="it answers a ping")
        for one in plan.differences
        if (one.entry, one.target) in answered
    ]
    differences += [_gap(*pair, live) for key, pair in wanted[True].items() if key not in good]
    return Probes(
        reached=len(good),
        blocked=len(wanted[False]) - len(bad),
        elsewhere=tuple(one.name for one in sandbox.spec.topology.hosts if one.name not in here),
        differences=tuple(sorted(differences)),
    )


def _leak(host: str, target: str, live: Verification) -> Difference:
    known = next((one for one in live.differences if (one.source, one.target) == (host, target)), None)
    path = known.path if known is not None else (host, target)
    return Difference(kind=Kind.LEAK, source=host, target=target, path=path, reason="it answers a ping")


def _gap(host: str, target: str, live: Verification) -> Difference:
    known = next((one for one in live.differences if (one.source, one.target) == (host, target)), None)
    path, reason = ((host, target), "it does not answer a ping") if known is None else (known.path, known.reason)
    return Difference(kind=Kind.GAP, source=host, target=target, path=path, reason=reason)
