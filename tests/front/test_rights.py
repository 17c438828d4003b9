"""Rights beyond the first question: what apply creates, and watches that outlive the right to them."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from netloom.control.runtime.informer import Informer
from netloom.errors import Unreachable
from netloom.front.api.auth.delegated import AccessReviews, ClusterIdentities, TokenReviews
from netloom.front.api.auth.identity import Attributes, Authorizer, Credentials, Identity
from netloom.front.api.auth.review_cache import ExpiringCache
from netloom.front.api.auth.roles import RoleAuthorizer
from netloom.front.api.auth.tokens import TokenFile, line
from netloom.front.api.auth.watch_rights import UNANSWERED_SECONDS, Right, Rights
from netloom.front.api.http.limits import Limits
from netloom.model.document import Document
from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT, SUBNET
from netloom.model.values.selectors import selector
from netloom.run.access import certificates
from netloom.sim import loop as sim
from netloom.store.base import Store
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore
from netloom.store.memory import MemoryStore
from tests.front.serving import Events, Serving, attachment, network, path, serving, wait_until
from tests.front.test_streams import stream, watching

APPLY = "application/apply-patch+yaml"


class OnlyVerbs:
    """The built-in roles, for some verbs."""

    asks_others = False

    def __init__(self, store: Store, verbs: set[str]) -> None:
        self._roles = RoleAuthorizer(store)
        self._verbs = verbs

    def version(self, who: Identity) -> object | None:
        return self._roles.version(who)

    async def allows(self, who: Identity, what: Attributes) -> bool:
        return what.verb in self._verbs and await self._roles.allows(who, what)


def by_roles(store: Store) -> Authorizer:
    return OnlyVerbs(store, {"get", "patch"})


def by_cluster(store: Store) -> Authorizer:
    async def ask(review_path: str, review: Document) -> Document:
        allowed = review["spec"]["resourceAttributes"]["verb"] in ("get", "patch")
        return review | {"status": {"allowed": allowed}}

    return AccessReviews(ask, RoleAuthorizer(store))


@pytest.mark.parametrize("authorizer", [by_roles, by_cluster])
def test_apply_needs_the_right_to_create_where_nothing_is_there(credentials: Path, authorizer: Any) -> None:
    target = path("networks", name="blue") + "?fieldManager=me"
    with serving(credentials, authorizer=authorizer) as server:
        refused = server.patch(target, network(mtu=1400), APPLY)
        assert (refused.code, refused.json["reason"]) == (403, "Forbidden")
        assert 'cannot create resource "networks"' in refused.json["message"]
        assert server.patch(target + "&dryRun=All", network(mtu=1400), APPLY).code == 403
        assert server.get(path("networks", name="blue")).code == 404
        made = _make(server)
        changed = server.patch(target + "&force=true", network(mtu=1400), APPLY)
        assert (changed.code, changed.json["metadata"]["uid"]) == (200, made)


def _make(server: Serving) -> str:
    uid: str = server.run(server.store.create(NETWORK, network(fabric="ovn"))).document()["metadata"]["uid"]
    return uid


# Watches that outlive the right to them.

OFTEN = Limits(rights_seconds=0.05)
"""What takes up to a minute takes a moment here."""


@pytest.fixture
def folder(credentials: Path, tmp_path: Path) -> Path:
    """Credentials that a test may change."""
    shutil.copytree(credentials, tmp_path / "own")
    return tmp_path / "own"


def change_tokens(folder: Path, change: Callable[[str], str]) -> None:
    (folder / "tokens.new").write_text(change((folder / "tokens").read_text()))
    (folder / "tokens.new").rename(folder / "tokens")


def without(name: str) -> Callable[[str], str]:
    return lambda text: "".join(one for one in text.splitlines(keepends=True) if one.split()[1] != name)


def error(event: Any) -> tuple[str, int, str]:
    return event["type"], event["object"]["code"], event["object"]["reason"]


def test_a_revoked_token_ends_its_watches_and_no_others(folder: Path) -> None:
    target = path("networks") + "?watch=true&allowWatchBookmarks=true"
    with (
        serving(folder, limits=OFTEN, running=True) as server,
        server.watching(target, "viewer") as revoked,
        server.watching(target, "admin") as other,
        stream(server, "viewer") as shared,
    ):
        shared.begin(1, watching(server, "networks"))
        shared.begin(2, watching(server, "subnets"))
        shared.take(2)
        change_tokens(folder, without("viewer"))
        assert error(revoked.next()) == ("ERROR", 401, "Unauthorized")
        assert revoked.next() is None
        lines = shared.lines()
        assert {line["watch"] for line in lines} == {1, 2}
        assert {error(line) for line in lines} == {("ERROR", 401, "Unauthorized")}
        server.post(path("networks"), network())
        assert other.take(1) == [("ADDED", "blue")]
        wait_until(lambda: len(server.api.watches) == 1)
        assert len(server.api.rights) == 1


def test_a_watch_that_begins_on_an_old_connection_is_of_who_has_the_credential_now(folder: Path) -> None:
    with serving(folder) as server, stream(server, "viewer") as shared:
        target = watching(server, "networks")
        change_tokens(folder, without("viewer"))
        wait_until(lambda: server.get(path("networks"), who="viewer").code == 401)
        shared.begin(1, target)
        [line] = shared.lines()
        assert error(line) == ("ERROR", 401, "Unauthorized")


def test_a_role_that_is_taken_away_ends_what_it_allowed(folder: Path) -> None:
    with (
        serving(folder, limits=OFTEN, running=True) as server,
        server.watching(path("networks", "a") + "?watch=true", "viewer") as kept,
        server.watching(path("networks", "b") + "?watch=true", "viewer") as ended,
        stream(server, "viewer") as shared,
    ):
        shared.begin(1, watching(server, "networks", namespace="a"))
        shared.begin(2, watching(server, "networks", namespace="b"))
        shared.take(2)
        change_tokens(
            folder, lambda text: without("viewer")(text) + line("viewer-token", "viewer", ["netloom:viewer:a"])
        )
        assert error(ended.next()) == ("ERROR", 403, "Forbidden")
        [lost] = shared.take(1)
        assert (lost["watch"], *error(lost)) == (2, "ERROR", 403, "Forbidden")
        server.post(path("networks", "a"), network(namespace="a"))
        assert kept.take(1) == [("ADDED", "blue")]
        assert [(one["watch"], one["type"]) for one in shared.take(1)] == [(1, "ADDED")]


def test_a_watch_that_begins_for_somebody_else_does_not_vouch_for_those_before(folder: Path) -> None:
    """The roles changed between two watches of one connection: the later one is of the new roles, so are the others."""
    with serving(folder) as server, stream(server, "viewer") as shared:
        shared.begin(1, watching(server, "networks", namespace="b"))
        shared.take(1)
        server.run(server.api.rights.check())
        target = watching(server, "networks", namespace="a")
        change_tokens(
            folder, lambda text: without("viewer")(text) + line("viewer-token", "viewer", ["netloom:viewer:a"])
        )
        wait_until(lambda: server.get(path("networks", "b"), who="viewer").code == 403)
        shared.begin(2, target)
        assert [one["type"] for one in shared.take(1)] == ["BEGUN"]
        for _ in range(2):
            server.run(server.api.rights.check())
        [lost] = shared.take(1)
        assert (lost["watch"], *error(lost)) == (1, "ERROR", 403, "Forbidden")


def test_a_revoked_certificate_ends_its_watches(folder: Path) -> None:
    with (
        serving(folder, limits=OFTEN, running=True) as server,
        closing(server.connect(certificate="cert-admin")) as connection,
    ):
        connection.request("GET", path("networks") + "?watch=true")
        events = Events(connection.getresponse())
        server.post(path("networks"), network())
        assert events.take(1) == [("ADDED", "blue")]
        encoded = certificates.fingerprint((folder / "cert-admin.crt").read_bytes()).hex()
        (folder / "revoked").write_text(f"sha256:{encoded} cert-admin\n")
        assert error(events.next()) == ("ERROR", 401, "Unauthorized")
        assert events.next() is None
        refused = server.get(path("networks"), who="", certificate="cert-admin")
        assert refused.code == 401


@pytest.mark.parametrize("counted", [True, False])
def test_the_last_attachment_of_a_node_takes_its_watches_along(folder: Path, counted: bool) -> None:
    """Whether attachments are counted, or the store is asked each time."""
    options: dict[str, Any] = {} if counted else {"beside": idle}
    with serving(folder, limits=OFTEN, running=True, **options) as server:
        server.post(path("networks"), network())
        for name in ("web", "db"):
            server.post(path("networkattachments"), attachment(name))
        server.post(path("networkattachments"), attachment("far", "n2"))
        blue = path("networks") + "?watch=true&resourceVersion=1&fieldSelector=metadata.name%3Dblue"
        own = path("networkattachments") + "?watch=true&fieldSelector=spec.node%3Dn1"
        with (
            server.watching(blue, "n1") as lost,
            server.watching(blue, "n2") as kept,
            server.watching(own, "n1") as mine,
        ):
            assert mine.take(2) == [("ADDED", "db"), ("ADDED", "web")]
            assert lost.take(1) == kept.take(1) == [("ADDED", "blue")]
            server.delete(path("networkattachments", name="web"))
            server.patch(path("networks", name="blue"), {"metadata": {"labels": {"a": "b"}}})
            assert lost.take(1) == kept.take(1) == [("MODIFIED", "blue")]
            server.delete(path("networkattachments", name="db"))
            assert error(lost.next()) == ("ERROR", 403, "Forbidden")
            assert lost.next() is None
            server.patch(path("networks", name="blue"), {"metadata": {"labels": {"a": "c"}}})
            assert kept.take(1) == [("MODIFIED", "blue")]
            assert mine.take(2) == [("DELETED", "web"), ("DELETED", "db")]
            assert len(server.api.watches) == 2


async def idle() -> None:
    pass


class Cluster:
    """A cluster that answers reviews as it is told to."""

    def __init__(self) -> None:
        self.users = {"alice-token": "alice", "bob-token": "bob"}
        self.allowed = {"alice", "bob"}
        self.away = False
        self.asked: Counter[str] = Counter()

    async def ask(self, review_path: str, review: Document) -> Document:
        self.asked[review["kind"]] += 1
        if self.away:
            raise Unreachable("nobody answers")
        if review["kind"] == "TokenReview":
            name = self.users.get(review["spec"]["token"], "")
            return review | {"status": {"authenticated": bool(name), "user": {"username": name}}}
        return review | {"status": {"allowed": review["spec"]["user"] in self.allowed}}


def bearer(token: str) -> Credentials:
    return Credentials([(b"authorization", f"Bearer {token}".encode())])


def test_behind_a_cluster_the_cluster_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        cluster, now = Cluster(), asyncio.get_running_loop().time
        known = TokenReviews(ClusterIdentities(), cluster.ask)
        decides = AccessReviews(cluster.ask, RoleAuthorizer(MemoryStore()))
        rights = Rights(known, decides)
        what = Attributes("watch", NETWORK, "a")
        sessions = {}
        for name in ("alice", "bob"):
            who = await known.authenticate(bearer(f"{name}-token"))
            assert who is not None
            sessions[name] = rights.session(bearer(f"{name}-token"), who)
        with ExitStack() as held:
            watched = {
                name: [held.enter_context(session.watching(what)) for _ in range(100)]
                for name, session in sessions.items()
            }
            await rights.check()
            assert cluster.asked == {"TokenReview": 2, "SubjectAccessReview": 2}  # For two hundred watches.
            cluster.allowed.remove("alice")
            await asyncio.sleep(30)  # What was answered before is remembered for ten seconds.
            await rights.check()
            assert {right.lost.http_status for right in watched["alice"] if right.lost} == {403}
            assert all(right.lost for right in watched["alice"])
            del cluster.users["bob-token"]
            cluster.away = True
            began = now()
            while now() - began < UNANSWERED_SECONDS:
                await asyncio.sleep(20)
                await rights.check()
                assert not any(right.lost for right in watched["bob"])
            cluster.away = False
            await asyncio.sleep(20)
            await rights.check()
            assert {right.lost.http_status for right in watched["bob"] if right.lost} == {401}
        assert len(rights) == 0

    clocked(main, monkeypatch)


def test_a_cluster_that_does_not_answer_for_long_ends_watches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        cluster = Cluster()
        known = TokenReviews(ClusterIdentities(), cluster.ask)
        rights = Rights(known, AccessReviews(cluster.ask, RoleAuthorizer(MemoryStore())))
        who = await known.authenticate(bearer("alice-token"))
        assert who is not None
        with rights.session(bearer("alice-token"), who).watching(Attributes("watch", NETWORK, "a")) as right:
            cluster.away = True
            for _ in range(int(UNANSWERED_SECONDS / 20) + 1):
                assert right.lost is None
                await asyncio.sleep(20)
                await rights.check()
            assert right.lost is not None
            assert right.lost.http_status == 503

    clocked(main, monkeypatch)


def clocked(main: Callable[[], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in virtual time, which what is remembered of a cluster's answers lives by as well."""
    defaults = (ExpiringCache.__init__.__kwdefaults__ or {}) | {"clock": lambda: sim.current().time()}
    monkeypatch.setattr(ExpiringCache.__init__, "__kwdefaults__", defaults)
    sim.run(main(), seed=1)


