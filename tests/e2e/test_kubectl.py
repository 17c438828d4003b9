"""An unmodified kubectl against `netloom serve`: the current one and Debian's 1.20, and the official Python client.

One server for the module; each test has a namespace of its own, which needs no making.
"""

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import kubernetes
import kubernetes.dynamic
import pytest

from netloom.model.registry import KINDS
from tests.support.kubectl import Answer, Kubectl
from tests.support.process import Program, free_port, scratch, wait_until

pytestmark = pytest.mark.kube

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
_numbers = count()
library: Any = kubernetes
"""The official client, whose types say less than its documents."""


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with scratch("kubectl") as folder:
        data, port = folder / "data", free_port()
        program = Path(sys.executable).parent / "netloom"
        command: list[str | Path] = [program, "serve", "--data", data, "--listen", f"127.0.0.1:{port}"]
        with Program(command, log=folder / "serve.log") as serve:
            serve.wait_ready(lambda: (data / "admin.kubeconfig").exists())
            serve.wait_for('"ready"')
            yield data / "admin.kubeconfig"


class User:
    """One kubectl in one namespace."""

    def __init__(self, kubectl: Kubectl, kubeconfig: Path, namespace: str) -> None:
        self.kubectl = kubectl
        self.kubeconfig = kubeconfig
        self.namespace = namespace

    def __call__(self, *words: str | Path, **options: Any) -> Answer:
        return self.kubectl.run("-n", self.namespace, *words, kubeconfig=self.kubeconfig, **options)

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json").out)

    def apply(self, text: str = EXAMPLE, *flags: str) -> Answer:
        return self("apply", *flags, "-f", "-", stdin=text)


@pytest.fixture(params=["kubectl", "kubectl_old"])
def user(request: pytest.FixtureRequest, kubeconfig: Path) -> User:
    return User(request.getfixturevalue(request.param), kubeconfig, f"test-{next(_numbers)}")


def test_api_resources_shows_every_kind(user: User) -> None:
    out = user("api-resources", "--api-group=netloom.dev", "-o", "wide").out
    for kind in KINDS:
        if kind.group == "netloom.dev":
            assert f" {kind.name} " in out
            assert kind.plural in out
    assert "na " in out
    assert "networks.netloom.dev" in user("api-resources", "-o", "name").out
    assert "netloom.dev/v1alpha1" in user("api-versions").out


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.group == "netloom.dev"], ids=lambda kind: kind.name)
def test_explain_describes_every_kind(user: User, kind: Any) -> None:
    out = user("explain", kind.plural, "--recursive").out
    assert kind.name in out
    assert "spec" in out
    assert "generateName" in out


def test_explain_finds_one_field(user: User) -> None:
    assert "cidr" in user("explain", "subnets.spec").out
    assert "<string>" in user("explain", "subnets.spec.cidr").out
    assert user("explain", "subnets.spec.nothing", check=False).rc != 0


def test_apply_creates_keeps_and_changes(user: User) -> None:
    assert "network.netloom.dev/blue created" in user.apply().out
    assert user.apply().out.count("unchanged") == 3
    changed = EXAMPLE.replace("labels: {app: web}", "labels: {app: db}")
    assert "networkattachment.netloom.dev/web configured" in user.apply(changed).out
    assert user.json("get", "na", "web")["metadata"]["labels"] == {"app": "db"}


def test_apply_on_the_server_knows_who_owns_what(user: User) -> None:
    assert user.apply(EXAMPLE, "--server-side").out.count("serverside-applied") == 3
    assert user.apply(EXAMPLE, "--server-side").out.count("serverside-applied") == 3
    other = EXAMPLE.replace("app: web", "app: db")
    refused = user("apply", "--server-side", "--field-manager=other", "-f", "-", stdin=other, check=False)
    assert refused.rc != 0
    assert ".metadata.labels.app" in refused.err
    user("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-", stdin=other)
    assert user.json("get", "na", "web")["metadata"]["labels"] == {"app": "db"}


