"""From the text a person gives (`--store`) to an open store."""

from netloom.errors import BadRequest
from netloom.store.base import Store


async def open_store(url: str) -> Store:
    """Open `memory:`, `sqlite:PATH` or `etcd:URL,URL,…`.

    Each kind of store is imported when it is asked for: most processes need one.
    """
    scheme, _, rest = url.partition(":")
    match scheme:
        case "memory" if not rest:
            from netloom.store.memory import MemoryStore

            return MemoryStore()
        case "sqlite" if rest:
            from netloom.store.sqlite import SqliteStore

            return await SqliteStore.open(rest)
        case "etcd" if rest:
            from netloom.store.etcd import EtcdStore

            return await EtcdStore.open([part.strip() for part in rest.split(",") if part.strip()])
    raise BadRequest(f"{url!r} is not a store: it is memory:, sqlite:PATH or etcd:URL,URL,…")