class Counted(RoleAuthorizer):
    """The built-in roles, counting what they are asked."""

    asked = 0

    async def allows(self, who: Identity, what: Attributes) -> bool:
        self.asked += 1
        return await super().allows(who, what)


def test_many_watches_cost_no_questions_until_a_right_can_have_changed(tmp_path: Path) -> None:
    nodes, networks = 100, 11
    file = tmp_path / "tokens"
    names = [f"n{number}" for number in range(nodes)]
    file.write_text("".join(line(f"{name}-token", name, [f"netloom:node:{name}"]) for name in names))

    async def main() -> None:
        store = MemoryStore()
        known, decides = TokenFile(file), Counted(store)
        rights = Rights(known, decides)
        counting = asyncio.create_task(decides.run())
        await decides.known()
        for number in range(networks):
            for name in names:
                await store.create(NETWORK_ATTACHMENT, attachment(f"{name}-{number}", name, f"net{number}"))
        with ExitStack() as held:
            opened: dict[tuple[str, int], list[Right]] = {}
            for name in names:
                who = await known.authenticate(bearer(f"{name}-token"))
                assert who is not None
                session = rights.session(bearer(f"{name}-token"), who)
                for number in range(networks):
                    one = selector("", f"metadata.name=net{number}", selectable=NETWORK.selectable)
                    of = selector("", f"spec.network=net{number}", selectable=SUBNET.selectable)
                    what = [Attributes("watch", NETWORK, "default", selector=one)]
                    what += [Attributes("watch", SUBNET, "default", selector=of)] * 2
                    opened[name, number] = [held.enter_context(session.watching(each)) for each in what]
            assert len(rights) == nodes * networks * 3
            await rights.check()
            assert decides.asked == len(rights)
            for _ in range(3):
                await rights.check()
            assert decides.asked == len(rights)  # Nothing more.
            await store.delete(NETWORK_ATTACHMENT, "default", "n7-3")
            await rights.check()
            await rights.check()
            assert decides.asked == len(rights) + networks * 3 + 3  # One node's, then what is in doubt.
            lost = {key for key, some in opened.items() if any(right.lost for right in some)}
            assert lost == {("n7", 3)}
        counting.cancel()

    asyncio.run(main())