def test_apply_of_what_is_wrong_says_what_is_wrong(user: User) -> None:
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


def test_diff_shows_what_would_change(user: User) -> None:
    user.apply()
    assert user("diff", "-f", "-", stdin=EXAMPLE).rc == 0
    changed = user("diff", "-f", "-", stdin=EXAMPLE.replace("app: web", "app: db"), check=False)
    assert changed.rc == 1
    assert "+    app: db" in changed.out


def test_get_shows_tables_and_documents(user: User) -> None:
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


def test_selectors_select(user: User) -> None:
    user.apply()
    user.apply(EXAMPLE.replace("name: web", "name: far").replace("node: n1", "node: n2").replace("app: web", "app: x"))
    assert user("get", "networkattachments", "--field-selector", "spec.node=n1", "-o", "name").out.count("\n") == 1
    assert "/far" in user("get", "na", "--field-selector", "spec.node!=n1", "-o", "name").out
    assert "/web" in user("get", "na", "-l", "app in (web, y)", "-o", "name").out
    assert user("get", "na", "--field-selector", "spec.nothing=1", check=False).rc != 0


def test_all_namespaces_are_shown_together(user: User) -> None:
    user.apply()
    assert user.namespace in user("get", "na", "-A").out


def test_long_lists_come_in_chunks(user: User) -> None:
    part = EXAMPLE[EXAMPLE.index("---\napiVersion: netloom.dev/v1alpha1\nkind: NetworkAttachment") :]
    user.apply("".join(part.replace("name: web", f"name: web-{i}") for i in range(12)))
    assert user("get", "na", "--chunk-size=5", "-o", "name").out.count("\n") == 12


def test_watching_shows_what_happens(user: User) -> None:
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


def test_patch_changes_by_merge_and_by_operations(user: User) -> None:
    user.apply()
    user("patch", "network", "blue", "--type=merge", "-p", '{"spec":{"mtu":1400}}')
    user("patch", "network", "blue", "--type=json", "-p", '[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]')
    found = user.json("get", "network", "blue")
    assert (found["spec"]["mtu"], found["metadata"]["labels"]) == (1400, {"a": "b"})
    refused = user("patch", "network", "blue", "--type=merge", "-p", '{"spec":{"fabric":"linux"}}', check=False)
    assert refused.rc != 0
    assert "immutable" in refused.err
    assert user("patch", "network", "blue", "-p", '{"spec":{"mtu":1300}}', check=False).rc != 0


def test_edit_sends_what_the_editor_leaves(user: User, tmp_path: Path) -> None:
    user.apply()
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/^spec:/spec:\\n  mtu: 1400/' \"$1\"\n")
    editor.chmod(0o700)
    assert "edited" in user("edit", "network", "blue", env={"KUBE_EDITOR": str(editor)}).out
    assert user.json("get", "network", "blue")["spec"]["mtu"] == 1400


def test_label_and_annotate_add_and_remove(user: User) -> None:
    user.apply()
    user("label", "network", "blue", "tier=gold")
    user("annotate", "network", "blue", "why=because")
    metadata = user.json("get", "network", "blue")["metadata"]
    assert metadata["labels"] == {"tier": "gold"}
    assert metadata["annotations"]["why"] == "because"
    assert user("label", "network", "blue", "tier=silver", check=False).rc != 0
    user("label", "network", "blue", "tier-", "--overwrite")
    assert "labels" not in user.json("get", "network", "blue")["metadata"]


def test_create_and_replace(user: User, tmp_path: Path) -> None:
    file = tmp_path / "network.json"
    body = {"apiVersion": "netloom.dev/v1alpha1", "kind": "Network", "metadata": {"name": "red"}, "spec": {}}
    file.write_text(json.dumps(body))
    user("create", "-f", file)
    assert "already exists" in user("create", "-f", file, check=False).err
    file.write_text(json.dumps(body | {"spec": {"mtu": 1400}}))
    user("replace", "-f", file)
    assert user.json("get", "network", "red")["spec"]["mtu"] == 1400
    user("replace", "--force", "-f", file)


