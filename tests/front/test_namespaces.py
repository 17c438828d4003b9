"""Namespaces and CustomResourceDefinitions over HTTP: who may do what with them, and what brings one along."""

from typing import Any

from netloom.front.api.schemas import definitions
from netloom.model.kind import VERBS
from netloom.model.registry import CUSTOM_RESOURCE_DEFINITION, NAMESPACE
from netloom.model.schemas.crds import crds
from netloom.store.memory import MemoryStore
from tests.front.serving import Serving, document, network, path, wait_until

NAMESPACES = "/api/v1/namespaces"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"


def namespace(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}


def event(where: str, name: str = "e") -> dict[str, Any]:
    about = {"kind": "Network", "name": "blue", "namespace": where}
    metadata = {"name": name, "namespace": where}
    return {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about, "reason": "Because"}


def names(server: Serving, who: str = "admin") -> list[str]:
    return [item["metadata"]["name"] for item in server.get(NAMESPACES, who=who).json["items"]]


def test_a_namespace_is_created_labelled_and_terminating_when_deleted(server: Serving) -> None:
    made = server.post(NAMESPACES, namespace("shop", labels={"team": "a"})).json
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["status"] == {"phase": "Active"}
    target = f"{NAMESPACES}/shop"
    assert server.post(NAMESPACES, namespace("shop")).code == 409
    patched = server.patch(target, {"metadata": {"labels": {"team": "b"}, "annotations": {"a": "b"}}}).json
    assert patched["metadata"]["labels"] == {"team": "b", "kubernetes.io/metadata.name": "shop"}
    assert server.get(f"{NAMESPACES}?labelSelector=team%3Db").json["items"][0]["metadata"]["name"] == "shop"
    deleted = server.delete(target)
    assert (deleted.code, deleted.json["kind"], deleted.json["status"]["phase"]) == (200, "Namespace", "Terminating")
    again = server.delete(target)
    assert (again.code, again.json["metadata"]["uid"]) == (200, made["metadata"]["uid"])
    emptied = deleted.json | {"spec": {"finalizers": []}}
    assert server.put(f"{target}/finalize", emptied).code == 200
    assert server.get(target).code == 404


def test_what_only_the_server_says_of_a_namespace_is_not_written_by_others(server: Serving) -> None:
    made = server.post(NAMESPACES, namespace("shop") | {"spec": {"finalizers": []}, "status": {"phase": "Terminating"}})
    assert made.json["spec"]["finalizers"] == ["kubernetes"]
    assert made.json["status"]["phase"] == "Active"
    target = f"{NAMESPACES}/shop"
    changed = server.put(target, made.json | {"spec": {"finalizers": []}, "status": {"phase": "Terminating"}}).json
    assert (changed["spec"], changed["status"]) == (made.json["spec"], made.json["status"])
    status = server.patch(f"{target}/status", {"status": {"phase": "Terminating"}}).json
    assert status["status"]["phase"] == "Active"


def test_a_namespace_is_watched(server: Serving) -> None:
    with server.watching(f"{NAMESPACES}?watch=true") as events:
        server.post(path("networks", "fresh"), network("blue", "fresh"))
        assert events.take(1) == [("ADDED", "fresh")]
        server.delete(f"{NAMESPACES}/fresh")
        changed = events.next()
        assert (changed["type"], changed["object"]["status"]["phase"]) == ("MODIFIED", "Terminating")


def test_the_first_object_brings_its_namespace_along_and_a_refused_one_does_not(server: Serving) -> None:
    assert names(server) == []
    assert server.get(f"{NAMESPACES}/a").code == 404
    assert server.post(path("networks", "a"), network("blue", "a", mtu=1), who="editor-a").code == 422
    assert server.post(path("networks", "a") + "?dryRun=All", network("blue", "a"), who="editor-a").code == 201
    assert server.post(path("networks", "b"), network("blue", "b"), who="editor-a").code == 403
    assert names(server) == []
    assert server.post(path("networks", "a"), network("blue", "a"), who="editor-a").code == 201
    applied = path("networks", "c", "blue") + "?fieldManager=me"
    assert server.patch(applied, network("blue", "c"), media="application/apply-patch+yaml").code == 201
    assert names(server) == ["a", "c"]


