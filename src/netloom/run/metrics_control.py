"""The numbers of the central controllers: addresses, Subnets, OVN."""

from typing import TYPE_CHECKING

from netloom.control.ipam.controller import Ipam
from netloom.control.ovn.plan_feed import PlanFeed
from netloom.control.subnets import SubnetValidator
from netloom.run import metrics_runtime
from netloom.run.controllers import ControlPlane
from netloom.run.metrics import Counter, Families, Gauge, Source, histogram, histograms

if TYPE_CHECKING:
    from netloom.drivers.northbound.driver import Northbound


def manager(running: ControlPlane) -> Source:
    """Return the numbers of the controllers."""

    def read() -> Families:
        yield Gauge("netloom_leader", "Whether this process leads.", value=float(running.leading))
        yield from metrics_runtime.manager(running)
        yield from _ipam(running.ipam)
        yield from _subnets(running.subnets)
        if running.plans is not None and running.northbound is not None:
            yield from _northbound(running.plans, running.northbound)

    return read


def _ipam(ipam: Ipam) -> Families:
    """Return the numbers of IPAM."""
    counters = ipam.counters
    yield histogram("netloom_ipam_lock_seconds", "From seeing an attachment to its first lock.", counters.to_lock)
    text = "From seeing an attachment to its addresses in its status."
    yield histogram("netloom_ipam_address_seconds", text, counters.to_address)
    text = "From the wish for an attachment to its first lock."
    yield histograms("netloom_ipam_wish_to_lock_seconds", text, counters.creation_to_lock)
    text = "From the wish for an attachment to its addresses in its status."
    yield histograms("netloom_ipam_wish_to_address_seconds", text, counters.creation_to_address)
    yield Gauge("netloom_ipam_locks", "Addresses locked, those in quarantine included.", value=ipam.locks)
    yield Gauge(
        "netloom_ipam_waiting",
        "Attachments that wait for an address that is not free.",
        value=len(ipam.allocator.queue),
    )
    yield Counter("netloom_ipam_assigned", "Addresses given.", value=counters.assigned)
    yield Counter("netloom_ipam_released", "Addresses taken back while in use.", value=counters.released)
    retries = Counter(
        "netloom_ipam_retries", "Attempts that had to be made again, by what came between.", labels=["reason"]
    )
    for reason, count in sorted(counters.retries.items()):
        retries.add_metric([reason], count)
    yield retries


def _subnets(validator: SubnetValidator) -> Families:
    """Return the numbers of the Subnet validator."""
    counters = validator.counters
    text = "From the wish for a Subnet to its being valid."
    yield histograms("netloom_subnet_wish_to_validated_seconds", text, counters.creation_to_validated)
    yield Counter("netloom_subnet_refusals", "Conflicts of Subnets found.", value=counters.refused)


def _northbound(plans: PlanFeed, north: "Northbound") -> Families:
    """Return the numbers of what is done to OVN's northbound database."""
    counters, client = north.counters, north.client
    connected = float(client.synced.is_set())
    yield Gauge("netloom_ovn_northbound_connected", "Whether the northbound is followed.", value=connected)
    in_step = float(plans.in_step and bool(connected))
    yield Gauge("netloom_ovn_in_step", "Whether the northbound was made what is wanted.", value=in_step)
    desired = plans.planner.desired
    yield Gauge("netloom_ovn_rows_wanted", "Rows that are wanted.", value=len(desired.rows))
    problems = desired.problems.keys() | north.problems.keys()
    yield Gauge("netloom_ovn_problems", "Resources that are not, or not wholly, in OVN.", value=len(problems))
    rows = Counter("netloom_ovn_rows_written", "Rows written, by what was done.", labels=["table", "change"])
    for (table, change), count in sorted(counters.written.items()):
        rows.add_metric([table, change], count)
    text = "Rows that somebody else had changed and that were put back."
    repaired = Counter("netloom_ovn_rows_repaired", text, labels=["table"])
    for table, count in sorted(counters.repaired.items()):
        repaired.add_metric([table], count)
    yield from (rows, repaired)
    text = "Transactions on the northbound, by how they ended."
    transactions = Counter("netloom_ovn_transactions", text, labels=["outcome"])
    ok = counters.transactions - counters.conflicts - counters.refused - counters.unanswered
    outcomes = {"ok": ok, "conflict": counters.conflicts, "refused": counters.refused, "unknown": counters.unanswered}
    for outcome, count in outcomes.items():
        transactions.add_metric([outcome], count)
    yield transactions
    yield Counter("netloom_ovn_sweeps", "Comparisons of everything.", value=plans.sweeps)
    yield Counter("netloom_ovn_connects", "Connections made to the northbound.", value=client.counters.connects)
    yield histogram("netloom_ovn_lag_seconds", "From hearing of a change to its being there.", plans.lag)
