"""All resources that networks are planned from, through the API, as values."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from netloom.client import lists as reading
from netloom.client.http import Client
from netloom.client.lists import Scope
from netloom.client.resources import Target, of_kind
from netloom.control.runtime.conditions import READY
from netloom.errors import Invalid
from netloom.model.attachments import NetworkAttachment
from netloom.model.cluster import Node
from netloom.model.document import Document, Resource
from netloom.model.networks import Network, Router, Subnet
from netloom.model.paths import Mirror, Shaping
from netloom.model.policy import LoadBalancer, SecurityProfile
from netloom.model.registry import KINDS
from netloom.plan.node.grants import NOT_GRANTED, ProviderRefusal
from netloom.plan.ovn.planner import Planner
from netloom.plan.problem import Unit

R = TypeVar("R", bound=Resource)

PLANNED: tuple[type[Resource], ...] = (
    Node,
    Network,
    Subnet,
    NetworkAttachment,
    Router,
    SecurityProfile,
    LoadBalancer,
    Shaping,
    Mirror,
)

UNJUDGED = "the controllers have not said yet whether its namespace may join its physical network"


def load(client: Client, of: Sequence[type[Resource]] = PLANNED, *, namespace: str = "") -> list[Resource]:
    """Return all objects of some kinds; of those that have namespaces, of one namespace or ("") of all."""
    found: list[Resource] = []
    for type_ in of:
        kind = KINDS.of(type_)
        documents, _ = reading.objects(client, Target(of_kind(kind)), Scope(namespace if kind.namespaced else ""))
        found += [value(document, type_) for document in documents]
    return found


def value(document: Document, of: type[R]) -> R:
    """Return a document as a value; `Invalid`, with its name, where it cannot be read."""
    try:
        return msgspec.convert(document, of)
    except msgspec.ValidationError as error:
        metadata = document["metadata"]
        name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        raise Invalid(f"{of.__name__} {name} cannot be read by this version of netloom: {error}") from None


def unit(resource: Resource) -> Unit:
    """Return which resource this is."""
    return Unit(resource.kind, resource.metadata.namespace, resource.metadata.name)


def key(resource: Resource) -> str:
    """Return an object's name, with its namespace."""
    return f"{resource.metadata.namespace}/{resource.metadata.name}"


def judged(network: Network) -> str | None:
    """Return why the controllers do not let a Network join its physical network; "": they do; None: not said yet."""
    ready = network.status.condition(READY)
    if network.spec.provider is None:
        return ""
    if ready is None or ready.observed_generation != network.metadata.generation:
        return None
    return ready.message if ready.reason == NOT_GRANTED else ""


def refusals(resources: Iterable[Resource], *, unjudged: str = "") -> ProviderRefusal:
    """Return what the controllers said of which Network; `unjudged` of those of which they said nothing yet."""
    said = {key(one): judged(one) for one in of_type(resources, Network)}

    def refusal(network: Network) -> str:
        found = said.get(key(network))
        return unjudged if found is None else found

    return refusal


def planned(resources: Iterable[Resource], refusal: ProviderRefusal | None = None) -> Planner:
    """Return a planner that has planned these; unless a `refusal` is given, as far as the controllers grant it."""
    resources = list(resources)
    planner = Planner(refusal or refusals(resources))
    for resource in resources:
        planner.put(resource)
    planner.flush()
    return planner


def of_type(resources: Iterable[Resource], type_: type[R]) -> list[R]:
    """Return those of one kind."""
    return [one for one in resources if isinstance(one, type_)]
