"""The metrics of every process with controllers: caches, queues, Events."""

from collections import Counter as Tally
from collections.abc import Hashable, Iterable
from typing import Any

from netloom.control.runtime.controller import Controller
from netloom.control.runtime.counters import Histograms
from netloom.control.runtime.events import Recorder
from netloom.control.runtime.informer import Informer
from netloom.control.runtime.manager import Manager
from netloom.run.metrics.exposition import Counter, Families, Gauge, counted, histograms


def manager(running: Manager) -> Families:
    """Return the metrics that all processes with controllers have."""
    yield Gauge("netloom_caches_synced", "Whether all caches are synced.", value=float(running.synced))
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
    labels = ["resource"]
    yield counted(Gauge("netloom_cache_objects", "Objects in a cache.", labels=labels), objects)
    yield counted(Counter("netloom_cache_lists", "Lists made to fill a cache.", labels=labels), lists)
    yield counted(Counter("netloom_cache_watches", "Watches started for a cache.", labels=labels), watches)


def _queues(controllers: Iterable[Controller[Hashable]]) -> Families:
    labels = ["controller"]
    keys = Gauge("netloom_queue_keys", "Keys in a controller's queue.", labels=["controller", "state"])
    adds = Counter("netloom_queue_adds", "Keys added to a queue.", labels=labels)
    retries = Counter("netloom_queue_retries", "Keys requeued after a failure.", labels=labels)
    text = "Seconds that the current reconciles have taken so far, in total."
    unfinished = Gauge("netloom_queue_unfinished_work_seconds", text, labels=labels, unit="seconds")
    text = "Seconds that the longest current reconcile has taken so far."
    longest = Gauge("netloom_queue_longest_running_seconds", text, labels=labels, unit="seconds")
    workers = Gauge("netloom_workers", "Concurrent reconciles that a controller may run.", labels=labels)
    reconciles = Counter("netloom_reconciles", "Reconciles, by outcome.", labels=["controller", "outcome"])
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
    yield histograms("netloom_queue_wait_seconds", "Time of a key in the queue once it is ready.", waits)
    yield histograms("netloom_reconcile_duration_seconds", "Duration of reconciles.", works)


def _events(recorder: Recorder) -> Families:
    """Return the metrics of Events."""
    counters = recorder.counters
    outcomes = {"written": counters.written, "dropped": counters.dropped, "failed": counters.failed}
    yield counted(Counter("netloom_events", "Events recorded, by outcome.", labels=["outcome"]), outcomes)
    yield Gauge("netloom_events_waiting", "Events waiting to be written.", value=recorder.waiting)
