"""Who may do what: the whole table for nodes, and the rules for people."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from itertools import product

import pytest

from netloom.front.api.auth.following import REST
from netloom.front.api.auth.identity import Attributes, Identity, forbidden
from netloom.front.api.auth.roles import RoleAuthorizer, roles
from netloom.front.api.http.paths import READS, Verb
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import (
    BGP_PEER,
    BGP_SPEAKER,
    EVENT,
    EVPN_NETWORK,
    HOST_DOCUMENT,
    IP_LOCK,
    KINDS,
    LEASE,
    LOAD_BALANCER,
    MIRROR,
    NETWORK,
    NETWORK_ATTACHMENT,
    NODE,
    PORT_POOL,
    REMOTE_VTEP,
    ROUTER,
    SECURITY_PROFILE,
    SHAPING,
    SUBNET,
)
from netloom.model.values.selectors import EVERYTHING, Selector, selector
from netloom.run.metrics.metering import MeteredStore
from netloom.sim import loop as sim
from netloom.store.memory import MemoryStore

N1 = Identity("n1", roles=("netloom:node:n1",))
NAMESPACES = ("a", "b", "c")


def thing(kind: Kind, name: str, namespace: str, spec: Document) -> Document:
    metadata = {"name": name, "namespace": namespace} if kind.namespaced else {"name": name}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}


SPEAKERS: tuple[tuple[Kind, str, str, Document], ...] = (
    (BGP_SPEAKER, "own", "b", {"node": "n1"}),
    (BGP_SPEAKER, "theirs", "b", {"node": "n2"}),
    (BGP_SPEAKER, "theirs", "a", {"node": "n2"}),
    (BGP_PEER, "own", "b", {"speaker": "own"}),
    (BGP_PEER, "theirs", "b", {"speaker": "theirs"}),
    (BGP_PEER, "theirs", "a", {"speaker": "theirs"}),
    # A speaker that is another's in this namespace.
    (BGP_PEER, "own", "a", {"speaker": "own"}),
    (EVPN_NETWORK, "own", "b", {"speaker": "own", "network": "red"}),
    (EVPN_NETWORK, "own", "a", {"speaker": "own", "network": "red"}),
    *((EVPN_NETWORK, f"theirs-{n}", ns, {"speaker": "theirs", "network": n}) for ns in "abc" for n in ("blue", "red")),
    (HOST_DOCUMENT, "own", "b", {"node": "n1"}),
    (HOST_DOCUMENT, "theirs", "b", {"node": "n2"}),
    (HOST_DOCUMENT, "theirs", "a", {"node": "n2"}),
    (REMOTE_VTEP, "own", "b", {"node": "n1", "network": "red", "evpnNetwork": "own"}),
    *((REMOTE_VTEP, f"theirs-{n}", ns, {"node": "n2", "network": n}) for ns in "abc" for n in ("blue", "red")),
)


async def world(implemented: str = "vxlan") -> MemoryStore:
    """Two nodes.  Both have attachments in a/blue, which agents implement, and c/blue, which is OVN's; n2 has more.

    In b each runs a BGPSpeaker: n1 extends b/red, in which it has no attachment.
    """
    store = MemoryStore()
    for node in ("n1", "n2"):
        await store.create(NODE, thing(NODE, node, "", {"underlayIP": "192.0.2.1"}))
    for name, namespace, node, network in (
        ("mine", "a", "n1", "blue"),
        ("neighbour", "a", "n2", "blue"),
        ("stranger", "a", "n2", "red"),
        ("far", "b", "n2", "blue"),
        ("extended", "b", "n2", "red"),
        ("plain", "c", "n1", "blue"),
        ("near", "c", "n2", "blue"),
    ):
        spec = {"node": node, "network": network}
        await store.create(NETWORK_ATTACHMENT, thing(NETWORK_ATTACHMENT, name, namespace, spec))
    for namespace, network in product(NAMESPACES, ("blue", "red")):
        fabric = {} if namespace == "c" else {"fabric": implemented}
        await store.create(NETWORK, thing(NETWORK, network, namespace, fabric))
        for kind in (SUBNET, IP_LOCK):
            await store.create(kind, thing(kind, f"{network}-x", namespace, {"network": network}))
        for node in ("n1", "n2"):
            pool = {"node": node, "network": network}
            await store.create(PORT_POOL, thing(PORT_POOL, f"{network}-{node}", namespace, pool))
    for kind, name, namespace, spec in SPEAKERS:
        await store.create(kind, thing(kind, name, namespace, spec))
    made = {kind for kind, *_ in SPEAKERS} | {NETWORK_ATTACHMENT, NETWORK, SUBNET, IP_LOCK, PORT_POOL}
    for kind in KINDS:
        if kind.namespaced and kind not in made:
            for namespace in NAMESPACES:
                await store.create(kind, thing(kind, "other", namespace, {}))
    for namespace in NAMESPACES:
        outward = thing(LOAD_BALANCER, "outward", namespace, {"externalTrafficPolicy": "cluster"})
        await store.create(LOAD_BALANCER, outward)
    for name, node, component in (
        ("told", "n1", "netloom-agent"),
        ("theirs", "n2", "netloom-agent"),
        ("controllers", "n1", "netloom-controller"),
    ):
        event = thing(EVENT, name, "a", {}) | {"source": {"component": component, "host": node}}
        await store.create(EVENT, event | {"reportingComponent": component, "reportingInstance": node})
    return store


def fields(kind: Kind, text: str) -> Selector:
    return selector("", text, selectable=kind.selectable)


def every_question() -> Iterator[Attributes]:
    """Every verb on every kind, in every place, on every object there is, with every selector that could matter."""
    names = {
        NODE: ("n1", "n2"),
        NETWORK_ATTACHMENT: ("mine", "neighbour", "stranger", "far", "extended", "plain", "near", "missing"),
        NETWORK: ("blue", "red", "missing"),
        SUBNET: ("blue-x", "red-x", "missing"),
        IP_LOCK: ("blue-x", "red-x", "missing"),
        PORT_POOL: ("blue-n1", "blue-n2", "red-n1", "missing"),
        LOAD_BALANCER: ("other", "outward", "missing"),
        EVENT: ("other", "told", "theirs", "controllers", "missing"),
        **{kind: ("own", "theirs", "theirs-blue", "theirs-red", "missing") for kind, *_ in SPEAKERS},
    }
    for kind in KINDS:
        for namespace in ("", *NAMESPACES) if kind.namespaced else ("",):
            for verb in (Verb.LIST, Verb.WATCH, Verb.DELETE_COLLECTION, Verb.CREATE):
                chosen = [EVERYTHING, *(fields(kind, f"metadata.name={name}") for name in ("blue", "red", "n1", "own"))]
                values = ("n1", "n2", "blue", "red", "own", "theirs")
                for field in ("spec.node", "spec.network", "spec.speaker", "spec.evpnNetwork"):
                    if field in kind.selectable:
                        chosen += [fields(kind, f"{field}{op}{v}") for op in ("=", "!=") for v in values]
                if kind is NETWORK_ATTACHMENT:
                    chosen.append(fields(kind, "spec.network=blue,spec.node!=n1,status.hostIP!="))
                if kind is LOAD_BALANCER:
                    chosen += [fields(kind, f"spec.externalTrafficPolicy{text}") for text in ("!=", "=local", "=")]
                for wanted in chosen:
                    yield Attributes(verb, kind, namespace, selector=wanted)
            if kind.namespaced and not namespace:
                continue
            for verb in (Verb.GET, Verb.UPDATE, Verb.PATCH, Verb.DELETE):
                for name in names.get(kind, ("other",)):
                    for subresource in ("", "status") if kind.has_status else ("",):
                        yield Attributes(verb, kind, namespace, name, subresource)


OWN_VTEPS = ("own", "missing", "theirs")
"""What n1 may ask for in b: its own, and what is not there."""


def wanted(what: Attributes) -> bool:
    """What n1 may do in `world`, said a second time and differently: as a list of what is allowed."""
    kind, verb, place = what.kind, what.verb, what.namespace
    field = what.selector.field_text
    if verb not in READS:
        own_node = kind is NODE and verb in ("update", "patch") and what.name == "n1"
        make_node = kind is NODE and verb == "create"
        own_status = (
            kind is NETWORK_ATTACHMENT
            and verb in ("update", "patch")
            and (place, what.name, what.subresource) in {("a", "mine", "status"), ("c", "plain", "status")}
        )
        own_event = verb in ("update", "patch") and (place, what.name) == ("a", "told")
        tell = kind is EVENT and (verb == "create" or own_event)
        reports = kind in (BGP_SPEAKER, BGP_PEER, EVPN_NETWORK, HOST_DOCUMENT) and verb in ("update", "patch")
        reports = reports and (place, what.name, what.subresource) == ("b", "own", "status")
        learns = kind is REMOTE_VTEP and place == "b"
        learns = learns and (verb == "create" or (verb in ("update", "patch", "delete") and what.name in OWN_VTEPS))
        return own_node or make_node or own_status or tell or reports or learns
    if kind is NODE:
        return what.name == "n1" or field == "metadata.name=n1"
    if kind is NETWORK_ATTACHMENT:
        if what.name:
            return (place, what.name) in {("a", "mine"), ("a", "neighbour"), ("c", "plain"), ("b", "extended")}
        used = {"a": "spec.network=blue", "b": "spec.network=red"}.get(place, "none")
        return field == "spec.node=n1" or field.startswith(used)
    used = {"a": "blue", "b": "red", "c": "blue"}.get(place, "none")
    if kind is NETWORK:
        return what.name == used or field == f"metadata.name={used}"
    if kind is SUBNET:
        return place != "b" and (what.name == f"{used}-x" or field == f"spec.network={used}")
    if kind in (BGP_SPEAKER, HOST_DOCUMENT):
        return (place, what.name) == ("b", "own") or field == "spec.node=n1"
    if kind is BGP_PEER:
        return place == "b" and (what.name == "own" or field == "spec.speaker=own")
    if kind is EVPN_NETWORK:
        by_name = {("b", "own"), ("b", "theirs-red"), ("a", "theirs-blue")}
        by_field = {("b", "spec.speaker=own"), ("b", "spec.network=red"), ("a", "spec.network=blue")}
        return (place, what.name) in by_name or (place, field) in by_field
    if kind is REMOTE_VTEP:
        by_name = {("a", "theirs-blue"), *(("b", name) for name in OWN_VTEPS)}
        return (place, what.name) in by_name or field == "spec.node=n1" or (place, field) == ("a", "spec.network=blue")
    if kind in (MIRROR, SHAPING):
        return place in ("a", "c")
    if kind is LOAD_BALANCER:
        outward = ("spec.externalTrafficPolicy!=", "spec.externalTrafficPolicy=local")
        return place in ("a", "c") and (what.name == "outward" or field in outward)
    if kind is EVENT:
        return verb == "get" and (place, what.name) == ("a", "told")
    return place == "a" and kind is SECURITY_PROFILE


@pytest.mark.parametrize(("counted", "implemented"), [(False, "vxlan"), (True, "vxlan"), (True, "linux")])
def test_a_node_may_do_exactly_what_concerns_it_over_all_verbs_and_kinds(counted: bool, implemented: str) -> None:
    async def run() -> None:
        store = await world(implemented)
        authorizer = RoleAuthorizer(store)
        asked = list(every_question())
        assert {q.kind for q in asked} == set(KINDS)
        assert {q.verb for q in asked} == set(Verb)
        async with counting(authorizer) if counted else nullcontext():
            wrong = [q for q in asked if await authorizer.allows(N1, q) is not wanted(q)]
        assert wrong == []

    asyncio.run(run())


@pytest.mark.parametrize("role", ["node:n1", "admin", "admin:a", "editor", "editor:a", "viewer", "viewer:a"])
def test_what_one_may_update_or_patch_one_may_get(role: str) -> None:
    """The answer to an empty patch is the whole object."""

    async def run() -> None:
        authorizer = RoleAuthorizer(await world())
        who = Identity("somebody", roles=(f"netloom:{role}",))
        for what in every_question():
            if what.verb in (Verb.UPDATE, Verb.PATCH) and await authorizer.allows(who, what):
                reading = Attributes(Verb.GET, what.kind, what.namespace, what.name, what.subresource)
                assert await authorizer.allows(who, reading), what

    asyncio.run(run())


@asynccontextmanager
async def counting(authorizer: RoleAuthorizer) -> AsyncIterator[None]:
    """Have what concerns nodes counted, as a server does."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(authorizer.run())
        await authorizer.known()
        yield
        task.cancel()


