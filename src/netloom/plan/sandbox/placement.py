"""The Node of each host of a Sandbox.  Pure.

`spec.placement.hosts` decides, then `spec.placement.default`. Other hosts are spread over the Nodes: a host stays on
the Node that it is on, and a new one goes to the Node with the fewest hosts of the Sandbox. So a Node that joins moves
no host.
"""

from collections.abc import Collection, Iterable, Mapping

from netloom.model.kinds.sandbox import Placement
from netloom.plan.problem import Problem

NODE_MISSING = "NodeMissing"


def place(
    hosts: Iterable[str], placement: Placement, nodes: Collection[str], placed: Mapping[str, str]
) -> tuple[dict[str, str], list[Problem]]:
    """Return the Node of each host that has one, and problems; `placed` is where hosts are now."""
    found: dict[str, str] = {}
    problems: list[Problem] = []
    free = []
    for host in sorted(hosts):
        if node := placement.hosts.get(host) or placement.default:
            found[host] = node
        elif placed.get(host) in nodes:
            found[host] = placed[host]
        else:
            free.append(host)
    counts = dict.fromkeys(sorted(nodes), 0)
    for node in found.values():
        if node in counts:
            counts[node] += 1
        else:
            text = f"spec.placement: there is no Node {node}: start its agent, or name another Node"
            problems.append(Problem(NODE_MISSING, text))
    for host in free if counts else ():
        node = min(counts, key=lambda one: (counts[one], one))
        found[host] = node
        counts[node] += 1
    if free and not counts:
        text = f"there is no Node for host {free[0]} and {len(free) - 1} more: start an agent"
        problems.append(Problem(NODE_MISSING, text))
    return found, problems
