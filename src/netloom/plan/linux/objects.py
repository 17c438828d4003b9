"""The objects of a Sandbox on the backend `linux`: a HostDocument for each Node that has a part of it.  Pure.

What exists stays where it is: the documents that there are say on which Node each network namespace is. A document
that is too large for an object is a problem, and the one that its Node has stays.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from netloom.model.document import Document, ObjectMeta, OwnerReference
from netloom.model.kinds.sandbox import HostDocument, HostDocumentSpec, Sandbox
from netloom.model.registry import HOST_DOCUMENT, SANDBOX
from netloom.plan.linux.documents import machine_spaces, plan_documents
from netloom.plan.problem import Problem
from netloom.plan.sandbox.names import SANDBOX_LABEL, Part, assign, label_value
from netloom.plan.sandbox.objects import ObjectKey, SandboxPlan

FINALIZER = "netloom.dev/host"
"""Keeps a HostDocument until its node has nothing of it."""
LARGEST = 1408 * 1024
"""Bytes of a spec: an object has at most 1.5 MiB, with its metadata and its status."""
DOCUMENT_TOO_LARGE = "DocumentTooLarge"


def plan_host_documents(
    sandbox: Sandbox, nodes: Mapping[str, str], observed: Sequence[HostDocument] = (), avoid: Collection[int] = ()
) -> SandboxPlan:
    """Return the HostDocuments of a Sandbox, and what prevents some of them.

    `nodes` are the underlay addresses of the Nodes; `observed` are the HostDocuments that the Sandbox has; `avoid` are
    the VNIs of other Sandboxes.
    """
    before = {one.spec.node: one for one in observed if not one.metadata.deletion_timestamp}
    eligible = _eligible(sandbox, nodes)
    plan = plan_documents(sandbox, eligible, _placed(sandbox, eligible, before.values()), avoid)
    names = {
        part.words[0]: name
        for part, name in assign(sandbox.metadata.name, (Part((node,)) for node in plan.documents)).items()
    }
    problems = list(plan.problems)
    objects = []
    for node, document in plan.documents.items():
        hosts = {host: plan.spaces[host] for host, on in plan.hosts.items() if on == node}
        spec = HostDocumentSpec(node=node, hosts=hosts, document=document)
        size = len(msgspec.json.encode(spec))
        if size > LARGEST:
            text = f"Node {node}: its document has {size} bytes, and at most {LARGEST} fit into an object"
            problems.append(Problem(DOCUMENT_TOO_LARGE, f"{text}: place hosts and routers on more Nodes"))
            if node not in before:
                continue
            spec = before[node].spec
        objects.append(
            HostDocument(
                api_version=HOST_DOCUMENT.api_version,
                kind=HOST_DOCUMENT.name,
                metadata=_metadata(sandbox, names[node]),
                spec=spec,
            )
        )
    made = {one.spec.node for one in objects}

    def needed(parts: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[ObjectKey, ...]]:
        """Return the objects of each part; one on a Node without an object does not exist."""
        return {
            part: tuple((HOST_DOCUMENT.name, names[node]) for node in on)
            for part, on in parts.items()
            if made >= set(on)
        }

    return SandboxPlan(
        objects=tuple(objects),
        problems=tuple(sorted(set(problems))),
        faults=plan.faults,
        networks=needed(plan.networks),
        routers=needed({router: (node,) for router, node in plan.routers.items()}),
        hosts=needed({host: (node,) for host, node in plan.hosts.items()}),
    )


def places_of(documents: Iterable[HostDocument]) -> dict[str, str]:
    """Return the Node of each network namespace in some documents."""
    return {space: one.spec.node for one in documents for space in _names(one.spec.document, "namespaces")}


def _placed(sandbox: Sandbox, nodes: Collection[str], documents: Iterable[HostDocument]) -> dict[str, str]:
    """Return the Node of each machine that some documents have, and of each DHCP server."""
    spaces = machine_spaces(sandbox, nodes)
    return {spaces[space]: node for space, node in places_of(documents).items() if space in spaces}


def vnis_of(document: HostDocument) -> frozenset[int]:
    """Return the VNIs of a document."""
    return frozenset(one["vni"] for one in _items(document.spec.document, "tunnels") if isinstance(one.get("vni"), int))


def _eligible(sandbox: Sandbox, nodes: Mapping[str, str]) -> dict[str, str]:
    """Return the Nodes that may get a part: with a default placement, only those that the placement names."""
    placement = sandbox.spec.placement
    if placement is None or not placement.default:
        return dict(nodes)
    named = {placement.default, *placement.hosts.values()}
    return {name: address for name, address in nodes.items() if name in named}


def _names(document: Document, key: str) -> list[str]:
    return [one["name"] for one in _items(document, key) if isinstance(one.get("name"), str)]


def _items(document: Document, key: str) -> list[Document]:
    """Return the objects in a list of a document, which may be one that somebody wrote by hand."""
    found = document.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _metadata(sandbox: Sandbox, name: str) -> ObjectMeta:
    meta = sandbox.metadata
    owner = OwnerReference(
        api_version=SANDBOX.api_version,
        kind=SANDBOX.name,
        name=meta.name,
        uid=meta.uid,
        controller=True,
        block_owner_deletion=True,
    )
    return ObjectMeta(
        name=name,
        namespace=meta.namespace,
        labels={SANDBOX_LABEL: label_value(meta.name)},
        owner_references=(owner,),
        finalizers=(FINALIZER,),
    )
