"""Deleting what others use is refused, with the list of users."""

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from netloom.front.api.admission.admission import Write, WriteOperation
from netloom.front.api.admission.in_use import InUse, User, in_use
from netloom.front.api.auth.identity import Identity
from netloom.model import codec
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import KINDS, NETWORK, NETWORK_ATTACHMENT, NOT_IMPLEMENTED, SUBNET
from netloom.model.values.selectors import EVERYTHING, Selector
from netloom.store.base import Event, EventType, Page, Precondition, Propagation, Store, Stored
from netloom.store.memory import MemoryStore
from tests.front.serving import GROUP, Serving, attachment, document, network, path, serving

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def subnet(name: str, network: str = "blue", cidr: str = "10.10.0.0/24", **spec: Any) -> Document:
    return document("Subnet", name, "default", {"network": network, "cidr": cidr, **spec})


def make(server: Serving, *made: Document) -> list[Document]:
    answers = []
    for one in made:
        kind = KINDS.kind(one["apiVersion"], one["kind"])
        answer = server.post(kind.path(one["metadata"].get("namespace", "default")), one)
        assert answer.code == 201, answer.body
        answers.append(answer.json)
    return answers


def has_address(server: Serving, made: Document, *ips: str) -> None:
    """Write addresses into an attachment's status, as IPAM does."""
    where = path("networkattachments", name=made["metadata"]["name"], subresource="status")
    assert server.patch(where, {"status": {"ips": list(ips)}}).code == 200


def lock(owner: Document, ip: str, *, network: str = "blue") -> Document:
    made = document("IPLock", "v1-10-" + ip.replace(".", "-"), "default", {"network": network, "vni": 10, "ip": ip})
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    made["metadata"]["ownerReferences"] = [reference]
    return made


def users(answer: Any) -> list[str]:
    """Return who is named by a refusal."""
    assert answer.code == 409, answer.body
    assert answer.json["reason"] == "Conflict"
    causes = answer.json["details"]["causes"]
    assert {cause["reason"] for cause in causes} == {"InUse"}
    for cause in causes:
        assert cause["message"] in answer.json["message"]
    return [cause["message"] for cause in causes]


def test_a_network_with_an_attachment_and_a_subnet_stays(server: Serving) -> None:
    make(server, network(), subnet("blue-v4"), attachment("web"))
    answer = server.delete(path("networks", name="blue"))
    assert users(answer) == ["NetworkAttachment default/web", "Subnet default/blue-v4"]
    assert answer.json["message"] == (
        'Operation cannot be fulfilled on networks.netloom.dev "blue": '
        "it is used by NetworkAttachment default/web, Subnet default/blue-v4"
    )
    assert answer.json["details"]["name"] == "blue"
    server.delete(path("networkattachments", name="web"))
    server.delete(path("subnets", name="blue-v4"))
    assert server.delete(path("networks", name="blue")).code == 200


def test_objects_of_other_namespaces_and_of_other_names_use_nothing_here(server: Serving) -> None:
    elsewhere = attachment("web", namespace="other")
    make(server, network(), network("red"), elsewhere, attachment("web", network="red"))
    assert server.delete(path("networks", name="blue")).code == 200


def test_a_dry_run_is_refused_too(server: Serving) -> None:
    make(server, network(), attachment("web"))
    assert users(server.delete(path("networks", name="blue") + "?dryRun=All")) == ["NetworkAttachment default/web"]
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"], "propagationPolicy": "Foreground"}
    assert users(server.delete(path("networks", name="blue"), options)) == ["NetworkAttachment default/web"]


def test_of_many_users_ten_are_named_and_the_rest_counted(server: Serving) -> None:
    make(server, network(), *(attachment(f"web-{number:02}") for number in range(13)))
    named = users(server.delete(path("networks", name="blue")))
    assert named == [*(f"NetworkAttachment default/web-{number:02}" for number in range(10)), "and 3 more"]
    assert len(users(server.delete(path("networks", name="blue")))) == 11


def test_the_words_for_users() -> None:
    few = in_use(NETWORK, "blue", [User("Subnet", "a", "x"), User("Subnet", "a", "y")])
    assert few.message.endswith("it is used by Subnet a/x, Subnet a/y")
    many = in_use(NETWORK, "blue", [User("Subnet", "a", f"s{number}") for number in range(11)])
    assert many.message.endswith("Subnet a/s9 and 1 more")
    assert str(User("Node", "", "n1")) == "Node n1"


