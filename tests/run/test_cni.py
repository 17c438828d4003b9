"""The CNI plugin as a process, against a real agent, Open vSwitch and OVN: every verb, and what is wrong with calls.

Each test leaves no record, interface or device of a pod behind: `runtime.tidy` asserts that.
"""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from netloom.front.cni import install
from netloom.front.cni.request import LATEST, MOST_INPUT, VALID_ATTACHMENTS, VERSIONS
from tests.run.agents import Json, network, site, subnet
from tests.run.runtimes import Pod, Runtime, configuration
from tests.run.serving import NETLOOM
from tests.support.process import scratch, wait_until

pytestmark = [pytest.mark.ovn, pytest.mark.lab, pytest.mark.root]


@pytest.fixture(scope="module")
def running() -> Iterator[Runtime]:
    with scratch("cni") as folder, site(folder, "nlt-cni", controlled=True) as made:
        runtime = Runtime(made, folder)
        made.apply(network(), subnet("v4", "10.10.0.0/24"), subnet("v6", "fd10::/64"))
        made.apply(network("far", fabric="vxlan"), subnet("far", "10.30.0.0/24", "far"))
        runtime.start_agent()
        yield runtime


@pytest.fixture
def runtime(running: Runtime) -> Iterator[Runtime]:
    yield running
    running.tidy()


def link(runtime: Runtime, pod: Pod, device: str = "eth0") -> Json:
    found: Json = json.loads(runtime.site.inside(pod.netns, "ip", "-j", "addr", "show", device))[0]
    return found


def same(runtime: Runtime, pod: Pod) -> tuple[int, set[str]]:
    """Return what tells the device of a pod from one that was made again."""
    seen = link(runtime, pod)
    return seen["ifindex"], {ip["local"] for ip in seen["addr_info"] if ip["scope"] == "global"}


def has_device(runtime: Runtime, pod: Pod, device: str = "eth0") -> bool:
    return device in runtime.site.inside(pod.netns, "ip", "-br", "link")


# Calls that are wrong, for a pod that could be added.

ENVIRONMENTS: list[tuple[str, str, dict[str, str | None], int, str]] = [
    ("no command", "ADD", {"CNI_COMMAND": None}, 4, "CNI_COMMAND is missing"),
    ("an unknown command", "UPDATE", {}, 4, "'UPDATE' is none of ADD"),
    ("a command in small letters", "add", {}, 4, "'add' is none of ADD"),
    ("ADD without a container", "ADD", {"CNI_CONTAINERID": None}, 4, "CNI_CONTAINERID: required for ADD"),
    ("ADD without an interface", "ADD", {"CNI_IFNAME": None}, 4, "CNI_IFNAME: required"),
    ("ADD without a namespace", "ADD", {"CNI_NETNS": None}, 4, "CNI_NETNS: required"),
    ("ADD with nothing", "ADD", {"CNI_CONTAINERID": "", "CNI_IFNAME": "", "CNI_NETNS": ""}, 4, "ID, CNI_IFNAME, CNI_N"),
    ("DEL without a container", "DEL", {"CNI_CONTAINERID": None}, 4, "CNI_CONTAINERID"),
    ("DEL without an interface", "DEL", {"CNI_IFNAME": None}, 4, "CNI_IFNAME"),
    ("CHECK without a namespace", "CHECK", {"CNI_NETNS": None}, 4, "CNI_NETNS"),
    ("a container with a slash", "ADD", {"CNI_CONTAINERID": "../x"}, 4, "'../x' is not the id"),
    ("a container with a space", "DEL", {"CNI_CONTAINERID": "a b"}, 4, "not the id of a container"),
    ("a container of 300 letters", "ADD", {"CNI_CONTAINERID": "a" * 300}, 4, "not the id of a container"),
    ("an interface with a slash", "ADD", {"CNI_IFNAME": "a/b"}, 4, "'a/b' is not the name"),
    ("an interface with a colon", "ADD", {"CNI_IFNAME": "a:b"}, 4, "not the name of an interface"),
    ("an interface of two dots", "ADD", {"CNI_IFNAME": ".."}, 4, "not the name of an interface"),
    ("an interface of 16 letters", "ADD", {"CNI_IFNAME": "a" * 16}, 4, "not the name of an interface"),
    ("a namespace that is relative", "ADD", {"CNI_NETNS": "run/netns/x"}, 4, "not an absolute path"),
    ("a namespace that is not there", "ADD", {"CNI_NETNS": "/run/netns/nowhere"}, 3, "no network namespace at"),
    ("a namespace that is a file", "ADD", {"CNI_NETNS": "/etc/passwd"}, 3, "no network namespace at"),
    ("no arguments", "ADD", {"CNI_ARGS": None}, 4, "K8S_POD_NAMESPACE is ''"),
    ("arguments without a name", "ADD", {"CNI_ARGS": "K8S_POD_NAMESPACE=shop"}, 4, "K8S_POD_NAME is ''"),
    ("arguments that are no pairs", "ADD", {"CNI_ARGS": "K8S_POD_NAME"}, 4, "NAME=VALUE"),
    ("a pod's namespace with a dot", "ADD", {"CNI_ARGS": "K8S_POD_NAMESPACE=a.b;K8S_POD_NAME=c"}, 4, "not a namespace"),
    ("a pod's name with a slash", "ADD", {"CNI_ARGS": "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b/c"}, 4, "name of a pod"),
]


