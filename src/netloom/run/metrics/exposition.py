"""Metrics: plain counts of the parts, read at each scrape.

   parts, which count ◄── read at a scrape ── source ──► families ──► text: OpenMetrics or Prometheus

Only this module imports prometheus_client. The parts count in integers on their own objects and know nothing of
metrics; one collector reads them at each scrape. Names follow OpenMetrics: base units, `_total` on counters, no label
whose values an unauthenticated client can choose. `runtime` has the metrics of every process with controllers,
`control`, `agent` and `speaker` those of one process. docs/metrics.md explains each; a test compares it with the
code.
"""

import asyncio
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import ParamSpec, cast

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
from netloom.control.runtime.counters import Histogram, Histograms
from netloom.front.api.app import Observation
from netloom.front.api.http.server import Server
from netloom.front.api.verbs.watches import Watches
from netloom.run.metrics.metering import MeteredStore

Counter, Gauge = CounterMetricFamily, GaugeMetricFamily
Families = Iterator[Metric]
P = ParamSpec("P")
_VERBS = frozenset(("get", "head", "post", "put", "patch", "delete", "options"))


class Metrics:
    """All the sources of one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(PROCESS_COLLECTOR)
        self._registry.register(self)
        self._sources: list[Callable[[], Families]] = [_about]

    def add(self, source: Callable[P, Families], *args: P.args, **options: P.kwargs) -> None:
        """Read `source`, with these arguments, at each scrape too."""
        self._sources.append(partial(source, *args, **options))

    def collect(self) -> Families:
        """Yield the metrics of all sources; prometheus_client calls this."""
        for source in self._sources:
            yield from source()

    async def scrape(self, accept: str) -> tuple[str, bytes]:
        """Return a scrape, rendered in a thread: a thousand nodes make a megabyte, and others wait for the loop."""
        return await asyncio.to_thread(rendered, list(self._registry.collect()), accept)


@dataclass(slots=True)
class _Read:
    """The collected families, as prometheus_client takes them."""

    families: list[Metric]

    def collect(self) -> list[Metric]:
        return self.families


def rendered(families: list[Metric], accept: str) -> tuple[str, bytes]:
    """Return content type and text of a scrape: OpenMetrics if requested, the Prometheus text otherwise."""
    read = cast("CollectorRegistry", _Read(families))  # Its `collect` is called, and nothing else.
    if "application/openmetrics-text" in accept:
        text: bytes = openmetrics(read)  # type: ignore[no-untyped-call]  # the library's gap
        return OPENMETRICS_TYPE, text
    return PLAIN_TYPE, plain(read)


class Requests:
    """Counts and times the API's requests."""

    def __init__(self) -> None:
        self._durations = Histograms(("verb", "resource", "code"))

    def observe(self, seen: Observation) -> None:
        """Count one request.  Verbs and resources are ours and codes are few: no client can create a new label."""
        verb = seen.verb if seen.resource or seen.verb in _VERBS else "other"
        self._durations.observe((verb, seen.resource, str(seen.code)), seen.seconds)

    def read(self) -> Families:
        """Return the metrics."""
        text = "Duration of API requests (of watches: how long they lasted)."
        yield histograms("netloom_api_request_duration_seconds", text, self._durations)


def connections(server: Server) -> Families:
    """Yield the metrics of a listening server."""
    yield Gauge("netloom_api_connections", "Open connections.", value=server.connections)


def watches(opened: Watches) -> Families:
    """Yield the number of open watches: nodes by name, which an administrator chose, all other clients together."""
    yield counted(Gauge("netloom_api_watches", "Open watches.", labels=["resource", "node"]), opened.open)


def store(metered: MeteredStore) -> Families:
    """Yield the metrics of a store."""
    text = "Operations on the store, by outcome."
    yield counted(Counter("netloom_store_operations", text, labels=["operation", "outcome"]), metered.operations)
    text = "Duration of operations on the store; status writes are updates of RESOURCE/status."
    yield histograms("netloom_store_operation_duration_seconds", text, metered.durations)
    yield counted(Gauge("netloom_store_watches", "Open watches on the store.", labels=["resource"]), metered.open)


def counted(
    family: CounterMetricFamily | GaugeMetricFamily, counts: Mapping[str, float] | Mapping[tuple[str, str], float]
) -> Metric:
    """Return a family with these values, by the values of its labels."""
    for labels, count in sorted(counts.items()):
        family.add_metric([labels] if isinstance(labels, str) else list(labels), count)
    return family


def histogram(name: str, text: str, one: Histogram) -> Metric:
    """Return a histogram of durations as a family; its name ends in `_seconds`."""
    found = HistogramMetricFamily(name, text, unit="seconds")
    found.add_metric([], _buckets(one), one.total)
    return found


def histograms(name: str, text: str, many: Histograms) -> Metric:
    """Return histograms of durations as a family; its name ends in `_seconds`."""
    found = HistogramMetricFamily(name, text, labels=many.labels, unit="seconds")
    for words, one in sorted(many.found.items()):
        found.add_metric(words, _buckets(one), one.total)
    return found


def _buckets(one: Histogram) -> Sequence[tuple[str, float]]:
    """Return cumulative counts, as OpenMetrics has them."""
    bounds = [*(str(bound) for bound in one.bounds), "+Inf"]
    return list(zip(bounds, accumulate(one.counts), strict=True))


def _about() -> Families:
    value = {"version": __version__, "python": platform.python_version()}
    yield InfoMetricFamily("netloom_build", "The running version.", value=value)
