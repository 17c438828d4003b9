"""Devices in real namespaces: what is planned is there, twice is once, and what is others' stays."""

import asyncio
import json
import os
import subprocess
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from netloom.drivers.link import kernel as link
from netloom.drivers.link.codec import Neighbour
from netloom.drivers.link.worker import Links
from netloom.model.kinds.attachments import PortType
from netloom.plan.node.ports import PlannedRoute, PortPlan
from netloom.plan.problem import ProblemError
from tests.run.agents import in_thread
from tests.support.ovn import namespace, own, run, within

pytestmark = [pytest.mark.lab, pytest.mark.root]
T = TypeVar("T")
NODE, WORK = own("nlt-ag-node"), own("nlt-ag-work")
PLAN = PortPlan(
    uid="u1",
    namespace="ns1",
    name="a",
    type=PortType.VETH,
    device="nl020000000009",
    inner="eth0",
    netns=f"/run/netns/{WORK}",
    mac="02:00:00:00:00:09",
    mtu=1400,
    addresses=("10.0.0.9/24", "fd00::9/64"),
    routes=(PlannedRoute("0.0.0.0/0", "10.0.0.1", False), PlannedRoute("10.9.0.0/16", "172.16.0.1", True)),
)


@pytest.fixture
def work() -> Iterator[str]:
    with namespace(NODE), namespace(WORK):
        yield WORK


def on_node(main: Coroutine[Any, Any, T]) -> T:
    """Run something as if the node were the namespace `NODE`."""

    def there() -> T:
        with link.entered(f"/run/netns/{NODE}"):
            return asyncio.run(main)

    result: T = in_thread(there)
    return result


def shown(netns: str, *argv: str) -> str:
    return run(*within(netns, "ip", *argv))


def test_the_nodes_kernel_does_not_answer_a_workload_past_the_switch(work: str) -> None:
    async def main() -> None:
        links = Links(owner="x")
        await links.pair(PLAN, ())
        links.close()

    run(*within(NODE, "ip", "address", "add", "10.0.0.77/32", "dev", "lo"))
    on_node(main())
    run(*within(work, "ping", "-c", "1", "-W", "1", "10.0.0.77"), check=False)
    assert "lladdr" not in shown(work, "neighbour", "show", "10.0.0.77")
    assert run(*within(NODE, "cat", f"/proc/sys/net/ipv4/conf/{PLAN.device}/rp_filter")) == "1\n"


def test_a_pair_is_made_as_planned_and_planned_again_writes_nothing(work: str) -> None:
    async def main() -> tuple[int, int]:
        links = Links(owner="x")
        await links.pair(PLAN, ())
        first = links.counters.writes
        await links.pair(PLAN, PLAN.addresses)
        links.close()
        return first, links.counters.writes

    first, second = on_node(main())
    assert first == second > 0
    addresses = shown(work, "addr", "show", "eth0")
    assert "link/ether 02:00:00:00:00:09" in addresses
    assert "mtu 1400" in addresses
    assert "inet 10.0.0.9/24" in addresses
    assert "inet6 fd00::9/64 scope global nodad" in addresses
    assert "default via 10.0.0.1 dev eth0" in shown(work, "route")
    assert "10.9.0.0/16 via 172.16.0.1 dev eth0 proto 173 onlink" in shown(work, "route")
    assert "alias netloom/x/u1" in shown(NODE, "link")
    assert "inet6" not in shown(NODE, "addr", "show", PLAN.device)
    assert "tx-checksumming: off" in run(*within(work, "ethtool", "-k", "eth0"))


def test_a_link_that_is_down_has_no_carrier_and_keeps_its_addresses_and_routes(work: str) -> None:
    async def main(*, down: bool) -> int:
        links = Links(owner="x")
        await links.pair(replace(PLAN, link_down=down), ())
        before = links.counters.writes
        await links.pair(replace(PLAN, link_down=down), PLAN.addresses)
        links.close()
        return links.counters.writes - before

    on_node(main(down=False))
    assert on_node(main(down=True)) == 0
    assert "NO-CARRIER" in shown(work, "link", "show", "eth0")
    assert "inet 10.0.0.9/24" in shown(work, "addr", "show", "eth0")
    assert "default via 10.0.0.1 dev eth0" in shown(work, "route")
    assert on_node(main(down=False)) == 0
    assert "LOWER_UP" in shown(work, "link", "show", "eth0")
    assert "inet6 fd00::9/64" in shown(work, "addr", "show", "eth0")


