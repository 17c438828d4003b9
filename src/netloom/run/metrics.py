"""Metrics: plain numbers of the parts, read when somebody asks.

The only importer of prometheus_client. The parts count in integers on their own objects and know nothing of metrics;
one collector reads them at each scrape. Names follow OpenMetrics: base units, `_total` on counters, no label whose
values a stranger can choose.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client import PROCESS_COLLECTOR, CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as PLAIN_TYPE
from prometheus_client.exposition import generate_latest as plain
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS_TYPE
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

from netloom import __version__
from netloom.control.counters import Histogram
from netloom.control.events import Recorder
from netloom.control.ipam import Ipam
from netloom.control.logical import Logical
from netloom.control.manager import Manager
from netloom.front.api.app import Observation
from netloom.front.api.server import Server
from netloom.run.metering import MeteredStore

Families = Iterator[Metric]
_VERBS = frozenset(("get", "head", "post", "put", "patch", "delete", "options"))


class Source(Protocol):
    """A part whose numbers are read at each scrape."""

    def __call__(self) -> Iterable[Metric]:
        """Return its numbers now."""


class Metrics:
    """All the sources of one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(PROCESS_COLLECTOR)
        self._registry.register(self)
        self._sources: list[Source] = [_about]

    def add(self, source: Source) -> None:
        """Read `source` too, from now on."""
        self._sources.append(source)

    def collect(self) -> Families:
        """Yield the numbers of all sources; prometheus_client calls this."""
        for source in self._sources:
            yield from source()

    def plain(self) -> bytes:
        """Return the text of a scrape in the old format, which everybody reads."""
        return self.render()[1]

    def render(self, accept: str = "") -> tuple[str, bytes]:
        """Return content type and text of a scrape: OpenMetrics for who asks for it, the old text otherwise."""
        if "application/openmetrics-text" in accept:
            text: bytes = openmetrics(self._registry)  # type: ignore[no-untyped-call]  # the library's gap
            return OPENMETRICS_TYPE, text
        return PLAIN_TYPE, plain(self._registry)


class Requests:
    """Counts the API's requests."""

    def __init__(self) -> None:
        self._durations: dict[tuple[str, str, str], Histogram] = {}

    def observe(self, seen: Observation) -> None:
        """Count one request.  Verbs and resources are ours and codes are few: no stranger can make a new label."""
        key = (seen.verb if seen.resource or seen.verb in _VERBS else "other", seen.resource, str(seen.code))
        durations = self._durations.get(key)
        if durations is None:
            durations = self._durations[key] = Histogram()
        durations.observe(seen.seconds)

    def read(self) -> Families:
        """Return the numbers."""
        found = HistogramMetricFamily(
            "netloom_api_request_duration_seconds",
            "Requests to the API, by how long they took (watches: how long they lasted).",
            labels=["verb", "resource", "code"],
            unit="seconds",
        )
        for labels, durations in sorted(self._durations.items()):
            found.add_metric(list(labels), _buckets(durations), durations.total)
        yield found


def connections(server: Server) -> Source:
    """Return the numbers of a listening server."""

    def read() -> Families:
        yield GaugeMetricFamily("netloom_api_connections", "Connections open now.", value=server.connections)

    return read


def store(metered: MeteredStore) -> Source:
    """Return the numbers of a store."""

    def read() -> Families:
        operations = CounterMetricFamily(
            "netloom_store_operations", "Operations on the store, by how they ended.", labels=["operation", "outcome"]
        )
        for (operation, outcome), count in sorted(metered.operations.items()):
            operations.add_metric([operation, outcome], count)
        yield operations
        yield GaugeMetricFamily("netloom_store_watches", "Watches open on the store.", value=metered.watches)

    return read


def manager(running: Manager) -> Source:
    """Return the numbers of the controllers."""

    def read() -> Families:
        yield GaugeMetricFamily("netloom_leader", "Whether this process leads.", value=float(running.leading))
        yield GaugeMetricFamily("netloom_caches_synced", "Whether all caches are filled.", value=float(running.synced))
        keys = GaugeMetricFamily("netloom_queue_keys", "Keys in a controller's queue.", labels=["controller", "state"])
        adds = CounterMetricFamily("netloom_queue_adds", "Keys added to a queue.", labels=["controller"])
        retries = CounterMetricFamily("netloom_queue_retries", "Keys put back by a failure.", labels=["controller"])
        reconciles = CounterMetricFamily(
            "netloom_reconciles", "Reconciles, by how they ended.", labels=["controller", "outcome"]
        )
        waits, works = (
            _durations("netloom_queue_wait", "From ready to taken."),
            _durations("netloom_reconcile_duration", "From taken to done."),
        )
        for controller in running.controllers:
            name, queue = controller.name, controller.queue
            for state, count in (("ready", len(queue)), ("waiting", queue.waiting), ("working", queue.working)):
                keys.add_metric([name, state], count)
            adds.add_metric([name], queue.counters.adds)
            retries.add_metric([name], queue.counters.retries)
            reconciles.add_metric([name, "ok"], controller.succeeded)
            reconciles.add_metric([name, "failed"], controller.failed)
            waits.add_metric([name], _buckets(queue.counters.latency), queue.counters.latency.total)
            works.add_metric([name], _buckets(queue.counters.work), queue.counters.work.total)
        yield from (keys, adds, retries, reconciles, waits, works)
        yield from _events(running.recorder)
        if running.ipam is not None:
            yield from _ipam(running.ipam)
        if running.logical is not None:
            yield from _logical(running.logical)

    return read


