"""The same requests to a real kube-apiserver that has our CRDs and to our own server: the same answers.

A table of requests, sent in order to both; of each answer the status code, the kind and the Status' reason are
compared, and whether it is Protobuf. Where we answer differently on purpose, the table says what we say instead, and
why.
"""

import contextlib
import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from netloom.front.api.output import protobuf_kinds
from netloom.front.api.schemas import definitions
from netloom.model.schemas.crds import crds
from tests.front.serving import make_credentials, serving
from tests.support.kube import Kube
from tests.support.process import wait_until

pytestmark = pytest.mark.kube

NAMESPACE = "like-kube"
ROOT = f"/apis/netloom.dev/v1alpha1/namespaces/{NAMESPACE}"
NETS, BLUE, ATTACHMENTS = f"{ROOT}/networks", f"{ROOT}/networks/blue", f"{ROOT}/networkattachments"
NAMES = ("networks", "networkattachments")
NAMESPACES, MORE = "/api/v1/namespaces", f"{NAMESPACE}-more"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
JSON, MERGE, PATCH = "application/json", "application/merge-patch+json", "application/json-patch+json"
APPLY, STRATEGIC, YAML = "application/apply-patch+yaml", "application/strategic-merge-patch+json", "application/yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIALS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PROTOBUF = protobuf_kinds.MEDIA
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

Send = Callable[..., "Seen"]
Seen = tuple[int, str, str]
Request = tuple[Any, ...]


class Differs(NamedTuple):
    """A request that we answer otherwise, on purpose."""

    ours: int
    why: str
    request: Request


