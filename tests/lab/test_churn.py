"""A northbound of three servers loses its leader, and is compacted, while requests come all the time: none is lost.

What is lost would show: after the churn everything that the API has must be Ready, answer, and be in OVN as planned,
which is what `netloom doctor` compares; and nothing else may be there.
"""

from collections.abc import Iterator

import pytest

from netloom.lab import Lab
from tests.lab import labs
from tests.lab.churning import Churn, churning
from tests.lab.resting import at_rest, healthy
from tests.support.process import wait_until

pytestmark = [
    pytest.mark.lab,
    pytest.mark.ovn,
    pytest.mark.root,
    pytest.mark.slow,
]

DATABASES = {"nb": "OVN_Northbound", "sb": "OVN_Southbound"}
SERVERS = ("", "-2", "-3")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Lab]:
    """Two nodes and a cluster of three."""
    with labs.running(nodes=2, ovn=3) as running:
        yield running


@pytest.mark.parametrize("database", DATABASES)
def test_a_cluster_loses_its_leader_and_nobodys_wish_is_lost(cluster: Lab, database: str) -> None:
    with churning(cluster) as churn:
        churn.more(20)
        for _ in range(2):
            labs.killed_comes_back(cluster, _leader(cluster, database))
            churn.more(20)
        _settled(cluster, churn)


def test_a_northbound_that_is_compacted_costs_nothing(cluster: Lab) -> None:
    with churning(cluster) as churn:
        for _ in range(3):
            churn.more(10)
            for database, schema in DATABASES.items():
                for server in SERVERS:
                    _ask(cluster, f"{database}{server}", "ovsdb-server/compact", schema, check=True)
        _settled(cluster, churn)


def _settled(cluster: Lab, churn: Churn) -> None:
    churn.stop()
    assert not churn.problems, churn.problems
    at_rest(cluster, churn)
    churn.clear()
    healthy(cluster)


def _leader(cluster: Lab, database: str) -> str:
    def found() -> str:
        for server in SERVERS:
            if "Role: leader" in _ask(cluster, f"{database}{server}", "cluster/status", DATABASES[database]):
                return f"ovn-{database}{server}"
        return ""

    return wait_until(found, what="a leader", interval=0.2)


def _ask(cluster: Lab, server: str, *command: str, check: bool = False) -> str:
    argv = ["ovs-appctl", "-t", str(cluster.layout.ovn / f"{server}.ctl"), *command]
    return cluster.exec("central", argv, check=check).stdout
