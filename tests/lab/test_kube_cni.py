"""The CNI plugin on a node of a real cluster: sequences of calls, each a process, and what they leave: nothing.

Every case begins and ends with nothing of our pods in the kernel, the switch, the agent's records and OVN.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from netloom.front.cni.request import VERSIONS
from netloom.lab import Lab
from netloom.lab.kube.places import Places
from tests.lab import labs
from tests.lab.cni_runtime import Runtime, Said
from tests.support.process import wait_until

pytestmark = [
    pytest.mark.lab,
    pytest.mark.ovn,
    pytest.mark.root,
    pytest.mark.kube,
    pytest.mark.churn,
    pytest.mark.timeout(300),
]

ROOT = Path(__file__).parents[2]
LIST = "cni.dev/valid-attachments"
STORM = 10
CHECKED = VERSIONS[1:]
"""The versions that have CHECK."""

Case = Callable[[Runtime], None]
CASES: list[Case] = []


def case(function: Case) -> Case:
    """Add a case to the table."""
    CASES.append(function)
    return function


@pytest.fixture(scope="module")
def runtime(cluster: Lab) -> Iterator[Runtime]:
    made = Runtime(cluster, "n1")
    try:
        made.attach("web", "db")
        yield made
    finally:
        made.end()


def _added(runtime: Runtime, pod: str = "web", **changes: Any) -> dict[str, Any]:
    said = runtime.call("ADD", pod, **changes)
    assert said.code == 0, said
    return said.result


def _checked(runtime: Runtime, result: dict[str, Any], pod: str = "web", **changes: Any) -> Said:
    conf = {"cniVersion": result["cniVersion"], "prevResult": result}
    return runtime.call("CHECK", pod, conf=conf, **changes)


def _deleted(runtime: Runtime, pod: str = "web", **changes: Any) -> None:
    assert runtime.call("DEL", pod, **changes).code == 0


@contextmanager
def _frozen(lab: Lab, name: str) -> Iterator[None]:
    """Stop a process, and have it continue."""
    pid = lab.pid(name)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# ADD, DEL and CHECK.


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pod_is_added_checked_and_deleted_in_every_version(version: str, runtime: Runtime) -> None:
    result = _added(runtime, conf={"cniVersion": version})
    outer, inner = result["interfaces"]
    assert result["cniVersion"] == version
    assert (inner["name"], inner["sandbox"]) == ("eth0", runtime.space())
    assert ("mtu" in inner) == (version == "1.1.0")
    assert [ip.get("version") for ip in result["ips"]] == (["4", "6"] if version < "1" else [None, None])
    assert all(ip["interface"] == 1 and ip["gateway"] for ip in result["ips"])
    shown = runtime.inside("ip", "-o", "address", "show", "dev", "eth0")
    assert all(ip["address"] in shown for ip in result["ips"])
    assert f"device {outer['name']}" in str(runtime.left())
    if version in CHECKED:
        assert _checked(runtime, result).code == 0
    _deleted(runtime, conf={"cniVersion": version, "prevResult": result})
    runtime.until_clean()


@case
def the_same_add_again_returns_the_same(runtime: Runtime) -> None:
    first = _added(runtime)
    assert [_added(runtime) for _ in range(3)] == [first] * 3
    _deleted(runtime)


@case
def many_adds_of_one_interface_at_once_return_the_same(runtime: Runtime) -> None:
    calls = [runtime.start("ADD") for _ in range(STORM)]
    results = [json.loads(call.communicate(timeout=120)[0]) for call in calls]
    assert results == [results[0]] * STORM
    assert _checked(runtime, results[0]).code == 0
    _deleted(runtime)


@case
def an_add_after_a_delete_returns_the_same(runtime: Runtime) -> None:
    first = _added(runtime)
    _deleted(runtime)
    assert _added(runtime) == first
    _deleted(runtime)


@case
def two_pods_at_once_have_addresses_of_their_own(runtime: Runtime) -> None:
    calls = [runtime.start("ADD", pod) for pod in ("web", "db")]
    results = [json.loads(call.communicate(timeout=120)[0]) for call in calls]
    assert not {ip["address"] for ip in results[0]["ips"]} & {ip["address"] for ip in results[1]["ips"]}
    _deleted(runtime, "web")
    assert _checked(runtime, results[1], "db").code == 0
    _deleted(runtime, "db")


@case
def a_pod_with_another_sandbox_moves_to_it(runtime: Runtime) -> None:
    first = _added(runtime)
    other = {"CNI_CONTAINERID": "c-next", "CNI_NETNS": runtime.space("next")}
    second = _added(runtime, env=other)
    assert first["ips"] == second["ips"]
    assert "eth0" not in runtime.inside("ip", "-o", "link")
    assert _checked(runtime, first).code == 100
    _deleted(runtime)
    assert _checked(runtime, second, env=other).code == 0
    _deleted(runtime, env=other)


@case
def a_container_with_another_namespace_moves_to_it(runtime: Runtime) -> None:
    _added(runtime)
    other = {"CNI_NETNS": runtime.space("next")}
    second = _added(runtime, env=other)
    assert _checked(runtime, second, env=other).code == 0
    assert "eth0" not in runtime.inside("ip", "-o", "link")
    _deleted(runtime, env=other)


@case
def a_container_with_another_interface_moves_to_it(runtime: Runtime) -> None:
    _added(runtime)
    second = _added(runtime, env={"CNI_IFNAME": "net9"})
    assert _checked(runtime, second, env={"CNI_IFNAME": "net9"}).code == 0
    _deleted(runtime)
    _deleted(runtime, env={"CNI_IFNAME": "net9"})


@case
def an_add_behind_another_plugin_keeps_its_result(runtime: Runtime) -> None:
    before: dict[str, Any] = {"interfaces": [{"name": "lo9"}], "ips": [{"address": "192.0.2.7/32", "interface": 0}]}
    result = _added(runtime, conf={"prevResult": before})
    assert result["interfaces"][0] == before["interfaces"][0]
    assert [ip["interface"] for ip in result["ips"]] == [0, 2, 2]
    assert _checked(runtime, result).code == 0
    _deleted(runtime)


@case
def an_add_may_ask_for_what_the_pod_has(runtime: Runtime) -> None:
    first = _added(runtime)
    _deleted(runtime)
    asked = {"ips": [ip["address"] for ip in first["ips"]], "mac": first["interfaces"][1]["mac"].upper()}
    assert _added(runtime, conf={"runtimeConfig": asked}) == first
    _deleted(runtime)


@case
def an_add_without_a_uid_is_of_whoever_has_the_name(runtime: Runtime) -> None:
    _added(runtime, env={"CNI_ARGS": "K8S_POD_NAMESPACE=cni;K8S_POD_NAME=web"})
    _deleted(runtime)


@case
def a_delete_may_be_repeated(runtime: Runtime) -> None:
    _added(runtime)
    for _ in range(3):
        _deleted(runtime)


@case
def a_delete_of_another_container_or_interface_removes_nothing(runtime: Runtime) -> None:
    result = _added(runtime)
    _deleted(runtime, env={"CNI_CONTAINERID": "other"})
    _deleted(runtime, env={"CNI_IFNAME": "eth1"})
    assert _checked(runtime, result).code == 0
    _deleted(runtime)


@case
def a_delete_needs_neither_arguments_nor_a_namespace(runtime: Runtime) -> None:
    _added(runtime)
    _deleted(runtime, env={"CNI_ARGS": "rubbish", "CNI_NETNS": None}, conf={"runtimeConfig": 1, "prevResult": 1})


@case
def a_delete_after_the_namespace_is_gone_succeeds(runtime: Runtime) -> None:
    _added(runtime)
    runtime.leave()
    _deleted(runtime)
    _deleted(runtime)


@case
def a_delete_after_another_namespace_has_the_path_leaves_that_alone(runtime: Runtime) -> None:
    _added(runtime)
    # Made before: a kernel soon gives the inode of a namespace that is gone to another one.
    other, path = runtime.space("next"), Path(runtime.space())
    runtime.leave()
    path.touch()
    subprocess.run(["mount", "--bind", other, path], check=True)
    runtime.space()
    assert "eth0" not in runtime.inside("ip", "-o", "link")
    runtime.inside("ip", "link", "add", "eth0", "type", "bridge")
    _deleted(runtime)
    runtime.inside("ip", "link", "delete", "eth0")  # It is still there.
    runtime.leave()


@case
def a_delete_after_the_attachment_is_gone_succeeds(runtime: Runtime) -> None:
    runtime.attach("brief")
    _added(runtime, "brief")
    runtime.detach("brief")
    _deleted(runtime, "brief")


@case
def a_pod_that_is_made_again_under_its_name_is_another(runtime: Runtime) -> None:
    runtime.attach("brief")
    first = _added(runtime, "brief")
    runtime.detach("brief")
    runtime.attach("brief")
    assert _checked(runtime, first, "brief").code in (0, 100)
    second = {"CNI_CONTAINERID": "c-second", "CNI_NETNS": runtime.space("second")}
    result = _added(runtime, "brief", env=second)
    _deleted(runtime, "brief")
    assert _checked(runtime, result, "brief", env=second).code == 0
    _deleted(runtime, "brief", env=second)
    runtime.detach("brief")


# CHECK after something was changed by hand.

IN_THE_POD = [
    "address flush dev eth0 scope global",
    "-4 address flush dev eth0",
    "-6 address flush dev eth0 scope global",
    "address add 192.0.2.99/32 dev eth0",
    "route delete default",
    "-6 route delete default",
    "link set eth0 down",
    "link set eth0 address 02:00:00:00:00:99",
    "link set eth0 mtu 1300",
    "link set eth0 down name eth7",
]
HARMLESS = {"address add 192.0.2.99/32 dev eth0"}
"""What others may add."""


@pytest.mark.parametrize("change", IN_THE_POD)
def test_check_notices_a_change_in_the_pod(change: str, runtime: Runtime) -> None:
    result = _added(runtime)
    assert _checked(runtime, result).code == 0
    runtime.inside("ip", *change.split())
    assert _checked(runtime, result).code == (0 if change in HARMLESS else 100)
    _deleted(runtime)
    runtime.until_clean()
    if "name" in change:
        # Not the device that was made, by its name: so the kernel removed it with its other end.
        assert "eth7" not in runtime.inside("ip", "-o", "link")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("interfaces", []),
        ("ips", []),
        ("interfaces.1.mac", "02:00:00:00:00:01"),
        ("interfaces.1.sandbox", "/run/netns/other"),
        ("interfaces.1.name", "eth1"),
        ("ips.0.address", "192.0.2.5/24"),
        ("ips.1.interface", 0),
    ],
)
def test_check_notices_another_result(field: str, value: object, runtime: Runtime) -> None:
    result = _added(runtime)
    changed: Any = json.loads(json.dumps(result))
    at, *path = field.split(".")
    if path:
        changed[at][int(path[0])][path[1]] = value
    else:
        changed[at] = value
    assert _checked(runtime, changed).code == 100
    assert _checked(runtime, {**result, "interfaces": [*result["interfaces"], {"name": "later"}]}).code == 0
    _deleted(runtime)
    runtime.until_clean()


@case
def check_notices_another_namespace_and_another_container(runtime: Runtime) -> None:
    result = _added(runtime)
    assert _checked(runtime, result, env={"CNI_NETNS": "/run/netns/other"}).code == 100
    assert _checked(runtime, result, env={"CNI_CONTAINERID": "other"}).code == 100
    _deleted(runtime)
    assert _checked(runtime, result).code == 100


@case
def what_is_changed_in_the_switch_is_repaired(runtime: Runtime) -> None:
    result = _added(runtime)
    device = result["interfaces"][0]["name"]
    for change in (
        ["remove", "Interface", device, "external_ids", "iface-id"],
        ["remove", "Interface", device, "external_ids", "attached-mac"],
        ["set", "Interface", device, "external_ids:iface-id=other"],
        ["del-port", device],
    ):
        runtime.lab.exec("n1", ["ovs-vsctl", *change])
        wait_until(lambda: _checked(runtime, result).code == 0, what=f"{change} to be repaired", interval=0.1)
        shown = runtime.lab.exec("n1", ["ovs-vsctl", "get", "Interface", device, "external_ids:iface-id"]).stdout
        assert shown.strip().strip('"') == "netloom-pods/pod.cni.web"
    runtime.inside("ip", "link", "delete", "eth0")
    wait_until(lambda: _checked(runtime, result).code == 0, what="another pair of devices", interval=0.1)
    _deleted(runtime)


@case
def check_notices_what_is_missing_in_the_switch(runtime: Runtime) -> None:
    result = _added(runtime)
    with _frozen(runtime.lab, "ovn-controller-n1"):
        runtime.lab.exec("n1", ["ovs-vsctl", "--no-wait", "del-port", result["interfaces"][0]["name"]])
        # The agent puts it back; its flows are not there yet.
        assert _checked(runtime, result).code == 100
    wait_until(lambda: _checked(runtime, result).code == 0, what="its flows", interval=0.1)
    _deleted(runtime)


@case
def check_notices_that_ovn_lacks_the_port(runtime: Runtime) -> None:
    runtime.attach("brief")
    result = _added(runtime, "brief")
    runtime.lab.exec("central", ["ovn-nbctl", "lsp-del", "netloom-pods/pod.cni.brief"])
    wait_until(lambda: _checked(runtime, result, "brief").code == 100, what="CHECK to notice", interval=0.1)
    _deleted(runtime, "brief")
    runtime.detach("brief")
    runtime.attach("brief")
    again = _added(runtime, "brief")
    assert _checked(runtime, again, "brief").code == 0
    _deleted(runtime, "brief")
    runtime.detach("brief")


# GC.


def _kept(*pods: str) -> dict[str, Any]:
    return {LIST: [{"containerID": f"c-{pod}", "ifname": "eth0"} for pod in pods]}


@case
def gc_keeps_what_is_listed_and_removes_the_rest(runtime: Runtime) -> None:
    kept, _ = _added(runtime), _added(runtime, "db")
    assert runtime.call("GC", conf=_kept("web", "unknown")).code == 0
    runtime.until_clean("web")
    assert _checked(runtime, kept).code == 0
    assert "eth0" not in runtime.inside("ip", "-o", "link", pod="db")
    assert runtime.call("GC", conf=_kept()).code == 0


@case
def gc_removes_what_has_lost_its_namespace(runtime: Runtime) -> None:
    _added(runtime)
    runtime.leave()
    assert runtime.call("GC", conf=_kept()).code == 0


@case
def gc_leaves_what_is_being_added(runtime: Runtime) -> None:
    with _frozen(runtime.lab, "ovn-controller-n1"):
        adding = runtime.start("ADD")
        wait_until(lambda: "interface" in str(runtime.left()), what="the port")
        assert runtime.call("GC", conf=_kept()).code == 0
        assert "interface" in str(runtime.left())
    assert json.loads(adding.communicate(timeout=120)[0])["ips"]
    _deleted(runtime)


# What happens while an ADD goes on.


@case
def an_add_waits_for_its_attachment(runtime: Runtime) -> None:
    adding = runtime.start("ADD", "late")
    runtime.attach("late")
    assert json.loads(adding.communicate(timeout=120)[0])["ips"]
    _deleted(runtime, "late")
    runtime.detach("late")


@case
def an_add_ends_when_its_attachment_is_deleted(runtime: Runtime) -> None:
    runtime.attach("brief")
    with _frozen(runtime.lab, "ovn-controller-n1"):
        adding = runtime.start("ADD", "brief")
        wait_until(lambda: "interface" in str(runtime.left()), what="the port")
        runtime.detach("brief")
        assert json.loads(adding.communicate(timeout=120)[0])["code"] == 11
        runtime.until_clean()


@case
def a_delete_ends_an_add_that_waits(runtime: Runtime) -> None:
    adding = runtime.start("ADD", "nobody")
    wait_until(lambda: _waits(runtime), what="the agent to wait for an attachment")
    _deleted(runtime, "nobody")
    assert json.loads(adding.communicate(timeout=120)[0])["code"] == 11


@case
def a_runtime_that_is_killed_while_an_add_waits_leaves_nothing(runtime: Runtime) -> None:
    adding = runtime.start("ADD", "nobody")
    wait_until(lambda: _waits(runtime), what="the agent to wait for an attachment")
    _killed(adding)


@case
def a_runtime_that_is_killed_before_its_port_is_installed_leaves_nothing(runtime: Runtime) -> None:
    with _frozen(runtime.lab, "ovn-controller-n1"):
        adding = runtime.start("ADD")
        wait_until(lambda: "interface" in str(runtime.left()), what="the port")
        _killed(adding)
        wait_until(lambda: "interface" not in str(runtime.left()), what="the port to go")


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.02, 0.03, 0.05, 0.08])
def test_a_runtime_that_is_killed_at_any_time_leaves_what_a_delete_removes(delay: float, runtime: Runtime) -> None:
    for verb in ("ADD", "DEL"):
        calling = runtime.start(verb)
        try:
            calling.wait(delay)
        except subprocess.TimeoutExpired:
            calling.kill()
        calling.communicate()
    _deleted(runtime)
    runtime.until_clean()
    assert _checked(runtime, _added(runtime)).code == 0
    _deleted(runtime)
    runtime.until_clean()


# The agent is killed.


@case
def without_an_agent_every_verb_is_to_be_tried_again(runtime: Runtime) -> None:
    def all_while_away() -> bool:
        runtime.lab.kill("agent-n1")
        verbs = ("ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION")
        calls = [runtime.start(verb, conf={**_kept("web"), "prevResult": {}}) for verb in verbs]
        said = [json.loads(call.communicate(timeout=120)[0] or b"{}") for call in calls]
        if not labs.is_ready(runtime.lab, "agent-n1"):
            assert [one.get("code") for one in said] == [11] * len(verbs)
            return True
        return False

    wait_until(all_while_away, what="an agent that is away for long enough", interval=1)
    wait_until(lambda: runtime.call("STATUS").code == 0, what="the agent")
    _deleted(runtime)


@case
def what_was_added_is_known_after_the_agent_was_killed(runtime: Runtime) -> None:
    result = _added(runtime)
    _agent_killed(runtime)
    assert _checked(runtime, result).code == 0
    assert _added(runtime) == result
    _agent_killed(runtime)
    _deleted(runtime)


@case
def an_add_whose_agent_is_killed_can_be_repeated(runtime: Runtime) -> None:
    with _frozen(runtime.lab, "ovn-controller-n1"):
        adding = runtime.start("ADD")
        wait_until(lambda: "interface" in str(runtime.left()), what="the port")
        _agent_killed(runtime)
        assert json.loads(adding.communicate(timeout=120)[0])["code"] == 11
    assert _checked(runtime, _added(runtime)).code == 0
    _deleted(runtime)


@case
def a_namespace_that_goes_while_the_agent_is_away_is_noticed(runtime: Runtime) -> None:
    _added(runtime)
    with _frozen(runtime.lab, "agent-n1"):
        runtime.leave()
    _agent_killed(runtime)
    runtime.until_clean()  # Without a DEL.


def _agent_killed(runtime: Runtime) -> None:
    labs.killed_comes_back(runtime.lab, "agent-n1")
    wait_until(lambda: runtime.call("STATUS").code == 0, what="the agent to serve")


def _killed(calling: "subprocess.Popen[bytes]") -> None:
    calling.kill()
    calling.communicate()


def _waits(runtime: Runtime) -> bool:
    """Whether the agent has taken a call that is not answered: the socket has a connection."""
    socket = Places(runtime.lab.layout).cni_socket("n1")
    lines = Path("/proc/net/unix").read_text().splitlines()
    return any(f"{Path(socket).name}" in line and line.split()[5] == "03" for line in lines)


@pytest.mark.parametrize("one", CASES, ids=lambda one: one.__name__)
def test_nothing_is_left(one: Case, runtime: Runtime) -> None:
    one(runtime)
    runtime.until_clean()


# cnitool.


def test_cnitool_agrees(runtime: Runtime, tmp_path: Path) -> None:
    """It calls the plugin by the configuration of the node, as runtimes do."""
    built = subprocess.run([ROOT / "tools/cnitool/build"], check=True, capture_output=True, text=True).stdout.strip()
    conf = Places(runtime.lab.layout).cni("n1") / "net.d"
    shutil.copytree(conf, tmp_path / "net.d")
    env = {"NETCONFPATH": str(tmp_path / "net.d"), "CNI_PATH": str(runtime.plugin.parent), "PATH": os.environ["PATH"]}

    def run(verb: str) -> "subprocess.CompletedProcess[str]":
        argv = [f"{built}/cnitool", verb, "netloom", runtime.space()]
        given = runtime.variables(verb)
        return subprocess.run(
            argv, env={**env, "CNI_ARGS": given["CNI_ARGS"], "CNI_IFNAME": "eth0"},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    status = run("status")
    assert status.returncode == 0, status.stderr
    added = run("add")
    assert added.returncode == 0, added.stderr
    assert [ip["address"] in runtime.inside("ip", "address") for ip in json.loads(added.stdout)["ips"]] == [True] * 2
    assert run("check").returncode == 0
    runtime.inside("ip", "-4", "address", "flush", "dev", "eth0")
    assert "is not as it was added" in run("check").stderr
    assert run("del").returncode == 0
    assert run("del").returncode == 0
    runtime.until_clean()
    assert run("add").returncode == 0
    # It deletes what it remembers. Then it calls GC without a list, which does not mean that nothing is in use.
    assert "cni.dev/valid-attachments: must be a list" in run("gc").stderr
    runtime.until_clean()
