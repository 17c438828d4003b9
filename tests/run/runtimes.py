"""A container runtime, as far as CNI is concerned: it calls the plugin as a process, and has network namespaces."""

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from netloom.front.cni import install
from netloom.plan.kube import names
from tests.run.agents import DEFAULT, NODE, Json, Site
from tests.support.process import wait_until

LATEST = "1.1.0"


class Answer(NamedTuple):
    """What the plugin answers."""

    status: int
    text: str

    @property
    def json(self) -> Json:
        """Its result, or its error."""
        found: Json = json.loads(self.text)
        return found

    @property
    def error(self) -> tuple[int, str]:
        """The code and the message of its error."""
        assert self.status == 1, f"it succeeded: {self.text}"
        return self.json["code"], self.json["msg"]

    @property
    def result(self) -> Json:
        """Its result, if it is to have one."""
        assert self.status == 0, self.text
        return self.json


class Pod(NamedTuple):
    """A pod as a runtime knows it."""

    name: str
    uid: str
    container: str
    netns: str

    @property
    def args(self) -> str:
        """The value of CNI_ARGS."""
        return (
            f"IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={self.name};"
            f"K8S_POD_INFRA_CONTAINER_ID={self.container};K8S_POD_UID={self.uid}"
        )


@dataclass
class Runtime:
    """A runtime on the node of a site, whose agent serves CNI."""

    site: Site
    folder: Path
    pods: list[Pod] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        return self.folder / "cni.sock"

    @property
    def plugin(self) -> Path:
        return self.folder / "bin" / install.PLUGIN

    def start_agent(self, *args: str, wait: bool = True) -> None:
        self.site.start_agent(
            "--cni", str(self.socket), "--cni-namespace", DEFAULT, "--cni-timeout", "60", *args, wait=wait
        )
        install.put_plugin(self.folder / "bin", agent=str(self.socket))
        wait_until(lambda: not install.not_ready(str(self.socket)), what="STATUS to succeed")

    # Pods.

    def pod(self, name: str, *, number: int = 1, scheduled: bool = True) -> Pod:
        """Make a pod's namespace and, if it is scheduled, its attachment."""
        pod = Pod(name, f"uid-{name}-{number}", f"{name}{number:04d}", self.site.new_namespace(f"{name}{number}"))
        self.pods.append(pod)
        if scheduled:
            self.schedule(pod)
        return pod

    def schedule(self, pod: Pod, **spec: Any) -> None:
        """Make the attachment of a pod, as the controller does."""
        metadata = {"name": names.pod("shop", pod.name), "namespace": DEFAULT, "labels": {names.POD_UID: pod.uid}}
        spec = {"node": NODE, "network": "blue", "port": {"type": "pod"}, "defaultRoute": True, **spec}
        self.site.apply(
            {"apiVersion": "netloom.dev/v1alpha1", "kind": "NetworkAttachment", "metadata": metadata, "spec": spec}
        )

    def unschedule(self, pod: Pod) -> None:
        """Delete the attachment of a pod."""
        self.site.delete("NetworkAttachment", names.pod("shop", pod.name))

    def end(self, pod: Pod) -> None:
        """End the container: its namespace goes."""
        subprocess.run(["ip", "netns", "del", pod.netns.removeprefix("/run/netns/")], check=False, capture_output=True)

    # Calls.

    def environment(self, verb: str, pod: Pod | None, **changes: str | None) -> dict[str, str]:
        """Return the variables of a call; a change to None leaves one out."""
        found: dict[str, str | None] = {"CNI_COMMAND": verb, "CNI_PATH": str(self.plugin.parent), "PATH": "/usr/bin"}
        if pod is not None:
            found |= {
                "CNI_CONTAINERID": pod.container, "CNI_IFNAME": "eth0", "CNI_NETNS": pod.netns, "CNI_ARGS": pod.args
            }  # fmt: skip
        return {name: value for name, value in (found | changes).items() if value is not None}

    def call(
        self,
        verb: str,
        pod: Pod | None = None,
        stdin: bytes | None = None,
        *,
        env: dict[str, str | None] | None = None,
        **conf: Any,
    ) -> Answer:
        """Call the plugin; `conf` changes the configuration, and None leaves a key out."""
        found = subprocess.run(
            [self.plugin],
            input=configuration(**conf) if stdin is None else stdin,
            env=self.environment(verb, pod, **(env or {})),
            capture_output=True,
            check=False,
        )
        assert not found.stderr, found.stderr.decode()
        return Answer(found.returncode, found.stdout.decode())

    def begin(self, verb: str, pod: Pod, **conf: Any) -> "subprocess.Popen[bytes]":
        """Start a call and leave it running."""
        made = subprocess.Popen(
            [self.plugin], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment(verb, pod)
        )
        assert made.stdin is not None
        made.stdin.write(configuration(**conf))
        made.stdin.close()
        made.stdin = None
        return made

    def added(self, pod: Pod, **conf: Any) -> Json:
        """Add a pod and return the result."""
        return self.call("ADD", pod, **conf).result

    def check(self, pod: Pod, result: Json, **conf: Any) -> Answer:
        return self.call("CHECK", pod, prevResult=result, **conf)

    # The node.

    def records(self) -> list[str]:
        """Return the keys of the sandboxes that are recorded."""
        text = self.site.node.vsctl("--bare", "--columns=external_ids", "list", "bridge")
        words = [word.partition("=")[0] for word in text.replace('"', "").split()]
        return [word for word in words if word.startswith("netloom-pod/")]

    def interfaces(self) -> list[str]:
        """Return the devices of pods on the switch."""
        text = self.site.node.vsctl("--bare", "--columns=name,external_ids", "find", "interface")
        rows = [row.split() for row in text.split("\n\n") if "NetworkAttachment/" in row]
        return [row[0] for row in rows]

    def devices(self) -> list[str]:
        """Return the outer ends of pairs in the node's namespace."""
        listed = json.loads(self.site.node.exec("ip", "-j", "link"))
        return [one["ifname"] for one in listed if one["ifname"].startswith("nl0")]

    def leftovers(self) -> tuple[list[str], list[str], list[str]]:
        """Return what is left of pods: records, interfaces, devices."""
        return self.records(), self.interfaces(), self.devices()

    def tidy(self) -> None:
        """Delete all pods as a kubelet does, and check that nothing is left."""
        for pod in self.pods:
            assert self.call("DEL", pod).status == 0
            self.end(pod)
        for name in [one["metadata"]["name"] for one in self._attachments()]:
            self.site.delete("NetworkAttachment", name)
        self.pods.clear()
        assert self.leftovers() == ([], [], [])

    def _attachments(self) -> list[Json]:
        status, answer = self.site.request("GET", f"/apis/netloom.dev/v1alpha1/namespaces/{DEFAULT}/networkattachments")
        assert status == 200, answer
        items: list[Json] = answer["items"]
        return items


def configuration(**changes: Any) -> bytes:
    """Return a network configuration as runtimes give it to the plugin; None leaves a key out."""
    made = {"cniVersion": LATEST, "name": "netloom", "type": install.PLUGIN} | changes
    return json.dumps({key: value for key, value in made.items() if value is not None}).encode()
