"""`netloom doctor` and `netloom explain` with OVN's databases at hand, real ones, and with none."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from netloom.cli.diagnosis.doctor import MOST, lines
from netloom.diagnose.doctor import addresses as doctor_addresses
from netloom.diagnose.doctor import evpn as doctor_evpn
from netloom.diagnose.doctor import nodes as doctor_nodes
from netloom.diagnose.doctor import northbound as doctor_northbound
from netloom.diagnose.doctor import southbound as doctor_southbound
from netloom.diagnose.doctor.report import SETTLE_SECONDS, Complaint, Report, confirmed
from netloom.plan.audit.finding import Check
from tests.cli.test_commands import apply, network, router, subnet
from tests.cli.test_plan import attachment
from tests.run.serving import Answer, Serving, netloom, serving
from tests.support.ovn import Central, ovn_central
from tests.support.process import wait_until

pytestmark = pytest.mark.ovn
OWNED = {"netloom-owner": "netloom", "netloom-key": "default/gone", "netloom-of": "Network/default/gone"}


@dataclass
class World:
    """A server that writes to a northbound; with `stop` it does so no more, and what is done by hand stays."""

    server: Serving
    ovn: Central

    def run(self, *args: str, check: bool = False) -> Answer:
        remotes = ("--ovn-nb", self.ovn.northbound.remote, "--ovn-sb", self.ovn.southbound.remote)
        return netloom(*args, *remotes, kubeconfig=self.server.kubeconfig, check=check)

    def doctor(self, *flags: str) -> tuple[int, dict[str, Any]]:
        answer = self.run("doctor", "--chapter", "northbound", "-o", "json", *flags)
        [report] = json.loads(answer.out)["chapters"]
        return answer.rc, report

    def found(self) -> set[tuple[str, str]]:
        return {(one["check"], one["name"]) for one in self.doctor()[1]["complaints"]}

    def ports(self) -> set[str]:
        return set(self.ovn.nbctl("--bare", "--columns=name", "list", "Logical_Switch_Port").split())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("doctor")
    with ovn_central(folder) as ovn, serving(folder, "--ovn-nb", ovn.northbound.remote) as server:
        made = World(server, ovn)
        apply(server, "default", network("blue"), subnet("v4", "10.30.0.0/24"), attachment("a"), attachment("b"))
        wait_until(lambda: made.ports() == {"default/a", "default/b"}, what="the ports")
        yield made


def test_what_is_found_once_only_is_not_confirmed() -> None:
    looks = iter([["a", "b"], ["b", "c"]])
    waits: list[float] = []
    assert confirmed(lambda: next(looks), waits.append) == ["b"]
    assert waits == [SETTLE_SECONDS]
    assert confirmed(list, waits.append) == []
    assert len(waits) == 1, "where nothing is found nobody waits"


def test_there_is_advice_for_everything_that_can_be_found() -> None:
    advised: list[Check] = []
    for doctor in (doctor_addresses, doctor_southbound, doctor_nodes, doctor_northbound, doctor_evpn):
        advised += doctor.ADVICE
    assert sorted(advised) == sorted(Check), "one for each"


def test_what_the_controller_wrote_is_as_it_should_be(world: World) -> None:
    rc, report = world.doctor()
    assert (rc, report["complaints"]) == (0, [])
    assert report["looked_at"]["rows"] >= 3


def test_missing_drifted_and_leftover_rows_are_found_and_mended_and_strangers_stay(world: World) -> None:
    nbctl = world.ovn.nbctl
    nbctl("ls-add", "foreign", "--", "lsp-add", "foreign", "theirs", "--", "lsp-add", "default/blue", "guest")
    nbctl("lsp-set-addresses", "default/a", "02:00:00:00:00:99")
    nbctl("lsp-del", "default/b")
    ids = [f"external_ids:{key}={value}" for key, value in OWNED.items()]
    nbctl("ls-add", "default/gone", "--", "set", "Logical_Switch", "default/gone", *ids)
    assert world.found() == {("drifted-row", "a"), ("missing-row", "b"), ("leftover-row", "gone")}
    answer = world.run("doctor", "--chapter", "northbound")
    assert answer.rc == 1
    assert "Logical_Switch_Port default/a: addresses is 02:00:00:00:00:99, not " in answer.out
    rc, report = world.doctor("--repair")
    assert (rc, report["complaints"]) == (0, [])
    assert {(one["name"], one["repair"]) for one in report["mended"]} == {
        ("a", "restored"),
        ("b", "written"),
        ("gone", "removed"),
    }
    assert world.ports() == {"default/a", "default/b", "theirs", "guest"}
    assert "foreign" in nbctl("ls-list")
    assert "default/gone" not in nbctl("ls-list")
    nbctl("ls-del", "foreign", "--", "lsp-del", "guest")
    assert world.doctor()[0] == 0


def test_a_row_that_is_there_twice_is_one_too_many(world: World) -> None:
    ids = world.ovn.nbctl("get", "Logical_Switch", "default/blue", "external_ids").strip()
    world.ovn.nbctl("create", "Logical_Switch", "name=default/blue", f"external_ids={ids}")
    try:
        # Its driver, which hears of it, may be faster than we are.
        rc, report = world.doctor("--repair")
        assert (rc, report["complaints"]) == (0, [])
    finally:
        assert len(world.ovn.nbctl("ls-list").split()) == 2, "one switch: its uuid and its name"


def test_ports_that_no_chassis_has_are_found_in_the_southbound(world: World) -> None:
    answer = world.run("doctor", "--chapter", "southbound")
    assert answer.rc == 1
    assert (
        "NetworkAttachment default/a: no chassis has claimed port default/a; n1 should.  [port-unbound]" in answer.out
    )


def test_explain_shows_rows_ports_and_where_to_look_next(world: World) -> None:
    answer = world.run("explain", "networkattachment/a", check=True)
    assert "Northbound: 1 row\n  Logical_Switch_Port default/a" in answer.out
    assert "in Logical_Switch default/blue (ports)" in answer.out
    assert "Port_Binding default/a: on no chassis, not up" in answer.out
    assert "MISSING: port default/a is not bound to a chassis" in answer.out
    assert "switch of node n1: no address is configured; run this on the node with --ovs" in answer.out
    assert "Read the logs of ovn-northd, and of ovn-controller on the node." in answer.out
    answer = world.run("explain", "network", "blue", "--flows", check=True)
    assert "Datapath_Binding default/blue: tunnel key" in answer.out


def test_explain_as_json_has_it_all(world: World) -> None:
    found = json.loads(world.run("explain", "na/b", "--flows", "-o", "json", check=True).out)
    assert found["unit"] == "NetworkAttachment/default/b"
    assert found["planned"] == ["Logical_Switch_Port default/b"]
    assert found["rows"][0]["within"] == ["Logical_Switch default/blue (ports)"]
    assert found["south"]["missing"] == ["port default/b is not bound to a chassis"]
    assert {"Addressed"} <= {one["type"] for one in found["conditions"]}


def test_explain_of_something_that_cannot_be_planned_says_why(world: World) -> None:
    apply(world.server, "default", {**router("r"), "spec": {"networks": [{"network": "nowhere"}]}})
    answer = world.run("explain", "router/r", check=True)
    assert "Problems\n" in answer.out
    assert "nowhere" in answer.out
    world.server.cli("delete", "router", "r")


def test_without_access_the_rest_is_told_and_it_is_no_failure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OVN_NB_DB", "OVN_SB_DB"):
        monkeypatch.delenv(name, raising=False)
    answer = world.server.cli("explain", "na/a")
    assert "Planned for the northbound: 1 row" in answer.out
    assert "northbound database: no address is configured; use --ovn-nb, OVN_NB_DB or --lab" in answer.out
    answer = world.server.cli("doctor")
    assert "northbound: not checked: northbound database" in answer.out
    assert "southbound: not checked: southbound database" in answer.out
    monkeypatch.setenv("OVN_NB_DB", world.ovn.northbound.remote)
    assert "Northbound: 1 row" in world.server.cli("explain", "na/a").out


def test_a_database_that_does_not_answer_is_told_and_is_no_failure(world: World, tmp_path: Path) -> None:
    nowhere = f"unix:{tmp_path}/nowhere.sock"
    answer = netloom("explain", "na/a", "--ovn-nb", nowhere, kubeconfig=world.server.kubeconfig)
    assert f"northbound database: {nowhere} does not answer" in answer.out
    answer = netloom("doctor", "--chapter", "northbound", "--ovn-nb", nowhere, kubeconfig=world.server.kubeconfig)
    assert f"northbound: not checked: northbound database: {nowhere} does not answer." in answer.out


@pytest.mark.parametrize(
    ("args", "rc", "said"),
    [
        (("explain", "networkattachment/c"), 1, "not found (there are a, b)"),
        (("explain", "network/bleu"), 1, 'not found (did you mean "blue"?)'),
        (("explain", "networks"), 2, "Name one object"),
        (("explain", "nonsense/x"), 1, "nonsense"),
        (("explain", "network/blue", "--ovn-nb", "blue"), 1, "'blue' is not unix:PATH"),
        (("doctor", "--section", "adresses"), 2, "addresses"),
        (("doctor", "--lab", "/nowhere"), 1, "no lab in /nowhere"),
        (("doctor", "--repare"), 2, "--repair"),
    ],
)
def test_wrong_names_and_flags_are_answered_with_what_there_is(
    world: World, args: tuple[str, ...], rc: int, said: str
) -> None:
    answer = world.server.cli(*args, check=False)
    assert (answer.rc, said in answer.err) == (rc, True), answer.err


def test_what_calls_for_the_same_is_told_together_and_many_are_cut_short() -> None:
    complaints = [
        Complaint(
            check="missing-row", kind="Network", namespace="default", name=f"n{i}", message="gone", advice="Wait."
        )
        for i in range(MOST + 5)
    ]
    text = lines(Report(section="c", checked={"rows": 1}, complaints=tuple(complaints)))
    assert text.count("    Wait.") == 1
    assert text[-3:] == ["  and 5 more.  [missing-row]", "    Wait.", "c: 25 problems found."]
