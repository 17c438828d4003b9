"""What people do with kubernetes-asyncio: `script_asyncio.py NAMESPACE`, with a kubeconfig in $KUBECONFIG."""

import asyncio
import sys
from typing import Any

import kubernetes_asyncio
import pytest

library: Any = kubernetes_asyncio
client, config, watch = library.client, library.config, library.watch

GROUP, VERSION, PLURAL = "netloom.dev", "v1alpha1", "portpools"


def pool(name: str, size: int) -> dict[str, Any]:
    spec = {"node": "n1", "network": "blue", "size": size}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "PortPool", "metadata": {"name": name}, "spec": spec}


async def main(namespace: str) -> None:
    await config.load_kube_config()
    async with client.ApiClient() as api:
        core, custom = client.CoreV1Api(api), client.CustomObjectsApi(api)
        extensions = client.ApiextensionsV1Api(api)
        where = (GROUP, VERSION, namespace, PLURAL)
        definitions = await extensions.list_custom_resource_definition()
        served = {one.metadata.name: one for one in definitions.items}["portpools.netloom.dev"]
        assert {one.type for one in served.status.conditions if one.status == "True"} >= {
            "Established",
            "NamesAccepted",
        }
        assert served.spec.versions[0].schema.open_apiv3_schema.properties["spec"].properties["size"].type == "integer"

        space = client.V1Namespace(metadata=client.V1ObjectMeta(name=namespace))
        made = await core.create_namespace(space)
        assert (made.status.phase, made.spec.finalizers) == ("Active", ["kubernetes"])
        assert namespace in [one.metadata.name for one in (await core.list_namespace()).items]
        before = (await custom.list_namespaced_custom_object(*where))["metadata"]["resourceVersion"]

        await custom.create_namespaced_custom_object(*where, pool("first", 3))
        patched = await custom.patch_namespaced_custom_object(
            *where, "first", {"spec": {"size": 4}}, _content_type="application/merge-patch+json"
        )
        assert patched["spec"]["size"] == 4
        await custom.create_namespaced_custom_object(*where, pool("second", 1))
        await custom.delete_namespaced_custom_object(*where, "second")
        seen = []
        async with watch.Watch().stream(
            custom.list_namespaced_custom_object, *where, resource_version=before, timeout_seconds=60
        ) as events:
            async for event in events:
                seen.append((event["type"], event["object"]["metadata"]["name"]))
                if seen[-1] == ("DELETED", "second"):
                    break
        assert seen[0] == ("ADDED", "first")
        assert ("ADDED", "second") in seen

        for name, size, code in (("first", 3, 409), ("bad", -1, 422)):
            with pytest.raises(client.ApiException) as caught:
                await custom.create_namespaced_custom_object(*where, pool(name, size))
            assert caught.value.status == code
        with pytest.raises(client.ApiException) as caught:
            await custom.get_namespaced_custom_object(*where, "nothing")
        assert caught.value.status == 404

        rules = await client.AuthorizationV1Api(api).create_self_subject_rules_review(
            client.V1SelfSubjectRulesReview(spec=client.V1SelfSubjectRulesReviewSpec(namespace=namespace))
        )
        assert any("create" in rule.verbs or "*" in rule.verbs for rule in rules.status.resource_rules)

        deleted = await core.delete_namespace(namespace)
        assert deleted is not None
        selected = f"metadata.name={namespace}"
        async with watch.Watch().stream(core.list_namespace, field_selector=selected, timeout_seconds=120) as events:
            async for event in events:
                if event["type"] == "DELETED":
                    break
        assert (await core.list_namespace(field_selector=selected)).items == []
        assert (await custom.list_namespaced_custom_object(*where))["items"] == []


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
