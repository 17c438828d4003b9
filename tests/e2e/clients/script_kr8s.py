"""What people do with kr8s: `script_kr8s.py NAMESPACE`, with a kubeconfig in $KUBECONFIG."""

import sys
import threading
from typing import Any

import kr8s
import pytest
from kr8s.objects import CustomResourceDefinition, Namespace, new_class

PortPool: Any = new_class(kind="PortPool", version="netloom.dev/v1alpha1", namespaced=True)


def pool(name: str, namespace: str, size: int) -> Any:
    spec = {"node": "n1", "network": "blue", "size": size}
    metadata = {"name": name, "namespace": namespace, "labels": {"made-by": "kr8s"}}
    return PortPool({"metadata": metadata, "spec": spec})


def main(namespace: str) -> None:
    api: Any = kr8s.api()
    definitions: Any = CustomResourceDefinition
    assert api.version()["major"] == "1"
    assert any(name == "portpools" for name in (one["name"] for one in api.api_resources()))
    assert "portpools.netloom.dev" in [one.name for one in definitions.list()]

    space: Any = Namespace({"metadata": {"name": namespace}})
    space.create()
    assert space.status.phase == "Active"
    assert namespace in [one.name for one in api.get("namespaces")]

    first = pool("first", namespace, 3)
    first.create()
    assert first.exists()
    assert [one.name for one in api.get("portpools.netloom.dev", namespace=namespace)] == ["first"]
    assert [one.name for one in PortPool.list(namespace=namespace, label_selector={"made-by": "kr8s"})] == ["first"]

    seen: list[tuple[str, str]] = []
    started, over = threading.Event(), threading.Event()

    def follow() -> None:
        watch = api.watch("portpools.netloom.dev", namespace=namespace)
        for what, one in watch:
            seen.append((what, one.name))
            started.set()
            if (what, one.name) == ("DELETED", "second"):
                over.set()
                return

    threading.Thread(target=follow, daemon=True).start()
    assert started.wait(120), "the watch shows what is there"
    second = pool("second", namespace, 1)
    second.create()
    second.patch({"spec": {"size": 2}})
    assert PortPool.get("second", namespace=namespace).spec.size == 2
    second.label(kept="no")
    second.refresh()
    assert second.labels["kept"] == "no"
    second.delete()
    assert over.wait(120), seen
    assert ("ADDED", "second") in seen

    conditions = [{"type": "Ready", "status": "True", "reason": "Tested"}]
    first.patch({"status": {"conditions": conditions, "free": 3}}, subresource="status")
    first.wait("condition=Ready", timeout=120)
    assert first.status.free == 3

    with pytest.raises(kr8s.ServerError) as caught:
        pool("first", namespace, 3).create()
    assert caught.value.response is not None
    assert caught.value.response.status_code == 409
    with pytest.raises(kr8s.ServerError) as caught:
        pool("bad", namespace, -1).create()
    assert caught.value.response is not None
    assert caught.value.response.status_code == 422
    assert "spec.size" in str(caught.value)
    with pytest.raises(kr8s.NotFoundError):
        PortPool.get("nothing", namespace=namespace, timeout=1)

    first.delete()
    first.wait("delete", timeout=120)
    pool("last", namespace, 1).create()
    space.delete()
    space.wait("delete", timeout=120)
    assert not list(PortPool.list(namespace=namespace))


if __name__ == "__main__":
    main(sys.argv[1])
