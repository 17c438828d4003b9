"""Ready means that the first packet arrives: in a lab that has carried none, on each fabric, over IPv4 and IPv6."""

import json
import os
from functools import partial
from itertools import permutations, product

import pytest

from netloom.lab import Lab
from tests.lab import labs
from tests.lab.worlds import World, document
from tests.support.process import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root]

LABS = int(os.environ.get("NETLOOM_TEST_FIRST_PACKETS", "50"))
BLOCKS = {4: ("10.71.0.0/24", "10.71.0."), 6: ("fd71::/64", "fd71::")}
# No two pairs share both nodes, so no pair finds neighbours that another one's packets made known.
PAIRS = dict(
    zip(product(("ovn", "vxlan"), BLOCKS), (("n1", "n2"), ("n3", "n4"), ("n1", "n3"), ("n2", "n4")), strict=True)
)


def attached(world: World, fabric: str, family: int, nodes: tuple[str, str]) -> None:
    """Attach a machine on each of two nodes; return when both are Ready."""
    cidr, prefix = BLOCKS[family]
    objects = [
        document("Network", "lan", {"fabric": fabric}),
        document("Subnet", "lan", {"network": "lan", "cidr": cidr}),
    ]
    for number, node in enumerate(nodes, 11):
        port = {"type": "veth", "netns": f"/run/netns/on-{node}", "name": "eth0"}
        spec = {"node": node, "network": "lan", "ips": [f"{prefix}{number}"], "port": port}
        objects.append(document("NetworkAttachment", node, spec))
    text = "\n---\n".join(map(json.dumps, objects))
    world.apply(text)
    world.ready(text)


def first_packets(lab: Lab) -> dict[tuple[str, int], bool]:
    """Return for each fabric and family whether the very first packet between two nodes is answered."""
    found = {}
    for (fabric, family), nodes in PAIRS.items():
        world = World(lab, f"first-{fabric}-{family}")
        attached(world, fabric, family, nodes)
        found[fabric, family] = world.ping(f"on-{nodes[0]}", f"{BLOCKS[family][1]}12")
        world.end()
    return found


def has_neighbour(lab: Lab, node: str, ip: str) -> bool:
    return ip in lab.exec(node, ["ovs-appctl", "tnl/neigh/show"]).stdout


def neighbours_known(lab: Lab) -> None:
    """Return when the switch of each node has resolved the other nodes, to which nothing was sent."""
    for here, there in permutations(lab.layout.nodes, 2):
        wait_until(partial(has_neighbour, lab, here, lab.layout.underlay_ip(there)), what=f"{here} to know {there}")


def test_the_next_hops_of_ovns_tunnels_are_known_before_any_packet() -> None:
    with labs.running(nodes=2) as lab:
        neighbours_known(lab)


def test_the_next_hops_of_nodes_with_attachments_are_known_before_any_packet() -> None:
    with labs.running(nodes=2, ovn=0) as lab:
        world = World(lab, "first")
        attached(world, "vxlan", 4, ("n1", "n2"))
        neighbours_known(lab)
        world.end()


@pytest.mark.versions
@pytest.mark.parametrize("number", range(LABS))
def test_the_first_packet_after_ready_arrives(number: int) -> None:
    with labs.running(nodes=4) as lab:
        assert first_packets(lab) == dict.fromkeys(PAIRS, True)
