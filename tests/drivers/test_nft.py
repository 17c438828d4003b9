"""Our table in a real nftables: written in differences, restored, removed, and nobody else's is touched."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from netloom.drivers.nft import forwarding
from netloom.drivers.nft.changes import changes
from netloom.drivers.nft.driver import NftTable
from netloom.drivers.nft.listing import SeenTable
from netloom.drivers.nft.listing import table as decoded
from netloom.model.kinds.policy import ExternalAddress, ExternalTrafficPolicy, LoadBalancer, Vip
from netloom.plan.kube.node.nftables import Table
from netloom.plan.kube.node.table import TABLE, plan_table
from netloom.plan.problem import ProblemError
from tests.drivers.nft_world import NODE, load, nft, ruleset
from tests.plan.test_kube_node import balancer
from tests.support.ovn import namespace, own, run
from tests.support.process import wait_until

pytestmark = [pytest.mark.root]
KILLS = int(os.environ.get("NETLOOM_TEST_KILLS", "8"))
LOCAL = ExternalTrafficPolicy.LOCAL
FOREIGN = """
table ip netloom {
    chain c {
        type filter hook input priority 0; policy accept;
        tcp dport 1 counter
    }
}
table inet kube-proxy {
    comment "not ours"
    set s {
        type ipv4_addr
        flags interval
        elements = { 10.0.0.0/8, 192.0.2.1 }
    }
    chain c {
        type nat hook prerouting priority dstnat; policy accept;
        ip saddr @s counter drop
    }
}
table bridge b {
    chain c {
        type filter hook forward priority 0; policy drop;
    }
}
"""


@pytest.fixture
def netns() -> Iterator[str]:
    name = own("nlt-nft")
    with namespace(name):
        yield name


def service(number: int, *ends: str, policy: ExternalTrafficPolicy = ExternalTrafficPolicy.CLUSTER) -> LoadBalancer:
    vips = (
        Vip(ip=f"10.96.{number // 250}.{number % 250}", port=80, node_port=30000 + number),
        Vip(ip=f"fd00:2::{number:x}", port=80, node_port=30000 + number),
    )
    ranges = ("198.51.100.0/24", "0.0.0.0/1", "2001:db8::/32") if number % 3 == 0 else ()
    external = (ExternalAddress(ip=f"203.0.{113 + number // 250}.{number % 250}", source_ranges=ranges),)
    return balancer(f"s{number}", *vips, ends=ends, policy=policy, external=external, affinity=number % 2)


def wanted(*balancers: LoadBalancer) -> Table:
    return plan_table(NODE, balancers).table


SOME = wanted(
    service(1),
    service(2, "10.244.1.7", "10.244.1.8", policy=LOCAL),
    service(3, "10.244.1.7", "10.244.1.8", "fd00:1:0:1::7", policy=LOCAL),
    service(4, "10.244.2.7", policy=LOCAL),
)


def do(*work: Callable[[], Awaitable[object]]) -> None:
    async def main() -> None:
        for one in work:
            await one()

    asyncio.run(main())


def seen_by_nft(netns: str) -> SeenTable | None:
    """Return our table, if there is one, as it is."""
    found = subprocess.run(
        ["ip", "netns", "exec", netns, "nft", "-j", "list", "table", "inet", TABLE], capture_output=True, check=False
    )
    return decoded(json.loads(found.stdout), TABLE) if found.returncode == 0 else None


def test_a_table_is_as_planned_and_compared_again_writes_nothing(netns: str) -> None:
    first, second = nft(netns), nft(netns)
    do(lambda: first.compare(SOME), lambda: first.compare(SOME), lambda: second.compare(SOME))
    assert (first.transactions, second.transactions) == (1, 0)
    assert first.seen == second.seen
    assert first.seen["node-ports4/6 . 30001"] == "10.96.0.1 . 80"
    assert first.seen["externals-local4/203.0.113.4 . 6 . 80"] == "drop"
    assert first.connected
    assert first.current


def test_every_change_is_one_transaction_of_its_differences(netns: str) -> None:
    chosen = random.Random(7)
    driver, reader = nft(netns), nft(netns)

    async def main() -> None:
        await driver.compare(wanted())
        for step in range(15):
            made = []
            for number in chosen.sample(range(20), 6):
                ends = chosen.sample(("10.244.1.7", "10.244.1.8", "10.244.1.9", "10.244.2.7", "fd00:1:0:1::7"), 3)
                made.append(service(number, *ends, policy=chosen.choice(list(ExternalTrafficPolicy))))
            table = wanted(*made)
            await driver.apply(table)
            await reader.compare(table)
            assert driver.transactions == step + 2
        assert reader.transactions == 0
        assert driver.comparisons == 1

    do(main)


def test_one_service_of_a_thousand_is_one_transaction_of_two_elements_a_family(netns: str) -> None:
    many = [service(number) for number in range(1000)]
    driver = nft(netns)

    async def main() -> None:
        await driver.compare(wanted(*many))
        assert len([key for key in driver.seen if key.startswith("node-ports4/")]) == 1000
        before = (driver.transactions, driver.elements)
        changed = balancer("s500", Vip(ip="10.97.0.1", port=80, node_port=30500), *many[500].spec.vips[1:])
        many[500] = balancer("s500", *changed.spec.vips, external=many[500].spec.external_addresses)
        await driver.apply(wanted(*many))
        # The node port is another, and so is the external address: of each, one element is deleted and one added.
        assert (driver.transactions, driver.elements) == (before[0] + 1, before[1] + 4)
        await driver.recount()
        assert driver.current

    do(main)


@pytest.mark.parametrize(
    "damage",
    [
        "flush ruleset",
        f"delete table inet {TABLE}",
        f"delete element inet {TABLE} node-ports4 {{ 6 . 30001 }}",
        f"add element inet {TABLE} node-ports4 {{ 6 . 31111 : 10.96.0.9 . 9 }}",
        f"flush chain inet {TABLE} postrouting",
        f"add rule inet {TABLE} services drop",
        f"insert rule inet {TABLE} services accept",
        f"add chain inet {TABLE} more {{ type filter hook input priority 0; policy drop; }}",
        f"add chain inet {TABLE} more; add rule inet {TABLE} more drop; add rule inet {TABLE} output jump more",
        f"add set inet {TABLE} more {{ type ipv4_addr; elements = {{ 192.0.2.1 }}; }}",
        f"add table inet {TABLE} {{ flags dormant; }}",
        f"add counter inet {TABLE} count",
    ],
)
def test_what_others_change_in_our_table_is_restored(netns: str, damage: str) -> None:
    driver = nft(netns)
    do(lambda: driver.compare(SOME))
    before = seen_by_nft(netns)
    load(netns, damage.replace("; add", "\nadd") + "\n")
    outdated: list[bool] = []
    driver.on_outdated.connect(lambda: outdated.append(True))
    do(driver.recount)
    assert outdated == [True]
    do(lambda: driver.compare(SOME))
    assert seen_by_nft(netns) == before
    assert driver.transactions == 2


def test_nobody_elses_table_is_touched(netns: str) -> None:
    load(netns, FOREIGN)
    before = ruleset(netns)
    driver = nft(netns)
    do(
        lambda: driver.compare(SOME),
        lambda: driver.apply(wanted(service(1))),
        lambda: driver.compare(SOME),
        lambda: driver.apply(None),
    )
    assert ruleset(netns) == before
    do(lambda: driver.compare(None))
    assert driver.transactions == 4


def test_a_change_that_others_have_made_impossible_is_compared_next_time(netns: str) -> None:
    driver = nft(netns)
    outdated: list[bool] = []
    driver.on_outdated.connect(lambda: outdated.append(True))
    do(lambda: driver.compare(SOME))
    load(netns, "flush ruleset\n")
    with pytest.raises(ProblemError, match="nft refused a change of table inet netloom"):
        do(lambda: driver.apply(wanted(service(1))))
    assert outdated == [True]
    assert driver.numbers()["nft_refused"] == 1
    do(lambda: driver.apply(wanted(service(1))))
    assert driver.current
    assert not driver.refused
    assert "node-ports4/6 . 30001" in driver.seen


def test_a_missing_nft_names_the_package() -> None:
    driver = NftTable(TABLE, program=("/nowhere/nft",))
    with pytest.raises(ProblemError, match=r"cannot be run .* install the package nftables") as error:
        do(lambda: driver.compare(SOME))
    assert error.value.problem.reason == "NftMissing"
    assert not driver.connected


def test_an_nft_that_prints_rules_in_another_form_does_not_make_us_write_them_again(netns: str, tmp_path: Path) -> None:
    other = tmp_path / "nft"
    program = f'ip netns exec {netns} nft "$@" | sed \'s/"offset": 0/"offset": 0, "new": true/g\''
    other.write_text(f"#!/bin/bash\nset -o pipefail\n{program}\n")
    other.chmod(0o755)
    driver = NftTable(TABLE, program=(str(other),))
    local = wanted(service(2, "10.244.1.7", "10.244.1.8", policy=LOCAL))
    do(lambda: driver.compare(local), lambda: driver.compare(local))
    assert driver.transactions == 1
    load(netns, f"flush chain inet {TABLE} local4-2\n")
    do(lambda: driver.compare(local), lambda: driver.compare(local))
    assert driver.transactions == 2


def test_output_that_is_no_listing_is_an_error_and_changes_nothing(netns: str, tmp_path: Path) -> None:
    other = tmp_path / "nft"
    other.write_text('#!/bin/sh\necho "{nonsense"\n')
    other.chmod(0o755)
    with pytest.raises(ProblemError, match="nft -j list table"):
        do(lambda: NftTable(TABLE, program=(str(other),)).compare(SOME))
    other.write_text('#!/bin/sh\necho "Operation not permitted" >&2; exit 1\n')
    with pytest.raises(ProblemError, match="cannot list table inet netloom: Operation not permitted"):
        do(lambda: NftTable(TABLE, program=(str(other),)).compare(SOME))
    assert ruleset(netns) == ""


# Kills.

AGENT = """
import asyncio, sys, msgspec
from netloom.drivers.nft.driver import NftTable
from tests.drivers.test_nft import SOME, TABLE, service, wanted
MANY = wanted(*(service(number) for number in range(300)))
async def main():
    driver = NftTable(TABLE, program=sys.argv[2:])
    while True:
        for table in (MANY, SOME) if sys.argv[1] == "loop" else (SOME,):
            print("step", flush=True)
            driver.invalidate()
            await driver.apply(table)
