"""Who asks and who may, as a cluster says it; and what is made of a cluster that says nothing."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import Forbidden, NotFound, TooManyRequests, Unreachable
from netloom.front.api.admission.admission import Write, WriteOperation
from netloom.front.api.admission.namespaces import NamespaceLifecycle
from netloom.front.api.auth.delegated import (
    NODE_NAME,
    AccessReviews,
    Certificates,
    ClusterIdentities,
    RequestHeaders,
    TokenReviews,
    Trust,
    trust,
)
from netloom.front.api.auth.identity import Attributes, Certificate, Credentials, Identity
from netloom.front.api.auth.roles import RoleAuthorizer
from netloom.front.api.auth.watch_rights import Rights
from netloom.front.api.http.limits import Limits
from netloom.front.api.http.paths import Routes
from netloom.front.api.verbs.watches import Watches
from netloom.model.document import Document
from netloom.model.registry import KINDS, NETWORK, NETWORK_ATTACHMENT, NODE
from netloom.model.values.selectors import selector
from netloom.run.access import certificates
from netloom.store.memory import MemoryStore

T = TypeVar("T")
NOW = datetime(2026, 11, 15, tzinfo=UTC)
AGENT = "system:serviceaccount:netloom-system:netloom-agent"


def run(awaited: Awaitable[T]) -> T:
    async def main() -> T:
        return await awaited

    return asyncio.run(main())


class Authority:
    """A CA, and certificates of it as a connection shows them."""

    def __init__(self, name: str) -> None:
        key = certificates.new_key()
        self.pair = certificates.Pair(certificates.make_ca(key, name=name, now=NOW), key)

    def certificate(self, name: str, *groups: str) -> Certificate:
        key = certificates.new_key()
        made = certificates.make_client(self.pair, key, name=name, groups=groups, now=NOW)
        encoded = x509.load_pem_x509_certificate(made).public_bytes(Encoding.DER)
        return Certificate(name, groups, encoded)


PROXIES, CLIENTS, STRANGERS = Authority("one name"), Authority("one name"), Authority("one name")
TRUST = Trust(proxy_ca=PROXIES.pair.certificate, proxy_names=("front",), client_ca=CLIENTS.pair.certificate)
ALICE = ((b"x-remote-user", b"alice"), (b"x-remote-group", b"dev"), (b"x-remote-group", b"ops"))


def asked(certificate: Certificate | None, headers: tuple[tuple[bytes, bytes], ...] = ALICE, **believed: Any) -> Any:
    known = Trust(**believed) if believed else TRUST
    front = RequestHeaders(ClusterIdentities((AGENT,)), certificates.issued, lambda: known)
    return run(front.authenticate(Credentials(headers, certificate)))


def test_a_proxy_that_is_believed_says_who_asks() -> None:
    who = asked(PROXIES.certificate("front"))
    assert (who.name, who.groups, who.roles) == ("alice", ("dev", "ops", "system:authenticated"), ())


def test_headers_of_whoever_is_no_proxy_are_not_believed() -> None:
    assert asked(None) is None
    assert asked(PROXIES.certificate("another")) is None
    assert asked(CLIENTS.certificate("front")) is None
    assert asked(STRANGERS.certificate("front")) is None  # Of a CA by the same name.
    assert asked(Certificate("front", (), b"not a certificate")) is None
    assert asked(PROXIES.certificate("front"), proxy_ca=b"") is None


def test_any_name_is_good_where_none_is_given() -> None:
    assert asked(PROXIES.certificate("whoever"), proxy_ca=TRUST.proxy_ca).name == "alice"


def test_a_proxy_that_names_nobody_is_nobody() -> None:
    assert asked(PROXIES.certificate("front"), ((b"x-remote-group", b"system:masters"),)) is None
    assert asked(PROXIES.certificate("front"), ((b"x-remote-user", b""),)) is None


def test_what_else_is_known_comes_along() -> None:
    extra = b"x-remote-extra-authentication.kubernetes.io%2fnode-name"
    headers = (
        (b"x-remote-user", b"bob"),
        (extra, b"n1"),
        (b"x-remote-extra-scopes", b"a"),
        (b"x-remote-extra-scopes", b"b"),
    )
    who = asked(PROXIES.certificate("front"), headers)
    assert who.extra == ((NODE_NAME, ("n1",)), ("scopes", ("a", "b")))


def test_the_anonymous_are_not_made_known() -> None:
    headers = ((b"x-remote-user", b"system:anonymous"), (b"x-remote-group", b"system:unauthenticated"))
    assert asked(PROXIES.certificate("front"), headers).groups == ("system:unauthenticated",)


@pytest.mark.parametrize(
    ("name", "groups", "extra", "roles"),
    [
        ("netloom:node:n1", ("netloom:nodes",), {}, ("netloom:node:n1",)),
        ("netloom:node:n1", (), {}, ("netloom:node:",)),
        ("alice", ("netloom:nodes",), {}, ("netloom:node:",)),
        ("netloom:node:n1:x", ("netloom:nodes",), {}, ("netloom:node:",)),
        (AGENT, (), {NODE_NAME: ["n2"]}, ("netloom:node:n2",)),
        (AGENT, (), {}, ("netloom:node:",)),
        ("alice", (), {NODE_NAME: ["n2"]}, ()),
        ("alice", ("netloom:admin",), {}, ()),
    ],
)
def test_the_cluster_says_whose_agent_somebody_is(
    name: str, groups: tuple[str, ...], extra: Mapping[str, list[str]], roles: tuple[str, ...]
) -> None:
    assert ClusterIdentities((AGENT,)).identity(name, groups, extra=extra).roles == roles


def test_a_certificate_of_the_cluster_says_who_comes_directly() -> None:
    known = Certificates(ClusterIdentities(), certificates.issued, lambda: TRUST)
    who = run(known.authenticate(Credentials((), CLIENTS.certificate("carol", "dev"))))
    assert who is not None
    assert (who.name, who.groups) == ("carol", ("dev", "system:authenticated"))
    for other in (PROXIES.certificate("front"), STRANGERS.certificate("carol")):
        assert run(known.authenticate(Credentials((), other))) is None


def test_the_config_map_says_whom_to_believe() -> None:
    read = trust(
        {
            "requestheader-client-ca-file": "P",
            "client-ca-file": "C",
            "requestheader-allowed-names": '["front"]',
            "requestheader-username-headers": '["X-Remote-User", "X-Other"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
        }
    )
    assert (read.proxy_ca, read.client_ca, read.proxy_names) == (b"P", b"C", ("front",))
    assert (read.user_headers, read.uid_headers) == (("x-remote-user", "x-other"), ("x-remote-uid",))
    assert read.extra_prefixes == ("x-remote-extra-",)
    assert trust({}).proxy_ca == b""


def names_in(text: str) -> tuple[str, ...] | None:
    """Return the names a proxy may have, None where it is said that they cannot be read."""
    try:
        return trust({"requestheader-allowed-names": text}).proxy_names
    except Unreachable:
        return None


@given(st.text(max_size=40))
def test_a_config_map_that_is_not_right_is_said_not_to_be(text: str) -> None:
    assert names_in(text) in (None, () if not text else _strings(text))


@given(st.lists(st.text(max_size=20), max_size=4))
def test_names_come_through(names: list[str]) -> None:
    assert names_in(json.dumps(names)) == tuple(names)


def _strings(text: str) -> tuple[str, ...] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return tuple(found) if isinstance(found, list) and all(isinstance(one, str) for one in found) else None


class Cluster:
    """Answers reviews as a cluster would that has these tokens and these rules, and counts them."""

    def __init__(
        self, tokens: Mapping[str, Document] | None = None, rules: Callable[[Document], bool] | None = None
    ) -> None:
        self.tokens = tokens or {}
        self.rules = rules or (lambda spec: False)
        self.answered = 0
        self.fails: Exception | None = None

    async def ask(self, path: str, review: Document) -> Document:
        await asyncio.sleep(0)
        self.answered += 1
        if self.fails is not None:
            raise self.fails
        spec = review["spec"]
        if path.endswith("/tokenreviews"):
            user = self.tokens.get(spec["token"])
            return review | {"status": {"authenticated": True, "user": user} if user else {"error": "no"}}
        return review | {"status": {"allowed": self.rules(spec)}}


def bearer(token: str) -> Credentials:
    return Credentials(((b"authorization", f"Bearer {token}".encode()),))


def test_the_cluster_is_asked_whose_a_token_is_once() -> None:
    async def main() -> None:
        bound = {"username": AGENT, "uid": "7", "groups": ["system:serviceaccounts"], "extra": {NODE_NAME: ["n1"]}}
        cluster = Cluster({"good": bound})
        known = TokenReviews(ClusterIdentities((AGENT,)), cluster.ask)
        found = await asyncio.gather(*(known.authenticate(bearer("good")) for _ in range(20)))
        assert {(who.name, who.uid, who.roles) for who in found if who} == {(AGENT, "7", ("netloom:node:n1",))}
        assert cluster.answered == 1
        assert await known.authenticate(bearer("bad")) is None
        assert await known.authenticate(Credentials()) is None
        assert await known.authenticate(bearer("x" * 100_000)) is None
        assert cluster.answered == 2

    asyncio.run(main())


def viewer(spec: Document) -> bool:
    return spec["user"] == "alice" and spec.get("resourceAttributes", {}).get("verb") in ("get", "list", "watch")


def test_the_cluster_decides_who_may_what() -> None:
    async def main() -> None:
        cluster = Cluster(rules=viewer)
        decides = AccessReviews(cluster.ask, RoleAuthorizer(MemoryStore()))
        alice, bob = Identity("alice"), Identity("bob")
        assert await decides.allows(alice, Attributes("list", NETWORK, "a"))
        assert not await decides.allows(alice, Attributes("create", NETWORK, "a"))
        assert not await decides.allows(bob, Attributes("list", NETWORK, "a"))
        assert not await decides.allows(bob, Attributes("get", path="/metrics"))
        before = cluster.answered
        assert await decides.allows(alice, Attributes("list", NETWORK, "a", selector=selector("x=y", "")))
        assert await decides.allows(Identity("root", ("system:masters",)), Attributes("delete", NETWORK, "a", "blue"))
        assert cluster.answered == before

    asyncio.run(main())


def test_a_cluster_that_cannot_be_asked_lets_nobody_in_and_says_why() -> None:
    async def main() -> None:
        cluster = Cluster({"good": {"username": "alice"}}, lambda spec: True)
        decides = AccessReviews(cluster.ask, RoleAuthorizer(MemoryStore()))
        for error in (Unreachable("nobody answers"), Forbidden("may not create subjectaccessreviews")):
            cluster.fails = error
            with pytest.raises(Unreachable, match=error.message) as caught:
                await decides.allows(Identity("alice"), Attributes("list", NETWORK))
            assert caught.value.http_status == 503
        with pytest.raises(Unreachable):
            await TokenReviews(ClusterIdentities(), cluster.ask).authenticate(bearer("good"))
        cluster.fails = None
        assert await decides.allows(Identity("alice"), Attributes("list", NETWORK))

    asyncio.run(main())


def test_an_agent_may_what_the_cluster_and_the_rules_for_nodes_both_allow() -> None:
    async def main() -> None:
        store = MemoryStore()
        for name, node in (("mine", "n1"), ("theirs", "n2")):
            document = {"metadata": {"name": name, "namespace": "a"}, "spec": {"node": node, "network": "blue"}}
            await store.create(
                NETWORK_ATTACHMENT, {"apiVersion": "netloom.dev/v1alpha1", "kind": "NetworkAttachment"} | document
            )
        cluster = Cluster(rules=lambda spec: spec.get("resourceAttributes", {}).get("verb") != "delete")
        decides = AccessReviews(cluster.ask, RoleAuthorizer(store))
        agent = ClusterIdentities().identity("netloom:node:n1", ("netloom:nodes",))
        nobody = ClusterIdentities((AGENT,)).identity(AGENT, ())

        def status(name: str) -> Attributes:
            return Attributes("update", NETWORK_ATTACHMENT, "a", name, "status")

        assert await decides.allows(agent, status("mine"))
        assert not await decides.allows(agent, status("theirs"))
        assert await decides.allows(agent, Attributes("update", NODE, name="n1"))
        assert not await decides.allows(agent, Attributes("update", NODE, name="n2"))
        assert not await decides.allows(agent, Attributes("delete", NODE, name="n1"))
        own = selector("", "spec.node=n1", selectable=NETWORK_ATTACHMENT.selectable)
        assert await decides.allows(agent, Attributes("watch", NETWORK_ATTACHMENT, selector=own))
        assert not await decides.allows(agent, Attributes("watch", NETWORK_ATTACHMENT))
        assert not await decides.allows(nobody, Attributes("watch", NETWORK_ATTACHMENT, selector=own))

    asyncio.run(main())


def test_the_watches_of_one_node_leave_room_for_those_of_another_though_they_share_an_account() -> None:
    async def main() -> None:
        store = MemoryStore()
        people = ClusterIdentities((AGENT,))
        rights = Rights(Certificates(people, certificates.issued, lambda: TRUST), RoleAuthorizer(store))
        watches = Watches(store, Limits(watches_per_identity=1), rights)
        first, second = (
            rights.session(Credentials(), people.identity(AGENT, (), extra={NODE_NAME: [node]}))
            for node in ("n1", "n2")
        )
        request = Routes(KINDS).parse("GET", NETWORK.path("a"), "watch=true&resourceVersion=1")
        await store.create(NETWORK, {"metadata": {"name": "blue", "namespace": "a"}, "spec": {}})
        async with watches.following(request, first), watches.following(request, second):
            with pytest.raises(TooManyRequests):
                async with watches.following(request, first):
                    pass

    asyncio.run(main())


def test_nothing_is_made_in_a_namespace_the_cluster_does_not_have() -> None:
    async def find(name: str) -> Document:
        if name == "away":
            raise Unreachable("nobody answers")
        if name == "none":
            raise NotFound("whatever")
        going = {"deletionTimestamp": "2026-11-15T12:00:00Z"} if name == "going" else {}
        return {"metadata": {"name": name, **going}}

    async def main() -> None:
        store, rule = MemoryStore(), NamespaceLifecycle(find)

        def write(namespace: str, operation: WriteOperation = WriteOperation.CREATE) -> Write:
            return Write(operation=operation, kind=NETWORK, namespace=namespace, name="blue", who=Identity("alice"))

        await rule.review(write("there"), store)
        await rule.review(write("none", WriteOperation.DELETE), store)
        with pytest.raises(NotFound, match='namespaces "none" not found'):
            await rule.review(write("none"), store)
        with pytest.raises(Forbidden, match="because it is being terminated"):
            await rule.review(write("going"), store)
        with pytest.raises(Unreachable):
            await rule.review(write("away"), store)
        assert [await rule.is_terminating(name) for name in ("there", "none", "going")] == [False, True, True]

    asyncio.run(main())
