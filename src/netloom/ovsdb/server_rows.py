"""The `_Server` database: a server's information about its databases, and whether the server is usable.  Pure."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from netloom.ovsdb.monitor import Following, Monitor
from netloom.ovsdb.notation import ZERO, OptionalUuid, Uuid
from netloom.ovsdb.schema import Schema

if TYPE_CHECKING:
    from netloom.ovsdb.cache import Cache
    from netloom.ovsdb.session import Position


class Database(Struct, frozen=True, gc=False, kw_only=True):
    """One database of a server."""

    name: str = ""
    model: str = ""
    connected: bool = False
    leader: bool = False
    schema: str | None = None
    cid: OptionalUuid = None
    index: int | None = None
    _uuid: Uuid = ZERO


SCHEMA = Schema.parse(
    {
        "name": "_Server",
        "version": "1.2.0",
        "tables": {
            "Database": {
                "columns": {
                    "name": {"type": "string"},
                    "model": {"type": "string"},
                    "connected": {"type": "boolean"},
                    "leader": {"type": "boolean"},
                    "schema": {"type": {"key": "string", "min": 0}},
                    "cid": {"type": {"key": "uuid", "min": 0}},
                    "index": {"type": {"key": "integer", "min": 0}},
                }
            }
        },
    }
)
_FOLLOWING = Following("_Server", {"Database": None}, known={"Database": Database})
_ONCE = {"initial": True, "insert": False, "delete": False, "modify": False}


@lru_cache
def monitor() -> Monitor:
    """Return the monitor of the `_Server` database."""
    return Monitor(_FOLLOWING, SCHEMA)


def request(*, every_index: bool) -> dict[str, Any]:
    """Return the monitor request.  The index changes with each transaction: it is requested once if that is enough."""
    columns = [column for column in SCHEMA.tables["Database"].columns if column != "index"]
    return {"Database": [{"columns": columns}, {"columns": ["index"]} | ({} if every_index else {"select": _ONCE})]}


def find(cache: "Cache", database: str) -> Database | None:
    """Return the server's information about a database."""
    return next((row for row in cache.rows("Database").values() if row.name == database), None)


def objection(row: Database | None, position: "Position", *, leader_only: bool) -> str:
    """Return why this server is not usable; empty if it is."""
    if row is None:
        return "the server does not have the database"
    if not row.connected:
        return (
            "the server has lost its cluster"
            if row.model == "clustered"
            else "the server is not connected to its source"
        )
    if row.schema is None:
        return "the server has not joined its cluster yet"
    if row.model != "clustered":
        return ""
    if leader_only and not row.leader:
        return "the server does not lead the cluster"
    if row.cid == position.cluster and row.index is not None and row.index < position.index:
        return "the server is behind the state already seen"
    return ""