def test_a_device_of_the_node_is_set_down_without_its_routes_and_up_with_them(work: str) -> None:
    subprocess.run(within(NODE, "ip", "link", "add", "nl0", "type", "veth", "peer", "name", "far"), check=True)
    subprocess.run(within(NODE, "ip", "link", "set", "far", "up"), check=True)
    plan = replace(PLAN, type=PortType.INTERNAL, device="nl0", inner="nl0", netns="", routes=PLAN.routes[:1])

    async def main(*, down: bool) -> int:
        links = Links(owner="x")
        await links.inner(replace(plan, link_down=down), ())
        before = links.counters.writes
        await links.inner(replace(plan, addresses=("10.0.0.9/24",), link_down=down), ("10.0.0.9/24",))
        links.close()
        return links.counters.writes - before

    for _ in range(2):
        on_node(main(down=False))
        assert "default via 10.0.0.1 dev nl0" in shown(NODE, "route")
        assert on_node(main(down=True)) == 0
        assert "state DOWN" in shown(NODE, "link", "show", "nl0")
        assert "inet 10.0.0.9/24" in shown(NODE, "addr", "show", "nl0")
        assert "default" not in shown(NODE, "route")


def test_only_what_we_gave_is_taken_away(work: str) -> None:
    async def main() -> None:
        links = Links(owner="x")
        await links.pair(PLAN, ())
        shown(work, "addr", "add", "192.0.2.1/32", "dev", "eth0")
        shown(work, "route", "add", "192.0.2.128/25", "via", "10.0.0.2")
        await links.pair(replace(PLAN, addresses=("10.0.0.10/24",), routes=()), PLAN.addresses)
        links.close()

    on_node(main())
    addresses, routes = shown(work, "addr", "show", "eth0"), shown(work, "route")
    assert "10.0.0.10/24" in addresses
    assert "192.0.2.1/32" in addresses
    assert "10.0.0.9/24" not in addresses
    assert "fd00::9" not in addresses
    assert "default" not in routes
    assert "192.0.2.128/25" in routes


def test_another_name_or_place_means_another_pair(work: str) -> None:
    async def main() -> None:
        links = Links(owner="x")
        await links.pair(PLAN, ())
        await links.pair(replace(PLAN, inner="net1"), ())
        links.close()

    on_node(main())
    assert "eth0" not in shown(work, "-br", "link")
    assert "net1@" in shown(work, "-br", "link")


@pytest.mark.parametrize(
    ("plan", "word"),
    [
        (replace(PLAN, netns="/run/netns/nlt-ag-no-such"), "NamespaceMissing"),
        (replace(PLAN, netns="/etc/passwd"), "NamespaceMissing"),
        (replace(PLAN, inner="lo"), "NameTaken"),
        (replace(PLAN, device="lo"), "NameTaken"),
        (replace(PLAN, routes=(PlannedRoute("10.5.0.0/16", "172.16.0.1", False),)), "KernelRefused"),
    ],
)
def test_what_stands_in_the_way_is_said_in_a_word(work: str, plan: PortPlan, word: str) -> None:
    async def main() -> None:
        links = Links(owner="x")
        try:
            await links.pair(plan, ())
        finally:
            links.close()

    with pytest.raises(ProblemError) as caught:
        on_node(main())
    assert caught.value.problem.reason == word


def test_a_route_that_is_somebody_elses_is_not_replaced(work: str) -> None:
    async def main() -> None:
        links = Links(owner="x")
        await links.pair(replace(PLAN, routes=()), ())
        shown(work, "route", "add", "default", "via", "10.0.0.77")
        try:
            await links.pair(PLAN, ())
        finally:
            links.close()

    with pytest.raises(ProblemError) as caught:
        on_node(main())
    assert caught.value.problem.reason == "RouteTaken"
    assert "default via 10.0.0.77" in shown(work, "route")


