"""Attachments in a lab: from the request to Ready, compared with plain OVSDB calls for the same port.

One node with a real Open vSwitch and OVN. Ours is the whole path: the API, addresses, the northbound, the agent, the
device and its addresses, OVN's confirmation, the status, and its watch event. The reference, measured alternately and
in the same lab, is the shortest path: a script with open sockets to both databases inserts the logical port and the
interface at once, knows all addresses beforehand, configures none, and waits for `ovn-installed`.
"""

import asyncio
import contextlib
import json
import socket
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from bench.table import Row
from netloom.errors import NotFound
from netloom.lab import Lab
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import NETWORK, NETWORK_ATTACHMENT, SUBNET
from netloom.store.base import EventType, Watch
from netloom.store.kube import kubeconfig
from netloom.store.kube.store import KubeStore

NODE = "n1"
WARM, SINGLE = 5, 40
"""How many ports of each type are plugged before the measurement, and measured, one after another: fewer than 100."""
BURST, BURSTS = 200, 5
GROUP = 50
"""How many ports the script sends in one transaction: OVN is fastest so."""
PATIENCE = 60.0


def rows() -> list[Row]:
    """Measure and return the table."""
    with tempfile.TemporaryDirectory(prefix="netloom-bench-") as folder:
        lab = Lab.up(Path(folder) / "lab", nodes=1)
        try:
            return asyncio.run(measure(lab))
        finally:
            lab.down()


async def measure(lab: Lab) -> list[Row]:
    """Measure in a lab that is up."""
    async with opened(lab) as ours:
        with contextlib.closing(Plain(lab)) as plain:
            single = await _singles(ours, plain)
            bursts = await _bursts(ours, plain)
    return [*single, *bursts]


async def _singles(ours: "Ours", plain: "Plain") -> list[Row]:
    mine: list[float] = []
    theirs: list[float] = []
    for number in range(WARM + SINGLE):
        mine.append(await ours.plug([f"s{number}"]) * 1000)
        theirs.append(plain.plug([number]) * 1000)
    await ours.unplug([f"s{number}" for number in range(WARM + SINGLE)])
    plain.unplug()
    plain.rest()
    a, b = statistics.median(mine[WARM:]), statistics.median(theirs[WARM:])
    worst = [statistics.quantiles(some[WARM:], n=20)[-1] for some in (mine, theirs)]
    return [
        Row("attachment created to Ready, p50", a, "ms", b, 2.0, more_is_better=False),
        Row("attachment created to Ready, p95", worst[0], "ms", worst[1]),
    ]


async def _bursts(ours: "Ours", plain: "Plain") -> list[Row]:
    mine, theirs = 0.0, 0.0
    for turn in range(BURSTS):  # Alternately, and the best of each: other load on this machine affects both.
        names = [f"b{turn}-{number}" for number in range(BURST)]
        mine = max(mine, BURST / await ours.plug(names))
        await ours.unplug(names)
        plain.rest()
        theirs = max(theirs, BURST / plain.plug(range(BURST)))
        plain.unplug()
        plain.rest()
    return [
        Row(f"{BURST} attachments at once, to the last Ready", mine, "/s", theirs, 0.35),
    ]


class Ours:
    """Attachments through the API, for a client that watches them."""

    def __init__(self, store: KubeStore, watch: Watch) -> None:
        self._store = store
        self._watch = watch

    async def plug(self, names: Sequence[str]) -> float:
        """Create attachments at once; return how long it took until all were Ready, in seconds."""
        began = time.perf_counter()
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            for name in names:
                document = _document(NETWORK_ATTACHMENT, name, {"node": NODE, "network": "bench"})
                group.create_task(self._store.create(NETWORK_ATTACHMENT, document))
            left = set(names)
            while left:
                left -= {one.object.name for one in await self._watch.next() if _is_ready(one.object.document())}
        return time.perf_counter() - began

    async def unplug(self, names: Sequence[str]) -> None:
        """Delete attachments; return when they are gone."""
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self._delete(name))
            left = set(names)
            while left:
                left -= {one.object.name for one in await self._watch.next() if one.type is EventType.DELETED}

    async def _delete(self, name: str) -> None:
        with contextlib.suppress(NotFound):
            await self._store.delete(NETWORK_ATTACHMENT, "default", name)


