"""A router's policies: what it does with some packets instead of what its routes say.  Pure.

A policy is one row of Logical_Router_Policy. OVN asks the policies once a packet is routed: the one of the highest
priority that fits it drops it, gives it other next hops, or leaves it as it was routed. They judge each packet by
itself, replies too, and see it as it is inside: translated already if it came in by the gateway, not yet if it goes out
there. What no route leads to is dropped before they are asked; who wants to reroute it is told so.

Two rows of one priority and one match would leave it to chance which counts. So a row is known by these two, and of two
wishes for it the stricter stands: drop before reroute before allow, as forbidding always wins elsewhere. Like the rows
themselves that does not depend on the order of the list.

What matches is of one family wherever the policy says which, by a block or a next hop. A policy that names neither is
of both, in one row: OVN tells the two apart by itself. A next hop must be in a block of one of the router's feet, by
which OVN finds the port; link-local ones are at every port, so there is no telling which is meant.
"""

from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2s
from typing import NamedTuple

from netloom.model import addresses
from netloom.model.addresses import Block
from netloom.model.networks import Router
from netloom.model.policy import PolicyAction, RouterPolicy
from netloom.plan import names
from netloom.plan.ovn.layer3 import router_ports as feet
from netloom.plan.ovn.layer3.router_ports import Foot
from netloom.plan.policy import matches
from netloom.plan.problem import Problem
from netloom.plan.rows import Column, Member, Outcome, Ref, Row

TABLE = "Logical_Router_Policy"

_STRICTEST_FIRST = (PolicyAction.DROP, PolicyAction.REROUTE, PolicyAction.ALLOW)


class _Policy(NamedTuple):
    """A policy that can be.  What it is known by comes first, then how strict it is."""

    priority: int
    match: str
    leniency: int
    hops: tuple[str, ...]

    @property
    def action(self) -> PolicyAction:
        return _STRICTEST_FIRST[self.leniency]


def steered(router: Router, every: Sequence[Foot], routed: Collection[Block], outcome: Outcome) -> None:
    """Add a router's policies; it has these feet, and routes to these blocks."""
    known = [*routed, *(one.network for foot in every for one in foot.addresses)]
    can_be: list[tuple[_Policy, int]] = []
    for position, wish in enumerate(router.spec.policies):
        policy = _policy(wish, f"spec.policies[{position}]", every)
        if isinstance(policy, Problem):
            outcome.problems.append(policy)
        else:
            can_be.append((policy, position))
            outcome.problems += _unrouted(wish, f"spec.policies[{position}].to", known)
    standing: dict[tuple[int, str], tuple[_Policy, int]] = {}
    for policy, position in sorted(can_be):
        stands, where = standing.setdefault((policy.priority, policy.match), (policy, position))
        if stands != policy:
            text = (
                f"spec.policies[{position}]: spec.policies[{where}] is for the same packets at the same priority, and"
                f" {_said(stands)}: take one of the two out, or give it another priority"
            )
            outcome.problems.append(Problem("PolicyTwice", text))
    name = names.router(router.metadata.namespace, router.metadata.name)
    for policy, _ in standing.values():
        _add(name, policy, outcome)


def _policy(wish: RouterPolicy, at: str, every: Sequence[Foot]) -> _Policy | Problem:
    problem = next(_malformed(wish, at), None) or next(_lost(wish, f"{at}.via", every), None)
    if problem is not None:
        return problem
    hops = sorted({addresses.address(one) for one in wish.via}, key=int)
    match = _match(wish, next(iter(_families(wish)), None))
    return _Policy(wish.priority, match, _STRICTEST_FIRST.index(wish.action), tuple(map(str, hops)))


def _families(wish: RouterPolicy) -> set[int]:
    return {addresses.family(one) for one in (*wish.from_, *wish.to, *wish.via)}


def _malformed(wish: RouterPolicy, at: str) -> Iterator[Problem]:
    """Give what is wrong with a policy in itself: validation refuses it, but it may be older than its rules."""
    for name, blocks in (("from", wish.from_), ("to", wish.to)):
        for position, block in enumerate(blocks):
            if not addresses.is_cidr(block):
                yield Problem("Malformed", f"{at}.{name}[{position}]: {block!r} is not an address block")
    if bool(wish.via) != (wish.action is PolicyAction.REROUTE):
        yield Problem("Malformed", f"{at}.via: next hops belong to action reroute: give both, or neither")
    if len(_families(wish)) > 1:
        yield Problem("FamiliesMixed", f"{at}: from, to and via are of two families: write a policy for each")


def _lost(wish: RouterPolicy, at: str, every: Sequence[Foot]) -> Iterator[Problem]:
    """Give the next hops that cannot be reached."""
    for position, hop in enumerate(wish.via):
        foot = feet.toward(every, hop, f"{at}[{position}]")
        if isinstance(foot, Problem):
            yield foot
        elif addresses.address(hop).is_link_local:
            text = f"{at}[{position}]: {hop} may be in any network of the router: name an address that is in one"
            yield Problem("NextHopLinkLocal", text)


def _unrouted(wish: RouterPolicy, at: str, known: Collection[Block]) -> Iterator[Problem]:
    """Give the blocks of which nothing can be rerouted, because nothing of them is routed."""
    for position, to in enumerate(wish.to if wish.action is PolicyAction.REROUTE else ()):
        if not any(feet.overlap(addresses.interface(to).network, one) for one in known):
            text = (
                f"{at}[{position}]: the router has no route to {to}, and what has none is dropped before policies are"
                " asked: add one to spec.routes"
            )
            yield Problem("RouteMissing", text)


def _match(wish: RouterPolicy, version: int | None) -> str:
    """Return which packets a policy is for: of one family, or of both."""
    terms = []
    if version is not None:
        ends = [("src", wish.from_), ("dst", wish.to)]
        found = [matches.addressed(version, end, matches.merged(blocks)) for end, blocks in ends if blocks]
        family = f"ip{version}"  # Any address says it too.
        terms = [one for one in found if one != family] or [family]
    if wish.ports:
        terms.append(matches.carried(wish.ports, version))
    return " && ".join(terms) or "ip"


def _said(policy: _Policy) -> str:
    return f"says {policy.action}" + (f" via {', '.join(policy.hops)}" if policy.hops else "")


def _add(router: str, policy: _Policy, outcome: Outcome) -> None:
    digest = blake2s(policy.match.encode(), digest_size=8).hexdigest()  # A match may be long.
    columns: dict[str, Column] = {
        "priority": policy.priority,
        "match": policy.match,
        "action": str(policy.action),
        "nexthops": frozenset(policy.hops),
        "nexthop": None,  # How it was written when there could be only one.
    }
    row = Row(TABLE, f"{router}:policy:{policy.priority}:{digest}", columns)
    outcome.rows.append(row)
    outcome.members.append(Member(Ref("Logical_Router", router), "policies", row.ref))