def test_dry_runs_do_nothing(user: User) -> None:
    user.apply(EXAMPLE, "--dry-run=server")
    assert user("get", "network", "-o", "name").out == ""


def test_wait_hears_of_conditions_and_deletions(user: User) -> None:
    user.apply()
    assert "condition met" in user("wait", "--for=condition=Ready", "subnet/blue-v4", "--timeout=20s").out
    late = user("wait", "--for=condition=Never", "subnet/blue-v4", "--timeout=1s", check=False)
    assert "timed out" in late.err
    words = ("-n", user.namespace, "wait", "--for=delete", "na/web", "--timeout=30s", "-v=6")
    with user.kubectl.running(*words, kubeconfig=user.kubeconfig) as waiting:
        wait_until(lambda: "watch=true" in waiting.log.read_text(), what="kubectl to watch")
        user("delete", "na", "web")
        assert waiting.wait() == 0


def test_deleting_in_the_foreground_takes_what_is_owned_first(user: User) -> None:
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
    used = user("delete", "network", "blue", flag, "--timeout=30s", check=False)
    assert used.err.rstrip().endswith(f"it is used by NetworkAttachment {user.namespace}/web")
    user("delete", "na", "web")
    user("delete", "network", "blue", flag, "--timeout=30s")
    assert user("get", "subnet,network", "-o", "name").out == ""


def test_orphans_stay(user: User) -> None:
    user.apply()
    owner = user.json("get", "na", "web")["metadata"]
    reference = {
        "apiVersion": "netloom.dev/v1alpha1",
        "kind": "NetworkAttachment",
        "name": "web",
        "uid": owner["uid"],
    }
    user("patch", "subnet", "blue-v4", "--type=merge", "-p", json.dumps({"metadata": {"ownerReferences": [reference]}}))
    user("delete", "na", "web", "--cascade=orphan", "--timeout=30s")
    assert "ownerReferences" not in user.json("get", "subnet", "blue-v4")["metadata"]


def test_delete_takes_all_that_is_selected(user: User) -> None:
    user.apply()
    user("delete", "na", "-l", "app=web")
    user("delete", "subnets,networks", "--all")
    assert user("get", "na,subnets,networks", "-o", "name").out == ""
    assert user("delete", "network", "blue", check=False).rc != 0
    user("delete", "network", "blue", "--ignore-not-found")


def test_describe_shows_the_object_and_its_events(user: User) -> None:
    user.apply()
    user("wait", "--for=condition=Ready", "subnet/blue-v4", "--timeout=20s")

    def told() -> str | None:
        out = user("describe", "subnet", "blue-v4").out
        return out if "SubnetValidated" in out else None

    out = wait_until(told, what="the event")
    assert "10.10.0.0/24" in out
    assert "Events:" in out
    assert "SubnetValidated" in user("get", "events").out


def test_one_may_ask_what_one_may(user: User) -> None:
    assert user("auth", "can-i", "create", "networks").out.strip() == "yes"
    assert user("auth", "can-i", "create", "networks", "--subresource=status").out.strip() == "yes"
    if "whoami" in user("auth", "--help").out:
        assert "admin" in user("auth", "whoami").out


def test_the_server_says_its_version_and_health(user: User) -> None:
    assert "Server Version" in user("version").out
    assert user("get", "--raw", "/readyz").out == "ok"
    assert "netloom" in user("get", "--raw", "/metrics").out
    assert json.loads(user("get", "--raw", "/apis/netloom.dev/v1alpha1/networks").out)["kind"] == "NetworkList"