@contextlib.asynccontextmanager
async def opened(lab: Lab) -> AsyncIterator[Ours]:
    """Yield the API, with a Network and a Subnet in it."""
    store = await KubeStore.open(kubeconfig.load(str(lab.kubeconfig)))
    try:
        await store.create(NETWORK, _document(NETWORK, "bench", {}))
        block = await store.create(SUBNET, _document(SUBNET, "bench", {"network": "bench", "cidr": "10.64.0.0/16"}))
        subnets = await store.watch(SUBNET, since=block.revision)
        while not any(_is_ready(one.object.document()) for one in await subnets.next()):
            pass
        watch = await store.watch(NETWORK_ATTACHMENT, since=await store.revision())
        yield Ours(store, watch)
        await watch.close()
    finally:
        await store.close()


class Plain:
    """The same ports with OVSDB calls only."""

    def __init__(self, lab: Lab) -> None:
        self._north = JsonRpc(lab.layout.database_socket("nb", 1), "OVN_Northbound")
        self._switch = JsonRpc(lab.layout.switch_socket(NODE), "Open_vSwitch")
        row = {"name": "plain", "other_config": ["map", [["vlan-passthru", "false"]]]}
        [made] = self._north.call([{"op": "insert", "table": "Logical_Switch", "row": row}])
        self._logical = made["uuid"]
        [found] = self._switch.call([{"op": "select", "table": "Bridge", "where": [["name", "==", "br-int"]]}])
        self._bridge = found["rows"][0]["_uuid"]
        wanted = {"Interface": [{"columns": ["name", "external_ids"]}]}
        self._switch.ask("monitor", ["Open_vSwitch", None, wanted])

    def close(self) -> None:
        """Close the sockets."""
        self._north.close()
        self._switch.close()

    def plug(self, numbers: Sequence[int]) -> float:
        """Insert ports; return how long it took until OVN had installed them all, in seconds."""
        began = time.perf_counter()
        for start in range(0, len(numbers), GROUP):
            group = numbers[start : start + GROUP]
            self._north.send("transact", ["OVN_Northbound", *self._logical_ports(group)])
            self._switch.send("transact", ["Open_vSwitch", *self._interfaces(group)])
        left = {f"pl{number}" for number in numbers}
        while left:
            for table in self._switch.updates():
                for change in table.get("Interface", {}).values():
                    new = change.get("new", {})
                    if ["ovn-installed", "true"] in new.get("external_ids", ["map", []])[1]:
                        left.discard(new["name"])
        return time.perf_counter() - began

    def unplug(self) -> None:
        """Remove all ports."""
        self._north.call([_set("Logical_Switch", self._logical, {"ports": ["set", []]})])
        [found] = self._switch.call([{"op": "select", "table": "Port", "where": [], "columns": ["_uuid", "name"]}])
        ports = [row["_uuid"] for row in found["rows"] if row["name"].startswith("pl")]
        self._switch.call([_mutate("Bridge", self._bridge, "ports", "delete", ports)])

    def rest(self) -> None:
        """Return when no port is left on the switch, and it has removed the last one: each takes it 10 ms."""
        deadline = time.monotonic() + PATIENCE
        while any(name.startswith(("pl", "nl")) for name in self._names()):
            assert time.monotonic() < deadline, "ports are left on the switch"
            time.sleep(0.1)
        everything = {"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["next_cfg", "cur_cfg"]}
        more = {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["next_cfg", "+=", 1]]}
        wanted = self._switch.call([more, everything])[1]["rows"][0]["next_cfg"]
        while self._switch.call([everything])[0]["rows"][0]["cur_cfg"] < wanted:
            assert time.monotonic() < deadline, "the switch does not answer"
            time.sleep(0.1)
        time.sleep(1)  # For OVN.

    def _names(self) -> list[str]:
        [found] = self._switch.call([{"op": "select", "table": "Interface", "where": [], "columns": ["name"]}])
        return [row["name"] for row in found["rows"]]

    def _logical_ports(self, numbers: Sequence[int]) -> list[Document]:
        made: list[Document] = []
        for number in numbers:
            address = f"{_mac(number)} 10.65.{number >> 8}.{number & 255}"
            row = {
                "name": f"plain/{number}",
                "addresses": address,
                "port_security": address,
                "options": ["map", [["requested-chassis", NODE]]],
            }
            made.append({"op": "insert", "table": "Logical_Switch_Port", "uuid-name": f"l{number}", "row": row})
        names = [["named-uuid", f"l{number}"] for number in numbers]
        return [*made, _mutate("Logical_Switch", self._logical, "ports", "insert", names)]

    def _interfaces(self, numbers: Sequence[int]) -> list[Document]:
        made: list[Document] = []
        for number in numbers:
            ids = {"iface-id": f"plain/{number}", "attached-mac": _mac(number), "iface-status": "active"}
            row = {
                "name": f"pl{number}",
                "type": "internal",
                "mac": _mac(number),
                "mtu_request": 1442,
                "external_ids": ["map", list(ids.items())],
            }
            port = {"name": f"pl{number}", "interfaces": ["named-uuid", f"i{number}"]}
            made.append({"op": "insert", "table": "Interface", "uuid-name": f"i{number}", "row": row})
            made.append({"op": "insert", "table": "Port", "uuid-name": f"p{number}", "row": port})
        names = [["named-uuid", f"p{number}"] for number in numbers]
        return [*made, _mutate("Bridge", self._bridge, "ports", "insert", names)]


