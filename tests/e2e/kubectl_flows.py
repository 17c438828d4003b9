"""What people do with kubectl, on any API that has our kinds: flows that several suites run, each on its own server.

    @pytest.mark.parametrize("flow", FLOWS, ids=named)
    def test_kubectl(flow, user): flow(user)

Each flow has a namespace of its own. Those in HOUSEHOLD need an API that has namespaces and definitions itself, those
in COLLECTED somebody who collects what is owned, and IN_USE an API that knows what is in use, which is ours.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from netloom.model.registry import KINDS
from tests.support.kubectl import Answer, Kubectl
from tests.support.process import wait_until

EXAMPLE = """\
apiVersion: netloom.dev/v1alpha1
kind: Network
metadata: {name: blue}
spec: {fabric: ovn}
---
apiVersion: netloom.dev/v1alpha1
kind: Subnet
metadata: {name: blue-v4}
spec: {network: blue, cidr: 10.10.0.0/24}
---
apiVersion: netloom.dev/v1alpha1
kind: NetworkAttachment
metadata: {name: web, labels: {app: web}}
spec: {node: n1, network: blue, port: {type: internal}}
"""


class User:
    """One kubectl in one namespace."""

    def __init__(self, kubectl: Kubectl, kubeconfig: Path, namespace: str, folder: Path) -> None:
        """`folder` is for files of its own."""
        self.kubectl = kubectl
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self.folder = folder

    def __call__(self, *words: str | Path, **options: Any) -> Answer:
        return self.kubectl.run("-n", self.namespace, *words, kubeconfig=self.kubeconfig, **options)

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json").out)

    def apply(self, text: str = EXAMPLE, *flags: str) -> Answer:
        return self("apply", *flags, "-f", "-", stdin=text)


def api_resources_shows_every_kind(user: User) -> None:
    out = user("api-resources", "--api-group=netloom.dev", "-o", "wide").out
    for kind in KINDS:
        if kind.group == "netloom.dev":
            assert f" {kind.name} " in out
            assert kind.plural in out
    assert "na " in out
    assert "networks.netloom.dev" in user("api-resources", "-o", "name").out
    assert "netloom.dev/v1alpha1" in user("api-versions").out


def explain_finds_one_field(user: User) -> None:
    assert "cidr" in user("explain", "subnets.spec").out
    assert "<string>" in user("explain", "subnets.spec.cidr").out
    assert user("explain", "subnets.spec.nothing", check=False).rc != 0


def apply_creates_keeps_and_changes(user: User) -> None:
    assert "network.netloom.dev/blue created" in user.apply().out
    assert user.apply().out.count("unchanged") == 3
    changed = EXAMPLE.replace("labels: {app: web}", "labels: {app: db}")
    assert "networkattachment.netloom.dev/web configured" in user.apply(changed).out
    assert user.json("get", "na", "web")["metadata"]["labels"] == {"app": "db"}


def apply_on_the_server_knows_who_owns_what(user: User) -> None:
    assert user.apply(EXAMPLE, "--server-side").out.count("serverside-applied") == 3
    assert user.apply(EXAMPLE, "--server-side").out.count("serverside-applied") == 3
    other = EXAMPLE.replace("app: web", "app: db")
    refused = user("apply", "--server-side", "--field-manager=other", "-f", "-", stdin=other, check=False)
    assert refused.rc != 0
    assert ".metadata.labels.app" in refused.err
    user("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-", stdin=other)
    assert user.json("get", "na", "web")["metadata"]["labels"] == {"app": "db"}


def apply_of_what_is_wrong_says_what_is_wrong(user: User) -> None:
    wrong = user.kubectl.run(
        "-n",
        user.namespace,
        "apply",
        "--validate=false",
        "-f",
        "-",
        stdin=EXAMPLE.replace("10.10.0.0/24", "10.10.0.0/99"),
        kubeconfig=user.kubeconfig,
        check=False,
    )
    assert wrong.rc != 0
    assert "spec.cidr" in wrong.err
    unknown = user("apply", "-f", "-", stdin=EXAMPLE.replace("cidr:", "cidrr:"), check=False)
    assert unknown.rc != 0
    assert "cidrr" in unknown.err


def diff_shows_what_would_change(user: User) -> None:
    user.apply()
    assert user("diff", "-f", "-", stdin=EXAMPLE).rc == 0
    changed = user("diff", "-f", "-", stdin=EXAMPLE.replace("app: web", "app: db"), check=False)
    assert changed.rc == 1
    assert "+    app: db" in changed.out


def get_shows_tables_and_documents(user: User) -> None:
    user.apply()
    head, row = user("get", "networkattachments").out.splitlines()
    assert head.split()[:3] == ["NAME", "NODE", "NETWORK"]
    assert row.split()[:3] == ["web", "n1", "blue"]
    assert "MAC" in user("get", "na", "-o", "wide").out.splitlines()[0]
    assert user("get", "na", "-o", "name").out == "networkattachment.netloom.dev/web\n"
    assert "network: blue" in user("get", "na", "web", "-o", "yaml").out
    assert user("get", "na", "web", "-o", "jsonpath={.spec.node}").out == "n1"
    assert "web" in user("get", "na", "-o", "custom-columns=N:.metadata.name").out
    assert user("get", "net,sn,na", "-o", "name").out.count("\n") == 3
    assert "network.netloom.dev/blue" in user("get", "netloom", "-o", "name").out
    missing = user("get", "network", "red", check=False)
    assert 'networks.netloom.dev "red" not found' in missing.err


def selectors_select(user: User) -> None:
    user.apply()
    user.apply(EXAMPLE.replace("name: web", "name: far").replace("node: n1", "node: n2").replace("app: web", "app: x"))
    assert user("get", "networkattachments", "--field-selector", "spec.node=n1", "-o", "name").out.count("\n") == 1
    assert "/far" in user("get", "na", "--field-selector", "spec.node!=n1", "-o", "name").out
    assert "/web" in user("get", "na", "-l", "app in (web, y)", "-o", "name").out
    assert user("get", "na", "--field-selector", "spec.nothing=1", check=False).rc != 0


def all_namespaces_are_shown_together(user: User) -> None:
    user.apply()
    assert user.namespace in user("get", "na", "-A").out


def long_lists_come_in_chunks(user: User) -> None:
    part = EXAMPLE[EXAMPLE.index("---\napiVersion: netloom.dev/v1alpha1\nkind: NetworkAttachment") :]
    user.apply("".join(part.replace("name: web", f"name: web-{i}") for i in range(12)))
    assert user("get", "na", "--chunk-size=5", "-o", "name").out.count("\n") == 12


def watching_shows_what_happens(user: User) -> None:
    user.apply()
    words = ("-n", user.namespace, "get", "na", "-w", "-o", "name")
    with user.kubectl.running(*words, kubeconfig=user.kubeconfig) as watching:
        watching.wait_for("networkattachment.netloom.dev/web")
        user.apply(EXAMPLE.replace("name: web", "name: second"))
        watching.wait_for("networkattachment.netloom.dev/second")
    told = ("-n", user.namespace, "get", "na", "--watch", "--output-watch-events")
    with user.kubectl.running(*told, kubeconfig=user.kubeconfig) as watching:
        watching.wait_for("ADDED")
        user("delete", "na", "second")
        watching.wait_for("DELETED")


def patch_changes_by_merge_and_by_operations(user: User) -> None:
    user.apply()
    user("patch", "network", "blue", "--type=merge", "-p", '{"spec":{"mtu":1400}}')
    user("patch", "network", "blue", "--type=json", "-p", '[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]')
    found = user.json("get", "network", "blue")
    assert (found["spec"]["mtu"], found["metadata"]["labels"]) == (1400, {"a": "b"})
    refused = user("patch", "network", "blue", "--type=merge", "-p", '{"spec":{"fabric":"linux"}}', check=False)
    assert refused.rc != 0
    assert "immutable" in refused.err
    assert user("patch", "network", "blue", "-p", '{"spec":{"mtu":1300}}', check=False).rc != 0


def edit_sends_what_the_editor_leaves(user: User) -> None:
    user.apply()
    editor = user.folder / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/^spec:/spec:\\n  mtu: 1400/' \"$1\"\n")
    editor.chmod(0o700)
    assert "edited" in user("edit", "network", "blue", env={"KUBE_EDITOR": str(editor)}).out
    assert user.json("get", "network", "blue")["spec"]["mtu"] == 1400


def label_and_annotate_add_and_remove(user: User) -> None:
    user.apply()
    user("label", "network", "blue", "tier=gold")
    user("annotate", "network", "blue", "why=because")
    metadata = user.json("get", "network", "blue")["metadata"]
    assert metadata["labels"] == {"tier": "gold"}
    assert metadata["annotations"]["why"] == "because"
    assert user("label", "network", "blue", "tier=silver", check=False).rc != 0
    user("label", "network", "blue", "tier-", "--overwrite")
    assert "labels" not in user.json("get", "network", "blue")["metadata"]


def create_and_replace(user: User) -> None:
    file = user.folder / "network.json"
    body = {"apiVersion": "netloom.dev/v1alpha1", "kind": "Network", "metadata": {"name": "red"}, "spec": {}}
    file.write_text(json.dumps(body))
    user("create", "-f", file)
    assert "already exists" in user("create", "-f", file, check=False).err
    file.write_text(json.dumps(body | {"spec": {"mtu": 1400}}))
    user("replace", "-f", file)
    assert user.json("get", "network", "red")["spec"]["mtu"] == 1400
    user("replace", "--force", "-f", file)


def dry_runs_do_nothing(user: User) -> None:
    user.apply(EXAMPLE, "--dry-run=server")
    assert user("get", "network", "-o", "name").out == ""


def wait_hears_of_conditions_and_deletions(user: User) -> None:
    user.apply()
    assert "condition met" in user("wait", "--for=condition=Ready", "subnet/blue-v4", "--timeout=120s").out
    late = user("wait", "--for=condition=Never", "subnet/blue-v4", "--timeout=1s", check=False)
    assert "timed out" in late.err
    words = ("-n", user.namespace, "wait", "--for=delete", "na/web", "--timeout=120s", "-v=6")
    with user.kubectl.running(*words, kubeconfig=user.kubeconfig) as waiting:
        wait_until(lambda: "watch=true" in waiting.log.read_text(), what="kubectl to watch")
        user("delete", "na", "web")
        assert waiting.wait() == 0


def deleting_in_the_foreground_takes_what_is_owned_first(user: User) -> None:
    user.apply()
    owner = user.json("get", "network", "blue")["metadata"]
    reference = {
        "apiVersion": "netloom.dev/v1alpha1",
        "kind": "Network",
        "name": "blue",
        "uid": owner["uid"],
        "blockOwnerDeletion": True,
    }
    patch = json.dumps({"metadata": {"ownerReferences": [reference]}})
    user("patch", "subnet", "blue-v4", "--type=merge", "-p", patch)
    # Debian's kubectl knows the word only as a propagation policy of the API.
    flag = "--cascade=foreground"
    used = user("delete", "network", "blue", flag, "--timeout=120s", check=False)
    assert used.err.rstrip().endswith(f"it is used by NetworkAttachment {user.namespace}/web")
    user("delete", "na", "web")
    user("delete", "network", "blue", flag, "--timeout=120s")
    assert user("get", "subnet,network", "-o", "name").out == ""


def orphans_stay(user: User) -> None:
    user.apply()
    owner = user.json("get", "na", "web")["metadata"]
    reference = {
        "apiVersion": "netloom.dev/v1alpha1",
        "kind": "NetworkAttachment",
        "name": "web",
        "uid": owner["uid"],
    }
    user("patch", "subnet", "blue-v4", "--type=merge", "-p", json.dumps({"metadata": {"ownerReferences": [reference]}}))
    user("delete", "na", "web", "--cascade=orphan", "--timeout=120s")
    assert "ownerReferences" not in user.json("get", "subnet", "blue-v4")["metadata"]


def delete_takes_all_that_is_selected(user: User) -> None:
    user.apply()
    user("delete", "na", "-l", "app=web")
    user("delete", "subnets,networks", "--all")
    assert user("get", "na,subnets,networks", "-o", "name").out == ""
    assert user("delete", "network", "blue", check=False).rc != 0
    user("delete", "network", "blue", "--ignore-not-found")


def describe_shows_the_object_and_its_events(user: User) -> None:
    user.apply()
    user("wait", "--for=condition=Ready", "subnet/blue-v4", "--timeout=120s")

    def told() -> str | None:
        out = user("describe", "subnet", "blue-v4").out
        return out if "SubnetValidated" in out else None

    out = wait_until(told, what="the event")
    assert "10.10.0.0/24" in out
    assert "Events:" in out
    assert "SubnetValidated" in user("get", "events").out


def one_may_ask_what_one_may(user: User) -> None:
    assert user("auth", "can-i", "create", "networks").out.strip() == "yes"
    assert user("auth", "can-i", "create", "networks", "--subresource=status").out.strip() == "yes"
    if "whoami" in user("auth", "--help").out:
        assert "admin" in user("auth", "whoami").out
    rules = user("auth", "can-i", "--list").out
    assert "selfsubjectrulesreviews.authorization.k8s.io" in rules
    assert "/version" in rules


def namespaces_come_and_go_with_what_is_in_them(user: User) -> None:
    name = f"{user.namespace}-more"
    assert user("create", "namespace", name).out == f"namespace/{name} created\n"
    assert "AlreadyExists" in user("create", "namespace", name, check=False).err
    user("label", "ns", name, f"team={name}")
    assert user("get", "ns", "-l", f"team={name}", "-o", "name").out == f"namespace/{name}\n"
    user("-n", name, "apply", "-f", "-", stdin=EXAMPLE)
    shown = [line.split() for line in user("get", "ns").out.splitlines()]
    assert shown[0] == ["NAME", "STATUS", "AGE"]
    assert [name, "Active"] in [line[:2] for line in shown]
    assert "Active" in user("describe", "ns", name).out
    user("delete", "ns", name, timeout=180)
    assert "NotFound" in user("get", "ns", name, check=False).err
    assert user("-n", name, "get", "networks,subnets,networkattachments,iplocks", "-o", "name").out == ""
    refused = user("delete", "ns", "default", check=False)
    assert "this namespace may not be deleted" in refused.err


def definitions_are_shown(user: User) -> None:
    out = user("get", "ns,crd").out
    assert "namespace/default" in out
    assert all(f"/{kind.qualified} " in out for kind in KINDS if kind.group == "netloom.dev")
    user("wait", "--for=condition=Established", "crd/networks.netloom.dev")
    assert user.json("get", "crd", "networks.netloom.dev")["spec"]["names"]["kind"] == "Network"


Flow = Callable[[User], None]
FLOWS: list[Flow] = [
    api_resources_shows_every_kind,
    explain_finds_one_field,
    apply_creates_keeps_and_changes,
    apply_on_the_server_knows_who_owns_what,
    apply_of_what_is_wrong_says_what_is_wrong,
    diff_shows_what_would_change,
    get_shows_tables_and_documents,
    selectors_select,
    all_namespaces_are_shown_together,
    long_lists_come_in_chunks,
    watching_shows_what_happens,
    patch_changes_by_merge_and_by_operations,
    edit_sends_what_the_editor_leaves,
    label_and_annotate_add_and_remove,
    create_and_replace,
    dry_runs_do_nothing,
    wait_hears_of_conditions_and_deletions,
    delete_takes_all_that_is_selected,
    describe_shows_the_object_and_its_events,
    one_may_ask_what_one_may,
]
HOUSEHOLD: list[Flow] = [namespaces_come_and_go_with_what_is_in_them, definitions_are_shown]
COLLECTED: list[Flow] = [orphans_stay]
IN_USE: list[Flow] = [deleting_in_the_foreground_takes_what_is_owned_first]


def named(flow: Callable[..., None]) -> str:
    """Return what a flow is called."""
    return flow.__name__