@pytest.mark.parametrize(
    ("verb", "env", "code", "message"), [case[1:] for case in ENVIRONMENTS], ids=[case[0] for case in ENVIRONMENTS]
)
def test_a_call_with_a_wrong_environment_is_refused(
    runtime: Runtime, verb: str, env: dict[str, str | None], code: int, message: str
) -> None:
    pod = runtime.pod("wrong")
    found = runtime.call(verb, pod, env=env)
    assert found.error[0] == code
    assert message in found.error[1]
    assert not has_device(runtime, pod)


CONFIGURATIONS: list[tuple[str, str, Any, int, str]] = [
    ("no version", "ADD", {"cniVersion": None}, 1, "cniVersion: None is none of 0.3.1"),
    ("a version that is too old", "ADD", {"cniVersion": "0.2.0"}, 1, "'0.2.0' is none of"),
    ("a version to come", "ADD", {"cniVersion": "9.0.0"}, 1, "'9.0.0' is none of"),
    ("a version that is a number", "ADD", {"cniVersion": 1}, 1, "cniVersion: 1"),
    ("CHECK of 0.3.1", "CHECK", {"cniVersion": "0.3.1"}, 1, "CHECK needs 0.4.0"),
    ("STATUS of 1.0.0", "STATUS", {"cniVersion": "1.0.0"}, 1, "STATUS needs 1.1.0"),
    ("GC of 0.4.0", "GC", {"cniVersion": "0.4.0"}, 1, "GC needs 1.1.0"),
    ("no name", "ADD", {"name": None}, 7, "name: None"),
    ("a name with a slash", "DEL", {"name": "a/b"}, 7, "name: 'a/b'"),
    ("IPAM of another plugin", "ADD", {"ipam": {"type": "host-local"}}, 2, "ipam: not supported"),
    ("a bandwidth", "ADD", {"runtimeConfig": {"bandwidth": {"ingressRate": 1}}}, 2, "runtimeConfig.bandwidth"),
    ("a capability nobody knows", "ADD", {"runtimeConfig": {"aliases": ["x"]}}, 2, "runtimeConfig.aliases"),
    ("runtimeConfig that is a list", "ADD", {"runtimeConfig": ["x"]}, 7, "runtimeConfig: must be an object"),
    ("another address", "ADD", {"runtimeConfig": {"ips": ["10.10.0.250/24"]}}, 7, "not 10.10.0.250"),
    ("an address that is none", "ADD", {"runtimeConfig": {"ips": ["ten"]}}, 7, "is not a list of addresses"),
    ("another MAC", "ADD", {"runtimeConfig": {"mac": "02:00:00:00:00:99"}}, 7, "not 02:00:00:00:00:99"),
    ("a MAC that is a number", "ADD", {"runtimeConfig": {"mac": 2}}, 7, "is not a MAC address"),
    ("a prevResult that is a text", "ADD", {"prevResult": "x"}, 7, "prevResult: must be an object"),
    ("a prevResult with wrong ips", "ADD", {"prevResult": {"ips": [1]}}, 7, "prevResult.ips"),
    ("CHECK without prevResult", "CHECK", {}, 7, "prevResult is missing"),
    ("GC without a list", "GC", {}, 7, f"{VALID_ATTACHMENTS}: must be a list"),
    ("GC with a wrong list", "GC", {VALID_ATTACHMENTS: [{"containerID": "x"}]}, 7, "no containerID and ifname"),
]


