"""Addresses that Routers, LoadBalancers and attachments speak for are not given away, and can be had again."""

import asyncio
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode

from netloom.control.ipam.pools import ReservedAddresses
from netloom.control.runtime.cache import Change, Key
from netloom.model.document import Document, Resource
from netloom.model.kind import Kind
from netloom.model.kinds.networks import Router
from netloom.model.kinds.policy import LoadBalancer
from netloom.model.registry import LOAD_BALANCER, NETWORK, NETWORK_ATTACHMENT, ROUTER, SUBNET
from netloom.plan.addresses.blocks import address
from tests.control.helpers import document, memory, network, run, subnet, subnet_of
from tests.control.test_ipam import attach, blue, clean, detach, giving, ips, seen

PORT = {"port": 80, "protocol": "tcp"}


def balancer(name: str, *vips: str, **spec: Any) -> Document:
    whole = {"vips": [{"ip": ip, **PORT} for ip in vips], "endpoints": [{"ip": "10.0.0.9", "port": 80}]}
    return document(LOAD_BALANCER, name, whole | (spec or {"networks": ["blue"]}))


def router(name: str, **spec: Any) -> Document:
    return document(ROUTER, name, {"networks": [{"network": "blue", "ips": ["10.0.0.4/24"]}], **spec})


def test_the_addresses_of_routers_vips_and_allowed_ones_are_not_chosen_and_count_as_used() -> None:
    async def main() -> None:
        store = memory()
        await blue(store, "10.0.0.0/28")
        await store.create(ROUTER, router("r"))
        await store.create(LOAD_BALANCER, balancer("web", "10.0.0.3", "10.0.0.77"))
        await attach(store, "a", ips=["10.0.0.5"], allowedAddresses=["10.0.0.6"])
        async with giving(store):
            await attach(store, "b", "c", "d")
            await asyncio.sleep(3)
            assert await ips(store, "a", "b", "c", "d") == ["10.0.0.5", "10.0.0.2", "10.0.0.7", "10.0.0.8"]
            status = (await subnet_of(store, "s")).status
            assert (status.capacity, status.used) == (13, 7)
            assert await clean(store)

    run(main())


@pytest.mark.parametrize("restart", [False, True])
def test_one_who_waits_gets_what_nobody_speaks_for_any_more(restart: bool) -> None:
    async def main() -> None:
        store = memory()
        await blue(store, "10.0.0.0/29", exclude=["10.0.0.2", "10.0.0.3"])
        await store.create(LOAD_BALANCER, balancer("web", "10.0.0.4", "10.0.0.5"))
        await store.create(ROUTER, router("r", networks=[{"network": "blue", "ips": ["10.0.0.6/29"]}]))
        async with giving(store):
            await attach(store, "asks", ips=["10.0.0.4"])
            await attach(store, "full")
            await asyncio.sleep(3)
            assert (await seen(store, "asks")).status.errors.ipam == ("10.0.0.4 is a VIP of LoadBalancer web",)
            assert (await seen(store, "full")).status.errors.ipam == ("Subnet s is full",)
            before = await store.revision()
            await asyncio.sleep(2000)
            assert await store.revision() == before
            if not restart:
                await store.delete(LOAD_BALANCER, "ns1", "web")
                await asyncio.sleep(3)
                assert await ips(store, "asks", "full") == ["10.0.0.4", "10.0.0.5"]
                assert (await subnet_of(store, "s")).status.used == 3
                return
        await store.delete(ROUTER, "ns1", "r")
        async with giving(store):
            await asyncio.sleep(3)
            assert await ips(store, "asks", "full") == ["10.0.0.6"]

    run(main())


def test_an_address_that_attachments_are_allowed_may_be_asked_for() -> None:
    async def main() -> None:
        store = memory()
        await blue(store)
        async with giving(store):
            await attach(store, "a", allowedAddresses=["10.0.0.50"])
            await attach(store, "b", ips=["10.0.0.50"])
            await asyncio.sleep(3)
            assert await ips(store, "b") == ["10.0.0.50"]

    run(main())


def test_what_an_attachment_has_it_keeps_and_one_that_comes_back_does_not_get_a_vip() -> None:
    async def main() -> None:
        store = memory()
        await blue(store)
        async with giving(store):
            await attach(store, "a", "b")
            await asyncio.sleep(3)
            assert await ips(store, "a", "b") == ["10.0.0.2", "10.0.0.3"]
            await store.create(LOAD_BALANCER, balancer("web", "10.0.0.2", "10.0.0.3"))
            await asyncio.sleep(100)
            assert await ips(store, "a", "b") == ["10.0.0.2", "10.0.0.3"]
            await detach(store, "a")
            await attach(store, "a")
            await asyncio.sleep(10)
            assert await ips(store, "a", "b") == ["10.0.0.4", "10.0.0.3"]
            assert await clean(store)

    run(main())


