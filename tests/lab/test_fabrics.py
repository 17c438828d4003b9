"""One manifest, two fabrics: the same machines reach each other over OVN and over VXLAN."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations, product

import pytest

from netloom.lab import Lab
from tests.lab.worlds import MANIFESTS, Way, World

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

MACHINES = {"web": 11, "spare": 12, "client": 13, "banned": 14, "quiet": 15, "shut": 16}
TWINS = {"twin-1": 11, "twin-3": 13}
WEB = {"web", "spare"}
HOW: dict[str, tuple[int | str, ...]] = {"10.68.0.": ("ping", 80, "udp/53"), "fd68::": ("ping", 80)}


def reached(who: str, whom: str, how: int | str, block: str) -> bool:
    """Whether the manifest lets one reach another."""
    if who == "quiet" and how == "ping":
        return False
    if who == "quiet" and how == 80 and whom not in WEB:
        return False
    if whom not in WEB:
        return whom != "shut"
    if who == "banned" or how == "udp/53":
        return False
    if how == "ping":
        return not (who == "client" and block == "10.68.0.")
    return who in {"client", "quiet", *WEB}


def ways() -> tuple[list[Way], list[Way]]:
    """Return the ways that lead somewhere, and those that do not."""
    open_: list[Way] = [("twin-1", "10.68.0.13", how) for how in HOW["10.68.0."]]
    shut: list[Way] = [(who, f"10.68.0.{last}", "ping") for who, last in product(TWINS, (12, 14, 15, 16))]
    for (who, whom), block in product(permutations(MACHINES, 2), HOW):
        for how in HOW[block]:
            way = who, f"{block}{MACHINES[whom]}", how
            (open_ if reached(who, whom, how, block) else shut).append(way)
    return open_, shut


@contextmanager
def carried(lab: Lab, fabric: str) -> Iterator[World]:
    """Yield the world of the manifest on a fabric, with all machines listening."""
    made = World(lab, f"fabrics-{fabric}")
    try:
        text = (MANIFESTS / "fabrics.yaml").read_text().replace("FABRIC", fabric)
        made.apply(text)
        made.ready(text)
        for name in (*MACHINES, *TWINS):
            made.listen(name, 80, "udp/53")
        yield made
    finally:
        made.end()


def matrix(made: World) -> dict[Way, str]:
    """Return who answers on each way; what is open is waited for, and then what is not is tried."""
    open_, shut = ways()
    return made.reaches(open_) | made.tries(shut)


def test_the_same_wishes_reach_the_same_whether_ovn_or_vxlan_carries_them(lab: Lab) -> None:
    found: dict[str, dict[Way, str]] = {}
    for fabric in ("ovn", "vxlan"):
        with carried(lab, fabric) as made:
            found[fabric] = matrix(made)
    assert found["vxlan"] == found["ovn"]
    open_, _ = ways()
    assert {way for way, answer in found["vxlan"].items() if answer} == set(open_)
    names = {number: name for name, number in MACHINES.items()}
    for (who, address, how), answer in found["vxlan"].items():
        whom = "twin-3" if who in TWINS else names[int(address[-2:])]
        assert how == "ping" or not answer or answer.split()[0] == whom, (who, address, how)