@pytest.mark.parametrize(
    ("verb", "conf", "code", "message"), [case[1:] for case in CONFIGURATIONS], ids=[case[0] for case in CONFIGURATIONS]
)
def test_a_call_with_a_wrong_configuration_is_refused(
    runtime: Runtime, verb: str, conf: Json, code: int, message: str
) -> None:
    pod = runtime.pod("wrong")
    found = runtime.call(verb, pod, **conf)
    assert found.error[0] == code
    assert message in found.error[1]
    assert not has_device(runtime, pod)


INPUTS: list[tuple[str, bytes]] = [
    ("nothing", b""),
    ("half an object", b'{"cniVersion": "1.1.0", "name"'),
    ("a list", b"[]"),
    ("a number", b"7"),
    ("no text at all", b"\xff\xfe\x00\x01"),
    ("lists in lists", b"[" * 20000),
    ("too much", configuration(args="x" * MOST_INPUT)),
    ("much too much", b" " * (4 * MOST_INPUT)),
]


@pytest.mark.parametrize("stdin", [case[1] for case in INPUTS], ids=[case[0] for case in INPUTS])
@pytest.mark.parametrize("verb", ["ADD", "DEL", "STATUS"])
def test_an_input_that_is_no_configuration_is_refused(runtime: Runtime, verb: str, stdin: bytes) -> None:
    found = runtime.call(verb, runtime.pod("wrong"), stdin)
    assert found.error[0] == 6


# What is right.


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pod_is_added_checked_and_deleted_in_every_version(runtime: Runtime, version: str) -> None:
    pod = runtime.pod("web")
    result = runtime.added(pod, cniVersion=version)
    assert result["cniVersion"] == version
    outer, inner = result["interfaces"]
    seen = link(runtime, pod)
    assert (inner["name"], inner["sandbox"], inner["mac"]) == ("eth0", pod.netns, seen["address"])
    assert runtime.devices() == [outer["name"]] == runtime.interfaces()
    assert inner.get("mtu") == (seen["mtu"] if version == LATEST else None)
    assert {ip["address"].partition("/")[0] for ip in result["ips"]} <= {ip["local"] for ip in seen["addr_info"]}
    assert {ip["interface"] for ip in result["ips"]} == {1}
    assert {ip["gateway"] for ip in result["ips"]} == {"10.10.0.1", "fd10::1"}
    assert {ip.get("version") for ip in result["ips"]} == ({"4", "6"} if version < "1" else {None})
    assert {(one["dst"], one["gw"]) for one in result["routes"]} == {("0.0.0.0/0", "10.10.0.1"), ("::/0", "fd10::1")}
    if version != "0.3.1":
        assert runtime.check(pod, result, cniVersion=version) == (0, "")
    assert runtime.call("DEL", pod, cniVersion=version) == (0, "")
    assert not has_device(runtime, pod)
    assert runtime.leftovers() == ([], [], [])


def test_two_pods_exchange_packets(runtime: Runtime) -> None:
    here, there = runtime.pod("here"), runtime.pod("there")
    runtime.added(here)
    for ip in runtime.added(there)["ips"]:
        to = ip["address"].partition("/")[0]
        argv = ("ping", "-c", "2", "-i", "0.2", "-W", "2", to)
        wait_until(
            lambda argv=argv: ", 0% packet loss" in runtime.site.inside(here.netns, *argv, check=False),  # type: ignore[misc]
            what=f"{to} to answer",
        )


def test_the_agent_reports_what_a_pod_waits_for_and_when_it_is_plugged(runtime: Runtime) -> None:
    pod = runtime.pod("web")
    name = f"pod.shop.{pod.name}"
    found = runtime.site.wait_condition(name, "Unknown", "NoSandbox")
    assert found["message"] == "waiting for the container runtime to add the pod's interface"
    result = runtime.added(pod)
    runtime.site.wait_condition(name, "True", "Plugged")
    assert runtime.site.status(name)["ifcName"] == result["interfaces"][0]["name"]
    runtime.call("DEL", pod)
    runtime.site.wait_condition(name, "Unknown", "NoSandbox")


def test_an_add_that_is_repeated_returns_the_same(runtime: Runtime) -> None:
    pod = runtime.pod("web")
    first = runtime.added(pod)
    seen = same(runtime, pod)
    before = runtime.site.metrics()
    assert [runtime.added(pod) for _ in range(3)] == [first] * 3
    assert same(runtime, pod) == seen
    name = 'cni_duration_seconds_count{code="0",command="ADD"}'
    assert runtime.site.metrics()[name] == before[name] + 3


def test_adds_at_the_same_time_return_the_same(runtime: Runtime) -> None:
    pod = runtime.pod("web")
    calls = [runtime.begin("ADD", pod) for _ in range(8)]
    answers = [call.communicate()[0] for call in calls]
    assert [call.returncode for call in calls] == [0] * 8
    assert len(set(answers)) == 1