def test_deleting_a_collection_keeps_what_is_used(server: Serving) -> None:
    make(server, network(), *(network(f"n{number}") for number in range(200)), attachment("web"))
    assert users(server.delete(path("networks"))) == ["NetworkAttachment default/web"]
    left = server.get(path("networks")).json["items"]
    assert [item["metadata"]["name"] for item in left] == ["blue"]


def test_requests_in_a_batch_are_refused_one_by_one(server: Serving) -> None:
    make(server, network(), network("red"), attachment("web"))
    requests = [{"method": "DELETE", "path": path("networks", name=name)} for name in ("blue", "red")]
    answers = server.post(f"{GROUP}/batch", {"requests": requests}).json["answers"]
    assert [answer["code"] for answer in answers] == [409, 200]
    assert answers[0]["body"]["details"]["causes"] == [{"reason": "InUse", "message": "NetworkAttachment default/web"}]


def test_a_subnet_is_used_by_who_names_it_or_has_an_address_of_it(server: Serving) -> None:
    make(server, network(), subnet("v4"), subnet("more", cidr="10.10.1.0/24"), subnet("v6", cidr="fd00::/64"))
    names, holds, _, both = make(
        server, attachment("names", subnets=["v4"]), attachment("holds"), attachment("waits"), attachment("both")
    )
    has_address(server, names, "10.10.0.7/24")
    has_address(server, holds, "10.10.0.8/24")
    has_address(server, both, "10.10.1.9/24", "fd00::9/64")
    on = "NetworkAttachment default/"
    assert users(server.delete(path("subnets", name="v4"))) == [on + "holds", on + "names"]
    assert users(server.delete(path("subnets", name="more"))) == [on + "both"]
    assert users(server.delete(path("subnets", name="v6"))) == [on + "both"]
    server.delete(path("networkattachments", name="both"))
    make(server, attachment("by-mistake", network="red", subnets=["v6"]))
    assert server.delete(path("subnets", name="v6")).code == 200


def test_a_subnet_is_used_by_who_has_a_lock_in_it_though_its_status_does_not_say_so_yet(server: Serving) -> None:
    make(server, network(), subnet("v4"), subnet("more", cidr="10.10.1.0/24"))
    (web,) = make(server, attachment("web"))
    make(server, lock(web, "10.10.0.7"))
    assert users(server.delete(path("subnets", name="v4"))) == ["NetworkAttachment default/web"]
    assert server.delete(path("subnets", name="more")).code == 200


def test_a_lock_in_quarantine_and_a_lock_without_its_attachment_hold_nobody_up(server: Serving) -> None:
    make(server, network(), subnet("v4"))
    gone, stays = make(server, attachment("gone"), attachment("stays"))
    quarantined = lock(stays, "10.10.0.8")
    quarantined["metadata"]["finalizers"] = ["netloom.dev/quarantine"]
    make(server, lock(gone, "10.10.0.7"), quarantined)
    server.delete(path("iplocks", name="v1-10-10-10-0-8"))
    server.delete(path("networkattachments", name="gone"))
    assert server.delete(path("subnets", name="v4")).code == 200


def test_what_goes_with_the_object_does_not_count_unless_it_is_to_stay(server: Serving) -> None:
    (blue,) = make(server, network())
    owned = subnet("v4")
    reference = {"apiVersion": blue["apiVersion"], "kind": "Network", "name": "blue", "uid": blue["metadata"]["uid"]}
    owned["metadata"]["ownerReferences"] = [reference]
    make(server, owned)
    orphaning = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}
    assert users(server.delete(path("networks", name="blue"), orphaning)) == ["Subnet default/v4"]
    assert server.delete(path("networks", name="blue")).code == 200


def test_an_object_that_names_itself_can_go(server: Serving) -> None:
    rule = {"ingress": [{"from": [{"profile": "web"}]}]}
    make(
        server, document("SecurityProfile", "web", "default", rule), document("SecurityProfile", "db", "default", rule)
    )
    assert users(server.delete(path("securityprofiles", name="web"))) == ["SecurityProfile default/db"]
    server.delete(path("securityprofiles", name="db"))
    assert server.delete(path("securityprofiles", name="web")).code == 200


