"""What people do with lightkube: `script_lightkube.py NAMESPACE`, with a kubeconfig in $KUBECONFIG.  Ends with 0."""

import sys
import threading
from typing import Any

import pytest
from lightkube import ApiError, Client, generic_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace
from lightkube.types import PatchType


def main(namespace: str) -> None:
    client: Any = Client(field_manager="lightkube")
    # Makes classes of the CustomResourceDefinitions that the cluster has.
    resources: Any = generic_resource
    resources.load_in_cluster_generic_resources(client)
    found = resources.get_generic_resource("netloom.dev/v1alpha1", "PortPool")
    assert found is not None

    def pool(name: str, size: int) -> Any:
        spec = {"node": "n1", "network": "blue", "size": size}
        return found(metadata=ObjectMeta(name=name, namespace=namespace, labels={"of": "lightkube"}), spec=spec)

    space = client.create(Namespace(metadata=ObjectMeta(name=namespace, labels={"purpose": "test"})))
    assert space.status.phase == "Active"
    assert namespace in [one.metadata.name for one in client.list(Namespace)]
    assert [one.metadata.name for one in client.list(Namespace, labels={"purpose": "test"})].count(namespace) == 1
    labelled = client.patch(Namespace, namespace, {"metadata": {"labels": {"more": "yes"}}}, patch_type=PatchType.MERGE)
    assert labelled.metadata.labels["more"] == "yes"

    made = client.create(pool("first", 3))
    assert made.metadata.uid
    assert client.get(found, "first", namespace=namespace).spec["size"] == 3

    seen: list[tuple[str, str]] = []
    over = threading.Event()
    listed = client.list(found, namespace=namespace)
    assert [one.metadata.name for one in listed] == ["first"]
    revision = listed.resourceVersion

    def follow() -> None:
        for what, one in client.watch(found, namespace=namespace, resource_version=revision):
            seen.append((what, one.metadata.name))
            if (what, one.metadata.name) == ("DELETED", "second"):
                over.set()
                return

    threading.Thread(target=follow, daemon=True).start()
    applied = client.apply(pool("second", 1))
    assert applied.spec["size"] == 1
    assert client.apply(pool("second", 2)).spec["size"] == 2
    client.delete(found, "second", namespace=namespace)
    assert over.wait(120), seen
    assert ("ADDED", "second") in seen

    conditions = [{"type": "Ready", "status": "True", "reason": "Tested"}]
    client.patch(
        found.Status,
        "first",
        {"status": {"conditions": conditions, "free": 3}},
        namespace=namespace,
        patch_type=PatchType.MERGE,
    )
    ready = client.wait(found, "first", for_conditions=["Ready"], namespace=namespace)
    assert ready.status["free"] == 3

    for broken, code, word in ((pool("first", 3), 409, "AlreadyExists"), (pool("bad", -1), 422, "Invalid")):
        with pytest.raises(ApiError) as caught:
            client.create(broken)
        assert (caught.value.status.code, caught.value.status.reason) == (code, word)
    with pytest.raises(ApiError) as caught:
        client.get(found, "nothing", namespace=namespace)
    assert caught.value.status.code == 404
    stale = client.get(found, "first", namespace=namespace)
    client.patch(found, "first", {"spec": {"size": 4}}, namespace=namespace, patch_type=PatchType.MERGE)
    with pytest.raises(ApiError) as caught:
        client.replace(stale)
    assert caught.value.status.code == 409

    gone = threading.Event()

    def until_gone() -> None:
        for what, _ in client.watch(Namespace, fields={"metadata.name": namespace}):
            if what == "DELETED":
                gone.set()
                return

    threading.Thread(target=until_gone, daemon=True).start()
    client.delete(Namespace, namespace)
    assert gone.wait(120), "the namespace goes with what is in it"
    assert list(client.list(found, namespace=namespace)) == []


if __name__ == "__main__":
    main(sys.argv[1])
