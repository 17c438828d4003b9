"""A session and the server in memory, joined without a network; and what each said."""

import json
from pathlib import Path
from random import Random
from typing import Any

from netloom.ovsdb.cache import Cache
from netloom.ovsdb.memory.server import Database, Server
from netloom.ovsdb.monitor import Following
from netloom.ovsdb.session import Event, Position, RpcSession

NORTHBOUND: dict[str, Any] = json.loads(Path("/usr/share/ovn/ovn-nb.ovsschema").read_text())
TABLES: dict[str, Any] = {"Logical_Switch": None, "Logical_Switch_Port": None}


class Pair:
    """Two ends of a connection."""

    def __init__(
        self,
        server: Server | None = None,
        *,
        following: Following | None = None,
        cache: Cache | None = None,
        position: Position | None = None,
        **options: Any,
    ) -> None:
        self.server = server or Server([Database(NORTHBOUND, Random(1))])
        self.cache = cache or Cache()
        self.position = position or Position()
        self.session = RpcSession(
            following or Following("OVN_Northbound", TABLES), self.cache, self.position, **options
        )
        self.connection = self.server.connect()
        self.events: list[Event] = []
        self.sent: list[bytes] = []
        self.session.start()
        self.carry()

    def carry(self) -> list[Event]:
        """Carry bytes both ways until both are silent; return what the session made of it."""
        new: list[Event] = []
        while True:
            asked = self.session.to_send()
            if asked:
                self.connection.receive(asked)
            answered = self.connection.to_send()
            if not asked and not answered:
                break
            if answered:
                self.sent.append(answered)
                new += self.session.receive(answered)
        self.events += new
        return new

    def transact(self, *operations: Any) -> Event:
        """Do a transaction and return its answer."""
        number = self.session.transact(operations)
        return next(event for event in self.carry() if getattr(event, "id", None) == number)