def net(name: str = "blue", metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    about = {"name": name} | (metadata or {})
    return {"apiVersion": "netloom.dev/v1alpha1", "kind": "Network", "metadata": about, "spec": spec}


def attachment(name: str, node: str = "n1") -> dict[str, Any]:
    spec = {"node": node, "network": "blue"}
    return {"apiVersion": "netloom.dev/v1alpha1", "kind": "NetworkAttachment", "metadata": {"name": name}, "spec": spec}


def protobuf(form: str) -> str:
    return f"{PROTOBUF};as={form};v=v1;g=meta.k8s.io"


def lease(name: str, *, kind: str = "Lease", version: str = "coordination.k8s.io/v1") -> bytes:
    message = protobuf_kinds.MESSAGES["Lease"].encode({"metadata": {"name": name}, "spec": {"holderIdentity": "me"}})
    return protobuf_kinds.envelope(version, kind, message)


def deletion(version: str, **options: Any) -> bytes:
    return protobuf_kinds.envelope(version, "DeleteOptions", protobuf_kinds.DELETE_OPTIONS.encode(options))


REQUESTS: list[Request | Differs] = [
    # Creating.
    ("POST", NETS, net(vni=4242)),
    ("POST", NETS, net(vni=4242)),
    ("POST", NETS, net("other", {"namespace": "elsewhere"})),
    Differs(
        400,
        "A body about something else is one reaction, whatever it is about.",
        ("POST", NETS, net() | {"kind": "Subnet"}),
    ),
    ("POST", NETS, net() | {"apiVersion": "v1"}),
    ("POST", NETS, {"metadata": {"name": "x"}}),
    ("POST", NETS, net("", {"name": ""})),
    ("POST", NETS, net("Bad_Name")),
    ("POST", NETS, net("x" * 300)),
    Differs(400, "kube-apiserver calls this an internal error.", ("POST", NETS, net("x", {"resourceVersion": "5"}))),
    ("POST", NETS, net("x", {"labels": {"a b": "c"}})),
    ("POST", NETS, net("x", vni=0)),
    ("POST", NETS, net("x", vni="ten")),
    ("POST", f"{NETS}?fieldValidation=Strict", net("x", nonsense=1)),
    ("POST", f"{NETS}?dryRun=All", net("x")),
    ("POST", f"{NETS}?dryRun=All&fieldValidation=Warn", net("x", nonsense=1)),
    ("POST", f"{NETS}?dryRun=All&fieldValidation=Ignore", net("x", nonsense=1)),
    ("POST", NETS, b"{"),
    ("POST", NETS, b""),
    ("POST", NETS, b"[]"),
    (
        "POST",
        f"{NETS}?dryRun=All",
        b"apiVersion: netloom.dev/v1alpha1\nkind: Network\nmetadata: {name: yellow}\nspec: {}\n",
        YAML,
    ),
    ("POST", NETS, b"<x/>", "application/xml"),
    Differs(405, "The path is there, creating is not.", ("POST", "/apis/netloom.dev/v1alpha1/networks", net("x"))),
    Differs(405, "The path is there, replacing is not.", ("PUT", NETS, net())),
    # Reading.
    ("GET", BLUE),
    ("GET", f"{BLUE}/status"),
    ("GET", f"{BLUE}/scale"),
    ("GET", f"{NETS}/missing"),
    ("GET", NETS),
    ("GET", f"{ROOT}/things"),
    ("GET", "/apis/netloom.dev/v9/networks"),
    ("GET", "/apis/nobody.example/v1/things"),
    ("GET", "/nothing"),
    ("GET", BLUE, None, JSON, TABLE),
    ("GET", NETS, None, JSON, TABLE),
    ("GET", BLUE, None, JSON, PARTIAL),
    ("GET", NETS, None, JSON, PARTIALS),
    ("GET", BLUE, None, JSON, "image/png"),
    ("GET", f"{NETS}?limit=1"),
    ("GET", f"{NETS}?limit=abc"),
    ("GET", f"{NETS}?continue=nonsense&limit=1"),
    ("GET", f"{NETS}?labelSelector=a%20in%20(b)"),
    ("GET", f"{NETS}?labelSelector=((("),
    ("GET", f"{NETS}?fieldSelector=metadata.name%3Dblue"),
    ("GET", f"{NETS}?fieldSelector=spec.vni%3D4242"),
    ("GET", f"{NETS}?fieldSelector=spec.nothing%3D1"),
    ("GET", f"{NETS}?resourceVersion=0"),
    ("GET", f"{NETS}?resourceVersion=nonsense"),
    ("GET", f"{NETS}?resourceVersion=0&resourceVersionMatch=NotOlderThan"),
    ("GET", f"{NETS}?watch=1&timeoutSeconds=1&resourceVersion=0"),
    ("GET", "/apis/netloom.dev/v1alpha1"),
    ("GET", "/apis/netloom.dev"),
    ("GET", "/api"),
    # Protobuf: built-in kinds have it; ours, like those of any CRD, have it for their metadata alone.
    ("GET", BLUE, None, JSON, PROTOBUF),
    ("GET", f"{NETS}/missing", None, JSON, PROTOBUF),
    ("GET", NETS, None, JSON, PROTOBUF),
    ("GET", f"{NETS}?watch=1&timeoutSeconds=1", None, JSON, PROTOBUF),
    ("GET", f"{NETS}?watch=1&timeoutSeconds=1", None, JSON, YAML),
    ("GET", BLUE, None, JSON, f"{PROTOBUF},{JSON}"),
    ("GET", f"{NETS}/missing", None, JSON, f"{PROTOBUF},{JSON}"),
    ("GET", BLUE, None, JSON, f"{PROTOBUF};q=0.5,{JSON}"),
    ("GET", BLUE, None, JSON, f"{PROTOBUF}, */*"),
    ("GET", BLUE, None, JSON, protobuf("PartialObjectMetadata")),
    ("GET", f"{NETS}/missing", None, JSON, protobuf("PartialObjectMetadata")),
    ("GET", NETS, None, JSON, protobuf("PartialObjectMetadataList")),
    ("GET", f"{NETS}?watch=1&timeoutSeconds=1&resourceVersion=0", None, JSON, protobuf("PartialObjectMetadata")),
    ("GET", BLUE, None, JSON, protobuf("Table")),
    ("GET", BLUE, None, JSON, f"{protobuf('Table')},{JSON}"),
    ("POST", LEASES, lease("one"), PROTOBUF),
    ("POST", LEASES, lease("one"), PROTOBUF, PROTOBUF),
    ("POST", LEASES, lease("two"), f"{PROTOBUF};charset=x", f"{PROTOBUF}, */*"),
    ("POST", LEASES, lease("three", kind="", version=""), PROTOBUF, PROTOBUF),
    ("POST", LEASES, lease("four", kind="Pod", version="v1"), PROTOBUF),
    ("POST", LEASES, lease("four")[:-9], PROTOBUF),
    ("POST", LEASES, b"{}", PROTOBUF),
    ("POST", LEASES, b"", PROTOBUF),
    ("POST", LEASES, lease("Bad_Name"), PROTOBUF, PROTOBUF),
    ("PUT", f"{LEASES}/one", lease("one"), PROTOBUF, PROTOBUF),
    ("GET", f"{LEASES}/one", None, JSON, PROTOBUF),
    ("GET", LEASES, None, JSON, PROTOBUF),
    ("GET", f"{LEASES}?limit=1", None, JSON, f"{PROTOBUF},{JSON}"),
    ("GET", LEASES, None, JSON, protobuf("PartialObjectMetadataList")),
    ("GET", f"{LEASES}?watch=1&timeoutSeconds=1&resourceVersion=0", None, JSON, PROTOBUF),
    ("PATCH", f"{LEASES}/one", {"spec": {"leaseDurationSeconds": 5}}, STRATEGIC, PROTOBUF),
    Differs(
        400,
        "kube-apiserver calls this an internal error.",
        ("PATCH", f"{LEASES}/one", {"$patch": "sideways"}, STRATEGIC),
    ),
    ("PATCH", f"{LEASES}/one", lease("one"), PROTOBUF),
    ("DELETE", f"{LEASES}/one", deletion("v1", preconditions={"uid": "not-this"}), PROTOBUF, PROTOBUF),
    ("DELETE", f"{LEASES}/one", deletion("coordination.k8s.io/v1", dryRun=["Some"]), PROTOBUF, PROTOBUF),
    ("DELETE", f"{LEASES}/one", deletion("coordination.k8s.io/v1"), PROTOBUF, PROTOBUF),
    ("DELETE", LEASES, deletion("v1"), PROTOBUF, PROTOBUF),
    ("DELETE", BLUE, deletion("netloom.dev/v1alpha1", dryRun=["All"]), PROTOBUF),
    ("GET", EVENTS, None, JSON, PROTOBUF),
    ("POST", REVIEWS, {"spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}}}, JSON, PROTOBUF),
    # Replacing.
    ("PUT", BLUE, net(vni=4242)),
    ("PUT", BLUE, net(metadata={"resourceVersion": "1"}, vni=4242)),
    ("PUT", BLUE, net("red", {"resourceVersion": "1"})),
    ("PUT", f"{NETS}/missing", net("missing", {"resourceVersion": "1"})),
    ("PUT", f"{BLUE}/status", net(vni=4242)),
    # Patching.
    ("PATCH", BLUE, {"spec": {"mtu": 1400}}, MERGE),
    ("PATCH", BLUE, {"spec": {"mtu": 1400}}, MERGE),
    ("PATCH", BLUE, {"spec": {"fabric": "linux"}}, MERGE),
    ("PATCH", BLUE, {"spec": {"vni": 5}}, MERGE),
    ("PATCH", BLUE, {"metadata": {"name": "red"}}, MERGE),
    ("PATCH", BLUE, {"metadata": {"name": None}}, MERGE),
    ("PATCH", BLUE, {"metadata": None}, MERGE),
    ("PATCH", BLUE, {"metadata": {"namespace": "elsewhere"}}, MERGE),
    ("PATCH", BLUE, {"metadata": {"resourceVersion": None, "labels": {"x": "y"}}}, MERGE),
    ("PATCH", BLUE, {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}}, MERGE),
    ("PATCH", BLUE, {"metadata": {"generation": 77}}, MERGE),
    ("PATCH", BLUE, {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}}, MERGE),
    ("PATCH", BLUE, {"status": {"vni": "x"}}, MERGE),
    ("PATCH", BLUE, {"spec": None}, MERGE),
    ("PATCH", BLUE, {"metadata": {"resourceVersion": "1"}}, MERGE),
    ("PATCH", BLUE, {"metadata": {"uid": "x"}}, MERGE),
    Differs(
        400,
        "A body about something else is one reaction, whatever it is about.",
        ("PATCH", BLUE, {"kind": "Subnet"}, MERGE),
    ),
    ("PATCH", BLUE, {"metadata": {"labels": {"a": "b"}}}, MERGE),
    ("PATCH", BLUE, b"{", MERGE),
    ("PATCH", BLUE, b"[]", MERGE),
    ("PATCH", f"{NETS}/missing", {"spec": {}}, MERGE),
    ("PATCH", BLUE, [{"op": "replace", "path": "/spec/mtu", "value": 1300}], PATCH),
    ("PATCH", BLUE, [{"op": "test", "path": "/spec/mtu", "value": 1}], PATCH),
    ("PATCH", BLUE, [{"op": "remove", "path": "/spec/nothing"}], PATCH),
    Differs(
        400,
        "A patch that cannot be understood is a bad request.",
        ("PATCH", BLUE, [{"op": "explode", "path": "/spec/mtu"}], PATCH),
    ),
    ("PATCH", BLUE, {"a": 1}, PATCH),
    ("PATCH", BLUE, {}, STRATEGIC),
    ("PATCH", BLUE, {}, JSON),
    ("PATCH", f"{BLUE}/status", {"status": {"vni": 4242}}, MERGE),
    ("PATCH", f"{BLUE}/status", {"status": {"vni": "x"}}, MERGE),
    ("PATCH", f"{BLUE}?force=true", {}, MERGE),
    # Applying.
    ("PATCH", f"{NETS}/green?fieldManager=me", net("green", mtu=1400), APPLY),
    ("PATCH", f"{NETS}/green?fieldManager=me", net("green", mtu=1400), APPLY),
    ("PATCH", f"{NETS}/green?fieldManager=you", net("green", mtu=1300), APPLY),
    ("PATCH", f"{NETS}/green?fieldManager=you&force=true", net("green", mtu=1300), APPLY),
    ("PATCH", f"{NETS}/green", net("green"), APPLY),
    ("PATCH", f"{NETS}/green?fieldManager=me", net("other"), APPLY),
    ("PATCH", f"{NETS}/green?fieldManager=me", net("green") | {"kind": "Subnet"}, APPLY),
    Differs(
        400,
        "kube-apiserver calls this an internal error.",
        ("PATCH", f"{NETS}/green?fieldManager=me", net("green", nonsense=1), APPLY),
    ),
    ("PATCH", f"{NETS}/none/status?fieldManager=me", net("none"), APPLY),
    # Deleting.
    ("DELETE", f"{NETS}/missing"),
    ("DELETE", f"{BLUE}?dryRun=All"),
    ("DELETE", BLUE, {"preconditions": {"uid": "not-this"}}),
    ("DELETE", BLUE, {"preconditions": {"resourceVersion": "1"}}),
    ("DELETE", BLUE, {"propagationPolicy": "Sideways"}),
    ("DELETE", BLUE, {"propagationPolicy": "Orphan", "orphanDependents": True}),
    ("DELETE", BLUE, {"dryRun": ["Some"]}),
    ("DELETE", BLUE, b"{"),
    ("PATCH", BLUE, {"metadata": {"finalizers": ["netloom.dev/test"]}}, MERGE),
    ("DELETE", BLUE),
    ("DELETE", BLUE),
    ("PATCH", BLUE, {"metadata": {"finalizers": ["netloom.dev/test", "netloom.dev/more"]}}, MERGE),
    ("PATCH", BLUE, {"metadata": {"finalizers": None}}, MERGE),
    ("GET", BLUE),
    ("DELETE", f"{NETS}/green", {"propagationPolicy": "Background"}),
    ("POST", ATTACHMENTS, attachment("a")),
    ("POST", ATTACHMENTS, attachment("b", "n2")),
    ("GET", f"{ATTACHMENTS}?fieldSelector=spec.node%3Dn1"),
    ("DELETE", f"{ATTACHMENTS}?labelSelector=x%3Dy"),
    ("DELETE", ATTACHMENTS),
    ("GET", ATTACHMENTS),
    ("DELETE", f"{ATTACHMENTS}/a/status"),
    Differs(
        405, "kube-apiserver creates, whatever the name in the path.", ("POST", f"{ATTACHMENTS}/a", attachment("a"))
    ),
    # Namespaces.
    ("POST", NAMESPACES, {"metadata": {"name": MORE, "finalizers": ["netloom.dev/test"]}}),
    ("POST", NAMESPACES, {"metadata": {"name": MORE}}),
    ("POST", NAMESPACES, {"metadata": {"name": "a.b"}}),
    ("POST", NAMESPACES, {}),
    ("GET", NAMESPACES),
    ("GET", f"{NAMESPACES}/{MORE}"),
    ("GET", f"{NAMESPACES}/{MORE}/status"),
    ("GET", f"{NAMESPACES}/{MORE}/finalize"),
    ("GET", f"{NAMESPACES}/{MORE}/nothing"),
    ("GET", f"{NAMESPACES}/missing"),
    ("PATCH", f"{NAMESPACES}/{MORE}", {"metadata": {"labels": {"a": "b"}}}, MERGE),
    ("GET", f"{NAMESPACES}?labelSelector=kubernetes.io/metadata.name%3D{MORE}"),
    ("GET", f"{NAMESPACES}?fieldSelector=status.phase%3DActive"),
    ("GET", NAMESPACES, None, JSON, TABLE),
    ("DELETE", NAMESPACES),
    ("DELETE", f"{NAMESPACES}/default"),
    ("DELETE", f"{NAMESPACES}/{MORE}?dryRun=All"),
    ("POST", f"{NAMESPACES}/missing/events", {"metadata": {"name": "e"}, "involvedObject": {"namespace": "missing"}}),
    ("DELETE", f"{NAMESPACES}/{MORE}"),
    ("DELETE", f"{NAMESPACES}/{MORE}"),
    ("POST", NETS.replace(NAMESPACE, MORE), net()),
    Differs(201, "The first object creates its namespace.", ("POST", NETS.replace(NAMESPACE, "brought-along"), net())),
    # Definitions.
    ("GET", DEFINITIONS),
    ("GET", f"{DEFINITIONS}/networks.netloom.dev"),
    ("GET", f"{DEFINITIONS}/unicorns.netloom.dev"),
    Differs(405, "They are ours to say.", ("DELETE", f"{DEFINITIONS}/unicorns.netloom.dev")),
    # Questions about oneself.
    ("POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}),
    ("POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {}}),
    ("GET", f"{AUTHORIZATION}/selfsubjectrulesreviews"),
    ("POST", f"{AUTHORIZATION}/selfsubjectaccessreviews/", {"spec": {"resourceAttributes": {"verb": "get"}}}),
    # Slashes at the end.
    *(
        ("GET", path)
        for path in (
            *(f"{NETS}/", f"{NETS}//", f"{BLUE}/", f"{BLUE}/status/", f"{NAMESPACES}/", f"{NAMESPACES}/default/"),
            *("/version", "/version/", "/version//", "/api/", "/api//", "/apis/", "/apis//", "/api/v1/", "/api/v1//"),
            *("/apis/netloom.dev/", "/apis/netloom.dev/v1alpha1/", "/nothing/", "//version", "//api/v1"),
            *("/healthz/", "/livez/", "/readyz/", "/readyz/ping/", "/metrics/", "/openapi/v2/", "/openapi/v3/"),
            "/openapi/v3/api/v1/",
        )
    ),
]


@pytest.fixture(scope="module")
def theirs(kube: Kube) -> Send:
    for crd in crds():
        if crd["spec"]["names"]["plural"] in NAMES:
            kube.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    about = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    kube.request("POST", "/api/v1/namespaces", about)
    wait_until(
        lambda: all(kube.request("GET", f"{ROOT}/{name}")[0] == 200 for name in NAMES), what="our kinds to be served"
    )
    return sender(kube.url.rpartition(":")[2], kube.ca_file, kube.token)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Send]:
    folder = tmp_path_factory.mktemp("ours")
    make_credentials(folder)
    with serving(folder) as server:
        server.run(definitions.write(server.store))
        server.post(NAMESPACES, {"metadata": {"name": "default"}})
        yield sender(str(server.port), folder / "ca.crt", "admin-token")


def sender(port: str, ca_file: Path, token: str) -> Send:
    context = ssl.create_default_context(cafile=str(ca_file))

    def send(method: str, path: str, body: Any = None, media: str = JSON, accept: str = JSON) -> Seen:
        connection = http.client.HTTPSConnection("127.0.0.1", int(port), timeout=120, context=context)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Accept": accept}
        if data is not None:
            headers["Content-Type"] = media
        with contextlib.closing(connection):
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            return seen(answer.status, answer.headers.get_content_type(), answer.read())

    return send


def seen(code: int, media: str, text: bytes) -> Seen:
    """Return what is compared of an answer."""
    if media == PROTOBUF:
        return code, "Protobuf", in_protobuf(text)
    try:
        found = json.loads(text)
    except ValueError:
        return code, "", ""
    if not isinstance(found, dict):
        return code, type(found).__name__, ""
    return code, str(found.get("kind", "")), str(found.get("reason", ""))


def in_protobuf(text: bytes) -> str:
    """Return what is compared of an answer in Protobuf: its apiVersion and kind, and the reason of a Status."""
    text = text.removeprefix(text[: text.find(protobuf_kinds.MAGIC)])  # What stands before the object, in a watch.
    status = protobuf_kinds.opening("v1", "Status", 0)[:-1]
    if text.startswith(status):
        return str(protobuf_kinds.decode(text, "v1", "Status").get("reason"))
    return text[: text.find(b"\x12", 16)].decode("latin-1") if text else ""


def test_both_answer_alike(theirs: Send, ours: Send) -> None:
    differences = []
    for entry in REQUESTS:
        request = entry.request if isinstance(entry, Differs) else entry
        their, our = theirs(*request), ours(*request)
        if isinstance(entry, Differs):
            alike = our[0] == entry.ours != their[0]
        elif not their[1]:  # Plain text, from what stands before the API proper.
            alike = our[0] == their[0]
        else:
            alike = our == their
        if not alike:
            differences.append(f"{str(request)[:200]}\n    theirs {their}\n    ours   {our}")
    assert not differences, "\n" + "\n".join(differences)
