"""kill -9 of agents, controller, kube-apiserver and ovn-controllers at random, while pods come and go on three nodes.

No address is ever of two pods. In the end every pod runs and answers, nothing is left of those that are gone, and
`netloom doctor` finds nothing. Kills: NETLOOM_TEST_KILLS.
"""

import logging
import os
import time
from random import Random

import pytest

from netloom.lab import Lab
from tests.lab import labs
from tests.lab.pod_churn import pods_churning
from tests.lab.resting import healthy
from tests.support.process import wait_until

KILLS = int(os.environ.get("NETLOOM_TEST_KILLS", "6"))
pytestmark = [
    pytest.mark.lab,
    pytest.mark.ovn,
    pytest.mark.root,
    pytest.mark.kube,
    pytest.mark.churn,
    pytest.mark.slow,
    pytest.mark.timeout(600 + 30 * KILLS),
]

OF_A_NODE = ("agent", "ovn-controller")
CENTRAL = ("controller", "kube-apiserver")
LONGEST = 2.0
"""Seconds between two kills, at most: so some processes are killed while others are not back yet."""
EACH = 2
"""Requests that are accepted between two kills, at least."""

log = logging.getLogger(__name__)


def test_whatever_is_killed_every_pod_gets_its_network_and_nothing_is_left(cluster: Lab) -> None:
    random = Random(KILLS)
    with pods_churning(cluster, "killed", seed=KILLS) as churn:
        for number, name in enumerate(_victims(cluster, random), 1):
            wait_until(lambda: cluster.pid(name), what=f"{name} to run")  # noqa: B023
            cluster.kill(name)
            log.info("%s: %s was killed", number, name)
            time.sleep(random.uniform(0, LONGEST))
            churn.more(EACH)
        churn.stop()
        log.info("%s", dict(churn.done))
        for name in {*CENTRAL, *_of_nodes(cluster)}:
            wait_until(lambda: labs.is_ready(cluster, name), what=f"{name} to be back")  # noqa: B023
        churn.settled()
        healthy(cluster)
        churn.clear()
        healthy(cluster)


def _victims(lab: Lab, random: Random) -> list[str]:
    """Return the processes to kill: first one of each kind, in any order."""
    first = [*CENTRAL, *(f"{program}-{random.choice(lab.nodes)}" for program in OF_A_NODE)]
    random.shuffle(first)
    every = [*CENTRAL, *_of_nodes(lab)]
    return [*first, *(random.choice(every) for _ in range(KILLS))][:KILLS]


def _of_nodes(lab: Lab) -> list[str]:
    return [f"{program}-{node}" for program in OF_A_NODE for node in lab.nodes]
