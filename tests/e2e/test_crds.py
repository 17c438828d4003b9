"""One table of good and bad objects, judged alike by Kubernetes, through our CRDs, and by Netloom's own API."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import KINDS, NETWORK, NETWORK_ATTACHMENT
from netloom.model.schemas.crds import crds
from tests.e2e.conformance.table import Case, cases
from tests.run.serving import NETLOOM, Serving, environment
from tests.support.kube import Kube
from tests.support.process import Program

NAMESPACE = "conformance"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


Ask = Callable[..., tuple[int, Any]]
"""Sends a method, a path and perhaps a body, and returns status and answer."""


@pytest.fixture(
    scope="module",
    params=[
        "netloom",
        pytest.param("kube", marks=pytest.mark.kube),
        pytest.param("kube_old", marks=pytest.mark.versions),
    ],
)
def ask(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """A way to ask a real API server that knows our kinds."""
    if request.param == "netloom":
        with _netloom(tmp_path_factory.mktemp("netloom")) as netloom:
            yield netloom
    else:
        kube = request.getfixturevalue(request.param)
        assert isinstance(kube, Kube)
        _install(kube.request)
        yield kube.request


@contextlib.contextmanager
def _netloom(folder: Path) -> Iterator[Ask]:
    """Give Netloom's API, alone: a controller would write a status of its own between two steps of a case."""
    server = Serving(folder)
    argv = [*NETLOOM, "apiserver", "--data", str(server.data), "--listen", f"127.0.0.1:{server.port}"]
    with Program([*argv, "--store", f"sqlite:{folder / 'db'}"], log=server.log, env=environment()) as program:
        program.wait_ready(server.ready, timeout=120)
        connection, headers = server.connect()

        def ask(method: str, path: str, body: object = None) -> tuple[int, Any]:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {**headers, "Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

        with contextlib.closing(connection):
            yield ask


def _install(ask: Ask) -> None:
    for crd in crds():
        _put(ask, CRDS, crd)
    _put(ask, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for crd in crds():
        _wait_established(ask, crd["metadata"]["name"])


def _put(ask: Ask, path: str, document: Document) -> None:
    """Create an object, or replace it: other tests of this process may have made it."""
    status, answer = ask("POST", f"{path}?fieldValidation=Strict", document)
    if status == 409:
        url = f"{path}/{document['metadata']['name']}"
        _, current = ask("GET", url)
        revision = current["metadata"]["resourceVersion"]
        status, answer = ask("PUT", url, document | {"metadata": document["metadata"] | {"resourceVersion": revision}})
    assert status in (200, 201), answer


def _wait_established(ask: Ask, name: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        _, crd = ask("GET", f"{CRDS}/{name}")
        conditions = {c["type"]: c for c in crd.get("status", {}).get("conditions", ())}
        assert conditions.get("NamesAccepted", {"status": "True"})["status"] == "True", conditions
        kind = KINDS.named(crd["spec"]["names"]["singular"] + ".netloom.dev")
        served = ask("GET", kind.path(NAMESPACE) + "?limit=1")[0] == 200
        if conditions.get("Established", {}).get("status") == "True" and served:
            return
        time.sleep(0.05)
    raise AssertionError(f"{name} is not established")


@contextlib.contextmanager
def _stored(ask: Ask, kind: Kind, document: Document) -> Iterator[Document]:
    status, stored = ask("POST", kind.path(NAMESPACE) + "?fieldValidation=Strict", document)
    assert status == 201, json.dumps(stored)
    try:
        yield stored
    finally:
        ask("DELETE", kind.path(NAMESPACE, document["metadata"]["name"]))


def _judgement(ask: Ask, case: Case) -> str:
    """Return why the API server refuses the last step, or "" if it does not."""
    *before, (subresource, last) = [(subresource, _placed(document)) for subresource, document in case.steps]
    if not before:
        url = case.kind.path(NAMESPACE) + "?fieldValidation=Strict&dryRun=All"
        status, answer = ask("POST", url, last)
        return "" if status == 201 else answer["message"]
    with _stored(ask, case.kind, before[0][1]) as stored:
        url = case.kind.path(NAMESPACE, stored["metadata"]["name"], subresource) + "?fieldValidation=Strict"
        for _, document in before[1:]:
            document["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
            status, stored = ask("PUT", url, document)
            assert status == 200, stored
        last["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        status, answer = ask("PUT", url + "&dryRun=All", last)
        return "" if status == 200 else answer["message"]


def _placed(document: Document) -> Document:
    """Return the document in our namespace."""
    if document["metadata"].get("namespace") != "default" or document["kind"] == "Node":
        return document
    return document | {"metadata": document["metadata"] | {"namespace": NAMESPACE}}


def test_the_same_objects_are_accepted_and_refused(ask: Ask) -> None:
    differences = []
    for case in cases():
        said = _judgement(ask, case)
        if bool(said) != bool(case.refuse):
            differences.append(f"{case}: {said or 'accepted'}")
    assert differences == []


def test_the_same_defaults_are_stored(ask: Ask) -> None:
    document = {
        "apiVersion": "netloom.dev/v1alpha1",
        "kind": "NetworkAttachment",
        "metadata": {"name": "defaults", "namespace": NAMESPACE},
        "spec": {"node": "n1", "network": "blue", "mac": None},
    }
    status, answer = ask("POST", NETWORK_ATTACHMENT.path(NAMESPACE) + "?dryRun=All", document)
    assert (status, answer["spec"]) == (
        201,
        {"node": "n1", "network": "blue", "port": {"type": "internal"}, "defaultRoute": False},
    )


def test_a_field_selector_selects_the_same(ask: Ask) -> None:
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
            stack.enter_context(_stored(ask, kind, document))

        def selected(kind: Kind, selector: str) -> list[str]:
            status, page = ask("GET", kind.path(NAMESPACE) + f"?fieldSelector={selector}")
            assert status == 200, json.dumps(page)
            return [item["metadata"]["name"] for item in page["items"]]

        assert selected(NETWORK_ATTACHMENT, "spec.node=n1") == ["a", "c"]
        assert selected(NETWORK_ATTACHMENT, "spec.node=n1,spec.network!=red") == ["a"]
        assert selected(NETWORK, "spec.vni==10") == ["blue"]