def test_a_pipe_where_a_namespace_should_be_does_not_stop_us(work: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    async def main() -> None:
        links = Links(owner="x")
        try:
            await links.pair(replace(PLAN, netns=str(pipe)), ())
        finally:
            links.close()

    with pytest.raises(ProblemError):
        on_node(main())


def test_what_is_no_namespace_is_looked_at_but_never_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    flags: list[int] = []
    really_open = os.open

    def noted(path: str, how: int) -> int:
        flags.append(how)
        return really_open(path, how)

    monkeypatch.setattr(os, "open", noted)
    for path in ("/dev/null", "/etc/passwd", "/proc", "/proc/kmsg"):
        with pytest.raises(ProblemError, match="is not a network namespace"):
            link.opened(path)
    assert len(flags) == 4
    assert all(how & os.O_PATH for how in flags)


@pytest.fixture
def granted(work: str, tmp_path: Path) -> Iterator[Path]:
    """Give a folder of network namespaces in which a tenant put things of its own beside what was given to it."""
    folder = tmp_path / "netns"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "w").touch()
    (folder / "a" / "link").symlink_to(f"/run/netns/{work}")
    (folder / "a" / "own").symlink_to("/proc/self/ns/net")
    (folder / "a" / "other").symlink_to("../b")
    (folder / "b").symlink_to("a")
    (tmp_path / "var").symlink_to("netns")
    run("mount", "--bind", f"/run/netns/{work}", folder / "a" / "w")
    try:
        yield folder
    finally:
        run("umount", folder / "a" / "w")


def test_below_the_operators_folder_no_link_is_followed(granted: Path, work: str) -> None:
    for root in (granted, granted.parent / "var"):  # What the operator wrote may be a link.
        found = link.opened(f"{root}/a/w", root=str(root))
        assert os.fstat(found).st_ino == os.stat(f"/run/netns/{work}").st_ino
        os.close(found)
        for path in ("a/link", "a/own", "b/w", "a/other/w"):
            with pytest.raises(ProblemError, match=r"is a symbolic link.*netnsFolders") as caught:
                link.opened(f"{root}/{path}", root=str(root))
            assert caught.value.problem.reason == "NotGranted"
    with pytest.raises(ProblemError, match="is a symbolic link"):
        link.opened(f"{granted.resolve()}/a/link", root="/")
    for path in ("a/nobody", "a/w/deeper", "nobody/w"):
        with pytest.raises(ProblemError, match="there is no network namespace"):
            link.opened(f"{granted}/{path}", root=str(granted))
    open_now = os.listdir("/proc/self/fd")
    with pytest.raises(ProblemError, match="cannot be opened"):
        link.opened(f"{granted}/a/../a/w", root=str(granted))
    assert os.listdir("/proc/self/fd") == open_now


def test_the_nodes_own_namespace_by_another_name_is_known_as_such(work: str) -> None:
    async def main(own: str) -> str:
        links = Links(owner="x")
        try:
            await links.pair(replace(PLAN, netns=f"/run/netns/{NODE}", inner="in0", routes=(), own_netns=own), ())
        except ProblemError as error:
            return error.problem.reason
        finally:
            links.close()
        return ""

    assert on_node(main("no internal ports here")) == "NotGranted"
    assert "in0" not in shown(NODE, "link")
    assert on_node(main("")) == ""
    assert "in0" in shown(NODE, "link")


def test_a_pair_is_ours_also_where_there_is_no_ipv6_to_hush(work: str) -> None:
    async def main() -> dict[str, str]:
        links = Links(owner="x")
        await links.pair(
            replace(PLAN, mtu=1000, addresses=("10.0.0.9/24",), four_only=True), ()
        )  # Less than IPv6 can live with.
        found = await links.pairs()
        links.close()
        return found

    assert on_node(main()) == {PLAN.device: PLAN.uid}
    assert "inet 10.0.0.9/24" in shown(work, "addr", "show", "eth0")


@pytest.mark.parametrize("alone", [True, False])
def test_a_device_of_ipv4_alone_says_nothing_over_ipv6(work: str, alone: bool) -> None:
    async def main() -> None:
        links = Links(owner="x")
        await links.pair(replace(PLAN, addresses=("10.0.0.9/24",), routes=(), four_only=alone), ())
        links.close()

    on_node(main())
    assert ("inet6 fe80::" in shown(work, "addr", "show", "eth0")) is not alone


def test_a_device_that_is_given_an_ipv6_address_later_may_speak_it(work: str) -> None:
    async def main(addresses: tuple[str, ...], given: tuple[str, ...]) -> int:
        links = Links(owner="x")
        four_only = not any(":" in one for one in addresses)
        await links.pair(replace(PLAN, addresses=addresses, routes=(), four_only=four_only), given)
        links.close()
        return links.counters.writes

    on_node(main(("10.0.0.9/24",), ()))
    on_node(main(PLAN.addresses, ("10.0.0.9/24",)))
    assert "inet6 fd00::9/64" in shown(work, "addr", "show", "eth0")
    assert on_node(main(PLAN.addresses, PLAN.addresses)) == 0
    shown(work, "link", "set", "eth0", "down")
    shown(work, "link", "set", "eth0", "up")
    assert "inet6 fe80::ff:fe00:9/64" in shown(work, "addr", "show", "eth0")