def test_a_storm_of_adds_and_deletes_ends_well(runtime: Runtime) -> None:
    pods = [runtime.pod(f"p{at}") for at in range(30)]
    adds = [runtime.begin("ADD", pod) for pod in pods]
    results = [json.loads(call.communicate()[0]) for call in adds]
    assert [call.returncode for call in adds] == [0] * 30
    assert len({ip["address"] for result in results for ip in result["ips"]}) == 60
    assert len(runtime.records()) == len(runtime.interfaces()) == len(runtime.devices()) == 30
    dels = [runtime.begin("DEL", pod) for pod in pods]
    assert [(call.communicate()[0], call.returncode) for call in dels] == [(b"", 0)] * 30
    assert runtime.leftovers() == ([], [], [])


def test_the_addresses_that_a_runtime_asks_for_are_compared_with_the_pods(runtime: Runtime) -> None:
    pod = runtime.pod("fixed", scheduled=False)
    runtime.schedule(pod, ips=["10.10.0.77"], mac="02:00:00:00:00:77")
    asked: Json = {"ips": ["10.10.0.77/24"], "mac": "02:00:00:00:00:77", "bandwidth": {}}
    asked["portMappings"] = [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]
    result = runtime.added(pod, runtimeConfig=asked)
    assert result["interfaces"][1]["mac"] == "02:00:00:00:00:77"
    assert "10.10.0.77/24" in [ip["address"] for ip in result["ips"]]


def test_the_result_is_put_behind_that_of_the_plugin_before(runtime: Runtime) -> None:
    pod = runtime.pod("chained")
    before: Json = {
        "cniVersion": LATEST,
        "interfaces": [{"name": "dummy0"}, {"name": "lo", "sandbox": pod.netns}],
        "ips": [{"address": "192.0.2.1/32", "interface": 1}],
        "routes": [{"dst": "192.0.2.0/24"}],
        "dns": {"nameservers": ["192.0.2.53"]},
    }
    result = runtime.added(pod, prevResult=before)
    assert result["interfaces"][:2] == before["interfaces"]
    assert result["interfaces"][3]["name"] == "eth0"
    assert result["ips"][0] == before["ips"][0]
    assert {ip["interface"] for ip in result["ips"][1:]} == {3}
    assert result["routes"][0] == before["routes"][0]
    assert result["dns"] == before["dns"]
    assert runtime.check(pod, result).status == 0