def test_an_event_does_not_bring_a_namespace_along(server: Serving) -> None:
    refused = server.post(f"{NAMESPACES}/invented/events", event("invented"), who="admin")
    assert (refused.code, refused.json["message"]) == (404, 'namespaces "invented" not found')
    assert server.post(f"{NAMESPACES}/invented/events", event("invented"), who="n1").code == 403
    assert names(server) == []
    # What is about cluster-scoped objects is in default, which is always there.
    about = event("default") | {"involvedObject": {"kind": "Node", "name": "n1"}}
    assert server.post(f"{NAMESPACES}/default/events", about, who="admin").code == 201
    assert names(server) == ["default"]


def test_nothing_is_created_in_a_namespace_that_is_being_deleted(server: Serving) -> None:
    server.post(path("networks", "shop"), network("blue", "shop"))
    server.post(path("subnets", "shop"), document("Subnet", "v4", "shop", {"network": "blue", "cidr": "10.0.0.0/24"}))
    assert server.delete(path("networks", "shop", "blue")).code == 409
    server.delete(f"{NAMESPACES}/shop")

    def refused() -> bool:
        return server.post(path("networks", "shop") + "?dryRun=All", network("red", "shop")).code == 403

    wait_until(refused)  # That it was active is remembered for half a second.
    answer = server.post(path("networks", "shop"), network("red", "shop"))
    assert "because it is being terminated" in answer.json["message"]
    assert answer.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    # What is in use goes, because its users go, too.
    assert server.delete(path("networks", "shop", "blue")).code == 200


def test_namespaces_that_are_always_there_cannot_be_deleted(server: Serving) -> None:
    server.post(path("networks"), network())
    refused = server.delete(f"{NAMESPACES}/default")
    assert (refused.code, refused.json["message"]) == (
        403,
        'namespaces "default" is forbidden: this namespace may not be deleted',
    )


def test_who_may_do_what_with_namespaces(server: Serving) -> None:
    for name in ("a", "b"):
        server.post(NAMESPACES, namespace(name))
    assert names(server, "viewer") == ["a", "b"]
    for who in ("editor", "editor-a", "viewer", "viewer-a", "n1", "nobody"):
        assert server.post(NAMESPACES, namespace("c"), who=who).code == 403, who
        assert server.delete(f"{NAMESPACES}/a", who=who).code == 403, who
        assert server.patch(f"{NAMESPACES}/a", {"metadata": {"labels": {"x": "y"}}}, who=who).code == 403, who
        finalized = server.put(f"{NAMESPACES}/a/finalize", namespace("a"), who=who)
        assert finalized.code == 403, who
    for who in ("editor-a", "viewer-a"):
        assert server.get(f"{NAMESPACES}/a", who=who).code == 200
        assert server.get(f"{NAMESPACES}/b", who=who).code == 403
        assert server.get(NAMESPACES, who=who).code == 403
    assert server.get(f"{NAMESPACES}/a", who="n1").code == 403
    assert server.request("DELETE", NAMESPACES).code == 405


def test_names_of_namespaces_are_labels(server: Serving) -> None:
    for name in ("Team_A", "a.b", "x" * 64):
        refused = server.post(NAMESPACES, namespace(name))
        assert (refused.code, refused.json["details"]["causes"][0]["field"]) == (422, "metadata.name")


def test_definitions_are_what_crds_prints_and_read_only(server: Serving) -> None:
    server.run(definitions.write(server.store))
    items = server.get(DEFINITIONS, who="viewer").json["items"]
    assert [item["spec"] for item in items] == [one["spec"] for one in sorted(crds(), key=_name)]
    for item in items:
        holds = {one["type"] for one in item["status"]["conditions"] if one["status"] == "True"}
        assert holds == {"Established", "NamesAccepted"}
    networks = server.get(f"{DEFINITIONS}/networks.netloom.dev", who="viewer-a")
    assert networks.json["status"]["acceptedNames"]["kind"] == "Network"
    assert server.get(DEFINITIONS, who="n1").code == 403
    for method in ("POST", "DELETE"):
        assert server.request(method, DEFINITIONS, {}).code == 405
    for method in ("PUT", "PATCH", "DELETE"):
        assert server.request(method, f"{DEFINITIONS}/networks.netloom.dev", {}).code == 405
    resources = server.get("/apis/apiextensions.k8s.io/v1").json["resources"]
    assert [(one["name"], one["verbs"]) for one in resources] == [
        ("customresourcedefinitions", ["get", "list", "watch"])
    ]


