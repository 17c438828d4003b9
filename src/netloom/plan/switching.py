"""Networks as logical switches, attachments as their ports.  Pure.

All attachments of a Network need the same of it: its switch, its zone, which Subnet an address is of. That is its
`Segment`, worked out once for all of them.
"""

from msgspec import Struct

from netloom.model.networks import Fabric, Network
from netloom.plan import names
from netloom.plan.dns import record, records, zone
from netloom.plan.policy import memberships
from netloom.plan.rows import Member, Outcome, Ref, Row
from netloom.plan.world import Port, World

SWITCH = "Logical_Switch"
PORT = "Logical_Switch_Port"


def switch(namespace: str, network: str) -> Ref:
    """Return which row is a Network's switch."""
    return Ref(SWITCH, names.switch(namespace, network))


def port(namespace: str, attachment: str) -> Ref:
    """Return which row is an attachment's port."""
    return Ref(PORT, names.port(namespace, attachment))


def plan_network(_world: World, network: Network) -> Outcome:
    """Plan a switch and its zone."""
    if network.spec.fabric is not Fabric.OVN:
        return Outcome()
    namespace, name = network.metadata.namespace, network.metadata.name
    ref, dns = switch(namespace, name), records(namespace, name)
    row = Row(SWITCH, ref.key, {"name": ref.key, "other_config": {"mcast_snoop": "false"}})
    return Outcome(rows=[row, zone(dns)], members=[Member(ref, "dns_records", dns)])


class Segment(Struct, frozen=True):
    """What the attachments of a Network need to know of it."""

    switch: Ref
    dns: Ref


def segment(world: World, namespace: str, network: str) -> Segment | None:
    """Return a Network's segment; None: it is not OVN's."""
    found = world.get(Network, namespace, network)
    if found is None or found.spec.fabric is not Fabric.OVN:
        return None
    return Segment(switch(namespace, network), records(namespace, network))


def plan_attachment(world: World, one: Port) -> Outcome:
    """Plan a port; one without addresses is not planned yet."""
    if not one.ips or not one.mac:
        return Outcome()
    on = world.shared(segment, one.namespace, one.network)
    if on is None:
        return Outcome()
    ref = port(one.namespace, one.name)
    ips = " ".join(ip.partition("/")[0] for ip in one.ips)
    row = Row(
        PORT,
        ref.key,
        {
            "name": ref.key,
            "addresses": frozenset((f"{one.mac} {ips}",)),
            "options": {"requested-chassis": one.node},
        },
    )
    members = [Member(on.switch, "ports", ref), record(on.dns, one.name, "", ips), *memberships(world, one)]
    return Outcome(rows=[row], members=members)