def test_an_interface_that_exists_in_the_pod_is_not_replaced(runtime: Runtime) -> None:
    pod = runtime.pod("taken")
    runtime.site.inside(pod.netns, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other")
    code, message = runtime.call("ADD", pod).error
    assert (code, "eth0 exists" in message) == (4, True)
    assert has_device(runtime, pod, "other")


def test_the_nodes_own_namespace_is_no_pods(runtime: Runtime) -> None:
    pod = runtime.pod("own")
    own = f"/run/netns/{runtime.site.node.netns}"
    code, message = runtime.call("ADD", pod, env={"CNI_NETNS": own}).error
    assert (code, message) == (4, f"{own} is the node's own network namespace")


def test_a_port_that_names_its_device_is_added_by_that_name_only(runtime: Runtime) -> None:
    pod = runtime.pod("named", scheduled=False)
    runtime.schedule(pod, port={"type": "pod", "name": "net1"})
    assert runtime.call("ADD", pod).error == (4, "CNI_IFNAME: the pod's attachment has port.name net1")
    env: dict[str, str | None] = {"CNI_IFNAME": "net1"}
    assert runtime.call("ADD", pod, env=env).result["interfaces"][1]["name"] == "net1"
    assert runtime.call("DEL", pod, env=env).status == 0


def test_an_attachment_of_another_type_is_no_pods(runtime: Runtime) -> None:
    pod = runtime.pod("veth", scheduled=False)
    runtime.schedule(pod, port={"type": "veth", "netns": pod.netns, "name": "x"})
    code, message = runtime.call("ADD", pod).error
    assert (code, message) == (7, "NetworkAttachment default/pod.shop.veth has port.type veth")
    runtime.unschedule(pod)
    wait_until(lambda: runtime.leftovers() == ([], [], []), what="the veth to be removed")


def test_a_pod_whose_uid_the_runtime_does_not_say_is_added(runtime: Runtime) -> None:
    pod = runtime.pod("plain")
    args = f"K8S_POD_NAMESPACE=shop;K8S_POD_NAME={pod.name}"
    assert runtime.call("ADD", pod, env={"CNI_ARGS": args}).status == 0


# Waiting, and giving up.


def test_an_add_before_its_attachment_waits_for_it(runtime: Runtime) -> None:
    pod = runtime.pod("early", scheduled=False)
    call = runtime.begin("ADD", pod)
    waits(runtime, 1)
    runtime.schedule(pod)
    assert json.loads(call.communicate()[0])["interfaces"][1]["name"] == "eth0"


def test_a_sandbox_of_an_earlier_pod_is_not_given_the_next_pods_interface(runtime: Runtime) -> None:
    old = runtime.pod("same", scheduled=False)
    new = runtime.pod("same", number=2)
    late = runtime.begin("ADD", old)
    waits(runtime, 1)
    runtime.added(new)
    late.send_signal(signal.SIGKILL)
    late.communicate()
    waits(runtime, 0)
    assert not has_device(runtime, old)
    assert has_device(runtime, new)
    assert runtime.call("DEL", old).status == 0
    assert has_device(runtime, new)


def test_the_next_sandbox_of_a_pod_takes_its_interface_over(runtime: Runtime) -> None:
    pod = runtime.pod("again")
    runtime.added(pod)
    following = pod._replace(container="again0002", netns=runtime.site.new_namespace("again2"))
    runtime.pods.append(following)
    result = runtime.added(following)
    assert has_device(runtime, following)
    assert not has_device(runtime, pod)
    assert runtime.call("DEL", pod).status == 0
    assert runtime.check(following, result).status == 0


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_runtime_that_gives_up_leaves_nothing(runtime: Runtime, ending: signal.Signals) -> None:
    pod = runtime.pod("late", scheduled=False)
    call = runtime.begin("ADD", pod)
    waits(runtime, 1)
    call.send_signal(ending)
    call.communicate()
    waits(runtime, 0)
    runtime.schedule(pod)
    runtime.site.wait_condition(f"pod.shop.{pod.name}", "Unknown", "NoSandbox")
    assert runtime.leftovers() == ([], [], [])


def test_a_runtime_that_gives_up_while_ovn_is_late_leaves_nothing(runtime: Runtime) -> None:
    pod = runtime.pod("slow")
    controller = runtime.site.node.controller
    assert controller is not None
    runtime.site.wait_condition(f"pod.shop.{pod.name}", "True", kind="Addressed")
    with Stopped(controller.pid):
        call = runtime.begin("ADD", pod)
        wait_until(lambda: has_device(runtime, pod) and bool(runtime.records()), what="the pair and its record")
        call.kill()
        call.communicate()
        wait_until(lambda: runtime.leftovers() == ([], [], []), what="all to be removed")
        assert not has_device(runtime, pod)


def test_a_delete_ends_an_add_that_waits(runtime: Runtime) -> None:
    pod = runtime.pod("both", scheduled=False)
    call = runtime.begin("ADD", pod)
    waits(runtime, 1)
    assert runtime.call("DEL", pod).status == 0
    assert json.loads(call.communicate()[0])["code"] == 11
    runtime.schedule(pod)
    runtime.added(pod)


def test_an_attachment_that_is_deleted_ends_an_add_that_waits_for_ovn(runtime: Runtime) -> None:
    pod = runtime.pod("gone")
    controller = runtime.site.node.controller
    assert controller is not None
    runtime.site.wait_condition(f"pod.shop.{pod.name}", "True", kind="Addressed")
    with Stopped(controller.pid):
        call = runtime.begin("ADD", pod)
        wait_until(lambda: has_device(runtime, pod), what="the pair")
        runtime.unschedule(pod)
        error = json.loads(call.communicate()[0])
    assert (error["code"], "was deleted" in error["msg"]) == (11, True)
    wait_until(lambda: runtime.leftovers() == ([], [], []), what="all to be removed")


# DEL.


def test_a_delete_without_an_add_succeeds(runtime: Runtime) -> None:
    pod = runtime.pod("never")
    assert runtime.call("DEL", pod) == (0, "")
    assert runtime.call("DEL", pod, env={"CNI_NETNS": None, "CNI_ARGS": None}) == (0, "")


def test_a_delete_that_is_repeated_succeeds(runtime: Runtime) -> None:
    pod = runtime.pod("twice")
    runtime.added(pod)
    assert [runtime.call("DEL", pod) for _ in range(3)] == [(0, "")] * 3


def test_a_delete_after_the_namespace_is_gone_succeeds(runtime: Runtime) -> None:
    pod = runtime.pod("ended")
    runtime.added(pod)
    runtime.end(pod)
    assert runtime.call("DEL", pod, env={"CNI_NETNS": None}) == (0, "")
    assert runtime.leftovers() == ([], [], [])


def test_a_delete_after_the_attachment_is_gone_succeeds(runtime: Runtime) -> None:
    pod = runtime.pod("unscheduled")
    runtime.added(pod)
    runtime.unschedule(pod)
    wait_until(lambda: not runtime.interfaces(), what="the port to be unplugged")
    assert len(runtime.records()) == 1
    assert runtime.call("DEL", pod) == (0, "")
    assert runtime.leftovers() == ([], [], [])


def test_an_attachment_that_is_made_again_is_plugged_again(runtime: Runtime) -> None:
    pod = runtime.pod("remade")
    runtime.added(pod)
    runtime.unschedule(pod)
    wait_until(lambda: not runtime.interfaces(), what="the port to be unplugged")
    runtime.schedule(pod)
    runtime.site.wait_ready(f"pod.shop.{pod.name}")
    assert has_device(runtime, pod)


def test_a_delete_of_one_interface_leaves_that_of_another_container(runtime: Runtime) -> None:
    pod = runtime.pod("mine")
    result = runtime.added(pod)
    assert runtime.call("DEL", pod, env={"CNI_CONTAINERID": "theirs"}).status == 0
    assert runtime.call("DEL", pod, env={"CNI_IFNAME": "eth1"}).status == 0
    assert runtime.check(pod, result).status == 0


# CHECK.

TAMPERED: list[tuple[str, list[str], str]] = [
    ("an address is gone", ["addr", "flush", "dev", "eth0", "scope", "global"], "setting address"),
    ("the device is down", ["link", "set", "eth0", "down"], "setting eth0 up"),
    ("the MAC is another", ["link", "set", "eth0", "address", "02:00:00:00:00:55"], "setting MAC and MTU"),
    ("the MTU is another", ["link", "set", "eth0", "mtu", "1300"], "setting MAC and MTU"),
    ("the default route is gone", ["route", "flush", "default"], "adding the route to 0.0.0.0/0"),
    ("the device has another name", ["link", "set", "eth0", "down", "name", "eth7"], "there is no device eth0"),
]


@pytest.mark.parametrize(("argv", "message"), [case[1:] for case in TAMPERED], ids=[case[0] for case in TAMPERED])
def test_check_finds_what_was_changed_in_the_pod(runtime: Runtime, argv: list[str], message: str) -> None:
    pod = runtime.pod("tampered")
    result = runtime.added(pod)
    assert runtime.check(pod, result).status == 0
    runtime.site.inside(pod.netns, "ip", *argv)
    code, text = runtime.check(pod, result).error
    assert (code, message in text) == (100, True), text


def test_pods_of_a_vxlan_network_are_added_and_deleted(runtime: Runtime) -> None:
    pod = runtime.pod("vx", scheduled=False)
    runtime.schedule(pod, network="far")
    result = runtime.added(pod)
    assert [ip["address"].rpartition(".")[0] for ip in result["ips"]] == ["10.30.0"]
    assert runtime.check(pod, result).status == 0
    bridge = runtime.site.node.vsctl("port-to-br", result["interfaces"][0]["name"])
    assert bridge.strip() == "br-vxlan"
    assert runtime.records() == [f"netloom-pod/netloom/{pod.container}/eth0"]


def test_check_finds_what_another_program_added_harmless(runtime: Runtime) -> None:
    pod = runtime.pod("added")
    result = runtime.added(pod)
    runtime.site.inside(pod.netns, "ip", "addr", "add", "192.0.2.9/32", "dev", "eth0")
    runtime.site.inside(pod.netns, "ip", "route", "add", "192.0.2.128/25", "dev", "eth0")
    result["ips"].append({"address": "192.0.2.9/32", "interface": 1})
    assert runtime.check(pod, result).status == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"interfaces": []}, "prevResult has no interface eth0"),
        ({"ips": []}, "prevResult does not have 10.10.0."),
        ({"interfaces": [{"name": "eth0", "sandbox": "NETNS", "mac": "02:00:00:00:00:01"}]}, "another MAC address"),
    ],
)
def test_check_finds_that_the_result_is_not_that_of_the_add(runtime: Runtime, change: Json, message: str) -> None:
    pod = runtime.pod("other")
    result = runtime.added(pod)
    changed = json.loads(json.dumps(change).replace("NETNS", pod.netns))
    code, text = runtime.check(pod, result | changed).error
    assert (code, message in text) == (100, True), text


