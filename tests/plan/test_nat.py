"""Translations at the gateway: what is listed, what follows from snat, and what cannot be."""

import pytest
import yaml

from netloom.plan.rows import Ref
from tests.plan.routers import ROUTER, members, reasons, routed, rows, translations

AUTOMATIC = {
    ("snat", "192.0.2.10", "10.10.0.0/24"),
    ("snat", "192.0.2.10", "10.20.0.0/24"),
    ("snat", "2001:db8:ff::10", "fd00:10::/64"),
}


def test_what_goes_out_gets_the_gateways_address_of_its_family() -> None:
    outcome = routed()
    assert translations(outcome) == AUTOMATIC
    assert {ref for ref, _ in members(outcome, "nat")} == {Ref("Logical_Router", "ns/r1")}
    assert {value.key for _, value in members(outcome, "nat")} == rows(outcome, "NAT").keys()


def test_without_snat_addresses_go_out_as_they_are() -> None:
    spec = yaml.safe_load(ROUTER)
    spec["gateway"]["snat"] = False
    assert translations(routed(yaml.safe_dump(spec))) == set()


def test_a_family_the_gateway_has_no_address_of_is_not_translated() -> None:
    spec = yaml.safe_load(ROUTER)
    spec["gateway"]["ips"] = ["192.0.2.10/24"]
    assert translations(routed(yaml.safe_dump(spec))) == AUTOMATIC - {("snat", "2001:db8:ff::10", "fd00:10::/64")}


def test_what_is_behind_a_route_is_translated_too_but_not_what_is_outside() -> None:
    routes = "routes: [{to: 10.99.0.0/16, via: 10.20.0.7}, {to: 198.18.0.0/15, via: 192.0.2.7}]"
    assert translations(routed(ROUTER + routes)) == AUTOMATIC | {("snat", "192.0.2.10", "10.99.0.0/16")}
    spec = yaml.safe_load(ROUTER)
    del spec["gateway"]["nextHop"]
    spec["routes"] = [{"to": "0.0.0.0/0", "via": "10.20.0.7"}]
    assert translations(routed(yaml.safe_dump(spec))) == AUTOMATIC


def test_a_floating_address_is_translated_at_the_gateway_both_ways() -> None:
    outcome = routed(ROUTER + "nat: [{type: dnat_and_snat, external: 192.0.2.20, logical: 10.10.0.9}]")
    assert outcome.problems == []
    assert rows(outcome, "NAT")["ns/r1:dnat_and_snat:192.0.2.20:10.10.0.9"] == {
        "type": "dnat_and_snat",
        "external_ip": "192.0.2.20",
        "logical_ip": "10.10.0.9",
        "logical_port": None,
        "external_mac": None,
        "gateway_port": Ref("Logical_Router_Port", "ns/r1:outside"),
    }
    assert translations(outcome) == AUTOMATIC | {("dnat_and_snat", "192.0.2.20", "10.10.0.9")}


@pytest.mark.parametrize(
    "entry",
    [
        ("dnat", "192.0.2.20", "10.10.0.9"),
        ("dnat", "192.0.2.10", "10.10.0.9"),  # The gateway's own address: all that is nobody's goes to that machine.
        ("snat", "192.0.2.20", "10.10.0.9"),
        ("snat", "192.0.2.20", "10.10.0.128/25"),
        ("snat", "192.0.2.10", "10.0.0.0/8"),
        ("dnat_and_snat", "203.0.113.9", "10.20.0.9"),  # Out of the gateway's block: routed here by who is outside.
        ("dnat_and_snat", "2001:db8:ff::20", "fd00:10::9"),
    ],
)
def test_entries_of_every_type_are_planned(entry: tuple[str, str, str]) -> None:
    kind, external, logical = entry
    outcome = routed(ROUTER + f"nat: [{{type: {kind}, external: '{external}', logical: '{logical}'}}]")
    assert outcome.problems == []
    assert translations(outcome) == AUTOMATIC | {entry}


def test_a_block_that_is_listed_is_left_to_its_entry() -> None:
    outcome = routed(ROUTER + "nat: [{type: snat, external: 192.0.2.20, logical: 10.10.0.0/24}]")
    changed = {("snat", "192.0.2.20", "10.10.0.0/24")}
    assert translations(outcome) == AUTOMATIC - {("snat", "192.0.2.10", "10.10.0.0/24")} | changed