def test_what_an_agent_asks_for_is_allowed_by_what_was_counted_without_a_list() -> None:
    async def run() -> None:
        store = MeteredStore(await world())
        authorizer = RoleAuthorizer(store)
        async with counting(authorizer):
            before = store.operations["list", "ok"]
            for kind, text in AGENT:
                what = Attributes("watch", kind, "a", selector=fields(kind, text))
                assert await authorizer.allows(N1, what)
            assert store.operations["list", "ok"] == before

    asyncio.run(run())


AGENT = (
    (NETWORK_ATTACHMENT, "spec.node=n1"),
    (NETWORK_ATTACHMENT, "spec.network=blue,spec.node!=n1,status.hostIP!="),
    (NETWORK, "metadata.name=blue"),
    (SUBNET, "spec.network=blue"),
    (MIRROR, ""),
    (SECURITY_PROFILE, ""),
    (SHAPING, ""),
    (LOAD_BALANCER, "spec.externalTrafficPolicy!="),
)
"""What an agent watches."""


@pytest.mark.parametrize("counted", [False, True])
def test_rights_come_with_the_first_attachment_and_go_with_the_last(counted: bool) -> None:
    async def run() -> None:
        store = MemoryStore()
        authorizer = RoleAuthorizer(store)
        await store.create(NETWORK, thing(NETWORK, "blue", "a", {"fabric": "vxlan"}))
        questions = [Attributes("watch", kind, "a", selector=fields(kind, text)) for kind, text in AGENT[1:]]

        async def allowed() -> set[bool]:
            return {await authorizer.allows(N1, question) for question in questions}

        async with counting(authorizer) if counted else nullcontext():
            assert await allowed() == {False}
            for name in ("x", "y"):
                spec = {"node": "n1", "network": "blue"}
                await store.create(NETWORK_ATTACHMENT, thing(NETWORK_ATTACHMENT, name, "a", spec))
                assert await allowed() == {True}
            await store.delete(NETWORK_ATTACHMENT, "a", "x")
            assert await allowed() == {True}
            await store.delete(NETWORK_ATTACHMENT, "a", "y")
            assert await allowed() == {False}

    asyncio.run(run())


