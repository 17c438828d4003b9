"""A container runtime of a test: it calls the CNI plugin of a node, as a process, and sees what a node has of pods.

    runtime.attach("web")                      what the controller makes for the pod cni/web
    added = runtime.call("ADD")
    assert runtime.call("DEL").code == 0
    runtime.until_clean()

The pods exist for the plugin only: no kubelet knows them, so that nothing but the test calls for them.
"""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import closing
from typing import Any, NamedTuple

from netloom.drivers.vswitch.pods import POD
from netloom.lab import Lab
from netloom.lab.kube.places import Places
from netloom.plan.kube import names
from tests.lab.churning import Api
from tests.lab.worlds import document
from tests.support.process import wait_until

NAMESPACE = "cni"
CONF: dict[str, Any] = {"cniVersion": "1.1.0", "name": "netloom", "type": "netloom-cni"}
SECONDS = 120

Changes = Mapping[str, Any]
"""What differs from a usual call; None: it is left out."""
NOTHING: Changes = {}


class Said(NamedTuple):
    """How a call of the plugin ended."""

    status: int
    text: bytes

    @property
    def result(self) -> dict[str, Any]:
        """What it printed."""
        found: dict[str, Any] = json.loads(self.text) if self.text else {}
        return found

    @property
    def code(self) -> int:
        """0, or the code of the error."""
        assert (self.status == 0) == ("code" not in self.result), self
        return int(self.result.get("code", 0))


