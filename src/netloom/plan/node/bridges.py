"""Plans the bridge of a linux Network on a node: the VXLAN ports to the other nodes, and who may be on it.  Pure.

A linux Network has a bridge of its own on each node with an attachment in it. The bridge learns MAC addresses, as any
switch, and floods what it does not know. A VXLAN port leads to each other node with an attachment in the Network. All
of them are `protected`: Open vSwitch sends no packet from one such port to another, so that with a port to every other
node each packet arrives once.

There are no flows, and so no filters: an attachment that a SecurityProfile restricts is refused.
"""

from collections.abc import Iterable

from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.policy import SecurityProfile
from netloom.plan import names
from netloom.plan.problem import Problem
from netloom.plan.world.selector_matches import selector_in

PROFILES_UNSUPPORTED = "ProfilesUnsupported"


def plan_tunnels(vni: int, underlay: str, others: Iterable[NetworkAttachment]) -> dict[str, dict[str, str]]:
    """Return the options of the VXLAN ports of a Network's bridge, by name.

    `others` are the Network's attachments on other nodes. One that was given a different VNI is of an earlier Network
    of that name.
    """
    hosts = {one.status.host_ip for one in others if one.status.vni == vni and not one.metadata.deletion_timestamp}
    return {
        names.bridge_tunnel(vni, host): {"key": str(vni), "local_ip": underlay, "remote_ip": host}
        for host in sorted(hosts - {"", underlay})
    }


def restricted(attachment: NetworkAttachment, profiles: Iterable[SecurityProfile]) -> Problem | None:
    """Return the problem of an attachment that a SecurityProfile of its namespace restricts.

    One that it names and that does not exist would close it.
    """
    meta = attachment.metadata
    every = {one.metadata.name: one for one in profiles}
    missing = [name for name in attachment.spec.security_profiles if name not in every]
    found = [*missing, *(name for name, one in sorted(every.items()) if _restricts(one, attachment))]
    if not found:
        return None
    text = f"SecurityProfile {found[0]} restricts {meta.name}, and Network {attachment.spec.network} of fabric linux"
    return Problem(PROFILES_UNSUPPORTED, f"{text} has no filters: use fabric ovn or vxlan, or remove the profile")


def _restricts(profile: SecurityProfile, attachment: NetworkAttachment) -> bool:
    spec, meta = profile.spec, attachment.metadata
    if spec.ingress is None and spec.egress is None:
        return False
    if profile.metadata.name in attachment.spec.security_profiles:
        return True
    return spec.selector is not None and selector_in(meta.namespace, spec.selector).matches(meta.labels)