def test_check_of_another_namespace_fails(runtime: Runtime) -> None:
    pod = runtime.pod("moved")
    result = runtime.added(pod)
    code, text = runtime.call("CHECK", pod, prevResult=result, env={"CNI_NETNS": "/run/netns/else"}).error
    assert (code, f"CNI_NETNS is not {pod.netns}" in text) == (100, True)


def test_check_of_an_interface_that_is_not_there_fails(runtime: Runtime) -> None:
    code, text = runtime.check(runtime.pod("never"), {}).error
    assert (code, "the agent knows no such interface" in text) == (100, True)


def test_check_finds_that_ovn_has_no_flows(runtime: Runtime) -> None:
    pod = runtime.pod("flows")
    result = runtime.added(pod)
    controller = runtime.site.node.controller
    assert controller is not None
    outer = result["interfaces"][0]["name"]
    with Stopped(controller.pid):
        runtime.site.node.vsctl("remove", "interface", outer, "external_ids", "ovn-installed")
        code, text = runtime.check(pod, result).error
    assert (code, f"OVN has not installed the flows of {outer}" in text) == (100, True)


def test_a_port_that_is_taken_off_the_switch_is_restored(runtime: Runtime) -> None:
    pod = runtime.pod("restored")
    result = runtime.added(pod)
    runtime.site.node.vsctl("del-port", "br-int", result["interfaces"][0]["name"])
    wait_until(lambda: runtime.check(pod, result).status == 0, what="CHECK to succeed")