def test_counting_begins_again_when_the_store_forgot_its_history_and_until_then_the_store_is_asked() -> None:
    async def run() -> None:
        inner = MemoryStore()
        store = MeteredStore(inner)
        authorizer = RoleAuthorizer(store)
        question = Attributes("watch", NETWORK, "a", selector=fields(NETWORK, "metadata.name=blue"))
        async with counting(authorizer):
            spec = {"node": "n1", "network": "blue"}
            await store.create(NETWORK_ATTACHMENT, thing(NETWORK_ATTACHMENT, "x", "a", spec))
            inner._hub.restart(await store.revision())
            await asyncio.sleep(REST / 2)
            assert not authorizer.node_networks.known.is_set()
            assert await authorizer.allows(N1, question)
            await asyncio.sleep(REST)
            assert authorizer.node_networks.known.is_set()
            before = store.operations["list", "ok"]
            assert await authorizer.allows(N1, question)
            assert store.operations["list", "ok"] == before

    sim.run(run(), seed=0)


@pytest.mark.parametrize(
    ("role", "verb", "kind", "namespace", "subresource", "allowed"),
    [
        ("admin", "delete", NODE, "", "", True),
        ("admin", "update", LEASE, "a", "", True),
        ("admin:a", "update", LEASE, "a", "", True),
        ("admin:a", "update", LEASE, "b", "", False),
        ("admin:a", "update", NODE, "", "", False),
        ("editor", "create", NETWORK, "a", "", True),
        ("editor", "deletecollection", ROUTER, "a", "", True),
        ("editor", "create", EVENT, "a", "", True),
        ("editor", "update", NETWORK, "a", "status", False),
        ("editor", "create", HOST_DOCUMENT, "a", "", False),
        ("editor", "list", HOST_DOCUMENT, "a", "", True),
        ("admin:a", "update", HOST_DOCUMENT, "a", "", False),
        ("editor", "create", NODE, "", "", False),
        ("editor", "get", NODE, "", "", True),
        ("editor", "update", LEASE, "a", "", False),
        ("editor:a", "create", NETWORK, "a", "", True),
        ("editor:a", "create", NETWORK, "b", "", False),
        ("editor:a", "list", NETWORK, "", "", False),
        ("viewer", "list", NETWORK, "", "", True),
        ("viewer", "watch", BGP_PEER, "a", "", True),
        ("viewer", "create", NETWORK, "a", "", False),
        ("viewer", "patch", EVENT, "a", "", False),
        ("viewer:a", "get", NETWORK, "a", "", True),
        ("viewer:a", "get", NETWORK, "b", "", False),
        ("viewer:a", "get", NODE, "", "", False),
        ("node", "get", NODE, "", "", False),
        ("nonsense", "get", NETWORK, "a", "", False),
    ],
)
def test_people_may_do_what_their_role_says(
    role: str, verb: str, kind: Kind, namespace: str, subresource: str, allowed: bool
) -> None:
    who = Identity("somebody", roles=(f"netloom:{role}",))
    what = Attributes(verb, kind, namespace, "x", subresource)
    assert asyncio.run(RoleAuthorizer(MemoryStore()).allows(who, what)) is allowed


