"""Who may what on a cluster that has Netloom: what both ways have in common, each a function to be run on either."""

import json
from typing import Any

from netloom.run.cluster.manifests import NAMESPACE
from tests.e2e.joined import Joined
from tests.support.kubectl import Answer
from tests.support.process import wait_until

OBJECTS = """\
apiVersion: netloom.dev/v1alpha1
kind: Network
metadata: {name: blue}
spec: {fabric: vxlan}
---
apiVersion: netloom.dev/v1alpha1
kind: Subnet
metadata: {name: blue}
spec: {network: blue, cidr: 10.10.0.0/24}
---
apiVersion: netloom.dev/v1alpha1
kind: NetworkAttachment
metadata: {name: mine}
spec: {node: n1, network: blue}
---
apiVersion: netloom.dev/v1alpha1
kind: NetworkAttachment
metadata: {name: theirs}
spec: {node: n2, network: blue}
"""


def with_attachments(joined: Joined) -> str:
    """Return a namespace with an attachment on n1, one on n2, both with addresses."""
    namespace = joined.namespace()
    joined.admin("-n", namespace, "apply", "-f", "-", stdin=OBJECTS)
    waits = ("--for=condition=Addressed", "na", "--all", "--timeout=120s")
    joined.admin("-n", namespace, "wait", *waits)
    return namespace


def node(name: str) -> str:
    """Return a Node of ours."""
    made: dict[str, Any] = {"apiVersion": "netloom.dev/v1alpha1", "kind": "Node", "metadata": {"name": name}}
    return json.dumps(made | {"spec": {"underlayIP": "192.0.2.1"}})


def refused(answer: Answer) -> str:
    """Return what was said by whoever refused."""
    assert answer.rc != 0, answer.out
    assert "orbidden" in answer.err, answer.err
    return answer.err


def status(joined: Joined, namespace: str, kubeconfig: Any, name: str) -> Answer:
    """Write the status of an attachment as somebody."""
    patch = json.dumps({"status": {"ifcName": "x0"}})
    words = ("-n", namespace, "patch", "na", name, "--subresource=status", "--type=merge", "-p", patch)
    return joined.kubectl.run(*words, kubeconfig=kubeconfig, check=False)


def a_viewer_reads_and_does_not_write(joined: Joined) -> None:
    """By the cluster's own role `view`, of which ours is a part."""
    namespace = with_attachments(joined)
    viewer = joined.cluster.credential("vera")
    joined.grant("vera", "view", namespace)

    def sees() -> bool:
        words = ("-n", namespace, "get", "networks", "-o", "name")
        return "network.netloom.dev/blue" in joined.kubectl.run(*words, kubeconfig=viewer, check=False).out

    wait_until(sees, what="the viewer to see", interval=0.3)
    labelled = joined.kubectl.run("-n", namespace, "label", "network", "blue", "a=b", kubeconfig=viewer, check=False)
    assert 'User "vera" cannot patch resource "networks"' in refused(labelled)
    refused(joined.kubectl.run("-n", "default", "get", "networks", kubeconfig=viewer, check=False))
    refused(joined.kubectl.run("get", "networks", "-A", kubeconfig=viewer, check=False))


def an_editor_writes_wishes_and_no_status(joined: Joined) -> None:
    """By `netloom:edit`; the cluster's own `edit`, of which ours is no part unless asked for, is not enough."""
    namespace = with_attachments(joined)
    editor = joined.cluster.credential("eddie")
    joined.grant("eddie", "edit", namespace)
    words = ("-n", namespace, "label", "network", "blue", "a=b", "--overwrite")

    def writes() -> bool:
        return joined.kubectl.run(*words, kubeconfig=editor, check=False).rc == 0

    def reads() -> bool:
        found = joined.kubectl.run("-n", namespace, "get", "networks", kubeconfig=editor, check=False)
        return found.rc == 0

    wait_until(reads, what="the cluster's edit to have our view in it", interval=0.3)
    refused(joined.kubectl.run(*words, kubeconfig=editor, check=False))
    joined.grant("eddie", "netloom:edit", namespace)
    wait_until(writes, what="the editor to write", interval=0.3)
    refused(status(joined, namespace, editor, "mine"))


def an_agent_writes_what_is_its_own(joined: Joined) -> None:
    """Whether its token is bound to its node or it is a user of its own."""
    namespace = with_attachments(joined)
    for kubeconfig in (joined.agent("n1"), joined.node_user("n1")):
        words = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        joined.kubectl.run(*words, kubeconfig=kubeconfig, stdin=node("n1"))
        refused(joined.kubectl.run(*words, kubeconfig=kubeconfig, stdin=node("n2"), check=False))
        own = status(joined, namespace, kubeconfig, "mine")
        assert own.rc == 0, own.err
        refused(status(joined, namespace, kubeconfig, "theirs"))
        for others in ("delete na mine", "label na mine a=b", "get secrets", "delete networks --all"):
            refused(joined.kubectl.run("-n", namespace, *others.split(), kubeconfig=kubeconfig, check=False))


def an_agent_that_is_a_user_is_held_to_its_node_by_rbac_alone(joined: Joined) -> None:
    """The cluster itself says so, before anybody else is asked."""
    for name, answer in (("n1", "yes"), ("n2", "no")):
        words = ("auth", "can-i", "update", f"nodes.netloom.dev/{name}")
        asked = joined.kubectl.run(*words, kubeconfig=joined.node_user("n1"), check=False)
        assert asked.out.strip() == answer, asked.err


def an_agent_of_no_node_writes_nothing(joined: Joined) -> None:
    """The account alone is not enough: its token must be bound to a Node."""
    namespace = with_attachments(joined)
    for kubeconfig in (
        joined.cluster.account(NAMESPACE, "netloom-agent"),
        joined.cluster.credential("alice", "netloom:nodes"),
    ):
        refused(status(joined, namespace, kubeconfig, "mine"))
        made = joined.kubectl.run(
            "apply", "--server-side", "-f", "-", kubeconfig=kubeconfig, stdin=node("n1"), check=False
        )
        refused(made)


def an_agent_selects_what_concerns_it(joined: Joined) -> None:
    """By the selectors of its watches."""
    namespace = with_attachments(joined)
    for kubeconfig in (joined.agent("n1"), joined.node_user("n1")):
        own = joined.kubectl.run(
            "get", "na", "-A", "--field-selector", "spec.node=n1", "-o", "name", kubeconfig=kubeconfig
        )
        assert "networkattachment.netloom.dev/mine" in own.out
        assert "theirs" not in own.out
        others = "spec.network=blue,spec.node!=n1,status.hostIP!="
        words = ("-n", namespace, "get", "na", "--field-selector", others, "-o", "name")
        assert joined.kubectl.run(*words, kubeconfig=kubeconfig).out == ""
        plugged = json.dumps({"status": {"hostIP": "192.0.2.2"}})
        patch = ("-n", namespace, "patch", "na", "theirs", "--subresource=status", "--type=merge", "-p", plugged)
        joined.admin(*patch)
        assert joined.kubectl.run(*words, kubeconfig=kubeconfig).out == "networkattachment.netloom.dev/theirs\n"
        joined.admin(*patch[:-1], json.dumps({"status": {"hostIP": None}}))


RIGHTS = [
    a_viewer_reads_and_does_not_write,
    an_editor_writes_wishes_and_no_status,
    an_agent_writes_what_is_its_own,
    an_agent_that_is_a_user_is_held_to_its_node_by_rbac_alone,
    an_agent_of_no_node_writes_nothing,
    an_agent_selects_what_concerns_it,
]