def test_a_floating_address_for_a_machine_behind_a_route() -> None:
    extra = "nat: [{type: dnat_and_snat, external: 192.0.2.20, logical: 10.99.0.9}]\n"
    assert reasons(routed(ROUTER + extra)) == [("LogicalElsewhere", "spec.nat[0].logical")]
    assert routed(ROUTER + extra + "routes: [{to: 10.99.0.0/16, via: 10.20.0.7}]").problems == []


@pytest.mark.parametrize(
    ("entry", "reason", "field"),
    [
        ("type: dnat_and_snat, external: 192.0.2.20, logical: 10.77.0.9", "LogicalElsewhere", "spec.nat[1].logical"),
        ("type: snat, external: 192.0.2.20, logical: 172.16.0.0/12", "LogicalElsewhere", "spec.nat[1].logical"),
        ("type: dnat, external: 192.0.2.20, logical: 10.20.0.254", "LogicalOwn", "spec.nat[1].logical"),
        ("type: dnat_and_snat, external: 192.0.2.10, logical: 10.10.0.9", "ExternalOwn", "spec.nat[1].external"),
        ("type: snat, external: 10.10.0.1, logical: 10.10.0.9", "ExternalOwn", "spec.nat[1].external"),
        ("type: dnat, external: 224.0.0.5, logical: 10.10.0.9", "NotAHost", "spec.nat[1].external"),
        ("type: dnat, external: 192.0.2.99, logical: 10.10.0.9", "NatTwice", "spec.nat[1].external"),
        ("type: snat, external: 192.0.2.21, logical: 10.20.0.99", "NatTwice", "spec.nat[1].logical"),
        ("type: dnat, external: nonsense, logical: 10.10.0.9", "Malformed", "spec.nat[1]"),
        ("type: dnat, external: 192.0.2.20, logical: nonsense", "Malformed", "spec.nat[1]"),
    ],
)
def test_an_entry_that_cannot_be_costs_that_entry(entry: str, reason: str, field: str) -> None:
    first = "{type: dnat_and_snat, external: 192.0.2.99, logical: 10.20.0.99}"
    outcome = routed(ROUTER + f"nat: [{first}, {{{entry}}}]")
    assert reasons(outcome) == [(reason, field)]
    assert translations(outcome) == AUTOMATIC | {("dnat_and_snat", "192.0.2.99", "10.20.0.99")}


def test_an_entry_of_a_family_that_has_no_way_out_is_a_problem() -> None:
    spec = yaml.safe_load(ROUTER)
    spec["gateway"]["ips"] = ["192.0.2.10/24"]
    spec["nat"] = [{"type": "dnat_and_snat", "external": "2001:db8:ff::20", "logical": "fd00:10::9"}]
    assert reasons(routed(yaml.safe_dump(spec))) == [("FamilyMissing", "spec.nat[0].external")]


def test_of_two_routers_with_one_external_address_the_smaller_name_has_it() -> None:
    rival = (
        "a: {kind: Router, spec: {gateway: {network: outside, ips: [192.0.2.5/24], nodes: [n1]},"
        " nat: [{type: dnat, external: 192.0.2.20, logical: 10.10.0.9}]}}"
    )
    extra = (
        "nat: [{type: dnat, external: 192.0.2.20, logical: 10.10.0.9},"
        " {type: snat, external: 192.0.2.5, logical: 10.10.0.9}]"
    )
    outcome = routed(ROUTER + extra, rival)
    assert reasons(outcome) == [("AddressTaken", "spec.nat[0].external"), ("AddressTaken", "spec.nat[1].external")]
    assert "Router a" in outcome.problems[0].message


def test_where_the_gateway_fails_its_problem_stands_for_all_translations() -> None:
    extra = "nat: [{type: dnat, external: 192.0.2.20, logical: 10.10.0.9}]"
    outcome = routed(ROUTER.replace("outside", "gone") + extra)
    assert reasons(outcome) == [("NetworkMissing", "spec.gateway.network")]
