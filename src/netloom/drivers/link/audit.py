"""Reports differences between a port's devices and its plan.  Runs in the node's network namespace, changes nothing."""

from collections.abc import Collection

from netloom.drivers.link.codec import Link
from netloom.drivers.link.kernel import Kernel
from netloom.drivers.link.worker import differences, workload
from netloom.model.kinds.attachments import PortType
from netloom.plan.node.ports import PortPlan
from netloom.plan.problem import ProblemError


def faults(plan: PortPlan, given: Collection[str]) -> list[str]:
    """Return what is wrong with the devices of a port that was given these addresses."""
    node = Kernel()
    try:
        if plan.paired:
            return _pair(plan, given, node)
        found = node.link(plan.device)
        if found is None:
            return [f"there is no device {plan.device} on the node"]
        return [] if plan.type is PortType.EXISTING else _given(plan, given, node, found)
    except ProblemError as error:
        return [error.message]
    finally:
        node.close()


def _pair(plan: PortPlan, given: Collection[str], node: Kernel) -> list[str]:
    with workload(plan) as (there, _):
        outer, inner = node.link(plan.outer), there.link(plan.inner)
        for name in (plan.outer, plan.device):
            if node.link(name) is None:
                return [f"there is no device {name} on the node"]
        assert outer is not None
        if inner is None:
            return [f"there is no device {plan.inner} in {plan.netns}"]
        if inner.peer != outer.index:
            return [f"{plan.inner} in {plan.netns} is not the other end of {plan.outer}"]
        found = [] if outer.up else [f"{plan.outer} is down"]
        return found + _given(plan, given, there, inner)


def _given(plan: PortPlan, given: Collection[str], kernel: Kernel, seen: Link) -> list[str]:
    steps = differences(plan, seen, kernel.addresses(seen.index), kernel.routes(seen.index), given)
    where = f" in {plan.netns}" if plan.netns else ""
    needs = ", ".join(step.what for step in steps)
    return [f"{plan.inner}{where} is not as planned; missing steps: {needs}"] if steps else []
