"""Every sample topology is deployed, on both backends, and each pair of hosts reaches each other as it declares."""

import json
from collections.abc import Iterator

import msgspec
import pytest

from netloom.lab import Lab
from netloom.lab.echoes import Pair, pings
from netloom.model.kinds.sandbox import Topology
from netloom.plan.linux.documents import plan_documents
from netloom.plan.sandbox.declared import Declared
from tests.lab.capturing import capturing
from tests.lab.test_mirrors import pings as pinged
from tests.lab.test_sandbox import Range, spaces
from tests.lab.worlds import World
from tests.model.topology.samples import FOLDER, TOPOLOGIES, sample
from tests.plan.test_sandbox import sandbox
from tests.support.bare_hosts import BareHost, bare_hosts
from tests.support.process import wait_until

NODES = {"n1": "192.0.2.1", "n2": "192.0.2.2"}


def declared(topology: Topology) -> Iterator[tuple[str, str, bool]]:
    """Yield each host, the address of another one, and whether it must answer."""
    known = Declared(topology)
    for host in known.links:
        for target in known.targets():
            if target.host != host:
                yield host, target.ip, known.must(host, target)


def topology_of(name: str) -> Topology:
    found = sample(TOPOLOGIES[name]).topology
    assert found is not None
    return found


@pytest.fixture(scope="module")
def deployed(lab: Lab) -> Iterator[dict[str, Range]]:
    """The samples, side by side."""
    made = World(lab, "samples")
    found = {name: Range(made, f"r{lab.layout.id}-{name}") for name in TOPOLOGIES}
    try:
        for name, one in found.items():
            path = str(FOLDER / TOPOLOGIES[name])
            made.cli("sandbox", "apply", path, "--name", one.name, "--run", "--no-wait")
        for one in found.values():
            one.ready()
        yield found
    finally:
        made.cli("delete", *(f"sandbox/{one.name}" for one in found.values()), check=False)
        for one in found.values():
            wait_until(lambda: spaces(one.name) == [], what="the namespaces to go", timeout=60)  # noqa: B023


@pytest.mark.lab
@pytest.mark.ovn
@pytest.mark.root
def test_each_pair_of_each_sample_reaches_as_declared_on_ovn(deployed: dict[str, Range]) -> None:
    pairs = {
        Pair(one.netns(host), ip): must
        for name, one in deployed.items()
        for host, ip, must in declared(topology_of(name))
    }
    wanted = {pair for pair, must in pairs.items() if must}
    assert len(wanted) > 20
    assert pings(wanted, rounds=30) == wanted
    assert pings(set(pairs) - wanted, rounds=2) == set()


@pytest.mark.lab
@pytest.mark.ovn
@pytest.mark.root
def test_what_a_router_receives_is_copied_to_a_host_on_another_node(deployed: dict[str, Range]) -> None:
    made = deployed["forwarding"]
    mirrors = json.loads(made.world.cli("get", "mirrors", "-o", "json").out)["items"]
    assert sorted("network" in one["spec"]["source"] for one in mirrors) == [False, True]
    assert any("tunnels" in one["status"] for one in mirrors)
    with capturing(made.netns("monitoring"), "eth1") as wire:
        # What monitoring itself asks the router is not of the other source, which is the server.
        for source, ip in (("monitoring", "10.10.20.6"), ("server", "10.10.20.5")):
            wait_until(
                lambda: made.ping(source, "10.10.20.1") and pinged(wire, ip, "10.10.20.1"),  # noqa: B023
                what=f"copies of what {source} sends to the router",
            )


HOPS = ["10.0.1.1", "100.64.0.2", "100.64.0.6", "10.0.3.2"]
"""From host1 of the sample `desired` to host2: each of the three networks on the way has a router."""


@pytest.mark.lab
@pytest.mark.ovn
@pytest.mark.root
def test_the_hops_of_a_legacy_file_are_those_that_a_trace_shows(deployed: dict[str, Range]) -> None:
    assert deployed["desired"].hops("host1", "10.0.3.2") == HOPS


@pytest.mark.root
def test_each_pair_of_each_sample_reaches_as_declared_on_linux() -> None:
    with bare_hosts(tuple(NODES)) as hosts:
        where: dict[tuple[str, str], BareHost] = {}
        used: set[int] = set()
        for name in TOPOLOGIES:
            value = sandbox(msgspec.to_builtins(topology_of(name)), name=name, run=True, backend="linux")
            plan = plan_documents(value, NODES, avoid=used)
            assert plan.problems == ()
            for node, document in plan.documents.items():
                _, result = hosts[node].apply("apply", plan.owner, document)
                assert result["result"] == "done", result
                used |= {one["vni"] for one in document["tunnels"]}
                where |= {(name, one["name"]): hosts[node] for one in document["namespaces"]}
        blocked = []
        for name in TOPOLOGIES:
            for host, ip, must in declared(topology_of(name)):
                space = f"{name}-{host}"
                here = where[name, space]
                if not must:
                    blocked.append((here, space, ip))
                    continue
                wait_until(lambda: here.pings(space, ip), what=f"{ip} to answer to {space}", timeout=60)  # noqa: B023
        for limit, hop in enumerate(HOPS, 1):
            argv = ("ping", "-n", "-c1", "-W2", "-t", str(limit), HOPS[-1])
            shown = where["desired", "desired-host1"].run(*argv, netns="desired-host1", check=False)
            assert f"rom {hop}" in shown
        assert blocked
        assert [ip for here, space, ip in blocked if here.pings(space, ip, "-W1")] == []
