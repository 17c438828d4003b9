"""A Sandbox with a way out: who may use it does, who may not does not, and nothing enters."""

import json
from copy import deepcopy

import pytest

from netloom.lab import Lab, probes
from tests.lab.test_sandbox import ADDRESSES, PLACEMENT, TOPOLOGY, Range
from tests.lab.test_sandbox_verify import verified
from tests.lab.worlds import document, world
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

OUTSIDE = "198.51.100.1"
GATEWAY = {"network": "world", "ips": ["192.0.2.91/24"], "nextHop": "192.0.2.1", "nodes": ["n2", "n1"]}


def test_hosts_reach_the_outside_through_man_unless_they_must_not(lab: Lab) -> None:
    name = f"r{lab.layout.id}-out"
    topology = deepcopy(TOPOLOGY)
    spec = {"run": True, "placement": PLACEMENT, "topology": topology, "gateway": GATEWAY}
    provider = document("Network", "world", {"provider": {"physicalNetwork": "physnet1"}})
    # The world is of the test, and outlives the Sandbox.
    text = "\n---\n".join(json.dumps(one) for one in (provider, document("Sandbox", name, spec)))
    with world(lab, "way-out", text) as made:
        found = Range(made, name)
        wait_until(lambda: found.ping("desk", OUTSIDE), what="the outside to answer")
        wait_until(lambda: found.ping("home", OUTSIDE), what="the outside to answer to home")
        assert found.hops("home", OUTSIDE)[:2] == ["10.10.30.254", "100.100.100.1"]
        assert found.ping("server", ADDRESSES["home"])
        assert not found.ping("server", OUTSIDE), "its Internet is blocked"
        assert not found.ping("vault", OUTSIDE), "nothing enters its network through man, also no answer"
        assert not probes.ping(lab.netns("outside"), ADDRESSES["desk"])
        # The same by verify, which also sends packets as users do.
        code, told = verified(found, "--outside", OUTSIDE, "--as-users")
        assert code == 0, told["probes"]
        outside = {host: reaches for host, reaches in told["plan"]["outside"].items() if reaches}
        assert set(outside) == {"desk", "home"}
        rows = told["plan"]["matrix"].values()
        assert told["probes"]["reached"] == sum(value for row in rows for value in row.values()) + len(outside)
        assert told["probes"]["notes"] == []
        code, told = verified(found, "--outside", "192.0.2.250")
        assert (code, told["probes"]["notes"]) == (
            0,
            ["  outside: 192.0.2.250 answers nobody: name an address that does with --outside"],
        )
        found.put(topology)  # Without a gateway there is no way out.
        found.ready()
        wait_until(lambda: not found.ping("desk", OUTSIDE), what="the way out to be closed")
        found.reaches("home", ADDRESSES["desk"])