asyncio.run(main())
"""


def test_an_agent_killed_between_reading_and_writing_leaves_the_table_as_it_was(netns: str, tmp_path: Path) -> None:
    do(lambda: nft(netns).compare(wanted(service(9))))
    before = ruleset(netns)
    # This nft waits before it writes.
    slow, begun = tmp_path / "nft", tmp_path / "begun"
    slow.write_text(
        f'#!/bin/sh\nif [ "$1" = -f ]; then echo $$ > {begun}; sleep 60; fi\nexec ip netns exec {netns} nft "$@"\n'
    )
    slow.chmod(0o755)
    agent = subprocess.Popen([sys.executable, "-c", AGENT, "once", str(slow)], stdout=subprocess.PIPE)
    wait_until(lambda: begun.exists() and begun.read_text().strip(), what="the agent to write")
    agent.kill()
    agent.communicate()
    os.kill(int(begun.read_text()), signal.SIGKILL)
    assert ruleset(netns) == before
    driver = nft(netns)
    do(lambda: driver.compare(SOME))
    assert driver.transactions == 1


def test_an_agent_killed_at_any_time_leaves_one_table_or_the_other(netns: str) -> None:
    tables = (wanted(*(service(number) for number in range(300))), SOME)
    program = ("ip", "netns", "exec", netns, "nft")
    chosen = random.Random(3)
    for _ in range(KILLS):
        agent = subprocess.Popen([sys.executable, "-c", AGENT, "loop", *program], stdout=subprocess.PIPE)
        assert agent.stdout is not None
        for _ in range(chosen.randrange(1, 6)):
            assert agent.stdout.readline() == b"step\n"
        time.sleep(chosen.random() * 0.05)
        agent.kill()
        agent.communicate()
        # An nft that the agent had started may still be writing: it, too, writes all or nothing.
        seen = seen_by_nft(netns)
        left = [changes(TABLE, seen, table).text for table in tables]
        assert seen is None or "\n" in left, left
    wait_until(lambda: not run("ip", "netns", "pids", netns), what="the last nft to end")
    do(lambda: nft(netns).compare(SOME))
    assert not changes(TABLE, seen_by_nft(netns), SOME)


# The kernel's settings.


def sysctl(root: Path, **values: str) -> None:
    for name, value in values.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value + "\n")


def test_forwarding_is_switched_on_where_it_is_off_and_router_advertisements_stay(tmp_path: Path) -> None:
    sysctl(
        tmp_path,
        ipv4__ip_forward="0",
        ipv6__conf__all__forwarding="0",
        ipv6__conf__all__accept_ra="1",
        ipv6__conf__default__accept_ra="1",
        ipv6__conf__eth0__accept_ra="1",
        ipv6__conf__eth1__accept_ra="0",
    )
    sysctl(tmp_path / "ipv4/conf/nl-host", forwarding="0")
    assert forwarding.enable("nl-host", (4, 6), root=tmp_path) == [
        "net.ipv4.ip_forward = 1",
        "net.ipv4.conf.nl-host.forwarding = 1",
        "net.ipv6.conf.default.accept_ra = 2",
        "net.ipv6.conf.eth0.accept_ra = 2",
        "net.ipv6.conf.all.forwarding = 1",
    ]
    assert forwarding.enable("nl-host", (4, 6), root=tmp_path) == []
    assert (tmp_path / "ipv6/conf/all/accept_ra").read_text() == "1\n"


def test_a_cluster_of_ipv4_leaves_ipv6_alone(tmp_path: Path) -> None:
    sysctl(tmp_path, ipv4__ip_forward="1", ipv6__conf__all__forwarding="0")
    assert forwarding.enable("nl-host", (4,), root=tmp_path) == []


def test_settings_that_cannot_be_made_are_a_problem_that_says_what_to_set(tmp_path: Path) -> None:
    sysctl(tmp_path, ipv4__ip_forward="1")
    with pytest.raises(ProblemError, match="the cluster has IPv6, and this node's kernel has it switched off"):
        forwarding.enable("nl-host", (6,), root=tmp_path)
    # The kernel refuses this value, as it refuses any where /proc/sys is read only.
    broken = tmp_path / "ipv4/conf/eth0.5"
    broken.mkdir(parents=True)
    (broken / "forwarding").symlink_to("/proc/version")
    with pytest.raises(ProblemError, match=r"net\.ipv4\.conf\.eth0/5\.forwarding is .* set it on the node"):
        forwarding.enable("eth0.5", (4,), root=tmp_path)
