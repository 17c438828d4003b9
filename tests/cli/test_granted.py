"""What the doctor and others leave alone because a node's operator, or an administrator, does not grant it."""

import pytest

from netloom.diagnose import snapshot
from netloom.diagnose.node.inspection import plans_of, undecided
from netloom.model.kinds.networks import Network
from netloom.plan.node.grants import EVERYTHING
from netloom.plan.node.ports import Host
from tests.plan.planning import resources

PORT = """
{kind: Network, metadata: {name: red}, spec: {}, status: {vni: 10}}
---
kind: NetworkAttachment
metadata: {name: a, uid: u-a, generation: 2}
spec: {node: n1, network: red, port: {type: internal, name: docker0}}
status: {ips: [10.1.0.2/24], mac: "06:01:00:02:00:0a", conditions: [{type: Addressed, status: "True"}%s]}
"""
OUTSIDE = """
kind: Network
metadata: {name: outside, generation: 2}
spec: {provider: {physicalNetwork: p}}
status: {vni: 10, conditions: [%s]}
"""


@pytest.mark.parametrize(
    ("plugged", "planned", "judged"),
    [
        ("", True, False),
        (', {type: Plugged, status: "True", reason: Plugged, observedGeneration: 2}', True, True),
        (', {type: Plugged, status: "True", reason: Plugged, observedGeneration: 1}', True, False),
        (', {type: Plugged, status: "False", reason: NotGranted, observedGeneration: 2}', False, True),
    ],
)
def test_a_port_that_its_node_refuses_is_not_planned_and_one_not_looked_at_is_not_mended(
    plugged: str, planned: bool, judged: bool
) -> None:
    every = resources(PORT % plugged)
    plans, waiting = plans_of(every, "n1", Host(grants=EVERYTHING))
    assert (("default", "a") in plans, bool(waiting)) == (planned, not planned)
    assert (undecided(every) == set()) is judged


@pytest.mark.parametrize(
    ("ready", "said", "mended"),
    [
        ("", None, False),
        ('{type: Ready, status: "True", reason: VNIAssigned, observedGeneration: 2}', "", True),
        ('{type: Ready, status: "True", reason: VNIAssigned, observedGeneration: 1}', None, False),
        ('{type: Ready, status: "False", reason: NotGranted, message: never, observedGeneration: 2}', "never", False),
    ],
)
def test_a_network_is_mended_in_ovn_only_if_the_controllers_grant_it(
    ready: str, said: str | None, mended: bool
) -> None:
    every = resources(OUTSIDE % ready)
    (network,) = snapshot.of_type(every, Network)
    assert snapshot.provider_refusal(network) == said
    strict = snapshot.planned(every, snapshot.refusals(every, undecided=snapshot.UNDECIDED)).desired
    assert bool(strict.rows) is mended
    assert bool(snapshot.planned(every).desired.rows) is (said != "never")
