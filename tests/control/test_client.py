import pytest

from netloom.control.runtime.client import Client
from netloom.errors import Conflict, NotFound, Unreachable
from netloom.model.document import ObjectMeta
from netloom.model.kinds.networks import Network, NetworkSpec, NetworkStatus
from netloom.model.registry import NETWORK
from tests.control.helpers import memory, network, run

BLUE = Network(
    api_version=NETWORK.api_version,
    kind="Network",
    metadata=ObjectMeta(name="blue", namespace="ns1"),
    spec=NetworkSpec(vni=7),
)


def test_values_go_in_and_come_out() -> None:
    async def main() -> None:
        client = Client(memory())
        made = await client.create(BLUE)
        assert made.metadata.uid
        assert await client.get(Network, "ns1", "blue") == made
        assert await client.find(Network, "ns1", "blue") == made
        assert await client.find(Network, "ns1", "red") is None
        assert await client.list(Network) == [made]
        assert (await client.document(NETWORK, "ns1", "blue"))["spec"] == {"vni": 7}

    run(main())


def test_all_pages_are_read() -> None:
    async def main() -> None:
        store = memory()
        for number in range(5):
            await store.create(NETWORK, network(f"n{number}"))
        assert [value.metadata.name for value in await Client(store, page=2).list(Network)] == [
            f"n{n}" for n in range(5)
        ]

    run(main())


def test_a_status_that_is_no_news_is_not_written() -> None:
    async def main() -> None:
        client = Client(memory())
        made = await client.create(BLUE)
        once = await client.update_status(made, NetworkStatus(vni=7))
        assert once.metadata.revision > made.metadata.revision
        assert once.status.vni == 7
        assert await client.update_status(once, NetworkStatus(vni=7)) is once
        with pytest.raises(Conflict):
            await client.update_status(made, NetworkStatus(vni=8))

    run(main())


def test_updates_replace_and_deletes_forgive() -> None:
    async def main() -> None:
        client = Client(memory())
        made = await client.create(BLUE)
        document = await client.document(NETWORK, "ns1", "blue")
        document["metadata"]["labels"] = {"a": "b"}
        await client.replace(NETWORK, document)
        fresh = await client.get(Network, "ns1", "blue")
        assert fresh.metadata.labels == {"a": "b"}
        assert await client.update(fresh) == fresh
        with pytest.raises(Conflict):
            await client.delete(NETWORK, "ns1", "blue", uid="another")
        await client.delete(NETWORK, "ns1", "blue", uid=made.metadata.uid)
        await client.delete(NETWORK, "ns1", "blue", uid=made.metadata.uid)
        with pytest.raises(NotFound):
            await client.get(Network, "ns1", "blue")

    run(main())


def test_nothing_is_written_without_certainty() -> None:
    async def main() -> None:
        store = memory()
        made = await Client(store).create(BLUE)
        uncertain = Client(store, fence=lambda: False)
        assert await uncertain.get(Network, "ns1", "blue") == made
        document = await uncertain.document(NETWORK, "ns1", "blue")
        for write in (
            uncertain.create(BLUE),
            uncertain.update(made),
            uncertain.replace(NETWORK, document),
            uncertain.update_status(made, NetworkStatus(vni=9)),
            uncertain.delete(NETWORK, "ns1", "blue", uid=made.metadata.uid),
        ):
            with pytest.raises(Unreachable, match="not certain"):
                await write
        assert await Client(store).get(Network, "ns1", "blue") == made

    run(main())
