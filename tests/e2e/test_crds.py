"""What `netloom crds` prints, on real Kubernetes API servers: accepted, and of one mind with our own validation."""

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from netloom.model.crds import crds
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import KINDS, NETWORK, NETWORK_ATTACHMENT
from tests.e2e.conformance.table import Case, cases
from tests.support.kube import Kube

NAMESPACE = "conformance"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("kube", marks=pytest.mark.kube),
        pytest.param("kube_old", marks=pytest.mark.versions),
    ],
)
def cluster(request: pytest.FixtureRequest) -> Kube:
    """A real API server with our CRDs and a namespace of our own."""
    kube: Kube = request.getfixturevalue(request.param)
    for crd in crds():
        _put(kube, CRDS, crd)
    _put(kube, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for crd in crds():
        _wait_established(kube, crd["metadata"]["name"])
    return kube


def _request(kube: Kube, method: str, path: str, body: object = None) -> tuple[int, Any]:
    return kube.request(method, path, body)


def _put(kube: Kube, path: str, document: Document) -> None:
    """Create an object, or replace it: other tests of this process may have made it."""
    status, answer = _request(kube, "POST", f"{path}?fieldValidation=Strict", document)
    if status == 409:
        url = f"{path}/{document['metadata']['name']}"
        _, current = _request(kube, "GET", url)
        revision = current["metadata"]["resourceVersion"]
        status, answer = _request(
            kube, "PUT", url, document | {"metadata": document["metadata"] | {"resourceVersion": revision}}
        )
    assert status in (200, 201), answer


def _wait_established(kube: Kube, name: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        _, crd = _request(kube, "GET", f"{CRDS}/{name}")
        conditions = {c["type"]: c for c in crd.get("status", {}).get("conditions", ())}
        assert conditions.get("NamesAccepted", {"status": "True"})["status"] == "True", conditions
        kind = KINDS.named(crd["spec"]["names"]["singular"] + ".netloom.dev")
        served = _request(kube, "GET", kind.path(NAMESPACE) + "?limit=1")[0] == 200
        if conditions.get("Established", {}).get("status") == "True" and served:
            return
        time.sleep(0.05)
    raise AssertionError(f"{name} is not established")


@contextlib.contextmanager
def _stored(kube: Kube, kind: Kind, document: Document) -> Iterator[Document]:
    status, stored = _request(kube, "POST", kind.path(NAMESPACE) + "?fieldValidation=Strict", document)
    assert status == 201, stored
    try:
        yield stored
    finally:
        _request(kube, "DELETE", kind.path(NAMESPACE, document["metadata"]["name"]))


def _judgement(kube: Kube, case: Case) -> str:
    """Return why the API server refuses the last step, or "" if it does not."""
    *before, (subresource, last) = [(subresource, _placed(document)) for subresource, document in case.steps]
    if not before:
        url = case.kind.path(NAMESPACE) + "?fieldValidation=Strict&dryRun=All"
        status, answer = _request(kube, "POST", url, last)
        return "" if status == 201 else answer["message"]
    with _stored(kube, case.kind, before[0][1]) as stored:
        url = case.kind.path(NAMESPACE, stored["metadata"]["name"], subresource) + "?fieldValidation=Strict"
        for _, document in before[1:]:
            document["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
            status, stored = _request(kube, "PUT", url, document)
            assert status == 200, stored
        last["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        status, answer = _request(kube, "PUT", url + "&dryRun=All", last)
        return "" if status == 200 else answer["message"]


def _placed(document: Document) -> Document:
    """Return the document in our namespace."""
    if document["metadata"].get("namespace") != "default" or document["kind"] == "Node":
        return document
    return document | {"metadata": document["metadata"] | {"namespace": NAMESPACE}}


def test_kubernetes_accepts_and_refuses_the_same_objects(cluster: Kube) -> None:
    differences = []
    for case in cases():
        said = _judgement(cluster, case)
        if bool(said) != bool(case.refuse):
            differences.append(f"{case}: {said or 'accepted'}")
    assert differences == []


def test_kubernetes_stores_the_same_defaults(cluster: Kube) -> None:
    document = {
        "apiVersion": "netloom.dev/v1alpha1",
        "kind": "NetworkAttachment",
        "metadata": {"name": "defaults", "namespace": NAMESPACE},
        "spec": {"node": "n1", "network": "blue", "mac": None},
    }
    status, answer = _request(cluster, "POST", NETWORK_ATTACHMENT.path(NAMESPACE) + "?dryRun=All", document)
    assert (status, answer["spec"]) == (
        201,
        {"node": "n1", "network": "blue", "port": {"type": "internal"}, "defaultRoute": False},
    )


def test_a_field_selector_selects_on_kubernetes(cluster: Kube) -> None:
    def made(kind: Kind, name: str, spec: Document) -> Document:
        metadata = {"name": name, "namespace": NAMESPACE}
        return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}

    objects = [
        (NETWORK_ATTACHMENT, made(NETWORK_ATTACHMENT, "a", {"node": "n1", "network": "blue"})),
        (NETWORK_ATTACHMENT, made(NETWORK_ATTACHMENT, "b", {"node": "n2", "network": "blue"})),
        (NETWORK_ATTACHMENT, made(NETWORK_ATTACHMENT, "c", {"node": "n1", "network": "red"})),
        (NETWORK, made(NETWORK, "blue", {"vni": 10})),
        (NETWORK, made(NETWORK, "red", {"vni": 11})),
    ]
    with contextlib.ExitStack() as stack:
        for kind, document in objects:
            stack.enter_context(_stored(cluster, kind, document))

        def selected(kind: Kind, selector: str) -> list[str]:
            status, page = _request(cluster, "GET", kind.path(NAMESPACE) + f"?fieldSelector={selector}")
            assert status == 200, json.dumps(page)
            return [item["metadata"]["name"] for item in page["items"]]

        assert selected(NETWORK_ATTACHMENT, "spec.node=n1") == ["a", "c"]
        assert selected(NETWORK_ATTACHMENT, "spec.node=n1,spec.network!=red") == ["a"]
        assert selected(NETWORK, "spec.vni==10") == ["blue"]