class Runtime:
    """A runtime on one node of a lab."""

    def __init__(self, lab: Lab, node: str) -> None:
        self.lab, self.node = lab, node
        self.plugin = Places(lab.layout).cni(node) / "bin" / "netloom-cni"
        self._spaces: set[str] = set()
        self._attached: set[str] = set()
        self._uids: dict[str, str] = {}
        """Of attachments, of deleted ones too -> name."""

    # Pods.

    def attach(self, *pods: str) -> None:
        """Make the attachments of pods; an ADD waits for their addresses."""
        for pod in pods:
            status, made = self._send("POST", body=self._attachment(pod))
            assert status == 201, made
            self._uids[made["metadata"]["uid"]] = made["metadata"]["name"]
            self._attached.add(pod)

    def detach(self, *pods: str) -> None:
        """Delete the attachments of pods."""
        for pod in pods:
            status, said = self._send("DELETE", names.pod(NAMESPACE, pod))
            assert status in (200, 404), said
            self._attached.discard(pod)

    def space(self, pod: str = "web") -> str:
        """Return the path of a network namespace for a pod, made if need be."""
        self._spaces.add(f"cni-{pod}")
        return str(self.lab.workload(f"cni-{pod}"))

    def leave(self, pod: str = "web") -> None:
        """Delete the network namespace of a pod."""
        self._spaces.discard(f"cni-{pod}")
        subprocess.run(["ip", "netns", "delete", self.lab.netns(f"cni-{pod}")], check=True)

    def inside(self, *command: str, pod: str = "web") -> str:
        """Run a command in the network namespace of a pod."""
        argv = ["ip", "netns", "exec", self.lab.netns(f"cni-{pod}"), *command]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def end(self) -> None:
        """Delete what was made."""
        for name in sorted(self._spaces):
            self.leave(name.removeprefix("cni-"))
        self.detach(*sorted(self._attached))

    # Calls.

    def call(self, verb: str, pod: str = "web", *, env: Changes = NOTHING, conf: Changes | bytes = NOTHING) -> Said:
        """Call the plugin and wait for its end."""
        process = self.start(verb, pod, env=env, conf=conf)
        text, _ = process.communicate(timeout=SECONDS)
        return Said(process.returncode, text)

    def start(
        self,
        verb: str,
        pod: str = "web",
        *,
        env: Changes = NOTHING,
        conf: Changes | bytes = NOTHING,
    ) -> "subprocess.Popen[bytes]":
        """Start a call of the plugin."""
        stdin = conf if isinstance(conf, bytes) else json.dumps(_changed(CONF, conf)).encode()
        with tempfile.TemporaryFile() as file:
            file.write(stdin)
            file.seek(0)
            return subprocess.Popen(
                [self.plugin],
                stdin=file,
                stdout=subprocess.PIPE,
                env=_changed(self.variables(verb, pod), env),
            )

    def variables(self, verb: str, pod: str = "web") -> dict[str, str]:
        """Return the variables of a usual call."""
        return {
            "CNI_COMMAND": verb,
            "CNI_CONTAINERID": f"c-{pod}",
            "CNI_IFNAME": "eth0",
            "CNI_NETNS": self.space(pod),
            "CNI_PATH": str(self.plugin.parent),
            "CNI_ARGS": args(pod),
        }

    # What is there of pods.

    def until_clean(self, *but: str) -> None:
        """Return when nothing is left of our pods, but for some of them."""
        kept = tuple(f"{names.pod(NAMESPACE, pod)}:" for pod in but)
        left: list[str] = []

        def clean() -> bool:
            nonlocal left
            left = [one for one in self.left() if not one.startswith(kept)]
            return not left

        try:
            wait_until(clean, what="nothing to be left", timeout=60, interval=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}: {left}") from None

    def left(self) -> list[str]:
        """Return what OVN, the switch, the agent's records and the kernel have of our pods, as ATTACHMENT: WHAT."""
        mine = names.pod(NAMESPACE, "")
        found = []
        # OVN last: it hears of a change from the switch.
        for name, ids in self._rows(self.node, "ovs-vsctl", "Interface", "name", "external_ids"):
            whose = dict(ids[1]).get("netloom-of", "").rpartition("/")[2]
            found += [f"{whose}: interface {name}"] if whose.startswith(mine) else []
        for _, ids in self._rows(self.node, "ovs-vsctl", "Bridge", "name", "external_ids"):
            records = [json.loads(value) for key, value in ids[1] if key.startswith(f"{POD}/")]
            found += [f"{one['name']}: record {one}" for one in records if one["name"].startswith(mine)]
        links = json.loads(self.lab.exec(self.node, ["ip", "-j", "link"]).stdout)
        for one in links:
            whose = self._uids.get(one.get("ifalias", "").rpartition("/")[2], "")
            found += [f"{whose}: device {one['ifname']}"] if whose else []
        for port, chassis in self._rows("central", "ovn-sbctl", "Port_Binding", "logical_port", "chassis"):
            whose = port.rpartition("/")[2]
            found += [f"{whose}: bound"] if whose.startswith(mine) and chassis[0] == "uuid" else []
        return found

    def _send(self, method: str, name: str = "", body: object = None) -> tuple[int, dict[str, Any]]:
        with closing(Api(self.lab, names.NAMESPACE)) as api:
            return api.send(method, "NetworkAttachment", name, body)

    def _rows(self, place: str, tool: str, table: str, *columns: str) -> list[list[Any]]:
        argv = [tool, "--format=json", f"--columns={','.join(columns)}", "list", table]
        shown: list[list[Any]] = json.loads(self.lab.exec(place, argv).stdout)["data"]
        return shown

    def _attachment(self, pod: str) -> dict[str, Any]:
        labels = {names.OF_NAMESPACE: NAMESPACE, names.POD_UID: f"uid-{pod}"}
        spec = {
            "node": self.node,
            "network": names.NETWORK,
            "subnets": [names.slice_subnet(self.node, family) for family in (4, 6)],
            "port": {"type": "pod"},
            "defaultRoute": True,
        }
        return document("NetworkAttachment", names.pod(NAMESPACE, pod), spec, labels=labels)


def args(pod: str, **changes: str) -> str:
    """Return CNI_ARGS as a kubelet's runtime gives them."""
    given = {"K8S_POD_NAMESPACE": NAMESPACE, "K8S_POD_NAME": pod, "K8S_POD_UID": f"uid-{pod}", **changes}
    return ";".join(["IgnoreUnknown=1", *(f"{name}={value}" for name, value in given.items())])


def _changed(usual: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    return {name: value for name, value in {**usual, **changes}.items() if value is not None}
