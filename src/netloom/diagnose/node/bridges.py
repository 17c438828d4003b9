"""The bridges of a node's linux Networks, checked from outside its agent.

The VXLAN ports that each should have are computed again, from all resources. Only `repair` writes.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from netloom.diagnose.snapshot import of_type
from netloom.drivers.vswitch.driver import Vswitch
from netloom.drivers.vswitch.network_bridges import NetworkBridges
from netloom.model.document import Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Fabric
from netloom.plan import names
from netloom.plan.audit.finding import Check, Finding
from netloom.plan.audit.ovn import NODE
from netloom.plan.node.bridges import plan_tunnels
from netloom.plan.node.ports import PortPlan

Plans = Mapping[tuple[str, str], PortPlan]


class Bridge(Struct, frozen=True):
    """A bridge that a node should have."""

    network: tuple[str, str]
    tunnels: dict[str, dict[str, str]]


def plan(resources: Iterable[Resource], node: str, plans: Plans) -> dict[int, Bridge]:
    """Return the bridges of a node's linux Networks, by VNI."""
    resources = list(resources)
    underlay = next((one.spec.underlay_ip for one in of_type(resources, Node) if one.metadata.name == node), "")
    attachments = of_type(resources, NetworkAttachment)
    found: dict[int, Bridge] = {}
    for one in attachments:
        network = one.metadata.namespace, one.spec.network
        port = plans.get((one.metadata.namespace, one.metadata.name))
        if port is None or port.fabric is not Fabric.LINUX or one.spec.node != node or port.vni in found:
            continue
        inside = [other for other in attachments if (other.metadata.namespace, other.spec.network) == network]
        others = [other for other in inside if other.spec.node != node]
        found[port.vni] = Bridge(network, plan_tunnels(port.vni, underlay, others))
    return found


def findings(switch: Vswitch, node: str, wanted: Mapping[int, Bridge]) -> list[Finding]:
    """Return the VXLAN ports that bridges lack, and those that they should not have."""
    bridges = NetworkBridges(switch, datapath="")
    found = []
    for vni, bridge in sorted(wanted.items()):
        seen = bridges.tunnels(vni)
        wrong = sorted(name for name, options in bridge.tunnels.items() if seen.get(name) != options)
        more = sorted(seen.keys() - bridge.tunnels.keys())
        if wrong or more:
            said = [*(f"{name} is missing or wrong" for name in wrong), *(f"{name} is superfluous" for name in more)]
            text = f"bridge {names.bridge(vni)} of Network {'/'.join(bridge.network)}: {'; '.join(said[:3])}"
            found.append(Finding(Check.WRONG_BRIDGE, NODE, "", node, text, names.bridge(vni)))
    return found


async def repair(switch: Vswitch, wanted: Mapping[int, Bridge]) -> None:
    """Make the VXLAN ports of all bridges those that they should have."""
    bridges = NetworkBridges(switch, datapath=switch.datapath("netdev"))
    for vni, bridge in wanted.items():
        await bridges.connect(vni, bridge.network, bridge.tunnels)