def test_a_client_whose_token_was_replaced_goes_on_with_the_new_one(folder: Path, tmp_path: Path) -> None:
    """As a service account's are: the connection was opened with a token that is no longer good."""
    held = tmp_path / "held"
    held.write_text("viewer-token")

    async def main(server: Serving) -> None:
        ca = (folder / "ca.crt").read_bytes()
        where = kubeconfig.Cluster(server=f"https://127.0.0.1:{server.port}", ca=ca, token_file=str(held))
        store = await KubeStore.open(where)
        informer = Informer(store, NETWORK, lambda stored: stored.name, random=Random(1))
        following = asyncio.create_task(informer.run())
        await asyncio.wait_for(informer.synced.wait(), 120)
        await asyncio.to_thread(wait_until, lambda: len(server.api.watches) == 1)
        held.write_text("fresh")
        change_tokens(folder, lambda text: without("viewer")(text) + line("fresh", "viewer", ["netloom:viewer"]))
        await asyncio.to_thread(wait_until, lambda: informer.lists == 2 and informer.following)
        await asyncio.to_thread(server.post, path("networks"), network("later"))
        await asyncio.to_thread(wait_until, lambda: informer.cache.get("default", "later") is not None)
        following.cancel()
        await store.close()

    with serving(folder, limits=OFTEN, running=True) as server:
        asyncio.run(main(server))
