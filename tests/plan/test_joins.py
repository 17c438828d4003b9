"""What attachments join by their labels: a profile that changes has only those planned again that it concerns."""

from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from netloom.model.document import Resource
from netloom.model.kinds.policy import LoadBalancer, SecurityProfile
from netloom.plan.ovn.planner import Planner
from netloom.plan.problem import Unit
from netloom.plan.rows import Ref
from netloom.plan.world.world import Port, World
from tests.plan.planning import planned, rendered

NETWORK = "{kind: Network, metadata: {name: blue}, spec: {}, status: {vni: 7}}"
SUBNET = "{kind: Subnet, metadata: {name: blue}, spec: {network: blue, cidr: 10.0.0.0/16}, status: {validated: true}}"


def port(number: int, **labels: str) -> Port:
    ip, mac = f"10.0.{number // 250}.{number % 250 + 2}/16", f"02:00:00:00:{number // 256:02x}:{number % 256:02x}"
    return Port("default", f"p{number}", "n1", "blue", (ip,), mac, 7, {"uid": f"u{number}", **labels})


def profile(name: str, covers: str, *peers: str) -> SecurityProfile:
    """Return a profile of the attachments with this label `key=value`, reachable by those with one of these."""
    key, _, value = covers.partition("=")
    spec = {
        "selector": {"matchLabels": {key: value}},
        "ingress": [{"from": [_peer(one) for one in peers]}],
    }
    whole = {
        "apiVersion": "netloom.dev/v1alpha1",
        "kind": "SecurityProfile",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }
    return msgspec.convert(whole, SecurityProfile)


def _peer(text: str) -> object:
    key, equals, value = text.partition("=")
    if not equals:
        return {"profile": key}
    if value == "*":
        return {"selector": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}
    if key.startswith("!"):
        return {"selector": {"matchExpressions": [{"key": key[1:], "operator": "NotIn", "values": [value]}]}}
    return {"selector": {"matchLabels": {key: value}}}


class Counting(Planner):
    """Counts what is planned."""

    def __init__(self) -> None:
        super().__init__()
        self.units: list[Unit] = []

    def _plan(self, unit: Unit) -> None:
        self.units.append(unit)
        super()._plan(unit)

    def planned_by(self, *changes: Resource | Port, remove: str = "") -> list[str]:
        """Return the names of the units that are planned again after changes, without those that changed."""
        for one in changes:
            self.put(one)
        if remove:
            self.remove(Unit("SecurityProfile", "default", remove))
        self.units.clear()
        self.flush()
        changed = {one.name if isinstance(one, Port) else one.metadata.name for one in changes} | {remove}
        return sorted({unit.name for unit in self.units} - changed)


def counting(*specs: SecurityProfile | Port) -> Counting:
    base, planner = planned(NETWORK, SUBNET), Counting()
    for unit in base.desired.of.values():
        resource = base.world.resource(unit)
        assert resource is not None
        planner.put(resource)
    for one in specs:
        planner.put(one)
    planner.flush()
    return planner


PORTS = [port(number, app=f"a{number % 5}", tier=f"t{number % 3}") for number in range(30)]


def test_a_new_profile_has_those_planned_again_that_it_covers_or_names() -> None:
    planner = counting(*PORTS, profile("old", "app=a1", "tier=t1"))
    assert planner.planned_by(profile("new", "app=a2")) == ["p12", "p17", "p2", "p22", "p27", "p7"]
    assert planner.planned_by(remove="new") == ["p12", "p17", "p2", "p22", "p27", "p7"]


def test_a_selector_of_peers_that_another_profile_has_already_costs_nothing() -> None:
    planner = counting(*PORTS, profile("old", "app=a1", "tier=t1"), port(40, app="a9"))
    assert planner.planned_by(profile("young", "app=a9", "tier=t1")) == ["p40"]
    assert planner.planned_by(remove="young") == ["p40"]


def test_a_rule_that_changes_without_its_selectors_has_no_attachment_planned_again() -> None:
    one = profile("one", "app=a1", "tier=t1")
    planner = counting(*PORTS, one)
    assert one.spec.ingress is not None
    rule = msgspec.structs.replace(one.spec.ingress[0], log=True)
    assert (
        planner.planned_by(msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, ingress=(rule,)))) == []
    )


def test_an_attachment_that_changes_its_labels_has_no_profile_planned_again() -> None:
    planner = counting(*PORTS, profile("one", "app=a1", "tier=t1"), profile("two", "app=a2", "one"))
    assert planner.planned_by(port(1, app="a2", tier="t1")) == []


