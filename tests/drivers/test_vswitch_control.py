"""Commands by the control socket of a real ovs-vswitchd, and of what only looks like one."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from netloom.drivers.link.codec import Neighbour
from netloom.drivers.vswitch import control as vswitch_control
from netloom.drivers.vswitch.control import SwitchControl
from netloom.errors import Unreachable
from tests.support.ovn import OvnNode, ovn_node, own
from tests.support.process import wait_until


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OvnNode]:
    folder = tmp_path_factory.mktemp("control")
    with ovn_node(folder, own("control"), "n1") as made:
        # The name it has without --unixctl.
        (folder / "ovs-vswitchd.pid").write_text("7\n")
        (folder / "ovs-vswitchd.7.ctl").symlink_to(folder / "vswitchd.ctl")
        wait_until((folder / "vswitchd.ctl").exists, what="the control socket")
        yield made


@pytest.mark.ovn
@pytest.mark.root
def test_next_hops_are_known_to_the_switch_at_once(node: OvnNode) -> None:
    control = SwitchControl(node.folder)
    hops = [
        Neighbour("172.31.0.2", "br-phys", "02:00:00:00:00:02"),
        Neighbour("fd31::3", "br-phys", "02:00:00:00:00:03"),
    ]
    for _ in range(2):
        asyncio.run(control.set_neighbours(hops))
    shown = {tuple(line.split()) for line in node.appctl("tnl/neigh/show").splitlines()[2:]}
    assert {(hop.ip, hop.mac, hop.device) for hop in hops} <= shown


@pytest.mark.ovn
@pytest.mark.root
def test_answers_come_in_the_order_of_the_commands_and_a_refusal_is_told(node: OvnNode) -> None:
    control = SwitchControl(node.folder)
    version, bridges, *rest = asyncio.run(control.call([("version",), ("bond/list",)] * 20))
    assert version.startswith("ovs-vswitchd")
    assert (len(rest), rest[0], rest[1]) == (38, version, bridges)
    with pytest.raises(Unreachable, match="no-such-command"):
        asyncio.run(control.call([("no-such-command",)]))
    assert asyncio.run(control.call([])) == []


def test_a_switch_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    hop = Neighbour("172.31.0.2", "br-phys", "02:00:00:00:00:02")
    with pytest.raises(Unreachable, match=f"no ovs-vswitchd.pid in {tmp_path}"):
        asyncio.run(SwitchControl(tmp_path).set_neighbours([hop]))
    (tmp_path / "ovs-vswitchd.pid").write_text("7\n")
    with pytest.raises(Unreachable, match="control socket"):
        asyncio.run(SwitchControl(tmp_path).set_neighbours([hop]))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"", "closed before it answered"),
        (b'{"id":0,"result":7,"error":null}', "not an answer"),
        (b'{"id":0,"result":null,"error":"no"}', "no"),
        (b"}{", "ovs-vswitchd"),
        (b'"' * 2_000_000, "ovs-vswitchd"),
        (None, "no answer"),
    ],
)
def test_who_answers_nonsense_or_nothing_costs_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes | None, told: str
) -> None:
    monkeypatch.setattr(vswitch_control, "TIMEOUT", 0.2)
    (tmp_path / "ovs-vswitchd.pid").write_text("7\n")

    def speak(listener: socket.socket) -> None:
        spoken, _ = listener.accept()
        with spoken, contextlib.suppress(ConnectionError):
            spoken.recv(100)
            if answer is None:
                spoken.recv(100)
            else:
                spoken.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        listener.bind(str(tmp_path / "ovs-vswitchd.7.ctl"))
        listener.listen()
        spoken = pool.submit(speak, listener)
        with pytest.raises(Unreachable, match=told):
            asyncio.run(SwitchControl(tmp_path).call([("version",)]))
        spoken.result()
