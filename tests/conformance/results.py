"""Which tests of Kubernetes' suite are run, and what became of them: text in, values out."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

SELECTED = re.compile(r"^\[sig-network\] .*(\[Conformance\]|NetworkPolicy)")
SCTP = "[Feature:SCTPConnectivity]"
"""Part of the names of tests whose pods send SCTP."""
SERIAL = "[Serial]"
_LISTED = re.compile(r"^ +\S+:\d+: (.+)$", re.MULTILINE)
_PREFIX = "[It] "


class Outcome(Struct, frozen=True):
    """What became of a test."""

    state: str
    """passed, failed, or skipped: by the test itself."""
    message: str = ""


def selected(listed: str) -> list[str]:
    """Return the names of the tests of the network, from the output of `e2e.test --list-tests`."""
    return [name for name in _LISTED.findall(listed) if SELECTED.match(name)]


def exclusions(names: Iterable[str], *, sctp: bool) -> dict[str, str]:
    """Return the tests that cannot apply to a lab, and why; `sctp`: whether the kernel has it."""
    return {} if sctp else {name: "the kernel has no SCTP" for name in names if SCTP in name}


def focus(names: Iterable[str]) -> str:
    """Return the regular expression (Go's) that matches these tests and no other."""
    return "|".join(f" {re.escape(name)}$" for name in names)


def portions(names: Iterable[str], count: int) -> list[list[str]]:
    """Return the names in `count` parts that may run beside each other, and a last one of those that may not."""
    serial = [name for name in names if SERIAL in name]
    others = [name for name in names if SERIAL not in name]
    return [*(others[first::count] for first in range(count)), serial]


def outcomes(report: str, names: Iterable[str]) -> dict[str, Outcome]:
    """Return what became of the tests, by a report in JUnit's format; one that was not run is not in it."""
    wanted = set(names)
    found: dict[str, Outcome] = {}
    for case in ET.fromstring(report).iter("testcase"):
        name = case.get("name", "").removeprefix(_PREFIX)
        if name in wanted:
            found[name] = _outcome(case)
    return found


def summary(names: Sequence[str], found: Mapping[str, Outcome], excluded: Mapping[str, str]) -> str:
    """Return the counts, and all that did not pass by name."""
    lines = [f"excluded  {name}: {why}" for name, why in excluded.items()]
    run = [name for name in names if name not in excluded]
    passed = [name for name in run if name in found and found[name].state == "passed"]
    for name in run:
        if name not in passed:
            outcome = found.get(name, Outcome("failed", "it was not run to its end"))
            lines.append(f"{outcome.state:8}  {name}: {outcome.message}")
    rest = len(run) - len(passed)
    return "\n".join([*lines, f"{len(passed)} passed, {rest} failed, {len(excluded)} excluded"])


def has_passed(names: Iterable[str], found: Mapping[str, Outcome]) -> bool:
    """Whether every test passed."""
    return all(name in found and found[name].state == "passed" for name in names)


def _outcome(case: ET.Element) -> Outcome:
    for tag, state in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        element = case.find(tag)
        if element is not None:
            text = element.get("message") or element.text or ""
            return Outcome(state, " ".join(text.split())[:400])
    return Outcome("passed")