def test_what_is_being_deleted_already_may_be_deleted_again(server: Serving) -> None:
    held = network()
    held["metadata"]["finalizers"] = ["example.com/wait"]
    make(server, held)
    assert server.delete(path("networks", name="blue")).code == 200
    make(server, attachment("web"))
    assert server.delete(path("networks", name="blue")).code == 200


@pytest.mark.parametrize(
    ("target", "named"),
    [
        ("nodes/n1", ["NetworkAttachment default/fw-1"]),
        ("nodes/gw1", ["Router default/r1"]),
        (
            "networks/blue",
            [
                "LoadBalancer default/shop",
                "NetworkAttachment default/web-2",
                "Router default/r1",
                "Subnet default/blue-v4",
            ],
        ),
        ("networks/red", ["Shaping default/far-away"]),
        ("networks/outside", ["Router default/r1"]),
        ("routers/r1", ["LoadBalancer default/shop"]),
        (
            "securityprofiles/web",
            ["NetworkAttachment default/web-1", "PortPool default/ready-on-n1", "SecurityProfile default/db"],
        ),
        ("subnets/blue-v4", ["NetworkAttachment default/web-1"]),
    ],
)
def test_every_kind_that_others_name_stays(server: Serving, target: str, named: list[str]) -> None:
    make(server, *codec.documents((EXAMPLES / "every-kind.yaml").read_bytes()))
    plural, _, name = target.partition("/")
    answer = server.delete(path(plural, "" if plural == "nodes" else "default", name=name))
    assert set(named) <= set(users(answer)), answer.json["message"]
    assert not any(user.startswith(tuple(kind.name for kind in NOT_IMPLEMENTED)) for user in users(answer))


def test_objects_that_nothing_acts_on_keep_nothing(server: Serving) -> None:
    hops = [{"selector": {"matchLabels": {"app": "fw"}}, "in": "a", "out": "b"}]
    spec = {"left": [{"network": "red"}], "right": [{"network": "red"}], "hops": hops}
    make(server, network("red"), document("ServiceChain", "ready", "default", spec))
    assert server.delete(path("networks", name="red")).code == 200


def test_what_extends_a_network_to_other_sites_goes_before_it(server: Serving) -> None:
    spec = {"evpnNetwork": "blue", "network": "blue", "node": "n1", "address": "192.0.2.7", "vni": 10, "localVNI": 10}
    make(
        server,
        document("Node", "n1", "", {"underlayIP": "192.0.2.1"}),
        network(),
        document("BGPSpeaker", "main", "default", {"asn": 65000, "routerID": "192.0.2.1", "node": "n1"}),
        document("BGPPeer", "far", "default", {"speaker": "main", "address": "192.0.2.2", "remoteASN": 65000}),
        document("EVPNNetwork", "blue", "default", {"speaker": "main", "network": "blue"}),
        # It is no user of what it names: it goes with the EVPNNetwork that owns it.
        document("RemoteVTEP", "blue.192-0-2-7.10.0", "default", spec),
    )

    def deleted(plural: str, name: str, namespace: str = "default") -> tuple[int, list[str]]:
        answer = server.delete(path(plural, namespace, name))
        return answer.code, users(answer) if answer.code == 409 else []

    assert deleted("networks", "blue") == (409, ["EVPNNetwork default/blue"])
    assert deleted("bgpspeakers", "main") == (409, ["BGPPeer default/far", "EVPNNetwork default/blue"])
    assert deleted("nodes", "n1", "") == (409, ["BGPSpeaker default/main"])
    assert deleted("evpnnetworks", "blue") == (200, [])
    assert deleted("networks", "blue") == (200, [])
    assert deleted("bgpspeakers", "main") == (409, ["BGPPeer default/far"])
    assert deleted("bgppeers", "far") == (200, [])
    assert deleted("bgpspeakers", "main") == (200, [])
    assert deleted("nodes", "n1", "") == (200, [])