class JsonRpc:
    """A JSON-RPC connection to a database."""

    def __init__(self, path: str, database: str) -> None:
        self._database = database
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._socket.settimeout(PATIENCE)
        self._decoder = json.JSONDecoder()
        self._rest = ""
        self._number = 0

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send(self, method: str, params: list[Any]) -> int:
        """Send a request and return its number."""
        self._number += 1
        self._socket.sendall(json.dumps({"id": self._number, "method": method, "params": params}).encode())
        return self._number

    def ask(self, method: str, params: list[Any]) -> Any:  # noqa: ANN401  # depends on the method
        """Send a request and return its answer."""
        number = self.send(method, params)
        while True:
            for one in self._received():
                if one["id"] == number:
                    assert not one["error"], one
                    return one["result"]

    def call(self, operations: list[Document]) -> list[Any]:
        """Run a transaction."""
        results: list[Any] = self.ask("transact", [self._database, *operations])
        assert not any(one and "error" in one for one in results), results
        return results

    def updates(self) -> list[Document]:
        """Wait for a message and return its changes, if it is an update."""
        found = []
        for one in self._received():
            if one.get("method") == "update":
                found.append(one["params"][1])
            elif isinstance(one.get("result"), list):
                assert not any(result and "error" in result for result in one["result"]), one
        return found

    def _received(self) -> list[Document]:
        self._rest += self._socket.recv(1 << 20).decode()
        found = []
        while self._rest:
            try:
                one, end = self._decoder.raw_decode(self._rest)
            except ValueError:
                break
            self._rest = self._rest[end:].lstrip()
            if one.get("method") == "echo":
                self._socket.sendall(json.dumps({"id": one["id"], "result": one["params"], "error": None}).encode())
            else:
                found.append(one)
        return found


def _is_ready(document: Document) -> bool:
    conditions = document.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _document(kind: Kind, name: str, spec: Document) -> Document:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}


def _mac(number: int) -> str:
    return f"0a:00:00:00:{number >> 8:02x}:{number & 255:02x}"


def _set(table: str, uuid: object, row: Document) -> Document:
    return {"op": "update", "table": table, "where": [["_uuid", "==", uuid]], "row": row}


def _mutate(table: str, uuid: object, column: str, how: str, values: list[Any]) -> Document:
    return {
        "op": "mutate",
        "table": table,
        "where": [["_uuid", "==", uuid]],
        "mutations": [[column, how, ["set", values]]],
    }


if __name__ == "__main__":
    for line in rows():
        print(line)
