"""What controllers will choose, foreseen: numbers, validity, addresses; and what they will refuse."""

from typing import cast

from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.networks import Network, Subnet
from netloom.plan.ovn.forecast import Forecast, forecast
from netloom.plan.problem import Unit
from tests.plan.planning import resources

BLUE = """
{kind: Network, metadata: {name: blue}, spec: {}}
---
{kind: Subnet, metadata: {name: blue-v4}, spec: {network: blue, cidr: 10.1.0.0/29}}
"""
OLD = """
kind: NetworkAttachment
metadata: {name: old, uid: u1}
spec: {node: n1, network: blue}
status:
  ips: [10.1.0.2/29]
  mac: 06:01:00:02:00:0a
  vni: 10
  locks: [{ip: 10.1.0.2, uid: l1}]
"""
SETTLED = BLUE.replace("spec: {}}", "spec: {}, status: {vni: 10}}").replace("/29}}", "/29}, status: {validated: true}}")


def attachment(found: Forecast, name: str) -> NetworkAttachment:
    return next(cast("NetworkAttachment", r) for r in found.resources if r.kind == "NetworkAttachment" and
                r.metadata.name == name)  # fmt: skip


def new(name: str, spec: str = "") -> str:
    return f"---\n{{kind: NetworkAttachment, metadata: {{name: {name}}}, spec: {{node: n1, network: blue{spec}}}}}\n"


def test_what_has_been_seen_to_stays_as_it_is() -> None:
    before = resources(SETTLED + "---" + OLD)
    found = forecast(before)
    assert sorted(found.resources, key=str) == sorted(before, key=str)
    assert not found.placeholders
    assert not found.notes


def test_a_new_network_gets_a_number_and_its_subnets_are_valid() -> None:
    found = forecast(resources(BLUE))
    network = next(one for one in found.resources if isinstance(one, Network))
    subnet = next(one for one in found.resources if isinstance(one, Subnet))
    assert found.placeholders == {str(network.status.vni): "(a VNI)"}
    assert subnet.status.validated


def test_an_address_that_is_asked_for_is_known_and_one_that_is_chosen_is_not() -> None:
    found = forecast(resources(SETTLED + new("asks", ", ips: [10.1.0.5]") + new("takes")))
    asks, takes = attachment(found, "asks"), attachment(found, "takes")
    assert (asks.status.ips, asks.status.mac) == (("10.1.0.5/29",), "06:01:00:05:00:0a")
    [ip] = takes.status.ips
    assert found.placeholders[ip.partition("/")[0]] == "(an address of blue-v4)"
    assert found.placeholders[takes.status.mac] == "(a MAC)"
    assert ip not in asks.status.ips


def test_no_two_stand_for_the_same_and_a_full_subnet_is_told() -> None:
    found = forecast(resources(SETTLED + "---" + OLD + "".join(new(f"a{i}") for i in range(5))))
    given = [ip for i in range(5) for ip in attachment(found, f"a{i}").status.ips]
    assert len(set(given)) == 4  # Of the block's eight, three are kept back and one is the old one's.
    assert found.notes == {
        Unit("NetworkAttachment", "default", "a4"): ("no address is free in Subnet blue-v4: it will wait",)
    }


def test_what_stood_in_for_something_does_so_again() -> None:
    first = forecast(resources(SETTLED + new("b")))
    second = forecast(resources(SETTLED + new("a") + new("b")), first)
    assert attachment(first, "b").status == attachment(second, "b").status
    assert attachment(second, "a").status.ips != attachment(second, "b").status.ips


def test_what_is_written_somewhere_does_not_stand_for_something_else() -> None:
    vip = "---\n{kind: LoadBalancer, metadata: {name: l}, spec: {networks: [blue], vips: [{ip: 10.1.0.6, port: 80}]," \
          " endpoints: []}}\n"  # fmt: skip
    found = forecast(resources(SETTLED + vip + new("a")))
    assert attachment(found, "a").status.ips == ("10.1.0.5/29",)


def test_refusals_are_foreseen_in_the_words_of_the_controllers() -> None:
    overlap = "---\n{kind: Subnet, metadata: {name: z}, spec: {network: blue, cidr: 10.1.0.0/24}}\n"
    specs = new("out", ", ips: [10.9.0.1]") + new("taken", ", ips: [10.1.0.2]") + new("lost").replace("blue", "red")
    specs += new("there", ", ips: [10.1.0.5]") + new("vip", ", ips: [10.1.0.6]")
    specs += "---\n{kind: Router, metadata: {name: r}, spec: {networks: [{network: blue, ips: [10.1.0.5/29]}]}}\n"
    specs += (
        "---\n{kind: LoadBalancer, metadata: {name: l},"
        " spec: {routers: [r], vips: [{ip: 10.1.0.6, port: 80}], endpoints: []}}\n"
    )
    found = forecast(resources(SETTLED + "---" + OLD + overlap + specs))
    said = {unit.name: words for unit, words in found.notes.items()}
    assert said == {
        "z": ("it will not be valid: it overlaps blue-v4 (10.1.0.0/29)",),
        "out": ("10.9.0.1 is outside Subnet blue-v4 (10.1.0.0/29)",),
        "taken": ("10.1.0.2 is taken by default/old",),
        "lost": ("Network red does not exist",),
        "there": ("10.1.0.5 is used by Router r",),
        "vip": ("10.1.0.6 is a VIP of LoadBalancer l",),
    }


def test_a_changed_spec_gives_up_its_address_for_another() -> None:
    changed = OLD.replace("network: blue}", "network: blue, ips: [10.1.0.4]}")
    found = attachment(forecast(resources(SETTLED + "---" + changed)), "old")
    assert found.status.ips == ("10.1.0.4/29",)
    assert found.status.mac == "06:01:00:02:00:0a"