@pytest.mark.parametrize("plural", ["networkattachments", "loadbalancers", "shapings", "mirrors", "iplocks"])
def test_kinds_that_nobody_names_can_go(server: Serving, plural: str) -> None:
    make(server, *codec.documents((EXAMPLES / "every-kind.yaml").read_bytes()))
    assert server.delete(path(plural)).code == 200
    assert server.get(path(plural)).json["items"] == []


def test_whatever_was_created_before_a_deletion_was_asked_for_is_seen(server: Serving) -> None:
    """Writers attach while others delete and re-create: an attachment whose Network went was not there before."""
    make(server, network())
    wrong: list[str] = []

    def attach(worker: int) -> None:
        for number in range(20):
            name = f"w{worker}-{number}"
            make(server, attachment(name))
            if server.delete(path("networks", name="blue")).code == 200:
                wrong.append(name)
            server.delete(path("networkattachments", name=name))

    workers = [threading.Thread(target=attach, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


class BusyStore(MemoryStore):
    """A store that decides a deletion only after a while, as one does that collects writes to make them durable."""

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        propagation: Propagation = Propagation.BACKGROUND,
        uid: str = "",
        revision: int | None = None,
        unless: Precondition | None = None,
        dry_run: bool = False,
    ) -> Stored:
        if kind is NETWORK:
            await asyncio.sleep(0.002)
        return await super().delete(
            kind,
            namespace,
            name,
            propagation=propagation,
            uid=uid,
            revision=revision,
            unless=unless,
            dry_run=dry_run,
        )


@pytest.mark.slow
def test_no_network_was_ever_deleted_from_under_an_attachment(credentials: Path) -> None:
    """Writers come and go while others delete and make again; afterwards the history is read, revision by revision."""
    store = BusyStore()
    with serving(credentials, store=store) as server:
        make(server, network())

        def come_and_go(worker: int) -> None:
            for number in range(60):
                make(server, attachment(f"w{worker}-{number}"))
                server.delete(path("networkattachments", name=f"w{worker}-{number}"))
                for _ in range(number % 4):
                    server.get(path("networks"))  # Something else, so that there are moments without a user.

        def delete_and_make() -> None:
            while any(worker.is_alive() for worker in workers):
                server.delete(path("networks", name="blue"))
                server.post(path("networks"), network())

        workers = [threading.Thread(target=come_and_go, args=(number,)) for number in range(1)]
        deleters = [threading.Thread(target=delete_and_make) for _ in range(2)]
        for thread in (*workers, *deleters):
            thread.start()
        for thread in (*workers, *deleters):
            thread.join()
        history = server.run(_history(store, NETWORK, NETWORK_ATTACHMENT))
    there: set[str] = set()
    deleted = 0
    for event in history:
        if event.object.kind is NETWORK_ATTACHMENT:
            (there.discard if event.type is EventType.DELETED else there.add)(event.object.name)
        elif event.type is EventType.DELETED:
            deleted += 1
            assert not there, f"at revision {event.object.revision} the Network went from under {there}"
    assert deleted > 1, "it was never deleted: nothing was tried"


async def _history(store: Store, *kinds: Kind) -> list[Event]:
    """Return all that ever happened to objects of some kinds, in order."""
    found: list[Event] = []
    for kind in kinds:
        watch = await store.watch(kind, since=1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                while True:
                    found += await watch.next()
        await watch.close()
    return sorted(found, key=lambda event: event.object.revision)


class LateUser(MemoryStore):
    """A store in which somebody becomes a user after the look and just before the deletion is decided."""

    def __init__(self, *users: Document) -> None:
        super().__init__()
        self.users = list(users)

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        propagation: Propagation = Propagation.BACKGROUND,
        uid: str = "",
        revision: int | None = None,
        unless: Precondition | None = None,
        dry_run: bool = False,
    ) -> Stored:
        if kind in (NETWORK, SUBNET) and self.users:
            user = self.users.pop()
            await self.create(KINDS.kind(user["apiVersion"], user["kind"]), user)
        return await super().delete(
            kind,
            namespace,
            name,
            propagation=propagation,
            uid=uid,
            revision=revision,
            unless=unless,
            dry_run=dry_run,
        )


def test_who_becomes_a_user_between_the_look_and_the_deletion_is_seen(credentials: Path) -> None:
    with serving(credentials, store=LateUser(attachment("web"))) as server:
        make(server, network())
        assert users(server.delete(path("networks", name="blue"))) == ["NetworkAttachment default/web"]


def test_who_gets_a_lock_between_the_look_and_the_deletion_is_seen(credentials: Path) -> None:
    store = LateUser()
    with serving(credentials, store=store) as server:
        make(server, network(), subnet("v4"))
        (web,) = make(server, attachment("web"))
        store.users = [lock(web, "10.10.0.7")]
        assert users(server.delete(path("subnets", name="v4"))) == ["NetworkAttachment default/web"]
        server.delete(path("networkattachments", name="web"))
        # A lock that was made for nobody changes nothing but that it is looked again.
        store.users = [lock(web, "10.10.0.8")]
        assert server.delete(path("subnets", name="v4")).code == 200


def test_whatever_else_is_written_between_the_look_and_the_deletion_does_not_matter(credentials: Path) -> None:
    others = [attachment("web", namespace="other"), attachment("web", network="red"), network("red")]
    with serving(credentials, store=LateUser(*others)) as server:
        make(server, network(), network("green"), network("white"))
        for name in ("blue", "green", "white"):
            assert server.delete(path("networks", name=name)).code == 200


class CountingStore(MemoryStore):
    """A store that counts its lists and may be slow to give them."""

    def __init__(self, *, seconds: float = 0) -> None:
        super().__init__()
        self.seconds = seconds
        self.lists = 0
        self.listing = asyncio.Event()

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        selector: Selector = EVERYTHING,
        revision: int | None = None,
        limit: int | None = None,
        token: str = "",
    ) -> Page:
        if kind is NETWORK_ATTACHMENT:
            self.lists += 1
            self.listing.set()
        page = await super().list(kind, namespace, selector=selector, revision=revision, limit=limit, token=token)
        if self.seconds:
            await asyncio.sleep(self.seconds)
        return page


