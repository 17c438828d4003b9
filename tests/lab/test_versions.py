"""The lab's tests with other generations of OVS and OVN, and with several at once, as during an upgrade.

Debian 12 has OVN 23.03 and OVS 3.1, with which `make test` runs; tools/ovn-root makes folders with others. Each
case is a lab of its own, in which other tests of this folder are then run, as they are.

OVN is upgraded hosts first, then the central databases. The other way round is no case here: an ovn-controller of 23.03
does not understand what a northd of 25.03 or 26.03 writes, and packets stop.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from netloom.lab import Lab
from netloom.lab.daemons.databases import version
from tests.lab import labs
from tests.lab.resting import healthy
from tests.lab.worlds import MANIFESTS, Way, World
from tests.run.serving import environment

pytestmark = [
    pytest.mark.lab,
    pytest.mark.ovn,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.versions,
]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EARLIER, OLDEST, NEWER, NEWEST = "22.03", "23.03", "25.03", "26.03"
OPEN_VSWITCH = {EARLIER: "2.17", OLDEST: "3.1.", NEWER: "3.5.", NEWEST: "4.0."}
NODES = ("n1", "n2", "n3")

WHOLE = sorted(
    path.name for path in HERE.glob("test_*.py")
    if path.name not in ("test_versions.py", "test_ending.py", "test_input.py", "test_churn.py",
                         "test_vxlan.py", "test_hooks.py", "test_kubernetes.py", "test_kube.py", "test_kube_network.py",
                         "test_several_sites.py", "test_three_sites.py")
)  # fmt: skip
"""All tests that use the shared lab."""
WAYS = ["test_reach.py", "test_routers.py", "test_policies.py", "test_profiles.py", "test_balancers.py", "test_dhcp.py",
        "test_kills.py"]  # fmt: skip

EXTENDED = ["test_reach.py", "test_sites_ovn.py", "test_evpn_frr.py", "test_evpn_daemons.py"]


UPGRADED: list[Way] = [
    ("red-1", "10.81.0.12", "ping"),
    ("red-1", "fd81::13", "ping"),
    ("red-1", "10.82.0.12", "ping"),
    ("red-2", "198.51.100.1", "ping"),
    ("outside", "192.0.2.82", "ping"),
    ("red-1", "10.82.0.100", 80),
]


def everywhere(version: str) -> dict[str, str]:
    """Return a lab of one generation."""
    return dict.fromkeys(("central", *NODES), version)


@pytest.mark.parametrize("generation", [NEWER, NEWEST])
def test_another_generation_passes_the_tests_of_the_lab(generation: str) -> None:
    _try(everywhere(generation), WHOLE)


@pytest.mark.parametrize("file", EXTENDED)
def test_networks_are_extended_to_other_sites_with_ovn_of_22_03(file: str) -> None:
    _try(everywhere(EARLIER), [file])


@pytest.mark.parametrize(
    "generations",
    [
        pytest.param(dict.fromkeys(NODES, NEWER), id=NEWER),
        pytest.param({"n1": OLDEST, "n2": NEWER, "n3": NEWEST}, id="one-of-each"),
    ],
)
def test_the_fabric_without_ovn_passes_its_tests_on_other_generations_of_open_vswitch(
    generations: dict[str, str],
) -> None:
    with labs.running(nodes=len(NODES), ovn=0, roots=_roots(generations)) as lab:
        assert {node: version(lab.layout, node)[:4] for node in NODES} == {
            node: OPEN_VSWITCH[generation] for node, generation in generations.items()
        }
        _run(["test_vxlan.py"], NETLOOM_TEST_PLAIN_LAB=str(lab.layout.folder))


@pytest.mark.parametrize("generation", [NEWER, NEWEST])
def test_another_generation_of_frr_is_a_data_centre_as_well(generation: str) -> None:
    _run(["test_evpn_frr.py"], NETLOOM_TEST_FRR_ROOT=_root(generation))


@pytest.mark.parametrize(
    "generations",
    [
        pytest.param({**everywhere(OLDEST), "n1": NEWER, "n2": NEWEST}, id="some-hosts"),
        pytest.param({**everywhere(NEWEST), "central": OLDEST}, id="all-hosts"),
        pytest.param({**everywhere(NEWEST), "central": NEWER, "n1": NEWER}, id="central-follows"),
    ],
)
def test_generations_work_together_as_during_an_upgrade(generations: dict[str, str]) -> None:
    _try(generations, WAYS)


def test_a_lab_is_upgraded_with_its_data() -> None:
    text = (MANIFESTS / "faults.yaml").read_text()
    steps = [everywhere(OLDEST), {**everywhere(NEWER), "central": OLDEST}, everywhere(NEWER), everywhere(NEWEST)]
    with labs.folder() as data:
        for generations in steps:
            with Lab.up(data, nodes=len(NODES), outside=True, roots=_roots(generations)) as lab:
                faults = World(lab, "faults")
                # The namespaces of its machines went with the lab; applying the objects again changes nothing.
                assert "created" not in faults.apply(text).out or generations == everywhere(OLDEST)
                faults.ready(text)
                for name in ("blue-1", "blue-2"):
                    faults.listen(name, 8080)
                seen = faults.reaches(UPGRADED)
                faults.listeners.close()
                assert [way for way, answer in seen.items() if not answer] == [], generations
                healthy(lab)


def _try(generations: Mapping[str, str], files: list[str]) -> None:
    """Bring up a lab of these generations and run tests in it."""
    with labs.running(nodes=len(NODES), outside=True, roots=_roots(generations)) as lab:
        assert _versions(lab) == dict(generations)
        _run(files, NETLOOM_TEST_LAB=str(lab.layout.folder))


def _run(files: list[str], **variables: str) -> None:
    paths = [str(HERE / file) for file in files]
    argv = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-p", "no:randomly", *paths]
    env = environment(HOME=os.environ.get("HOME", "/root"), **variables)
    ended = subprocess.run(argv, capture_output=True, text=True, env=env, cwd=ROOT, timeout=800, check=False)
    assert ended.returncode == 0, ended.stdout[-20000:] + ended.stderr[-2000:]


def _roots(generations: Mapping[str, str]) -> dict[str, str]:
    return {place: _root(wanted) for place, wanted in generations.items() if wanted != OLDEST}


def _root(wanted: str) -> str:
    made = subprocess.run([ROOT / "tools" / "ovn-root", wanted], capture_output=True, text=True, check=True)
    return made.stdout.strip()


def _versions(lab: Lab) -> dict[str, str]:
    """Return which generation runs where, by what the programs say of themselves."""
    switches = {found: generation for generation, found in OPEN_VSWITCH.items()}
    seen = {"central": version(lab.layout, "central")[:5]}
    for node in NODES:
        seen[node] = switches[version(lab.layout, node)[:4]]
    return seen
