"""All objects that networks are planned from, read through the API, and the plan they lead to."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from netloom.client import lists
from netloom.client.http import Client
from netloom.client.lists import Scope
from netloom.client.resources import Target, of_kind
from netloom.control.runtime.conditions import READY
from netloom.errors import Invalid
from netloom.model import registry
from netloom.model.document import Document, Resource
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.kinds.bgp import EVPNNetwork, RemoteVTEP
from netloom.model.kinds.networks import Fabric, Network
from netloom.model.registry import KINDS
from netloom.plan.node.grants import NOT_GRANTED, ProviderRefusal
from netloom.plan.ovn.planner import Planner
from netloom.plan.problem import Unit

R = TypeVar("R", bound=Resource)

PLANNED: tuple[type[Resource], ...] = tuple(kind.type for kind in registry.PLANNED)

UNDECIDED = "the controllers have not yet decided whether its namespace may use its physical network"


def load(client: Client, of: Sequence[type[Resource]] = PLANNED, *, namespace: str = "") -> list[Resource]:
    """Return all objects of some kinds; of namespaced kinds those of one namespace, or of all if it is ""."""
    found: list[Resource] = []
    for type_ in of:
        kind = KINDS.of(type_)
        documents, _ = lists.objects(client, Target(of_kind(kind)), Scope(namespace if kind.namespaced else ""))
        found += [value(document, type_) for document in documents]
    return found


def value(document: Document, of: type[R]) -> R:
    """Return a document as a value; raise `Invalid` with its name if it cannot be decoded."""
    try:
        return msgspec.convert(document, of)
    except msgspec.ValidationError as error:
        metadata = document["metadata"]
        name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        raise Invalid(f"{of.__name__} {name} cannot be decoded by this version of netloom: {error}") from None


def unit(resource: Resource) -> Unit:
    """Return the kind, namespace and name of a resource."""
    return Unit(resource.kind, resource.metadata.namespace, resource.metadata.name)


def key(resource: Resource) -> str:
    """Return NAMESPACE/NAME of a resource."""
    return f"{resource.metadata.namespace}/{resource.metadata.name}"


def fabric_of(resource: Resource | None, resources: Iterable[Resource]) -> Fabric | None:
    """Return the fabric of a Network, or of the Network that a resource belongs to: of two, OVN knows nothing."""
    if isinstance(resource, NetworkAttachment | EVPNNetwork | RemoteVTEP):
        name = f"{resource.metadata.namespace}/{resource.spec.network}"
        resource = next((one for one in of_type(resources, Network) if key(one) == name), None)
    return resource.spec.fabric if isinstance(resource, Network) else None


def provider_refusal(network: Network) -> str | None:
    """Return why a Network may not use its physical network: "" if it may, None if that is not decided yet."""
    ready = network.status.condition(READY)
    if network.spec.provider is None:
        return ""
    if ready is None or ready.observed_generation != network.metadata.generation:
        return None
    return ready.message if ready.reason == NOT_GRANTED else ""


def refusals(resources: Iterable[Resource], *, undecided: str = "") -> ProviderRefusal:
    """Return the decisions of the controllers on physical networks, from the statuses of the Networks.

    Where there is no decision yet, the refusal is `undecided`.
    """
    decided = {key(one): provider_refusal(one) for one in of_type(resources, Network)}

    def refusal(network: Network) -> str:
        found = decided.get(key(network))
        return undecided if found is None else found

    return refusal


def planned(resources: Iterable[Resource], refusal: ProviderRefusal | None = None) -> Planner:
    """Return a planner that has planned these; by default with the decisions on physical networks in their statuses."""
    resources = list(resources)
    planner = Planner(refusal or refusals(resources))
    for resource in resources:
        planner.put(resource)
    planner.flush()
    return planner


def of_type(resources: Iterable[Resource], type_: type[R]) -> list[R]:
    """Return the resources of one type."""
    return [one for one in resources if isinstance(one, type_)]
