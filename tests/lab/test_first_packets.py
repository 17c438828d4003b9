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

pytestmark = [pytest.mark.lab, pytest.mark.ovn, pytest.mark.root, pytest.mark.timeout(240)]

LABS = int(os.environ.get("NETLOOM_TEST_FIRST_PACKETS", "1"))
AT_ONCE = os.environ.get("NETLOOM_TEST_FIRST_PACKETS_AT_ONCE", "") == "1"
"""Whether the packet is sent without waiting until the sender's node knows of the other port."""
BLOCKS = {4: ("10.71.0.0/24", "10.71.0."), 6: ("fd71::/64", "fd71::")}
# No two pairs share both nodes, so no pair finds neighbours that another one's packets made known.
PAIRS = dict(
    zip(product(("ovn", "vxlan"), BLOCKS), (("n1", "n2"), ("n3", "n4"), ("n1", "n3"), ("n2", "n4")), strict=True)
)


def known(world: World, fabric: str, nodes: tuple[str, str]) -> None:
    """Return when both nodes know both ports.  A port is Ready on its own node, and known elsewhere moments later."""
    if fabric == "ovn":
        world.lab.exec("central", ["ovn-nbctl", "--timeout=60", "--wait=hv", "sync"])
        return

    def has_flow(here: str, mac: str) -> bool:
        dump = ["ovs-ofctl", "-O", "OpenFlow14", "dump-flows", "br-vxlan", f"dl_dst={mac}"]
        return mac in world.lab.exec(here, dump).stdout

    for here, there in permutations(nodes):
        mac = world.get("networkattachment", there)["status"]["mac"]
        wait_until(partial(has_flow, here, mac), what=f"{here} to know {there}")


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
        if not AT_ONCE:
            known(world, fabric, nodes)
        found[fabric, family] = world.ping(f"on-{nodes[0]}", f"{prefix}12")
        world.end()
    return found


@pytest.mark.parametrize("number", range(LABS))
def test_the_first_packet_after_ready_arrives(number: int) -> None:
    with labs.running(nodes=4) as lab:
        assert first_packets(lab) == dict.fromkeys(PAIRS, True)
