"""The fields of a status that depend on its kind, from the plan and from the southbound.  Pure."""

from msgspec.structs import replace

from netloom.control.ovn.southbound import Southbound
from netloom.control.runtime.conditions import READY, TRUE
from netloom.model.document import Resource
from netloom.model.kinds.networks import Fabric, Router, RouterStatus
from netloom.model.kinds.paths import Mirror, MirrorStatus, Shaping, ShapingStatus
from netloom.model.kinds.policy import (
    LoadBalancer,
    LoadBalancerStatus,
    Protocol,
    SecurityProfile,
    SecurityProfileStatus,
)
from netloom.model.status import Status
from netloom.plan.ovn.desired import DesiredRows
from netloom.plan.ovn.layer2.mirrors import tunnels_of
from netloom.plan.ovn.layer3 import local_endpoints
from netloom.plan.ovn.layer3.gateways import redirect_port
from netloom.plan.ovn.layer3.load_balancers import load_balancer_ref
from netloom.plan.ovn.planner import Planner
from netloom.plan.policy.port_groups import covered, group
from netloom.plan.policy.shaping import IMPAIRMENT_UNSUPPORTED, RATE_UNSUPPORTED, verdict
from netloom.plan.vxlan.limits import limits


def details(resource: Resource, status: Status, planner: Planner, south: Southbound | None) -> Status:
    """Return a resource's status with the fields of its kind; without a southbound, its fields stay as they are."""
    desired = planner.desired
    match resource, status:
        case Router(), RouterStatus() if south is not None:
            port = redirect_port(resource)
            return replace(status, gateway_node=south.gateway_node(port) if port else "")
        case SecurityProfile(), SecurityProfileStatus():
            members = desired.members(group(resource.metadata.namespace, resource.metadata.name)).get("ports", ())
            ports = len(members) + len(covered(planner.world, resource, Fabric.VXLAN))
            return _limited(replace(status, ports=ports), limits(planner.world, resource))
        case LoadBalancer(), LoadBalancerStatus():
            up, down = _endpoints(resource, desired, south)
            return replace(status, endpoints_up=up, endpoints_down=down)
        case Shaping(), ShapingStatus():
            applied, unsupported = verdict(planner.world, resource)
            ready = status.condition(READY)
            # The rate is in force whether or not delay and loss are, and these without a rate.
            partly = (IMPAIRMENT_UNSUPPORTED, RATE_UNSUPPORTED)
            is_ready = ready is not None and (ready.status == TRUE or ready.reason in partly)
            return replace(status, applied=applied if is_ready else None, unsupported=unsupported)
        case Mirror(), MirrorStatus():
            return replace(status, tunnels=tunnels_of(planner.world, resource))
    return status


def _limited(status: SecurityProfileStatus, message: str) -> SecurityProfileStatus:
    """Return a Ready status whose message says which parts of the spec are not implemented as written."""
    conditions = tuple(
        replace(one, message=message) if one.type == READY and one.status == TRUE else one for one in status.conditions
    )
    return replace(status, conditions=conditions)


def _endpoints(resource: LoadBalancer, desired: DesiredRows, south: Southbound | None) -> tuple[int, int]:
    """Return how many endpoints are up and down.  As in OVN, one is up unless it is known not to answer."""
    found: dict[tuple[Protocol, str], bool] = {}
    for protocol in Protocol:
        row = desired.rows.get(load_balancer_ref(resource.metadata.namespace, resource.metadata.name, protocol))
        if row is None:
            continue
        vips, checked = row.columns["vips"], row.columns["ip_port_mappings"]
        assert isinstance(vips, dict)
        assert isinstance(checked, dict)
        for endpoint in local_endpoints.resolved(desired, vips.values()):
            ip, _, number = endpoint.rpartition(":")
            port = checked.get(ip, "").partition(":")[0]
            answers = south.answers(port, ip.strip("[]"), int(number)) if south is not None and port else None
            found[protocol, endpoint] = answers is not False
    up = sum(found.values())
    return up, len(found) - up