def test_a_vip_is_spoken_for_wherever_its_routers_are() -> None:
    async def main() -> None:
        store = memory()
        await blue(store, "10.0.0.0/29", exclude=["10.0.0.2"])
        await store.create(NETWORK, network("out", 9))
        await store.create(SUBNET, subnet("o", "192.0.2.0/29", of="out"))
        await store.create(LOAD_BALANCER, balancer("web", "10.0.0.3", "192.0.2.4", routers=["r"]))
        way_out = {"network": "out", "ips": ["192.0.2.2/29"]}
        nat = [{"type": "dnat_and_snat", "external": "192.0.2.3", "logical": "10.0.0.9"}]
        await store.create(ROUTER, router("r", networks=[{"network": "blue"}], gateway=way_out, nat=nat))
        async with giving(store):
            await attach(store, "a")
            await store.create(NETWORK_ATTACHMENT, document(NETWORK_ATTACHMENT, "x", {"node": "n1", "network": "out"}))
            await asyncio.sleep(3)
            assert await ips(store, "a", "x") == ["10.0.0.4", "192.0.2.5"]
            await store.delete(ROUTER, "ns1", "r")
            await attach(store, "b", ips=["10.0.0.3"])
            await asyncio.sleep(3)
            assert await ips(store, "b") == ["10.0.0.3"]

    run(main())


def test_a_network_that_is_made_anew_under_its_subnet_is_spoken_for_as_before() -> None:
    async def main() -> None:
        store = memory()
        await blue(store, "10.0.0.0/29")
        async with giving(store):
            await asyncio.sleep(1)
            await store.delete(NETWORK, "ns1", "blue")  # As a Kubernetes cluster's own API would let one.
            await asyncio.sleep(1)
            await store.create(NETWORK, network("blue", 7))
            await store.create(LOAD_BALANCER, balancer("web", "10.0.0.2"))
            await asyncio.sleep(1)
            await attach(store, "a")
            await asyncio.sleep(3)
            assert await ips(store, "a") == ["10.0.0.3"]

    run(main())


# The claims themselves: whatever changes in whatever order, what is known is what the last state says.

ROUTERS = [
    router("r"),
    router("r", networks=[{"network": "red", "ips": ["10.0.0.5/24"]}]),
    router("r", networks=[]),
    router("q"),
    router("q", gateway={"network": "out", "ips": ["10.0.0.4/24"]}, networks=[]),
]
BALANCERS = [
    balancer("a", "10.0.0.4"),
    balancer("a", "10.0.0.8", routers=["r", "q"]),
    balancer("a", "fd00::8"),
    balancer("b", "10.0.0.4", routers=["q"]),
    balancer("b", "10.0.0.8", "10.0.0.9"),
]
changes = st.one_of(
    st.tuples(st.just(ROUTER), st.sampled_from(ROUTERS), st.booleans()),
    st.tuples(st.just(LOAD_BALANCER), st.sampled_from(BALANCERS), st.booleans()),
)
EVERYTHING = [
    (Key("ns1", where), one)
    for where in ("blue", "red", "out")
    for one in map(address, ("10.0.0.4", "10.0.0.5", "10.0.0.8", "10.0.0.9", "fd00::8"))
    if one is not None
]


def tell(reserved: ReservedAddresses, kind: Kind, name: str, value: Resource | None) -> None:
    key = Key("ns1", name)
    if kind is ROUTER:
        assert isinstance(value, Router | None)
        reserved.router_changed(Change(key, None, value))
    else:
        assert isinstance(value, LoadBalancer | None)
        reserved.balancer_changed(Change(key, None, value))


def known(reserved: ReservedAddresses) -> list[tuple[str | None, bool]]:
    return [
        (reserved.owner(where, one), one.number in reserved.numbers(where, one.version)) for where, one in EVERYTHING
    ]


@given(st.lists(changes, max_size=12), st.randoms(use_true_random=False))
def test_what_is_known_follows_from_what_there_is_and_not_from_how_it_came(
    history: list[tuple[Kind, Document, bool]], chance: Random
) -> None:
    through, last = ReservedAddresses(), {}
    for kind, spec, there in history:
        name = spec["metadata"]["name"]
        value = kind.decode(encode(spec)) if there else None
        tell(through, kind, name, value)
        last[kind, name] = value
    afresh, order = ReservedAddresses(), list(last.items())
    chance.shuffle(order)
    for (kind, name), value in order:
        tell(afresh, kind, name, value)
    assert known(through) == known(afresh)
    for (kind, name), _ in order:
        tell(through, kind, name, None)
    assert known(through) == [(None, False)] * len(EVERYTHING)