def test_one_role_of_several_is_enough() -> None:
    who = Identity("somebody", roles=("other:admin", "netloom:viewer:b", "netloom:viewer:a"))
    assert asyncio.run(RoleAuthorizer(MemoryStore()).allows(who, Attributes("get", NETWORK, "a", "x")))
    assert len(roles(who.roles)) == 2


@pytest.mark.parametrize(
    ("role", "path", "allowed"),
    [
        ("node:n1", "/apis", True),
        ("node:n1", "/metrics", False),
        ("viewer:a", "/metrics", False),
        ("viewer", "/metrics", True),
        ("admin", "/metrics", True),
    ],
)
def test_discovery_is_for_all_and_metrics_for_those_who_see_all(role: str, path: str, allowed: bool) -> None:
    who = Identity("somebody", roles=(f"netloom:{role}",))
    assert asyncio.run(RoleAuthorizer(MemoryStore()).allows(who, Attributes("get", path=path))) is allowed


def test_a_refusal_is_in_kubernetes_words() -> None:
    assert str(forbidden(N1, Attributes("create", NETWORK, "a"))) == (
        'networks.netloom.dev is forbidden: User "n1" cannot create resource "networks" in API group "netloom.dev" '
        'in the namespace "a"'
    )
    assert str(forbidden(N1, Attributes("update", NODE, name="n2", subresource="status"))) == (
        'nodes.netloom.dev "n2" is forbidden: User "n1" cannot update resource "nodes/status" in API group '
        '"netloom.dev" at the cluster scope'
    )
    assert str(forbidden(N1, Attributes("get", path="/metrics"))) == 'forbidden: User "n1" cannot get path "/metrics"'
