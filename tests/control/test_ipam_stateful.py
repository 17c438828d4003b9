"""IPAM against a model that fits on a page: any sequence of changes, with a pause after each for IPAM to settle.

The model is the oracle of the simulated histories (which attachment should have which address), and what a name had
before: an attachment that is created again under the same name within the quarantine gets its addresses back.
Hypothesis looks for the shortest sequence of changes that violates either.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT, SUBNET
from netloom.sim.links import NetworkFaults
from netloom.sim.loop import SimulatedLoop
from netloom.sim.world import World
from tests.control.helpers import network, subnet
from tests.sim.ipam_ledger import Ledger, shown
from tests.sim.ipam_oracle import givable
from tests.sim.ipam_users import BLOCKS, MACS, VNI, attachment, subnets_of, uses
from tests.sim.ipam_wiring import wiring
from tests.sim.ipam_world import History

T = TypeVar("T")
QUARANTINE = 4.0

NAMES = st.sampled_from([f"a{number}" for number in range(7)])
SUBNETS = st.sampled_from(sorted(BLOCKS))
IPS = st.lists(
    st.sampled_from(["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.10", "10.0.0.15", "fd00::2", "fd00::3"]),
    max_size=2,
    unique=True,
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "ips": IPS,
        "subnets": st.sampled_from([["tiny"], ["small"], ["six"], ["tiny", "six"], ["small", "six"]]),
        "mac": st.sampled_from(MACS),
    },
)


class Addresses(RuleBasedStateMachine):
    """One controller, one Network, a few Subnets and names."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=lambda: SimulatedLoop(0))
        self.past: History = self.run(self._begin())

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(main)

    async def _begin(self) -> History:
        store = Ledger(quarantine=QUARANTINE)
        past = History(World(store, faults=NetworkFaults(latency=0.001)), store, wiring, controllers=1)
        past.start()
        return past

    @property
    def store(self) -> Ledger:
        return self.past.store

    def there(self, name: str) -> bool:
        return self.store.lookup(NETWORK_ATTACHMENT, "ns1", name) is not None

    @initialize(vni=st.sampled_from([VNI, None]), names=st.sets(SUBNETS))
    def settle_in(self, vni: int | None, names: set[str]) -> None:
        self.run(self.store.create(NETWORK, network("blue", vni)))
        for name in sorted(names):
            self.run(self.store.create(SUBNET, subnet(name, BLOCKS[name])))

    @rule(name=NAMES, spec=SPECS)
    def create(self, name: str, spec: dict[str, Any]) -> None:
        if not self.there(name):
            self.run(self.store.create(NETWORK_ATTACHMENT, attachment(name, **spec)))

    @rule(names=st.lists(NAMES, min_size=2, max_size=7, unique=True))
    def create_many(self, names: list[str]) -> None:
        for name in names:
            self.create(name, {})

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if self.there(name):
            self.run(self.store.delete(NETWORK_ATTACHMENT, "ns1", name))

    @rule(name=NAMES, spec=SPECS)
    def edit(self, name: str, spec: dict[str, Any]) -> None:
        found = self.store.lookup(NETWORK_ATTACHMENT, "ns1", name)
        if found is not None:
            made = found.document() | {"spec": {"node": "n1", "network": "blue", **spec}}
            self.run(self.store.update(NETWORK_ATTACHMENT, made))

    @rule(name=SUBNETS)
    def make_or_delete_a_subnet(self, name: str) -> None:
        if self.store.lookup(SUBNET, "ns1", name) is None:
            self.run(self.store.create(SUBNET, subnet(name, BLOCKS[name])))
        elif not any(uses(one, name) for one in self.store.attachments):
            self.run(self.store.delete(SUBNET, "ns1", name))

    @rule(name=SUBNETS, exclude=st.sampled_from([[], [0], [2], [3], [2, 3]]))
    def exclude(self, name: str, exclude: list[int]) -> None:
        found = self.store.lookup(SUBNET, "ns1", name)
        if found is not None:
            base, _, _ = BLOCKS[name].partition("/")
            stem = base if ":" in base else base.rpartition(".")[0] + "."
            first = 0 if ":" in base else int(base.rpartition(".")[2])
            spec = {"network": "blue", "cidr": BLOCKS[name], "exclude": [f"{stem}{first + n}" for n in exclude]}
            self.run(self.store.update(SUBNET, found.document() | {"spec": spec}))

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.5, 3.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @rule()
    def restart(self) -> None:
        async def again() -> None:
            self.past.processes[0].kill()
            self.past.processes[0].start()

        self.run(again())

    @rule()
    def come_to_rest(self) -> None:
        self.run(self.past.rest(within=60))

    @precondition(lambda self: self.store.attachments)
    @rule(data=st.data(), pause=st.sampled_from([0.0, 0.2, 2.0]))
    def come_back_under_the_same_name(self, data: st.DataObject, pause: float) -> None:
        """Whoever comes back within the quarantine has the same addresses as before."""
        self.come_to_rest()
        before = data.draw(st.sampled_from(self.store.attachments))
        name = before.metadata.name
        spec = self._document(name)["spec"]
        self.delete(name)
        self.wait(pause)
        self.run(self.store.create(NETWORK_ATTACHMENT, attachment(name, **spec)))
        self.come_to_rest()
        after = next(one for one in self.store.attachments if one.metadata.name == name)
        still = {ip for one in subnets_of(self.store) for ip in givable(one)}
        if not before.status.errors.ipam and {address.ip for address in shown(before)} <= still:
            assert sorted(after.status.ips) == sorted(before.status.ips), f"{name} {spec}"

    def _document(self, name: str) -> dict[str, Any]:
        found = self.store.lookup(NETWORK_ATTACHMENT, "ns1", name)
        assert found is not None
        return found.document()

    def teardown(self) -> None:
        try:
            self.come_to_rest()
        finally:
            self.run(self.past.world.__aexit__(None, None, None))
            self.runner.close()


Addresses.TestCase.settings = settings(
    max_examples=150, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAddresses = Addresses.TestCase
