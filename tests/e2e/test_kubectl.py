"""An unmodified kubectl against `netloom serve`: the current one and Debian's 1.20, and the official Python client.

One server for the module; each test has a namespace of its own, which comes with the first object in it.
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
from tests.e2e.kubectl_flows import COLLECTED, FLOWS, HOUSEHOLD, IN_USE, Flow, User, named
from tests.support.process import Program, free_port, scratch

pytestmark = pytest.mark.kube

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


@pytest.fixture(params=["kubectl", "kubectl_old"])
def user(request: pytest.FixtureRequest, kubeconfig: Path, tmp_path: Path) -> User:
    return User(request.getfixturevalue(request.param), kubeconfig, f"test-{next(_numbers)}", tmp_path)


@pytest.mark.parametrize("flow", [*FLOWS, *HOUSEHOLD, *COLLECTED, *IN_USE], ids=named)
def test_kubectl_does_what_people_do_with_it(flow: Flow, user: User) -> None:
    flow(user)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.group == "netloom.dev"], ids=lambda kind: kind.name)
def test_explain_describes_every_kind(user: User, kind: Any) -> None:
    out = user("explain", kind.plural, "--recursive").out
    assert kind.name in out
    assert "spec" in out
    assert "generateName" in out


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
    where = ("coordination.k8s.io", "v1", f"test-{next(_numbers)}", "leases")
    body: dict[str, Any] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "shop"},
        "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 12},
    }
    made = api.create_namespaced_custom_object(*where, body)
    assert api.get_namespaced_custom_object(*where, "shop") == made
    patched = api.patch_namespaced_custom_object(*where, "shop", {"spec": {"leaseDurationSeconds": 14}})
    assert patched["spec"]["leaseDurationSeconds"] == 14
    patched["spec"]["leaseDurationSeconds"] = 13
    assert api.replace_namespaced_custom_object(*where, "shop", patched)["spec"]["leaseDurationSeconds"] == 13
    assert len(api.list_namespaced_custom_object(*where)["items"]) == 1
    with pytest.raises(library.client.exceptions.ApiException) as caught:
        api.create_namespaced_custom_object(*where, body)
    assert caught.value.status == 409
    api.delete_collection_namespaced_custom_object(*where)
    assert api.list_namespaced_custom_object(*where)["items"] == []


def test_the_python_client_watches(python: Any) -> None:
    api = library.client.CustomObjectsApi(python)
    where = ("coordination.k8s.io", "v1", f"test-{next(_numbers)}", "leases")  # No controller writes to them.
    revision = api.list_namespaced_custom_object(*where)["metadata"]["resourceVersion"]

    def make() -> None:
        for name in ("a", "b"):
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}}
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
