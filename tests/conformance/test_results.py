"""Which of Kubernetes' tests are run, and how their report is read."""

import re

from tests.conformance import results
from tests.conformance.results import Outcome

LISTED = """The following spec names can be used with 'ginkgo run --focus/skip':
    test/e2e/network/dns.go:54: [sig-network] DNS should provide DNS (all of it) [Conformance]
    test/e2e/network/netpol/network_policy.go:80: [sig-network] Netpol should deny [Feature:NetworkPolicy]
    test/e2e/network/netpol/network_policy.go:90: [sig-network] Netpol should deny [Feature:NetworkPolicy] [Serial]
    test/e2e/network/netpol/network_policy_api.go:52: [sig-network] Netpol API should support creating NetworkPolicy API
    test/e2e/network/loadbalancer.go:12: [sig-network] LoadBalancers should work
    test/e2e/apps/job.go:12: [sig-apps] Job should run [Conformance]

"""
DNS, DENY, SERIAL, API = results.selected(LISTED)


def test_tests_of_conformance_and_of_policies_are_run() -> None:
    assert DNS == "[sig-network] DNS should provide DNS (all of it) [Conformance]"
    assert f"{DENY} [Serial]" == SERIAL
    assert API.startswith("[sig-network] Netpol API")


def test_tests_of_sctp_are_excluded_where_the_kernel_has_none() -> None:
    sctp = f"[sig-network] Netpol {results.SCTP} should deny [Feature:NetworkPolicy]"
    assert results.exclusions([DNS, sctp], sctp=False) == {sctp: "the kernel has no SCTP"}
    assert results.exclusions([DNS, sctp], sctp=True) == {}


def test_a_focus_matches_the_whole_name_and_no_other() -> None:
    focus = re.compile(results.focus([DNS, DENY]))
    matched = [name for name in (DNS, DENY, SERIAL, API) if focus.search(f"Kubernetes e2e suite {name}")]
    assert matched == [DNS, DENY]


def test_serial_tests_run_after_all_others() -> None:
    assert results.portions([DNS, DENY, SERIAL, API], 2) == [[DNS, API], [DENY], [SERIAL]]


def test_a_report_says_what_passed_and_why_others_did_not() -> None:
    report = f"""<testsuites><testsuite>
    <testcase name="[It] {DNS}"></testcase>
    <testcase name="[It] {DENY}"><failure message="not
       reached"/></testcase>
    <testcase name="[It] {SERIAL}"><skipped message="needs a cloud"/></testcase>
    <testcase name="[It] another"></testcase></testsuite></testsuites>"""
    names = [DNS, DENY, SERIAL, API]
    found = results.outcomes(report, names)
    assert found == {
        DNS: Outcome("passed"),
        DENY: Outcome("failed", "not reached"),
        SERIAL: Outcome("skipped", "needs a cloud"),
    }
    *lines, last = results.summary(names, found, {}).splitlines()
    assert lines == [
        f"failed    {DENY}: not reached",
        f"skipped   {SERIAL}: needs a cloud",
        f"failed    {API}: it was not run to its end",
    ]
    assert last == "1 passed, 3 failed, 0 excluded"
    assert not results.has_passed(names, found)
    excluded = results.summary([DNS, API], found, {API: "the kernel has none"})
    assert excluded == f"excluded  {API}: the kernel has none\n1 passed, 0 failed, 1 excluded"
    assert results.has_passed([DNS], found)