def agent(numbers: Callable[[], Mapping[str, float]]) -> Source:
    """Return the numbers of a node's agent: all of them count what happened."""

    def read() -> Families:
        for name, count in sorted(numbers().items()):
            text = f"Agent: {name.replace('_', ' ')} since the start."
            yield CounterMetricFamily(f"netloom_agent_{name}", text, value=count)

    return read


def _events(recorder: Recorder) -> Families:
    """Return the numbers of the Events."""
    counters = recorder.counters
    events = CounterMetricFamily("netloom_events", "Events told, by what became of them.", labels=["outcome"])
    for outcome, count in (("written", counters.written), ("dropped", counters.dropped), ("failed", counters.failed)):
        events.add_metric([outcome], count)
    yield events
    yield GaugeMetricFamily("netloom_events_waiting", "Events that wait to be written.", value=recorder.waiting)


def _ipam(ipam: Ipam) -> Families:
    """Return the numbers of IPAM."""
    counters = ipam.counters
    for name, text, histogram in (
        ("netloom_ipam_lock", "From seeing an attachment to its first lock.", counters.to_lock),
        ("netloom_ipam_address", "From seeing an attachment to its addresses in its status.", counters.to_address),
    ):
        found = HistogramMetricFamily(f"{name}_seconds", text, unit="seconds")
        found.add_metric([], _buckets(histogram), histogram.total)
        yield found
    yield GaugeMetricFamily("netloom_ipam_locks", "Addresses locked, those in quarantine included.", value=ipam.locks)
    yield GaugeMetricFamily(
        "netloom_ipam_waiting", "Attachments that wait for an address that is not free.", value=len(ipam.lines)
    )
    yield CounterMetricFamily("netloom_ipam_assigned", "Addresses given.", value=counters.assigned)
    yield CounterMetricFamily("netloom_ipam_released", "Addresses taken back while in use.", value=counters.released)
    retries = CounterMetricFamily(
        "netloom_ipam_retries", "Attempts that had to be made again, by what came between.", labels=["reason"]
    )
    for reason, count in sorted(counters.retries.items()):
        retries.add_metric([reason], count)
    yield retries


def _logical(logical: Logical) -> Families:
    """Return the numbers of what is done to OVN's northbound database."""
    north = logical.north
    counters, client = north.counters, north.client
    connected = float(client.synced.is_set())
    yield GaugeMetricFamily("netloom_ovn_northbound_connected", "Whether the northbound is followed.", value=connected)
    in_step = float(logical.in_step and bool(connected))
    yield GaugeMetricFamily("netloom_ovn_in_step", "Whether the northbound was made what is wanted.", value=in_step)
    wanted = logical.planner.wanted
    yield GaugeMetricFamily("netloom_ovn_rows_wanted", "Rows that are wanted.", value=len(wanted.rows))
    problems = wanted.problems.keys() | north.problems.keys()
    yield GaugeMetricFamily(
        "netloom_ovn_problems", "Resources that are not, or not wholly, in OVN.", value=len(problems)
    )
    rows = CounterMetricFamily(
        "netloom_ovn_rows_written", "Rows written, by what was done.", labels=["table", "change"]
    )
    for (table, change), count in sorted(counters.written.items()):
        rows.add_metric([table, change], count)
    repaired = CounterMetricFamily(
        "netloom_ovn_rows_repaired", "Rows that somebody else had changed and that were put back.", labels=["table"]
    )
    for table, count in sorted(counters.repaired.items()):
        repaired.add_metric([table], count)
    yield from (rows, repaired)
    transactions = CounterMetricFamily(
        "netloom_ovn_transactions", "Transactions on the northbound, by how they ended.", labels=["outcome"]
    )
    ok = counters.transactions - counters.conflicts - counters.refused - counters.unanswered
    outcomes = {"ok": ok, "conflict": counters.conflicts, "refused": counters.refused, "unknown": counters.unanswered}
    for outcome, count in outcomes.items():
        transactions.add_metric([outcome], count)
    yield transactions
    yield CounterMetricFamily("netloom_ovn_sweeps", "Comparisons of everything.", value=logical.sweeps)
    yield CounterMetricFamily(
        "netloom_ovn_connects", "Connections made to the northbound.", value=client.counters.connects
    )
    lag = HistogramMetricFamily(
        "netloom_ovn_lag_seconds", "From hearing of a change to its being there.", unit="seconds"
    )
    lag.add_metric([], _buckets(logical.lag), logical.lag.total)
    yield lag


def _durations(name: str, text: str) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"{name}_seconds", text, labels=["controller"], unit="seconds")


def _buckets(histogram: Histogram) -> Sequence[tuple[str, float]]:
    """Return cumulative counts, as OpenMetrics has them."""
    bounds = [*(str(bound) for bound in histogram.bounds), "+Inf"]
    total = 0
    found: list[tuple[str, float]] = []
    for bound, count in zip(bounds, histogram.counts, strict=True):
        total += count
        found.append((bound, total))
    return found


def _about() -> Families:
    yield InfoMetricFamily("netloom_build", "What runs here.", value={"version": __version__})