def test_what_the_node_does_with_its_devices_is_known(work: str) -> None:
    async def main() -> dict[str, str]:
        links = Links(owner="x")
        found = {one.name: await links.in_use(one, switched=False) for one in await links.devices()}
        links.close()
        return found

    for command in (
        "link add addressed type veth peer name free",
        "address add 192.0.2.1/24 dev addressed",
        "link set addressed up",
        "link set free up",
        "link add br-lin type bridge",
        "link add card type veth peer name other",
        "link set card master br-lin",
    ):
        run(*within(NODE, "ip", *command.split()))
    assert on_node(main()) == {
        "lo": "is the node's loopback",
        "addressed": "has the node's own address 192.0.2.1/24",
        "free": "",
        "br-lin": "has card in it",
        "card": "",
        "other": "",
    }


def test_only_pairs_of_our_owner_are_removed(work: str) -> None:
    async def main() -> dict[str, str]:
        ours, theirs = Links(owner="x"), Links(owner="y")
        await ours.pair(PLAN, ())
        await theirs.remove_pair(PLAN.device)
        found = {**await ours.pairs(), **await theirs.pairs()}
        await ours.remove_pair(PLAN.device)
        ours.close()
        theirs.close()
        return found

    assert on_node(main()) == {PLAN.device: "u1"}
    assert PLAN.device not in shown(NODE, "-br", "link")


def test_devices_move_between_bridges_and_go_up(work: str) -> None:
    subprocess.run(within(NODE, "ip", "link", "add", "br0", "type", "bridge"), check=True)
    subprocess.run(within(NODE, "ip", "link", "add", "nic", "type", "veth", "peer", "name", "far"), check=True)

    async def main() -> list[str]:
        links = Links(owner="x")
        found = []
        for master in ("br0", ""):
            await links.enslave("nic", master)
            device = await links.device("nic")
            assert device is not None
            found.append(await links.bridge_of(device))
        await links.set_up("nic", up=True)
        device = await links.device("nic")
        assert device is not None
        assert device.up
        await links.set_up("nic", up=False)
        device = await links.device("nic")
        assert device is not None
        assert not device.up
        with pytest.raises(ProblemError):
            await links.set_up("no-such", up=True)
        with pytest.raises(ProblemError):
            await links.enslave("nic", "no-such")
        assert await links.holder("203.0.113.1") is None
        links.close()
        return found

    assert on_node(main()) == ["br0", ""]


def test_the_kernel_is_probed_without_a_trace(work: str) -> None:
    async def main() -> dict[str, bool]:
        links = Links(owner="x")
        found = await links.probe()
        links.close()
        return found

    def devices() -> set[str]:
        return {line.split()[0] for line in shown(NODE, "-br", "link").splitlines()}

    before = devices()
    found = on_node(main())
    assert found["bridge"] is True
    assert {"netem", "geneve", "vrf", "tbf"} <= found.keys()
    assert devices() <= before  # Those of a test before may be going still.


def test_next_hops_are_resolved_and_static_neighbours_stay_as_they_are(work: str) -> None:
    run("ip", "link", "add", "up0", "netns", NODE, "type", "veth", "peer", "name", "up0", "netns", WORK)
    for name, last in ((NODE, 1), (WORK, 2)):
        run(*within(name, "ip", "link", "set", "up0", "up"))
        run(*within(name, "ip", "address", "add", f"10.7.0.{last}/24", "dev", "up0"))
        run(*within(name, "ip", "address", "add", f"fd07::{last}/64", "dev", "up0", "nodad"))
    run(*within(NODE, "ip", "route", "add", "10.99.0.0/16", "via", "10.7.0.2"))
    run(*within(NODE, "ip", "neighbour", "add", "10.7.0.77", "lladdr", "02:00:00:00:00:77", "dev", "up0"))

    async def resolved(*ips: str) -> dict[str, Neighbour]:
        links = Links(owner="x")
        try:
            await links.resolve(ips)
            for _ in range(500):
                if len(found := await links.neighbours(ips)) >= 2:
                    break
                await asyncio.sleep(0.02)
            return found
        finally:
            links.close()

    mac = json.loads(shown(WORK, "-j", "link", "show", "up0"))[0]["address"]
    found = on_node(resolved("10.99.1.2", "fd07::2"))
    assert found == {"10.99.1.2": ("10.7.0.2", "up0", mac), "fd07::2": ("fd07::2", "up0", mac)}
    # Again, now that they are known; nothing leads to the last two but the node itself and nowhere.
    found = on_node(resolved("10.7.0.2", "fd07::2", "10.7.0.77", "10.7.0.1", "192.0.2.1"))
    assert found.pop("10.7.0.77") == ("10.7.0.77", "up0", "02:00:00:00:00:77")
    assert found.keys() <= {"10.7.0.2", "fd07::2"}
    assert "PERMANENT" in shown(NODE, "neighbour", "show", "10.7.0.77", "dev", "up0")
    for ip in ("10.7.0.2", "fd07::2"):
        assert mac in shown(NODE, "neighbour", "show", ip, "dev", "up0")


