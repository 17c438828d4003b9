"""Checks and reads the settings of `netloom agent`."""

from netloom.drivers.vswitch.prepare import read_mappings
from netloom.model.values import addresses
from netloom.ovsdb.reconnect import is_remote
from netloom.plan.node.grants import NodeGrants, node_grants
from netloom.run.config import AgentSettings, invalid


def check(settings: AgentSettings) -> None:
    """Raise `Invalid` naming the setting that is wrong."""
    mappings(settings)
    granted(settings)
    if settings.underlay_ip and not addresses.is_ip(settings.underlay_ip):
        raise invalid("underlayIp", f"{settings.underlay_ip!r} is not an address")
    if not is_remote(settings.ovs, ("unix", "tcp")):
        raise invalid("ovs", f"{settings.ovs!r} is not unix:PATH or tcp:HOST:PORT")
    if settings.openflow and not is_remote(settings.openflow, ("unix",)):
        raise invalid("openflow", f"{settings.openflow!r} is not unix:PATH")
    for program in settings.allowed_programs:
        if not program.startswith("/"):
            raise invalid("allowedPrograms", f"{program!r} is not an absolute path")


def mappings(settings: AgentSettings) -> dict[str, str]:
    """Return the physical networks and their bridges."""
    pairs = [pair for text in settings.bridge_mappings for pair in read_mappings(text)]
    if len(pairs) != len(settings.bridge_mappings) or len(dict(pairs)) != len(pairs):
        raise invalid("bridgeMappings", f"{','.join(settings.bridge_mappings)!r} is not NETWORK:BRIDGE,…")
    return dict(pairs)


def granted(settings: AgentSettings) -> NodeGrants:
    """Return what namespaces may use on this node."""
    return node_grants(
        netns_folders=settings.netns_folders,
        internal_routes=settings.internal_routes,
        internal_names=settings.internal_names,
        existing_devices=settings.existing_devices,
    )
