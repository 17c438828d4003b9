"""Everything that is no resource: who one is, health, discovery, schemas, version, metrics."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from netloom.model.registry import KINDS
from tests.front.serving import Serving, attachment, document, network, path, serving

if TYPE_CHECKING:
    from netloom.front.api.app import Observation

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def test_nobody_is_served_but_health(server: Serving) -> None:
    for target in ("/healthz", "/livez", "/readyz", "/readyz/ping", "/readyz?verbose"):
        assert server.get(target, who="").code == 200
    for target in ("/version", "/metrics", "/api", "/apis", "/openapi/v2", path("networks"), "/nothing", "/"):
        answer = server.get(target, who="")
        assert (answer.code, answer.json["reason"]) == (401, "Unauthorized")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert server.get("/version", who="wrong").code == 401


def test_tokens_and_certificates_say_who_one_is(server: Serving) -> None:
    assert server.get(path("networks"), certificate="cert-admin", who="").code == 200
    assert server.get(path("networks"), certificate="plain", who="").code == 403
    assert server.get(path("networks"), who="viewer").code == 200
    refused = server.post(path("networks"), network(), who="viewer")
    assert (refused.code, refused.json["reason"]) == (403, "Forbidden")
    assert refused.json["message"] == (
        'networks.netloom.dev is forbidden: User "viewer" cannot create resource "networks" in API group "netloom.dev" '
        'in the namespace "default"'
    )


def test_roles_hold_in_their_namespace(server: Serving) -> None:
    assert server.post(path("networks", "a"), network(namespace="a"), who="editor-a").code == 201
    assert server.post(path("networks", "b"), network(namespace="b"), who="editor-a").code == 403
    assert server.get(path("networks", "a"), who="viewer-a").code == 200
    assert server.get(path("networks", ""), who="viewer-a").code == 403
    assert server.get(path("networks"), who="nobody").code == 403


def test_a_node_sees_and_writes_what_is_its_own(server: Serving) -> None:
    node = document("Node", "n1", "", {"underlayIP": "192.0.2.1"})
    other = document("Node", "n2", "", {"underlayIP": "192.0.2.2"})
    assert server.post(path("nodes", ""), node, who="n1").code == 201
    assert server.post(path("nodes", ""), other, who="n1").code == 403
    assert server.patch(path("nodes", "", "n1", "status"), {"status": {"agentVersion": "1"}}, who="n1").code == 200
    for name, on in (("mine", "n1"), ("theirs", "n2")):
        server.post(path("networkattachments"), attachment(name, on))
    target = path("networkattachments")
    assert len(server.get(f"{target}?fieldSelector=spec.node=n1", who="n1").json["items"]) == 1
    assert server.get(target, who="n1").code == 403
    assert server.get(f"{target}?fieldSelector=spec.node=n2", who="n1").code == 403
    seen = {"status": {"ifcName": "x"}}
    assert server.patch(path("networkattachments", name="mine", subresource="status"), seen, who="n1").code == 200
    assert server.patch(path("networkattachments", name="theirs", subresource="status"), seen, who="n1").code == 403
    assert server.patch(path("networkattachments", name="mine"), {"spec": {"mac": None}}, who="n1").code == 403
    mine = server.get(path("networkattachments", name="mine")).json
    identity = {key: mine[key] for key in ("apiVersion", "kind")}
    event = {
        "metadata": {"generateName": "e-"},
        "involvedObject": identity | {key: mine["metadata"][key] for key in ("namespace", "name", "uid")},
        "reason": "Plugged",
        "source": {"component": "netloom-agent", "host": "n1"},
        "reportingComponent": "netloom-agent",
        "reportingInstance": "n1",
    }
    assert server.post("/api/v1/namespaces/default/events", event, who="cert", certificate="cert-n1").code == 201


def test_readiness_is_what_the_process_says(credentials: Path) -> None:
    down = True

    async def store() -> None:
        if down:
            raise OSError("password=hunter2")

    with serving(credentials, ready={"store": store}) as server:
        assert server.get("/livez", who="").code == 200
        answer = server.get("/readyz", who="")
        assert answer.code == 500
        assert b"[-]store failed" in answer.body
        assert b"hunter2" not in answer.body
        assert server.get("/readyz/store", who="").code == 500
        assert server.get("/readyz/ping", who="").body == b"ok"
        assert server.get("/readyz?exclude=store", who="").code == 200
        assert server.get("/readyz/nothing", who="").code == 404
        down = False
        assert server.get("/readyz", who="").body == b"ok"
        assert b"[+]store ok" in server.get("/readyz?verbose", who="").body
        assert server.request("HEAD", "/readyz", who="").body == b""
        assert server.post("/readyz", {}, who="").code == 405


async def measured(accept: str) -> tuple[str, bytes]:
    return "text/plain", b"up 1\n"


def test_metrics_come_from_outside_and_the_version_is_that_of_kubernetes(credentials: Path) -> None:
    seen: list[Observation] = []
    with serving(credentials, metrics=measured, observe=seen.append) as server:
        assert server.get("/metrics").body == b"up 1\n"
        assert server.get("/metrics", who="n1").code == 403
        assert server.get("/version").json["gitVersion"].startswith("v1.")
        server.get(path("networks", name="x"))
    assert [(o.verb, o.resource, o.code) for o in seen][-1] == ("get", "networks", 404)
    assert all(o.seconds >= 0 for o in seen)


def test_discovery_lists_every_kind(server: Serving) -> None:
    found: set[tuple[str, str]] = set()
    roots = ["/api/v1"]
    for group in server.get("/apis").json["groups"]:
        roots.append(f"/apis/{group['preferredVersion']['groupVersion']}")
        assert server.get(f"/apis/{group['name']}").json["kind"] == "APIGroup"
    for root in roots:
        listed = server.get(root).json
        found |= {(listed["groupVersion"], resource["name"]) for resource in listed["resources"]}
    for kind in KINDS:
        assert (kind.api_version, kind.plural) in found
        assert ((kind.api_version, f"{kind.plural}/status") in found) is kind.has_status
    assert server.get("/api").json["versions"] == ["v1"]
    assert server.get("/apis/nothing").code == 404
    assert server.post("/apis", {}).code == 405


@pytest.mark.parametrize("version", ["v2", "v2beta1"])
def test_aggregated_discovery_is_one_document(server: Serving, version: str) -> None:
    accept = f"{V2.replace('v=v2', f'v={version}')},application/json"
    named = server.get("/apis", Accept=accept)
    assert named.headers["Content-Type"].endswith("as=APIGroupDiscoveryList")
    assert named.json["apiVersion"] == f"apidiscovery.k8s.io/{version}"
    groups = {item["metadata"]["name"]: item for item in named.json["items"]}
    resources = {entry["resource"]: entry for entry in groups["netloom.dev"]["versions"][0]["resources"]}
    assert set(resources) == {kind.plural for kind in KINDS if kind.group == "netloom.dev"}
    assert resources["networkattachments"]["shortNames"] == ["na"]
    core = server.get("/api", Accept=accept).json["items"]
    assert core[0]["versions"][0]["resources"][0]["resource"] == "events"
    assert server.get("/apis", Accept=accept, If_None_Match=named.headers["ETag"]).code == 304
    assert server.get("/apis", Accept=f"application/json,{accept}").json["kind"] == "APIGroupList"


def test_openapi_is_served_with_its_hash(server: Serving) -> None:
    v2 = server.get("/openapi/v2")
    assert v2.json["swagger"] == "2.0"
    proto = server.get("/openapi/v2", Accept="application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
    assert proto.code == 200
    assert b"netloom" in proto.body
    index = server.get("/openapi/v3").json["paths"]
    assert {"api/v1", "apis/netloom.dev/v1alpha1", "apis/coordination.k8s.io/v1"} <= set(index)
    url = index["apis/netloom.dev/v1alpha1"]["serverRelativeURL"]
    document = server.get(url)
    assert document.json["openapi"].startswith("3.0")
    assert "immutable" in document.headers["Cache-Control"]
    assert server.get(url, If_None_Match=document.headers["ETag"]).code == 304
    assert server.get("/openapi/v3/apis/netloom.dev/v1alpha1").body == document.body
    moved = server.get("/openapi/v3/apis/netloom.dev/v1alpha1?hash=OLD")
    assert (moved.code, moved.headers["Location"]) == (301, url)
    assert server.get("/openapi/v3/apis/nothing/v1").code == 404


def can(server: Serving, who: str, **what: str) -> bool:
    body = {"spec": {"resourceAttributes": {"group": "netloom.dev", "namespace": "default", **what}}}
    answer = server.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body, who=who)
    assert answer.code == 201
    allowed: bool = answer.json["status"]["allowed"]
    return allowed


def test_one_may_ask_what_one_may(server: Serving) -> None:
    assert can(server, "admin", verb="create", resource="networks")
    assert can(server, "viewer", verb="list", resource="networks")
    assert not can(server, "viewer", verb="create", resource="networks")
    assert not can(server, "admin", verb="get", resource="unicorns")
    url = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    plain: dict[str, Any] = {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}}
    assert server.post(url, plain, who="n1").json["status"]["allowed"] is False
    assert server.post(url, {"spec": {}}).code == 400
    assert server.post(url, {"spec": {"resourceAttributes": {"verb": 5}}}).code == 201
    assert server.get(url).code == 405


def test_one_may_ask_who_one_is(server: Serving) -> None:
    answer = server.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, who="n1")
    assert answer.json["status"]["userInfo"]["username"] == "n1"
    assert "netloom:node:n1" in answer.json["status"]["userInfo"]["groups"]


def test_what_is_nowhere_is_not_found(server: Serving) -> None:
    for target in ("/nothing", "/apis/x/y/z", "/api/v1/pods", "/", "/healthzz"):
        assert server.get(target).code == 404


def test_reviews_are_read_from_protobuf_too(server: Serving) -> None:
    def field(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2, len(value)]) + value

    attributes = b"".join(field(n, v) for n, v in ((1, b"a"), (2, b"create"), (3, b"netloom.dev"), (5, b"networks")))
    kind = field(1, b"authorization.k8s.io/v1") + field(2, b"SelfSubjectAccessReview")
    body = b"k8s\x00" + field(1, kind) + field(2, field(1, b"") + field(2, field(1, attributes))) + field(3, b"")
    url, media = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "application/vnd.kubernetes.protobuf"
    for who, allowed in (("admin", True), ("editor-a", True), ("viewer", False)):
        answer = server.post(url, body, media=media, who=who)
        assert answer.json["status"]["allowed"] is allowed
    for broken in (b"", b"k8s", b"k8s\x00\x0a\xff", b"k8s\x00\xff" * 9, body[:-30], b"k8s\x00\x0f"):
        assert server.post(url, broken, media=media).code == 400
