import asyncio
from random import Random

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from netloom.control.runtime.events import BURST
from netloom.errors import AlreadyExists
from netloom.front.api.app import Observation
from netloom.model.kinds.events import ObjectReference
from netloom.model.registry import NETWORK
from netloom.run import controllers
from netloom.run.metrics import control, exposition
from netloom.run.metrics.metering import MeteredStore
from netloom.store.memory import MemoryStore

BLUE = {
    "apiVersion": NETWORK.api_version,
    "kind": "Network",
    "metadata": {"name": "blue", "namespace": "a"},
    "spec": {},
}


def sample(text: bytes, name: str, **labels: str) -> float:
    for family in plain(text.decode()):
        for found in family.samples:
            if found.name == name and found.labels.items() >= labels.items():
                return float(found.value)
    raise AssertionError(f"no {name} {labels}")


def scraped(measured: exposition.Metrics) -> bytes:
    return exposition.rendered(list(measured.collect()), "")[1]


def test_a_store_is_counted_by_operation_and_outcome() -> None:
    async def main() -> None:
        store = MeteredStore(MemoryStore())
        measured = exposition.Metrics()
        measured.add(exposition.store, store)
        created = await store.create(NETWORK, BLUE)
        with pytest.raises(AlreadyExists):
            await store.create(NETWORK, BLUE)
        watch = await store.watch(NETWORK, since=created.revision)
        await store.delete(NETWORK, "a", "blue")
        assert [event.type for event in await watch.next()] == ["DELETED"]
        assert watch.revision >= created.revision
        text = scraped(measured)
        assert sample(text, "netloom_store_operations_total", operation="create", outcome="ok") == 1
        assert sample(text, "netloom_store_operations_total", operation="create", outcome="AlreadyExists") == 1
        assert sample(text, "netloom_store_watches") == 1
        await watch.close()
        await watch.close()
        assert sample(scraped(measured), "netloom_store_watches") == 0
        await store.close()

    asyncio.run(main())


def test_requests_are_counted_by_verb_resource_and_code() -> None:
    requests = exposition.Requests()
    measured = exposition.Metrics()
    measured.add(requests.read)
    for seconds in (0.002, 0.2):
        requests.observe(Observation("create", "networks", 201, seconds))
    requests.observe(Observation("brew", "", 405, 0.1))
    text = scraped(measured)
    name = "netloom_api_request_duration_seconds"
    assert sample(text, f"{name}_count", verb="create", resource="networks", code="201") == 2
    assert sample(text, f"{name}_bucket", verb="create", le="0.0025") == 1
    assert sample(text, f"{name}_bucket", verb="create", le="+Inf") == 2
    assert sample(text, f"{name}_count", verb="other", code="405") == 1


def test_controllers_show_their_queues_and_whether_they_lead() -> None:
    async def main() -> None:
        manager = controllers.assemble(MemoryStore(), random=Random(1))
        measured = exposition.Metrics()
        measured.add(control.manager, manager)
        text = scraped(measured)
        assert sample(text, "netloom_leader") == 0
        assert sample(text, "netloom_queue_keys", controller="subnets", state="ready") == 0
        assert sample(text, "netloom_reconciles_total", controller="garbage", outcome="ok") == 0

    asyncio.run(main())


def test_events_are_counted_by_what_became_of_them() -> None:
    async def main() -> None:
        manager = controllers.assemble(MemoryStore(), random=Random(1))
        measured = exposition.Metrics()
        measured.add(control.manager, manager)
        for number in range(BURST + 2):
            manager.recorder.warning(ObjectReference(kind="Node", name="n1"), "Flapping", f"for the {number}. time")
        assert sample(scraped(measured), "netloom_events_waiting") == BURST
        writing = asyncio.ensure_future(manager.recorder.run())
        await manager.recorder.flush()
        writing.cancel()
        text = scraped(measured)
        assert sample(text, "netloom_events_total", outcome="written") == BURST
        assert sample(text, "netloom_events_total", outcome="dropped") == 2
        assert sample(text, "netloom_events_total", outcome="failed") == 0
        assert sample(text, "netloom_events_waiting") == 0

    asyncio.run(main())


def test_the_text_is_openmetrics_for_who_asks_for_it() -> None:
    measured = exposition.Metrics()
    kind, text = exposition.rendered(list(measured.collect()), "application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    families = openmetrics(text.decode())  # type: ignore[no-untyped-call]
    assert "netloom_build" in {family.name for family in families}
    assert exposition.rendered([], "")[0].startswith("text/plain")