@pytest.mark.parametrize("seconds", [0, 0.001])
def test_those_who_ask_at_once_share_one_look_and_later_ones_look_again(seconds: float) -> None:
    async def main() -> None:
        store, rule = CountingStore(seconds=seconds), InUse()
        made = [await store.create(NETWORK, network(f"n{number}")) for number in range(50)]

        async def review(number: int) -> None:
            write = Write(
                operation=WriteOperation.DELETE,
                kind=NETWORK,
                namespace="default",
                name=f"n{number}",
                who=Identity("admin"),
                old=made[number],
            )
            await rule.review(write, store)

        await asyncio.gather(*(review(number) for number in range(50)))
        assert store.lists == 1
        await store.create(NETWORK_ATTACHMENT, attachment("web", network="n7"))
        results = await asyncio.gather(*(review(number) for number in range(50)), return_exceptions=True)
        assert store.lists == 2
        assert [number for number, result in enumerate(results) if result is not None] == [7]
        assert not rule._next

    asyncio.run(main())


def test_a_look_that_began_before_does_not_serve_who_asks_later() -> None:
    async def main() -> None:
        store, rule = CountingStore(seconds=0.001), InUse()
        old = await store.create(NETWORK, network())
        write = Write(
            operation=WriteOperation.DELETE,
            kind=NETWORK,
            namespace="default",
            name="blue",
            who=Identity("admin"),
            old=old,
        )
        first = asyncio.ensure_future(rule.review(write, store))
        await store.listing.wait()
        await store.create(NETWORK_ATTACHMENT, attachment("web"))
        second = asyncio.ensure_future(rule.review(write, store))
        results = await asyncio.gather(first, second, return_exceptions=True)
        assert not isinstance(results[0], BaseException)
        assert isinstance(results[1], Exception)

    asyncio.run(main())


def test_whoever_looks_for_others_may_be_interrupted() -> None:
    async def main() -> None:
        store, rule = CountingStore(seconds=0.001), InUse()
        old = await store.create(NETWORK, network())
        await store.create(NETWORK_ATTACHMENT, attachment("web"))
        write = Write(
            operation=WriteOperation.DELETE,
            kind=NETWORK,
            namespace="default",
            name="blue",
            who=Identity("admin"),
            old=old,
        )
        tasks = [asyncio.ensure_future(rule.review(write, store)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result).__name__ for result in results] == ["CancelledError", "Conflict", "Conflict"]

    asyncio.run(main())
