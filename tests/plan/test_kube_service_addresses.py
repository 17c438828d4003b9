"""Addresses of pools for Services: what is given, what is refused, and that no two Services ever keep the same."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netloom.errors import Invalid
from netloom.model.kinds.kubernetes import Service, decode
from netloom.plan.kube import names
from netloom.plan.kube.services.addresses import Allocation, Holder, ServiceAddresses
from netloom.plan.kube.services.pools import parse

FOUR, SIX = "10.96.0.10", "fd96::10"
SMALL = ("192.0.2.8/31", "2001:db8::8/127")


def service(*has: str, ips: str = "", families: tuple[str, ...] = (FOUR,), created: str = "", **spec: Any) -> Service:
    """Return a Service whose status has some addresses, and which wants others."""
    metadata: dict[str, Any] = {"annotations": {names.LOAD_BALANCER_IPS: ips} if ips else {}}
    if created:
        metadata["creationTimestamp"] = created
    ingress = [{"ip": one} if one[0].isdigit() else {"hostname": one} for one in has]
    document = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"type": "LoadBalancer", "clusterIPs": list(families), **spec},
        "status": {"loadBalancer": {"ingress": ingress}},
    }
    return decode(json.dumps(document).encode(), Service)


def holder(name: str, namespace: str = "shop") -> Holder:
    return Holder(namespace, name)


def addresses_of(*pools: str) -> ServiceAddresses:
    return ServiceAddresses(parse(one) for one in pools)


def allocated(table: ServiceAddresses, name: str, one: Service, namespace: str = "shop") -> Allocation:
    table.put(holder(name, namespace), one)
    return table.allocate(holder(name, namespace), one)


def reasons(of: Allocation) -> list[str]:
    return [one.reason for one in of.problems]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("192.0.2.0/28", 16),
        ("192.0.2.7", 1),
        ("192.0.2.7-192.0.2.9", 3),
        ("2001:db8::/112", 65536),
        ("shop=::1/128", 1),
    ],
)
def test_a_pool_is_a_block_a_range_or_an_address(text: str, size: int) -> None:
    pool = parse(text)
    assert pool.last - pool.first + 1 == size
    assert pool.namespace == ("shop" if "=" in text else "")


@pytest.mark.parametrize(
    "text", ["", "shop", "192.0.2.1/28", "192.0.2.9-192.0.2.1", "Shop=192.0.2.0/28", "=192.0.2.0/28", "a\n=192.0.2.1"]
)
def test_what_is_no_pool_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse(text)


def test_services_get_one_address_of_each_family_until_none_is_free() -> None:
    table = addresses_of(*SMALL)
    assert allocated(table, "a", service()) == Allocation(("192.0.2.8",))
    assert allocated(table, "b", service(families=(SIX, FOUR))) == Allocation(("2001:db8::8", "192.0.2.9"))
    third = allocated(table, "c", service(families=(FOUR, SIX)))
    assert (third.ips, reasons(third)) == (("2001:db8::9",), ["NoAddressFree"])
    assert table.put(holder("a"), None) == {holder("c")}
    assert table.allocate(holder("c"), service(families=(FOUR, SIX))).ips == ("192.0.2.8", "2001:db8::9")


def test_an_address_in_a_status_is_kept_and_not_given_twice() -> None:
    table = addresses_of("192.0.2.8/30")
    table.put(holder("old"), service("192.0.2.8"))
    assert allocated(table, "new", service()).ips == ("192.0.2.9",)
    assert table.allocate(holder("old"), service("192.0.2.8")).ips == ("192.0.2.8",)


@pytest.mark.parametrize("spec", [{"ips": "192.0.2.11"}, {"loadBalancerIP": "192.0.2.11"}])
def test_a_wanted_address_is_given_if_it_is_free_and_waited_for_if_it_is_not(spec: dict[str, Any]) -> None:
    table = addresses_of("192.0.2.8/30")
    one = service(**spec)
    assert allocated(table, "a", one).ips == ("192.0.2.11",)
    other = allocated(table, "b", one)
    assert (other.ips, reasons(other)) == ((), ["AddressInUse"])
    assert table.put(holder("a"), None) == {holder("b")}
    assert table.allocate(holder("b"), one).ips == ("192.0.2.11",)


def test_a_service_that_wants_another_address_keeps_the_old_one_from_others_until_it_is_written() -> None:
    table = addresses_of("192.0.2.8/31")
    assert allocated(table, "a", service("192.0.2.8", ips="192.0.2.9")).ips == ("192.0.2.9",)
    assert reasons(allocated(table, "b", service())) == ["NoAddressFree"]
    assert table.put(holder("a"), service("192.0.2.9", ips="192.0.2.9")) == {holder("b")}
    assert table.allocate(holder("b"), service()).ips == ("192.0.2.8",)


@pytest.mark.parametrize(
    ("ips", "reason"),
    [
        ("192.0.3.1", "AddressNotInPool"),
        ("192.0.2.64", "AddressNotInPool"),  # another namespace's
        ("here", "AddressMalformed"),
        ("192.0.2.9,192.0.2.10", "AddressMalformed"),
        ("192.0.2.9,2001:db8::9", "AddressMalformed"),  # the Service has no IPv6
        ("::ffff:192.0.2.9", "AddressMalformed"),
    ],
)
def test_a_wanted_address_that_cannot_be_had_is_a_problem(ips: str, reason: str) -> None:
    found = allocated(addresses_of("192.0.2.8/30", "bank=192.0.2.64/30"), "a", service(ips=ips))
    assert (found.ips, reasons(found)) == ((), [reason])


def test_a_service_keeps_its_address_while_its_annotation_is_not_clear() -> None:
    found = allocated(addresses_of("192.0.2.8/30"), "a", service("192.0.2.9", ips="here"))
    assert (found.ips, reasons(found)) == (("192.0.2.9",), ["AddressMalformed"])


def test_the_pool_of_a_namespace_is_for_its_services_only_and_used_first() -> None:
    table = addresses_of("192.0.2.8/31", "shop=192.0.2.64/32")
    assert allocated(table, "a", service(), "bank").ips == ("192.0.2.8",)
    assert allocated(table, "a", service()).ips == ("192.0.2.64",)
    assert allocated(table, "b", service()).ips == ("192.0.2.9",)
    assert reasons(allocated(table, "c", service(), "bank")) == ["NoAddressFree"]


def test_an_address_of_a_pool_that_is_another_namespace_s_now_is_exchanged() -> None:
    table = addresses_of("192.0.2.8/31", "bank=192.0.2.64/32")
    assert allocated(table, "a", service("192.0.2.64")).ips == ("192.0.2.8",)


@pytest.mark.parametrize(
    "left_alone",
    [
        service("203.0.113.1"),
        service("balancer.example"),
        service("192.0.2.8", "203.0.113.1"),
    ],
)
def test_a_status_with_an_address_of_no_pool_stays(left_alone: Service) -> None:
    found = allocated(addresses_of("192.0.2.8/31"), "a", left_alone)
    assert (found.ips, reasons(found)) == (None, ["AddressNotInPool"])


def test_services_of_other_classes_and_for_other_proxies_are_left_alone() -> None:
    table = addresses_of("192.0.2.8/31")
    assert allocated(table, "a", service(loadBalancerClass="cloud.example/lb")) == Allocation(None)
    assert allocated(table, "b", service("192.0.2.8", loadBalancerClass="cloud.example/lb")) == Allocation(None)
    assert allocated(table, "c", service(loadBalancerClass=names.LOAD_BALANCER_CLASS)).ips == ("192.0.2.9",)
    assert allocated(table, "d", service(families=())) == Allocation(None)


def test_a_service_of_another_type_loses_its_address() -> None:
    table = addresses_of("192.0.2.8/31")
    assert allocated(table, "a", service("192.0.2.8", type="ClusterIP")) == Allocation()
    assert allocated(table, "b", service(type="NodePort")) == Allocation()
    assert allocated(table, "c", service()).ips == ("192.0.2.9",)


def test_of_two_services_with_one_address_the_older_keeps_it() -> None:
    table = addresses_of("192.0.2.8/31")
    old, new = (
        service("192.0.2.8", created="2026-01-01T00:00:00Z"),
        service("192.0.2.8", created="2026-01-02T00:00:00Z"),
    )
    table.put(holder("z"), old)
    assert table.put(holder("a"), new) == {holder("z")}
    assert table.allocate(holder("a"), new).ips == ("192.0.2.9",)
    assert table.allocate(holder("z"), old).ips == ("192.0.2.8",)


def test_a_family_without_a_pool_is_a_problem_only_where_it_is_required() -> None:
    both: dict[str, Any] = {"families": (FOUR, SIX)}
    preferred = allocated(addresses_of("192.0.2.8/31"), "a", service(**both, ipFamilyPolicy="PreferDualStack"))
    assert preferred == Allocation(("192.0.2.8",))
    required = allocated(addresses_of("192.0.2.8/31"), "a", service(**both, ipFamilyPolicy="RequireDualStack"))
    assert (required.ips, reasons(required)) == (("192.0.2.8",), ["NoAddressFree"])


class Cluster:
    """Services whose statuses are written and observed late, by controllers that come and go."""

    POOLS = ("192.0.2.8/30", "bank=192.0.2.12/31", "2001:db8::8/127")

    def __init__(self) -> None:
        self.specs: dict[Holder, dict[str, Any]] = {}
        self.statuses: dict[Holder, tuple[str, ...]] = {}
        self.events: list[Holder] = []
        self.writes: list[tuple[Holder, tuple[str, ...]]] = []
        self.due: set[Holder] = set()
        self.restart()

    def restart(self) -> None:
        """Start another controller: it reads all Services; a write of the former one may still come."""
        self.table = addresses_of(*self.POOLS)
        self.events.clear()
        for one in self.specs:
            self.table.put(one, self.read(one))
        self.seen = {one: found for one in self.specs if (found := self.read(one)) is not None}
        self.due = set(self.specs)

    def read(self, one: Holder) -> Service | None:
        spec = self.specs.get(one)
        return None if spec is None else service(*self.statuses.get(one, ()), **spec)

    def change(self, one: Holder, spec: dict[str, Any] | None) -> None:
        if spec is None:
            self.specs.pop(one, None)
            self.statuses.pop(one, None)
        else:
            self.specs[one] = spec
        self.events.append(one)

    def observe(self) -> None:
        one = self.events.pop(0)
        found = self.read(one)
        if found is None:
            self.seen.pop(one, None)
        else:
            self.seen[one] = found
        self.due |= {one, *self.table.put(one, found)}

    def reconcile(self, one: Holder) -> None:
        self.due.discard(one)
        if one in self.seen:
            ips = self.table.allocate(one, self.seen[one]).ips
            has = tuple(each.ip for each in self.seen[one].status.load_balancer.ingress)
            if ips is not None and ips != has:
                self.writes.append((one, ips))

    def write(self) -> None:
        one, ips = self.writes.pop(0)
        if one in self.specs:
            self.statuses[one] = ips
            self.events.append(one)

    def settle(self) -> None:
        for _ in range(1000):
            if self.writes:
                self.write()
            elif self.events:
                self.observe()
            elif self.due:
                self.reconcile(min(self.due))
            else:
                return
        raise AssertionError("it never ends")


HOLDERS = st.sampled_from([Holder(space, name) for space in ("shop", "bank") for name in "abc"])
SPECS = st.fixed_dictionaries(
    {
        "ips": st.sampled_from(["", "", "192.0.2.9", "192.0.2.12", "2001:db8::9", "here"]),
        "families": st.sampled_from([(FOUR,), (FOUR,), (SIX, FOUR)]),
        "created": st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
        "type": st.sampled_from(["LoadBalancer", "LoadBalancer", "LoadBalancer", "ClusterIP"]),
    }
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), HOLDERS, st.one_of(SPECS, SPECS, st.none())),
        st.tuples(st.sampled_from(["observe", "write", "reconcile", "reconcile", "settle", "restart"])),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_in_the_end_no_address_is_had_twice_and_none_is_free_that_somebody_waits_for(
    steps: list[tuple[Any, ...]],
) -> None:
    cluster = Cluster()
    for what, *rest in steps:
        if what == "change":
            cluster.change(*rest)
        elif what == "reconcile" and cluster.due:
            cluster.reconcile(max(cluster.due))
        elif (
            (what == "observe" and cluster.events)
            or (what == "write" and cluster.writes)
            or what in ("settle", "restart")
        ):
            getattr(cluster, what)()
    cluster.settle()
    has = [ip for ips in cluster.statuses.values() for ip in ips]
    assert len(has) == len(set(has))
    for one, ips in cluster.statuses.items():
        assert not (one.namespace == "shop" and {"192.0.2.12", "192.0.2.13"} & set(ips))
        assert not ips or cluster.specs[one]["type"] == "LoadBalancer"
    before = dict(cluster.statuses)
    cluster.restart()
    cluster.settle()
    assert cluster.statuses == before
    common = {f"192.0.2.{number}" for number in range(8, 12)} - set(has)
    for one, spec in cluster.specs.items():
        if spec["type"] == "LoadBalancer" and not spec["ips"] and common:
            assert any("." in ip for ip in cluster.statuses.get(one, ())), (one, common)
