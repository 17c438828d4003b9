"""Names: each Network's records are those of its attachments, in the domain their Subnet tells."""

from netloom.plan.problem import Unit
from netloom.plan.rows import Member, Ref
from netloom.plan.world.world import Port
from tests.plan.planning import planned, resources

BLUE = """
kind: Network
metadata: {name: blue}
spec: {}
---
kind: Subnet
metadata: {name: blue}
spec: {network: blue, cidr: 10.0.0.0/24%s}
status: {validated: true}
"""
ZONE = Ref("DNS", "default/blue")


def web(*ips: str) -> Port:
    return Port("default", "web", "n1", "blue", ips, "02:00:00:00:00:09")


def test_a_network_without_a_domain_answers_for_no_names() -> None:
    planner = planned(BLUE % "")
    planner.put(web("10.0.0.9/24"))
    planner.flush()
    assert not [ref for ref in planner.desired.rows if ref.table == "DNS"]
    planner.put(resources(BLUE % ", dhcp: {domainName: lab.example}")[1])
    planner.flush()
    assert planner.desired.members(ZONE) == {"records": {"web.lab.example": "10.0.0.9"}}


def test_one_attachment_costs_one_entry() -> None:
    planner = planned(BLUE % ", dhcp: {domainName: a.example}")
    assert planner.desired.members(Ref("Logical_Switch", "default/blue")) == {"dns_records": {ZONE: ZONE}}
    planner.put(web("10.0.0.9/24", "fd00::9/64"))
    first = Member(ZONE, "records", "10.0.0.9 fd00::9", "web.a.example")
    assert first in planner.flush().joined
    planner.put(web("10.0.0.10/24"))
    delta = planner.flush()
    assert delta.left == {first}
    assert delta.joined == {Member(ZONE, "records", "10.0.0.10", "web.a.example")}
    planner.remove(Unit("NetworkAttachment", "default", "web"))
    planner.flush()
    assert planner.desired.members(ZONE) == {}


def test_names_move_with_the_domain() -> None:
    planner = planned(BLUE % ", dhcp: {domainName: lab.example}")
    planner.put(web("10.0.0.9/24"))
    planner.flush()
    assert planner.desired.members(ZONE) == {"records": {"web.lab.example": "10.0.0.9"}}
    planner.put(resources(BLUE % ", dhcp: {enabled: false, domainName: b.example}")[1])
    planner.flush()
    assert planner.desired.members(ZONE) == {"records": {"web.b.example": "10.0.0.9"}}
