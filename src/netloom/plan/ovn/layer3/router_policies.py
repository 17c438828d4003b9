"""Router policies: packets that are dropped, rerouted or exempted, whatever the routes say.  Pure.

A policy is one row of Logical_Router_Policy. OVN evaluates the policies after a packet is routed: the matching one of
the highest priority drops it, gives it other next hops, or leaves it as it was routed. Policies apply to each packet by
itself, replies too, and see inside addresses: after translation if the packet came in by the gateway, before it if the
packet leaves there. A packet without a route is dropped before the policies; a policy that would reroute such packets
is reported as a problem.

With two rows of one priority and one match it would be undefined which applies. So the key of a row is made of these
two, and of two policies with the same key the stricter applies: drop before reroute before allow, as forbidding wins
everywhere else. Like the rows themselves that does not depend on the order of the list.

A match is of one family if the policy names one by a block or a next hop. A policy that names neither is for both, in
one row: OVN expands it to both. A next hop must be in a block of one of the router's ports, by which OVN finds the
port. A link-local next hop could be at any port, so it is refused.
"""

from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2s
from typing import NamedTuple

from netloom.model.kinds.networks import Router
from netloom.model.kinds.policy import PolicyAction, RouterPolicy
from netloom.model.values import addresses
from netloom.model.values.addresses import Block
from netloom.plan import names
from netloom.plan.addresses.blocks import overlap
from netloom.plan.ovn.layer3.router_ports import LogicalRouterPort, NextHops
from netloom.plan.policy import matches
from netloom.plan.problem import Problem
from netloom.plan.rows import Column, Outcome, Ref, Row

TABLE = "Logical_Router_Policy"

_STRICTEST_FIRST = (PolicyAction.DROP, PolicyAction.REROUTE, PolicyAction.ALLOW)


class _Policy(NamedTuple):
    """A policy that is possible.  Sorted by its key, then by how strict it is."""

    priority: int
    match: str
    leniency: int
    hops: tuple[str, ...]

    @property
    def action(self) -> PolicyAction:
        return _STRICTEST_FIRST[self.leniency]


def add_policies(
    router: Router, every: Sequence[LogicalRouterPort], routed: Collection[Block], outcome: Outcome
) -> None:
    """Add the policies of a router with these ports and with routes to these blocks."""
    known = [*routed, *(one.network for port in every for one in port.addresses)]
    possible: list[tuple[_Policy, int]] = []
    hops = NextHops(every)
    for position, spec in enumerate(router.spec.policies):
        policy = _policy(spec, f"spec.policies[{position}]", hops)
        if isinstance(policy, Problem):
            outcome.problems.append(policy)
        else:
            possible.append((policy, position))
            outcome.problems += _unrouted(spec, f"spec.policies[{position}].to", known)
    applied: dict[tuple[int, str], tuple[_Policy, int]] = {}
    for policy, position in sorted(possible):
        applies, where = applied.setdefault((policy.priority, policy.match), (policy, position))
        if applies != policy:
            via = f" via {', '.join(applies.hops)}" if applies.hops else ""
            text = (
                f"spec.policies[{position}]: spec.policies[{where}] matches the same packets at the same priority, and"
                f" its action is {applies.action}{via}: remove one of the two, or change its priority"
            )
            outcome.report("PolicyTwice", text)
    name = names.router(router.metadata.namespace, router.metadata.name)
    for policy, _ in applied.values():
        _add(name, policy, outcome)


def _policy(spec: RouterPolicy, at: str, reached: NextHops) -> _Policy | Problem:
    problem = next(_malformed(spec, at), None) or next(_unreachable(spec, f"{at}.via", reached), None)
    if problem is not None:
        return problem
    hops = sorted({addresses.address(one) for one in spec.via}, key=int)
    match = _match(spec, next(iter(_families(spec)), None))
    return _Policy(spec.priority, match, _STRICTEST_FIRST.index(spec.action), tuple(map(str, hops)))


def _families(spec: RouterPolicy) -> set[int]:
    return {addresses.family(one) for one in (*spec.from_, *spec.to, *spec.via)}


def _malformed(spec: RouterPolicy, at: str) -> Iterator[Problem]:
    """Yield what is malformed in a policy: validation rejects it, but the object may be older than the rule."""
    for name, blocks in (("from", spec.from_), ("to", spec.to)):
        for position, block in enumerate(blocks):
            if not addresses.is_cidr(block):
                yield Problem("Malformed", f"{at}.{name}[{position}]: {block!r} is not an address block")
    if bool(spec.via) != (spec.action is PolicyAction.REROUTE):
        yield Problem("Malformed", f"{at}.via: next hops need action reroute, and reroute needs next hops")
    if len(_families(spec)) > 1:
        yield Problem("FamiliesMixed", f"{at}: from, to and via are of two families: write a policy for each")


def _unreachable(spec: RouterPolicy, at: str, reached: NextHops) -> Iterator[Problem]:
    """Yield a problem for each next hop that cannot be reached."""
    for position, hop in enumerate(spec.via):
        port = reached.toward(hop, f"{at}[{position}]")
        if isinstance(port, Problem):
            yield port
        elif addresses.address(hop).is_link_local:
            text = f"{at}[{position}]: {hop} is link-local, so any port could lead to it: name another address"
            yield Problem("NextHopLinkLocal", text)


def _unrouted(spec: RouterPolicy, at: str, known: Collection[Block]) -> Iterator[Problem]:
    """Yield a problem for each block that cannot be rerouted because the router has no route to it."""
    for position, to in enumerate(spec.to if spec.action is PolicyAction.REROUTE else ()):
        if not any(overlap(addresses.interface(to).network, one) for one in known):
            text = (
                f"{at}[{position}]: the router has no route to {to}, and packets without a route are dropped before"
                " policies apply: add one to spec.routes"
            )
            yield Problem("RouteMissing", text)


def _match(spec: RouterPolicy, version: int | None) -> str:
    """Return the match of a policy: for one family, or for both."""
    terms = []
    if version is not None:
        ends = [("src", spec.from_), ("dst", spec.to)]
        found = [matches.addressed(version, end, matches.merged(blocks)) for end, blocks in ends if blocks]
        family = f"ip{version}"  # A match on an address implies it.
        terms = [one for one in found if one != family] or [family]
    if spec.ports:
        terms.append(matches.carried(spec.ports, version))
    return " && ".join(terms) or "ip"


def _add(router: str, policy: _Policy, outcome: Outcome) -> None:
    digest = blake2s(policy.match.encode(), digest_size=8).hexdigest()  # A match can be long.
    columns: dict[str, Column] = {
        "priority": policy.priority,
        "match": policy.match,
        "action": str(policy.action),
        "nexthops": frozenset(policy.hops),
        "nexthop": None,  # Superseded by nexthops.
    }
    row = Row(TABLE, f"{router}:policy:{policy.priority}:{digest}", columns)
    outcome.add(row, Ref("Logical_Router", router), "policies")