# GC.


def test_gc_removes_what_is_not_in_the_list(runtime: Runtime) -> None:
    pods = [runtime.pod(f"gc{at}") for at in range(4)]
    results = [runtime.added(pod) for pod in pods]
    valid = [{"containerID": pod.container, "ifname": "eth0"} for pod in pods[:2]]
    assert runtime.call("GC", stdin=collecting(valid)) == (0, "")
    assert [runtime.check(pod, result).status for pod, result in zip(pods, results, strict=True)] == [0, 0, 1, 1]
    assert len(runtime.records()) == len(runtime.devices()) == 2
    assert runtime.call("GC", stdin=collecting([])) == (0, "")
    assert runtime.leftovers() == ([], [], [])


def test_gc_removes_pods_whose_namespaces_are_gone(runtime: Runtime) -> None:
    pod = runtime.pod("ended")
    runtime.added(pod)
    runtime.end(pod)
    assert runtime.call("GC", stdin=collecting([])) == (0, "")
    assert runtime.leftovers() == ([], [], [])


def test_gc_leaves_pods_that_are_being_added(runtime: Runtime) -> None:
    pod = runtime.pod("coming", scheduled=False)
    call = runtime.begin("ADD", pod)
    waits(runtime, 1)
    assert runtime.call("GC", stdin=collecting([])) == (0, "")
    runtime.schedule(pod)
    assert json.loads(call.communicate()[0])["interfaces"][1]["name"] == "eth0"


# VERSION and STATUS.


@pytest.mark.parametrize("stdin", [b"", b"{}", b'{"cniVersion": "9.9.9"}', configuration()])
def test_version_names_the_versions(runtime: Runtime, stdin: bytes) -> None:
    assert runtime.call("VERSION", stdin=stdin).result == {"cniVersion": LATEST, "supportedVersions": list(VERSIONS)}


def test_version_answers_in_the_version_of_the_configuration(runtime: Runtime) -> None:
    assert runtime.call("VERSION", cniVersion="0.4.0").result["cniVersion"] == "0.4.0"


def test_status_succeeds_while_pods_can_be_added(runtime: Runtime) -> None:
    assert runtime.call("STATUS") == (0, "")


# Hostile clients.


def test_a_client_that_sends_nothing_or_nonsense_costs_itself_alone(runtime: Runtime) -> None:
    sent = [b"", b"12", b"12\nabc", b"-1\n", b"99999999999999\n", b"x" * 100000, b"1000000\n", b"0\n", b"3\nabc"]
    slow = []
    for data in sent:
        one = socket.socket(socket.AF_UNIX)
        one.connect(str(runtime.socket))
        one.send(data)
        slow.append(one)
    pod = runtime.pod("between")
    result = runtime.added(pod)
    assert runtime.check(pod, result).status == 0
    for one in slow:
        one.close()


def test_only_root_may_connect(runtime: Runtime) -> None:
    assert runtime.socket.stat().st_mode & 0o777 == 0o600


# The agent ends, and comes back.