def test_definitions_of_another_version_are_replaced(server: Serving) -> None:
    async def main() -> None:
        store = MemoryStore()
        await definitions.write(store)
        before = await store.list(CUSTOM_RESOURCE_DEFINITION)
        await definitions.write(store)
        assert (await store.list(CUSTOM_RESOURCE_DEFINITION)).revision == before.revision
        old = before.items[0].document()
        old["spec"]["names"]["shortNames"] = []
        await store.update(CUSTOM_RESOURCE_DEFINITION, old)
        await store.create(CUSTOM_RESOURCE_DEFINITION, old | {"metadata": {"name": "gone.netloom.dev"}})
        await definitions.write(store)
        after = await store.list(CUSTOM_RESOURCE_DEFINITION)
        assert [one.document()["spec"] for one in after.items] == [one.document()["spec"] for one in before.items]
        assert after.items[0].document()["metadata"]["uid"] == old["metadata"]["uid"]

    server.run(main())


def test_discovery_tells_of_namespaces_and_their_sub_resources(server: Serving) -> None:
    resources = {one["name"]: one for one in server.get("/api/v1").json["resources"]}
    assert resources["namespaces"]["shortNames"] == ["ns"]
    assert "deletecollection" not in resources["namespaces"]["verbs"]
    assert resources["namespaces/finalize"]["verbs"] == ["update"]
    paths = server.get("/openapi/v3/api/v1").json["paths"]
    assert paths["/api/v1/namespaces/{name}/finalize"].keys() == {"put", "parameters"}
    assert paths["/api/v1/namespaces"].keys() == {"get", "post", "parameters"}
    assert NAMESPACE.name in server.get("/openapi/v2").body.decode()


def rules(server: Serving, who: str, where: str) -> tuple[dict[str, list[str]], Any]:
    answer = server.post(RULES, {"spec": {"namespace": where}}, who=who)
    assert answer.code == 201
    status = answer.json["status"]
    return {
        f"{resource}.{group}".rstrip("."): rule["verbs"]
        for rule in status["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }, status


def test_the_rules_of_a_namespace_are_those_that_requests_meet(server: Serving) -> None:
    admin, _ = rules(server, "admin", "a")
    assert admin["networks.netloom.dev"] == list(VERBS)
    editor, _ = rules(server, "editor-a", "a")
    assert "create" in editor["networks.netloom.dev"]
    assert editor["namespaces"] == ["get"]
    assert editor["leases.coordination.k8s.io"] == ["get", "list", "watch"]
    assert "networks/status.netloom.dev" in editor
    assert editor["networks/status.netloom.dev"] == ["get"]
    elsewhere, _ = rules(server, "editor-a", "b")
    assert {name: verbs for name, verbs in elsewhere.items() if verbs != ["create"]} == {
        "customresourcedefinitions.apiextensions.k8s.io": ["get", "list", "watch"]
    }
    viewer, status = rules(server, "viewer", "b")
    assert all(set(verbs) <= {"get", "list", "watch"} for name, verbs in viewer.items() if "reviews" not in name)
    assert viewer["selfsubjectrulesreviews.authorization.k8s.io"] == ["create"]
    assert status["incomplete"] is False
    assert "/metrics" in status["nonResourceRules"][0]["nonResourceURLs"]
    node, status = rules(server, "n1", "a")
    assert "update" in node["nodes.netloom.dev"]
    assert [rule.get("resourceNames") for rule in status["resourceRules"] if rule["resources"] == ["nodes"]] == [["n1"]]
    assert status["incomplete"] is True
    assert server.post(RULES, {"spec": {}}).code == 400


def _name(one: dict[str, Any]) -> str:
    name: str = one["metadata"]["name"]
    return name
