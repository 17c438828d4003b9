"""Ready means that the first packet arrives: in a lab that has carried none, on each fabric, over IPv4 and IPv6."""

import json
import os
from itertools import product

import pytest

from netloom.lab import Lab
from tests.lab import labs
from tests.lab.worlds import World, document

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root, pytest.mark.timeout(240)]

LABS = int(os.environ.get("NETLOOM_TEST_FIRST_PACKETS", "2"))
BLOCKS = {4: ("10.71.0.0/24", "10.71.0."), 6: ("fd71::/64", "fd71::")}
# No two pairs share both nodes, so no pair finds neighbours that another one's packets made known.
PAIRS = dict(
    zip(product(("ovn", "vxlan"), BLOCKS), (("n1", "n2"), ("n3", "n4"), ("n1", "n3"), ("n2", "n4")), strict=True)
)


def first_packets(lab: Lab) -> dict[tuple[str, int], bool]:
    """Return for each fabric and family whether the very first packet between two nodes is answered."""
    found = {}
    for (fabric, family), nodes in PAIRS.items():
        world = World(lab, f"first-{fabric}-{family}")
        cidr, prefix = BLOCKS[family]
        objects = [
            document("Network", "lan", {"fabric": fabric}),
            document("Subnet", "lan", {"network": "lan", "cidr": cidr}),
            *(
                document(
                    "NetworkAttachment",
                    node,
                    {
                        "node": node,
                        "network": "lan",
                        "ips": [f"{prefix}{number}"],
                        "port": {"type": "veth", "netns": f"/run/netns/on-{node}", "name": "eth0"},
                    },
                )
                for number, node in enumerate(nodes, 11)
            ),
        ]
        text = "\n---\n".join(map(json.dumps, objects))
        world.apply(text)
        world.ready(text)
        found[fabric, family] = world.ping(f"on-{nodes[0]}", f"{prefix}12")
        world.end()
    return found


@pytest.mark.parametrize("number", range(LABS))
def test_the_first_packet_after_ready_arrives(number: int) -> None:
    with labs.running(nodes=4) as lab:
        assert first_packets(lab) == dict.fromkeys(PAIRS, True)
