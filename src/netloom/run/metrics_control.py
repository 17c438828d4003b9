"""The numbers of controllers: queues, caches, Events, addresses, Subnets, OVN."""

from collections import Counter as Tally
from collections.abc import Hashable, Iterable
from typing import Any

from netloom.control.ipam.controller import Ipam
from netloom.control.ovn.northbound_sync import Logical
from netloom.control.runtime.controller import Controller
from netloom.control.runtime.counters import Histograms
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.informer import Informer
from netloom.control.runtime.manager import Manager
from netloom.control.subnets import SubnetValidator
from netloom.run.controllers import ControlPlane
from netloom.run.metrics import Counter, Families, Gauge, Source, histogram, histograms


def manager(running: ControlPlane) -> Source:
    """Return the numbers of the controllers."""

    def read() -> Families:
        yield Gauge("netloom_leader", "Whether this process leads.", value=float(running.leading))
        yield from common(running)
        yield from _ipam(running.ipam)
        yield from _subnets(running.subnets)
        if running.logical is not None:
            yield from _logical(running.logical)

    return read


def common(running: Manager) -> Families:
    """Return the numbers that all processes with controllers have."""
    yield Gauge("netloom_caches_synced", "Whether all caches are filled.", value=float(running.synced))
    yield from _caches(running.informers)
    yield from _queues(running.controllers)
    yield from _events(running.recorder)


def _caches(informers: Iterable[Informer[Any]]) -> Families:
    objects, lists, watches = Tally[str](), Tally[str](), Tally[str]()
    for one in informers:
        resource = one.kind.plural
        objects[resource] += len(one.cache)
        lists[resource] += one.lists
        watches[resource] += one.watches
    gauge = Gauge("netloom_cache_objects", "Objects in a cache.", labels=["resource"])
    listed = Counter("netloom_cache_lists", "How often a cache was filled from a list.", labels=["resource"])
    watched = Counter("netloom_cache_watches", "How often a watch was begun for a cache.", labels=["resource"])
    for resource in sorted(objects):
        gauge.add_metric([resource], objects[resource])
        listed.add_metric([resource], lists[resource])
        watched.add_metric([resource], watches[resource])
    yield from (gauge, listed, watched)


def _queues(controllers: Iterable[Controller[Hashable]]) -> Families:
    labels = ["controller"]
    keys = Gauge("netloom_queue_keys", "Keys in a controller's queue.", labels=["controller", "state"])
    adds = Counter("netloom_queue_adds", "Keys added to a queue.", labels=labels)
    retries = Counter("netloom_queue_retries", "Keys put back by a failure.", labels=labels)
    text = "For how long the workers have been at the keys they are at, all together."
    unfinished = Gauge("netloom_queue_unfinished_work_seconds", text, labels=labels, unit="seconds")
    text = "For how long the slowest worker has been at its key."
    longest = Gauge("netloom_queue_longest_running_seconds", text, labels=labels, unit="seconds")
    workers = Gauge("netloom_workers", "Keys a controller may work on at a time.", labels=labels)
    reconciles = Counter("netloom_reconciles", "Reconciles, by how they ended.", labels=["controller", "outcome"])
    waits, works = Histograms(("controller",)), Histograms(("controller",))
    for controller in controllers:
        name, queue = controller.name, controller.queue
        for state, count in (("ready", len(queue)), ("waiting", queue.waiting), ("working", queue.working)):
            keys.add_metric([name, state], count)
        adds.add_metric([name], queue.counters.adds)
        retries.add_metric([name], queue.counters.retries)
        unfinished.add_metric([name], queue.unfinished)
        longest.add_metric([name], queue.longest_running)
        workers.add_metric([name], controller.workers)
        reconciles.add_metric([name, "ok"], controller.succeeded)
        reconciles.add_metric([name, "failed"], controller.failed)
        waits.found[name,] = queue.counters.latency
        works.found[name,] = queue.counters.work
    yield from (keys, adds, retries, unfinished, longest, workers, reconciles)
    yield histograms("netloom_queue_wait_seconds", "From ready to taken.", waits)
    yield histograms("netloom_reconcile_duration_seconds", "From taken to done.", works)


def _events(recorder: Recorder) -> Families:
    """Return the numbers of the Events."""
    counters = recorder.counters
    events = Counter("netloom_events", "Events told, by what became of them.", labels=["outcome"])
    for outcome, count in (("written", counters.written), ("dropped", counters.dropped), ("failed", counters.failed)):
        events.add_metric([outcome], count)
    yield events
    yield Gauge("netloom_events_waiting", "Events that wait to be written.", value=recorder.waiting)


def _ipam(ipam: Ipam) -> Families:
    """Return the numbers of IPAM."""
    counters = ipam.counters
    yield histogram("netloom_ipam_lock_seconds", "From seeing an attachment to its first lock.", counters.to_lock)
    text = "From seeing an attachment to its addresses in its status."
    yield histogram("netloom_ipam_address_seconds", text, counters.to_address)
    text = "From the wish for an attachment to its first lock."
    yield histograms("netloom_ipam_wish_to_lock_seconds", text, counters.wish_to_lock)
    text = "From the wish for an attachment to its addresses in its status."
    yield histograms("netloom_ipam_wish_to_address_seconds", text, counters.wish_to_address)
    yield Gauge("netloom_ipam_locks", "Addresses locked, those in quarantine included.", value=ipam.locks)
    yield Gauge("netloom_ipam_waiting", "Attachments that wait for an address that is not free.", value=len(ipam.lines))
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
    yield histograms("netloom_subnet_wish_to_validated_seconds", text, counters.wish_to_validated)
    yield Counter("netloom_subnet_refusals", "Conflicts of Subnets found.", value=counters.refused)


def _logical(logical: Logical) -> Families:
    """Return the numbers of what is done to OVN's northbound database."""
    north = logical.north
    counters, client = north.counters, north.client
    connected = float(client.synced.is_set())
    yield Gauge("netloom_ovn_northbound_connected", "Whether the northbound is followed.", value=connected)
    in_step = float(logical.in_step and bool(connected))
    yield Gauge("netloom_ovn_in_step", "Whether the northbound was made what is wanted.", value=in_step)
    wanted = logical.planner.wanted
    yield Gauge("netloom_ovn_rows_wanted", "Rows that are wanted.", value=len(wanted.rows))
    problems = wanted.problems.keys() | north.problems.keys()
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
    yield Counter("netloom_ovn_sweeps", "Comparisons of everything.", value=logical.sweeps)
    yield Counter("netloom_ovn_connects", "Connections made to the northbound.", value=client.counters.connects)
    yield histogram("netloom_ovn_lag_seconds", "From hearing of a change to its being there.", logical.lag)