def test_the_set_of_a_selector_is_planned_once_and_handed_over() -> None:
    planner = counting(*PORTS, profile("b", "app=a1", "tier=t1"), profile("c", "app=a2", "tier=t1"))

    def sets() -> dict[Ref, str]:
        return {ref: unit.name for ref, unit in planner.desired.of.items() if ref.table == "Address_Set"}

    before = sets()
    assert set(before.values()) == {"b"}
    assert len(before) == 2  # One for each family.
    assert planner.planned_by(profile("a", "app=a3", "tier=t1")) == ["b", "p13", "p18", "p23", "p28", "p3", "p8"]
    assert sets() == dict.fromkeys(before, "a")
    for gone, heir in (("a", "b"), ("b", "c")):
        planner.planned_by(remove=gone)
        assert sets() == dict.fromkeys(before, heir)
    planner.planned_by(remove="c")
    assert sets() == {}


SELECTORS = ("app=a1", "app=a2", "tier=t1", "tier=*", "app=*", "!app=a1", "one", "two", "three")


def _some_changes(random: Random) -> Iterator[SecurityProfile | Port | Unit]:
    for _ in range(60):
        match random.randrange(4):
            case 0:
                yield profile(
                    random.choice(("one", "two", "three")),
                    *random.sample(SELECTORS[:3], 1),
                    *random.sample(SELECTORS, 2),
                )
            case 1:
                yield Unit("SecurityProfile", "default", random.choice(("one", "two", "three")))
            case 2:
                yield port(random.randrange(6), app=f"a{random.randrange(3)}", tier=f"t{random.randrange(2)}")
            case _:
                yield Unit("NetworkAttachment", "default", f"p{random.randrange(6)}")


@pytest.mark.parametrize("seed", range(20))
def test_changes_one_by_one_have_the_result_of_all_at_once(seed: int) -> None:
    random, planner = Random(seed), counting()
    for change in _some_changes(random):
        if isinstance(change, Unit):
            planner.remove(change)
        else:
            planner.put(change)
        planner.flush()
        if random.random() < 0.2:
            assert rendered(planner.desired) == rendered(_afresh(planner.world).desired)
    units = [unit for unit in planner.desired.of.values() if unit.kind in ("SecurityProfile", "NetworkAttachment")]
    for unit in units:
        planner.remove(unit)
    planner.flush()
    index = planner.world._joins
    assert not any((index._by_label, index._keys, index._users, index._named))


def _afresh(world: World) -> Planner:
    """Return a planner that gets the same resources in one step."""
    planner = Planner()
    for resource in world._resources.values():
        planner.put(resource)
    for one in world._ports.values():
        planner.put(one)
    planner.flush()
    return planner


# LoadBalancers.


def balancer(name: str, ip: str, *endpoints: str, port: int = 80) -> LoadBalancer:
    whole = {
        "apiVersion": "netloom.dev/v1alpha1",
        "kind": "LoadBalancer",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "networks": ["blue"],
            "vips": [{"ip": ip, "port": port}],
            "endpoints": [{"ip": one} for one in endpoints],
        },
    }
    return msgspec.convert(whole, LoadBalancer)


def test_an_endpoint_that_changes_has_no_other_load_balancer_planned_again() -> None:
    planner = counting()
    planner.planned_by(*(balancer(f"lb{number}", f"10.96.0.{number}", "10.0.0.1") for number in range(1, 50)))
    assert planner.planned_by(balancer("lb7", "10.96.0.7", "10.0.0.2")) == []
    assert planner.planned_by(balancer("other", "10.96.0.7", "10.0.0.2", port=81)) == []
    assert planner.planned_by(balancer("more", "10.96.0.99", "10.0.0.2")) == []


def test_a_load_balancer_that_wants_a_vip_of_another_has_that_one_planned_again() -> None:
    planner = counting()
    planner.planned_by(balancer("b", "10.96.0.7", "10.0.0.1"), balancer("c", "10.96.0.8", "10.0.0.1"))
    assert planner.planned_by(balancer("a", "10.96.0.7", "10.0.0.2")) == ["b"]
    [problem] = planner.desired.problems[Unit("LoadBalancer", "default", "b")]
    assert problem.reason == "AddressInUse"
    assert "that of LoadBalancer a on Network blue, with port 80 (tcp)" in problem.message
