"""kill -9 of the controller and of an agent while a Sandbox is deployed, and while it is removed.

Each time it is deployed in the end, with all hosts that reach each other as declared, and of a removed one nothing
remains. `netloom doctor` finds nothing after all of it. Rounds: NETLOOM_TEST_KILLS.
"""

import itertools
import logging
import os
import time
from random import Random

import pytest

from netloom.lab import Lab
from tests.lab import labs
from tests.lab.resting import healthy
from tests.lab.test_sandbox import ADDRESSES, TOPOLOGY, Range, spaces, traces
from tests.lab.worlds import World
from tests.support.process import wait_until

ROUNDS = int(os.environ.get("NETLOOM_TEST_KILLS", "3"))
pytestmark = [
    pytest.mark.lab,
    pytest.mark.ovn,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(300 + 60 * ROUNDS),
]

CONTROLLER, AGENTS = "serve", ("agent-n1", "agent-n2", "agent-n3")
LONGEST = 0.6
"""The kills come at most so long after the change, in seconds: about as long as that takes when nothing is killed."""
UNREACHABLE = {"home", "vault"}

log = logging.getLogger(__name__)


def test_whatever_is_killed_a_sandbox_is_deployed_whole_and_removed_without_a_trace(lab: Lab) -> None:
    random = Random(ROUNDS)
    for number in range(ROUNDS):
        _deploy_and_remove(Range(World(lab, "killed"), f"r{lab.layout.id}k{number}"), random)
    healthy(lab)


def _deploy_and_remove(made: Range, random: Random) -> None:
    lab = made.world.lab
    # The controller places the hosts, on all nodes.
    made.world.put("Sandbox", made.name, {"run": True, "topology": TOPOLOGY})
    _kill(lab, random)
    wait_until(made.world.is_answered, what="the API server")
    made.ready()
    for host, peer in itertools.permutations(ADDRESSES, 2):
        if {host, peer} != UNREACHABLE:
            made.reaches(host, ADDRESSES[peer])
    assert not made.ping("home", ADDRESSES["vault"])
    made.world.cli("delete", f"sandbox/{made.name}", "--no-wait")
    _kill(lab, random)
    wait_until(made.world.is_answered, what="the API server")
    wait_until(lambda: not _objects(made), what=f"the objects of {made.name} to go")
    wait_until(lambda: spaces(made.name) == [], what="the namespaces to go")
    wait_until(lambda: not traces(lab, made.name), what="the rows to go")


def _kill(lab: Lab, random: Random) -> None:
    """Kill the controller and an agent, each some time from now, and return when both run again."""
    times = sorted((random.uniform(0, LONGEST), name) for name in (CONTROLLER, random.choice(AGENTS)))
    before: dict[str, int] = {}
    begun = time.monotonic()
    for at, name in times:
        time.sleep(max(0.0, begun + at - time.monotonic()))
        before[name] = lab.kill(name)
        log.info("%s was killed", name)
    for name, pid in before.items():
        wait_until(
            lambda: lab.pid(name) not in (0, pid) and labs.is_ready(lab, name),  # noqa: B023
            what=f"{name} to be back",
        )


def _objects(made: Range) -> bool:
    kinds = "sandboxes,networks,subnets,routers,networkattachments,securityprofiles,shapings,mirrors,iplocks"
    return made.name in made.world.cli("get", kinds, "-o", "yaml").out
