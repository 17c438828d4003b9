"""What the vxlan fabric does not support of a SecurityProfile, as text for users. Pure.

A SecurityProfile means the same on every fabric, except for two things: see `plan/vxlan/policy.py`.
"""

from collections.abc import Iterable, Iterator

from netloom.model.kinds.networks import Fabric, Network
from netloom.model.kinds.policy import Action, EgressRule, IngressRule, SecurityProfile
from netloom.plan.problem import Unit
from netloom.plan.world.world import World


def limits(world: World, profile: SecurityProfile) -> str:
    """Return what a profile means differently in vxlan Networks; "" if there are none, or no difference."""
    networks = world.all(Network, profile.metadata.namespace)
    names = [one.metadata.name for one in networks if one.spec.fabric is Fabric.VXLAN]
    if not names:
        return ""
    said = [*_said("ingress", profile.spec.ingress or ()), *_said("egress", profile.spec.egress or ())]
    return f"in Networks of fabric vxlan ({', '.join(names)}): {'; '.join(said)}" if said else ""


def counted(world: World, namespaces: Iterable[str]) -> set[Unit]:
    """Return the SecurityProfiles whose number of vxlan ports may have changed, where attachments changed."""
    return {
        Unit("SecurityProfile", namespace, profile.metadata.name)
        for namespace in namespaces
        if any(one.spec.fabric is Fabric.VXLAN for one in world.all(Network, namespace))
        for profile in world.all(SecurityProfile, namespace)
    }


def _said(field: str, rules: tuple[IngressRule | EgressRule, ...]) -> Iterator[str]:
    for position, rule in enumerate(rules):
        if rule.action is Action.REJECT:
            yield f"spec.{field}[{position}].action: what is rejected is dropped, without an answer"
        if rule.log:
            yield f"spec.{field}[{position}].log: nothing is logged"