def test_a_neighbour_that_does_not_answer_is_not_known(work: str) -> None:
    run("ip", "link", "add", "up0", "netns", NODE, "type", "veth", "peer", "name", "up0", "netns", WORK)
    run(*within(NODE, "ip", "link", "set", "up0", "up"))
    run(*within(NODE, "ip", "address", "add", "10.7.0.1/24", "dev", "up0"))

    async def asked() -> dict[str, Neighbour]:
        links = Links(owner="x")
        try:
            await links.resolve(["10.7.0.2"])
            return await links.neighbours(["10.7.0.2"])
        finally:
            links.close()

    assert on_node(asked()) == {}


def test_a_neighbour_that_is_known_only_by_what_it_sent_is_probed(work: str) -> None:
    # As when two nodes start: ours asked before the other was there, and then the other asked for ours.
    run("ip", "link", "add", "up0", "netns", NODE, "type", "veth", "peer", "name", "up0", "netns", WORK)
    for name, last in ((NODE, 1), (WORK, 2)):
        run(*within(name, "ip", "link", "set", "up0", "up"))
        run(*within(name, "ip", "address", "add", f"10.7.0.{last}/24", "dev", "up0"))
    mac = json.loads(shown(WORK, "-j", "link", "show", "up0"))[0]["address"]
    run(*within(NODE, "ip", "neighbour", "replace", "10.7.0.2", "lladdr", mac, "nud", "stale", "dev", "up0"))

    async def known() -> dict[str, Neighbour]:
        links = Links(owner="x")
        try:
            for _ in range(500):
                if found := await links.neighbours(["10.7.0.2"]):
                    return found
                await asyncio.sleep(0.02)
            return {}
        finally:
            links.close()

    assert on_node(known()) == {"10.7.0.2": ("10.7.0.2", "up0", mac)}


def test_a_pair_that_was_made_ahead_is_silent_until_its_inner_end_is_moved(work: str) -> None:
    pod = replace(PLAN, type=PortType.POD)
    staged = replace(pod, inner="ni020000000009", netns="", staged=True)

    async def main() -> tuple[int, int, list[str]]:
        links = Links(owner="x")
        made = (await links.pair(staged, ())).index
        assert await links.same_pair(staged, PLAN.addresses) is not None
        assert "state DOWN" in shown(NODE, "link", "show", staged.inner)
        assert "inet" not in shown(NODE, "addr", "show", staged.inner)
        assert await links.faults(staged, PLAN.addresses) == []
        moved = await links.same_pair(pod, PLAN.addresses)
        faults = await links.faults(pod, PLAN.addresses)
        before = links.counters.writes
        assert await links.same_pair(pod, PLAN.addresses) is not None
        assert links.counters.writes == before
        links.close()
        return made, 0 if moved is None else moved.index, faults

    made, moved, faults = on_node(main())
    assert made == moved
    assert faults == []
    assert staged.inner not in shown(NODE, "link")
    inside = shown(work, "addr", "show", "eth0")
    assert "link/ether 02:00:00:00:00:09" in inside
    assert "inet 10.0.0.9/24" in inside
    assert "inet6 fd00::9/64 scope global nodad" in inside
    assert "default via 10.0.0.1 dev eth0" in shown(work, "route")
    assert "tx-checksumming: off" in run(*within(work, "ethtool", "-k", "eth0"))


def test_a_pair_that_was_made_ahead_does_not_replace_the_device_of_another(work: str) -> None:
    pod = replace(PLAN, type=PortType.POD)

    async def main() -> None:
        links = Links(owner="x")
        await links.pair(replace(pod, inner="ni020000000009", netns="", staged=True), ())
        assert await links.same_pair(pod, ()) is None
        with pytest.raises(ProblemError, match="device eth0 exists"):
            await links.pair(pod, ())
        links.close()

    run(*within(work, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other"))
    on_node(main())
    assert "other" in shown(work, "link")
