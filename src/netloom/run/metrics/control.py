"""The metrics of the central controllers: addresses, Subnets, OVN."""

from typing import TYPE_CHECKING

from netloom.control.ipam.controller import Ipam
from netloom.control.ovn.plan_feed import PlanFeed
from netloom.control.subnets import SubnetValidator
from netloom.run.controllers import ControlPlane
from netloom.run.metrics import runtime
from netloom.run.metrics.exposition import Counter, Families, Gauge, counted, histogram, histograms

if TYPE_CHECKING:
    from netloom.drivers.northbound.driver import Northbound


def manager(running: ControlPlane) -> Families:
    """Yield the metrics of the controllers."""
    yield Gauge("netloom_leader", "Whether this process is the leader.", value=float(running.leading))
    yield from runtime.manager(running)
    yield from _ipam(running.ipam)
    yield from _subnets(running.subnets)
    if running.plans is not None and running.northbound is not None:
        yield from _northbound(running.plans, running.northbound)


def _ipam(ipam: Ipam) -> Families:
    """Return the metrics of IPAM."""
    counters = ipam.counters
    yield histogram("netloom_ipam_lock_seconds", "From observing an attachment to its first lock.", counters.to_lock)
    text = "From observing an attachment to the addresses in its status."
    yield histogram("netloom_ipam_address_seconds", text, counters.to_address)
    text = "From creating an attachment to its first lock."
    yield histograms("netloom_ipam_wish_to_lock_seconds", text, counters.creation_to_lock)
    text = "From creating an attachment to the addresses in its status."
    yield histograms("netloom_ipam_wish_to_address_seconds", text, counters.creation_to_address)
    yield Gauge("netloom_ipam_locks", "Locked addresses, including those in quarantine.", value=ipam.locks)
    yield Gauge("netloom_ipam_waiting", "Attachments waiting for an address.", value=len(ipam.allocator.queue))
    yield Counter("netloom_ipam_assigned", "Addresses allocated.", value=counters.assigned)
    yield Counter("netloom_ipam_released", "Addresses released while in use.", value=counters.released)
    text = "Allocations that were retried, by reason."
    yield counted(Counter("netloom_ipam_retries", text, labels=["reason"]), counters.retries)


def _subnets(validator: SubnetValidator) -> Families:
    """Return the metrics of the Subnet validator."""
    counters = validator.counters
    text = "From creating a Subnet to its validation."
    yield histograms("netloom_subnet_wish_to_validated_seconds", text, counters.creation_to_validated)
    yield Counter("netloom_subnet_refusals", "Conflicts of Subnets found.", value=counters.refused)


def _northbound(plans: PlanFeed, north: "Northbound") -> Families:
    """Return the metrics of the controller of OVN's northbound database."""
    counters, client = north.counters, north.client
    connected = float(client.synced.is_set())
    yield Gauge("netloom_ovn_northbound_connected", "Whether the northbound is connected.", value=connected)
    in_step = float(plans.in_step and bool(connected))
    yield Gauge("netloom_ovn_in_step", "Whether the northbound has the desired rows.", value=in_step)
    desired = plans.planner.desired
    yield Gauge("netloom_ovn_rows_wanted", "Desired rows.", value=len(desired.rows))
    problems = desired.problems.keys() | north.problems.keys()
    yield Gauge("netloom_ovn_problems", "Resources that are not, or not completely, in OVN.", value=len(problems))
    text = "Rows written, by table and change."
    yield counted(Counter("netloom_ovn_rows_written", text, labels=["table", "change"]), counters.written)
    text = "Rows changed by others and restored."
    yield counted(Counter("netloom_ovn_rows_repaired", text, labels=["table"]), counters.repaired)
    text = "Transactions on the northbound, by outcome."
    ok = counters.transactions - counters.conflicts - counters.refused - counters.unanswered
    outcomes = {"ok": ok, "conflict": counters.conflicts, "refused": counters.refused, "unknown": counters.unanswered}
    yield counted(Counter("netloom_ovn_transactions", text, labels=["outcome"]), outcomes)
    yield Counter("netloom_ovn_sweeps", "Full comparisons of desired and actual rows.", value=plans.sweeps)
    yield Counter("netloom_ovn_connects", "Connections made to the northbound.", value=client.counters.connects)
    yield histogram("netloom_ovn_lag_seconds", "From observing a change to its rows in OVN.", plans.lag)