def test_a_call_without_an_agent_can_be_tried_again(runtime: Runtime) -> None:
    pod = runtime.pod("kept")
    result = runtime.added(pod)
    seen = same(runtime, pod)
    late = runtime.pod("late", scheduled=False)
    waiting = runtime.begin("ADD", late)
    waits(runtime, 1)
    assert runtime.site.agent is not None
    runtime.site.agent.kill()
    assert json.loads(waiting.communicate()[0])["code"] == 11
    for verb in ("ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION"):
        found = runtime.call(verb, pod)
        assert found.error == (11, "the agent of Netloom on this node does not answer")
    runtime.start_agent()
    assert runtime.check(pod, result).status == 0
    assert runtime.added(pod) == result
    assert same(runtime, pod) == seen
    runtime.schedule(late)
    runtime.added(late)


def test_an_agent_that_is_stopped_removes_what_it_was_making(runtime: Runtime) -> None:
    pod = runtime.pod("stopped")
    controller = runtime.site.node.controller
    assert controller is not None
    assert runtime.site.agent is not None
    runtime.site.wait_condition(f"pod.shop.{pod.name}", "True", kind="Addressed")
    with Stopped(controller.pid):
        call = runtime.begin("ADD", pod)
        wait_until(lambda: has_device(runtime, pod) and bool(runtime.records()), what="the pair and its record")
        runtime.site.agent.stop()
        assert json.loads(call.communicate()[0])["code"] == 11
        assert runtime.leftovers() == ([], [], [])
    runtime.start_agent()
    runtime.added(pod)


def test_doctor_finds_nothing_wrong_with_pods(runtime: Runtime) -> None:
    there, waiting = runtime.pod("there"), runtime.pod("waiting")
    runtime.added(there)
    site = runtime.site
    site.wait_ready(f"pod.shop.{there.name}")
    site.wait_condition(f"pod.shop.{waiting.name}", "Unknown", "NoSandbox")
    argv = ("--kubeconfig", str(site.admin), "doctor", "--ovs", site.node.database.remote)
    found = site.node.exec(*NETLOOM, *argv, "--ovn-nb", site.central.northbound.remote, check=False)
    assert "pod.shop" not in found, found
    assert "nodes: no problems found" in found, found


def test_a_pod_that_ended_while_the_agent_was_dead_is_forgotten(runtime: Runtime) -> None:
    stays, goes = runtime.pod("stays"), runtime.pod("goes")
    result = runtime.added(stays)
    runtime.added(goes)
    assert runtime.site.agent is not None
    runtime.site.agent.kill()
    runtime.end(goes)
    runtime.start_agent()
    wait_until(lambda: len(runtime.records()) == 1 == len(runtime.interfaces()), what="the record to go")
    assert runtime.check(stays, result).status == 0


def test_deletes_need_no_api_server_even_after_a_restart_of_the_agent(runtime: Runtime) -> None:
    first, second = runtime.pod("first"), runtime.pod("second")
    runtime.added(first)
    runtime.added(second)
    assert runtime.site.serve is not None
    assert runtime.site.agent is not None
    runtime.site.serve.stop()
    try:
        assert runtime.call("DEL", first) == (0, "")
        assert not has_device(runtime, first)
        runtime.site.agent.kill()
        runtime.site.start_agent("--cni", str(runtime.socket), "--cni-namespace", "default")
        wait_until(lambda: runtime.call("VERSION").status == 0, what="the agent to serve")
        code, text = runtime.call("STATUS").error
        assert (code, text) == (50, "the agent has not read the attachments of this node yet")
        assert runtime.call("DEL", second) == (0, "")
        assert runtime.leftovers() == ([], [], [])
    finally:
        runtime.site.close()
        runtime.site.start_serve("--ovn-nb", runtime.site.central.northbound.remote)
    wait_until(lambda: not install.not_ready(str(runtime.socket)), what="STATUS to succeed")


# Helpers.


def waits(runtime: Runtime, number: int) -> None:
    """Wait until so many calls are being answered."""
    wait_until(lambda: runtime.site.metrics().get("cni_open") == number, what=f"{number} calls to wait")


def collecting(valid: list[dict[str, str]]) -> bytes:
    """Return the configuration of a GC."""
    return configuration(**{VALID_ATTACHMENTS: valid})


class Stopped:
    """A process that is stopped for a while."""

    def __init__(self, pid: int) -> None:
        self._pid = str(pid)

    def __enter__(self) -> None:
        subprocess.run(["kill", "-STOP", self._pid], check=True)

    def __exit__(self, *_: object) -> None:
        subprocess.run(["kill", "-CONT", self._pid], check=True)