@pytest.fixture
def python(kubeconfig: Path) -> Iterator[Any]:
    client = library.config.new_client_from_config(str(kubeconfig))
    with contextlib.closing(client):
        yield client


def test_the_python_client_handles_custom_objects(python: Any) -> None:
    api = library.client.CustomObjectsApi(python)
    # Of a kind to which no controller writes.
    where = ("netloom.dev", "v1alpha1", f"test-{next(_numbers)}", "loadbalancers")
    body: dict[str, Any] = {
        "apiVersion": "netloom.dev/v1alpha1",
        "kind": "LoadBalancer",
        "metadata": {"name": "shop"},
        "spec": {"networks": ["blue"], "vips": [{"ip": "10.10.0.100", "port": 80}], "endpoints": []},
    }
    made = api.create_namespaced_custom_object(*where, body)
    assert api.get_namespaced_custom_object(*where, "shop") == made
    patched = api.patch_namespaced_custom_object(*where, "shop", {"spec": {"affinitySeconds": 14}})
    assert patched["spec"]["affinitySeconds"] == 14
    patched["spec"]["affinitySeconds"] = 13
    assert api.replace_namespaced_custom_object(*where, "shop", patched)["spec"]["affinitySeconds"] == 13
    status = api.patch_namespaced_custom_object_status(*where, "shop", {"status": {"endpointsUp": 5}})
    assert status["status"] == {"endpointsUp": 5}
    assert len(api.list_namespaced_custom_object(*where)["items"]) == 1
    with pytest.raises(library.client.exceptions.ApiException) as caught:
        api.create_namespaced_custom_object(*where, body)
    assert caught.value.status == 409
    api.delete_collection_namespaced_custom_object(*where)
    assert api.list_namespaced_custom_object(*where)["items"] == []


def test_the_python_client_watches(python: Any) -> None:
    api = library.client.CustomObjectsApi(python)
    where = ("netloom.dev", "v1alpha1", f"test-{next(_numbers)}", "routers")  # No controller writes to them.
    revision = api.list_namespaced_custom_object(*where)["metadata"]["resourceVersion"]

    def make() -> None:
        for name in ("a", "b"):
            body = {"apiVersion": "netloom.dev/v1alpha1", "kind": "Router", "metadata": {"name": name}, "spec": {}}
            api.create_namespaced_custom_object(*where, body)
        api.delete_namespaced_custom_object(*where, "a")

    thread = threading.Thread(target=make)
    thread.start()
    follow = library.watch.Watch().stream
    seen = []
    for event in follow(api.list_namespaced_custom_object, *where, resource_version=revision, timeout_seconds=20):
        seen.append((event["type"], event["object"]["metadata"]["name"]))
        if len(seen) == 3:
            break
    thread.join()
    assert seen == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]


def test_the_python_dynamic_client_finds_kinds_and_applies(python: Any) -> None:
    client = library.dynamic.DynamicClient(python)
    networks = client.resources.get(api_version="netloom.dev/v1alpha1", kind="Network")
    namespace = f"test-{next(_numbers)}"
    body = {
        "apiVersion": "netloom.dev/v1alpha1",
        "kind": "Network",
        "metadata": {"name": "blue", "namespace": namespace},
        "spec": {"mtu": 1400},
    }
    made = networks.server_side_apply(body=body, name="blue", namespace=namespace, field_manager="me")
    assert made.spec.mtu == 1400
    assert [item.metadata.name for item in networks.get(namespace=namespace).items] == ["blue"]
    networks.delete(name="blue", namespace=namespace)
    leases = library.client.CoordinationV1Api(python)
    lease = library.client.V1Lease(
        metadata=library.client.V1ObjectMeta(name="lead"),
        spec=library.client.V1LeaseSpec(holder_identity="me", lease_duration_seconds=15),
    )
    assert leases.create_namespaced_lease(namespace, lease).spec.holder_identity == "me"
