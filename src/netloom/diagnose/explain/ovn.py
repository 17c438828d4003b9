"""The rows of one resource in OVN's northbound and southbound databases."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct

from netloom.diagnose.access import Access, following
from netloom.drivers.northbound import driver as northbound
from netloom.drivers.northbound.observed import KEY, OF, OWNER
from netloom.ovsdb.io import OvsdbClient
from netloom.plan.problem import Unit

SOUTH: Mapping[str, tuple[str, ...]] = {
    "Port_Binding": ("logical_port", "type", "chassis", "up", "tunnel_key", "datapath"),
    "Datapath_Binding": ("tunnel_key", "external_ids"),
    "Chassis": ("name", "hostname", "encaps"),
    "Encap": ("type", "ip"),
    "Logical_Flow": ("logical_datapath", "pipeline", "table_id", "priority", "match", "actions", "external_ids"),
    "Service_Monitor": ("logical_port", "ip", "port", "protocol", "status"),
}
HIDDEN = ("_uuid", "external_ids", "name")


class RowView(Struct, frozen=True):
    """One northbound row that Netloom owns."""

    table: str
    key: str
    uuid: str
    name: str = ""
    columns: dict[str, str] = {}
    within: tuple[str, ...] = ()
    """The rows that refer to it, and the columns by which they do."""


class Flow(Struct, frozen=True, order=True):
    """One logical flow."""

    datapath: str
    pipeline: str
    table: int
    stage: str
    priority: int
    match: str
    actions: str


class South(Struct, frozen=True, kw_only=True):
    """What the southbound has of a resource."""

    lines: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """What it lacks."""
    flows: tuple[Flow, ...] = ()


async def read_north(access: Access, unit: Unit, ips: Collection[str] = ()) -> list[RowView]:
    """Return the northbound rows of a resource that has these addresses."""
    north = access.north()
    async with following(north.client) as client:
        return _rows(client, access.owner, str(unit), ips)


def _rows(client: OvsdbClient, owner: str, of: str, ips: Collection[str]) -> list[RowView]:
    names: dict[str, str] = {}
    mine: dict[str, tuple[str, Any]] = {}
    every: list[tuple[str, str, Any]] = []
    for table in northbound.TABLES:
        for uuid, row in client.cache.rows(table).items():
            ids = getattr(row, "external_ids", {})
            names[uuid] = ids.get(KEY) or getattr(row, "name", "") or uuid[:8]
            every.append((table, uuid, row))
            if ids.get(OWNER) == owner and ids.get(OF) == of:
                mine[uuid] = table, row
    within = _holders(every, mine, names)
    held = _holding(client, ips, names)
    found = [
        RowView(
            table,
            names[uuid],
            str(uuid),
            str(getattr(row, "name", "") or ""),
            {column: text for column in row.__struct_fields__ if (text := _shown(column, getattr(row, column), names))},
            (*sorted(within.get(uuid, ())), *(held if table == "Logical_Switch_Port" else ())),
        )
        for uuid, (table, row) in mine.items()
    ]
    return sorted(found, key=lambda one: (one.table, one.key))


def _holders(
    every: Iterable[tuple[str, str, Any]], mine: Collection[str], names: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return, for each of these rows, the other rows that refer to it."""
    found: dict[str, list[str]] = {}
    for table, uuid, row in every:
        for column in row.__struct_fields__ if uuid not in mine else ():
            value = getattr(row, column)
            for one in value if isinstance(value, frozenset) else ():
                if one in mine:
                    found.setdefault(one, []).append(f"{table} {names[uuid]} ({column})")
    return found


def _holding(client: OvsdbClient, ips: Collection[str], names: Mapping[str, str]) -> list[str]:
    """Return the address sets and DNS records that contain addresses."""
    mine = set(ips)
    sets = [f"Address_Set {names[u]} (addresses)" for u, row in _all(client, "Address_Set") if mine & row.addresses]
    zones = [
        f"DNS {names[uuid]} (records: {name})"
        for uuid, row in _all(client, "DNS")
        for name, value in row.records.items()
        if mine & set(value.split())
    ]
    return sorted(sets + zones)


def _shown(column: str, value: Any, names: Mapping[str, str]) -> str:  # noqa: ANN401  # a column
    if column in HIDDEN or value is None or value in ("", {}, frozenset(), False):
        return ""
    if isinstance(value, frozenset):
        return ", ".join(sorted(names.get(one, str(one)) for one in value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={one}" for key, one in sorted(value.items()))
    return names.get(value, value) if isinstance(value, str) else str(value).lower()


class Query(Struct, frozen=True, kw_only=True):
    """What to read from the southbound."""

    ports: tuple[str, ...] = ()
    """Logical ports whose bindings matter."""
    datapath: str = ""
    """A logical switch or router."""
    chassis: str = ""
    monitored: tuple[str, ...] = ()
    """Logical ports whose service monitors matter."""
    rows: tuple[RowView, ...] = ()
    """Northbound rows whose logical flows matter."""


async def read_south(access: Access, query: Query) -> South:
    """Return what the southbound has."""
    async with following(access.south(SOUTH)) as client:
        return _south(client, query)


def _south(client: OvsdbClient, query: Query) -> South:
    chassis = {uuid: row.name for uuid, row in _all(client, "Chassis")}
    datapaths = {uuid: row.external_ids.get("name", uuid[:8]) for uuid, row in _all(client, "Datapath_Binding")}
    keys = {uuid: row.tunnel_key for uuid, row in _all(client, "Datapath_Binding")}
    bindings = {row.logical_port: row for _, row in _all(client, "Port_Binding")}
    lines: list[str] = []
    missing: list[str] = []
    for port in query.ports:
        row = bindings.get(port)
        if row is None:
            missing.append(f"there is no Port_Binding {port}: ovn-northd has not created it")
            continue
        where = chassis.get(row.chassis, "")
        state = "" if row.type == "chassisredirect" else ", up" if row.up else ", not up"
        lines.append(
            f"Port_Binding {port}: {f'on chassis {where}' if where else 'on no chassis'}{state},"
            f" key {row.tunnel_key} in {datapaths.get(row.datapath, '?')} ({keys.get(row.datapath, '?')})"
        )
        if not where:
            missing.append(f"port {port} is not bound to a chassis")
    if query.datapath:
        mine = [uuid for uuid, name in datapaths.items() if name == query.datapath]
        lines += [f"Datapath_Binding {query.datapath}: tunnel key {keys[uuid]}" for uuid in mine]
        lines += _spread(query.datapath, mine, bindings.values(), chassis)
        if not mine:
            missing.append(f"there is no Datapath_Binding {query.datapath}: ovn-northd has not created it")
    if query.chassis:
        some, lost = _chassis(client, query.chassis, bindings.values())
        lines += some
        missing += lost
    lines += [
        f"Service_Monitor {row.ip} port {row.port} at {row.logical_port}: {row.status or 'not checked yet'}"
        for _, row in sorted(_all(client, "Service_Monitor"), key=lambda pair: pair[1].ip)
        if row.logical_port in query.monitored
    ]
    flows = tuple(sorted(_flows(client, query, datapaths)))
    return South(lines=tuple(lines), missing=tuple(missing), flows=flows)


def _spread(name: str, datapaths: Iterable[str], bindings: Iterable[Any], chassis: Mapping[str, str]) -> list[str]:
    """Return the number of a datapath's ports on each chassis."""
    inside = set(datapaths)
    ports = [row for row in bindings if row.datapath in inside and row.type == ""]
    places = sorted({chassis.get(row.chassis, "no chassis") for row in ports})
    counted = [f"{sum(chassis.get(r.chassis, 'no chassis') == place for r in ports)} on {place}" for place in places]
    return [f"Ports of {name}: {', '.join(counted)}"] if counted else []


def _chassis(client: OvsdbClient, name: str, bindings: Iterable[Any]) -> tuple[list[str], list[str]]:
    encaps = dict(_all(client, "Encap"))
    for uuid, row in _all(client, "Chassis"):
        if row.name == name:
            ways = ", ".join(sorted(f"{encaps[one].type} {encaps[one].ip}" for one in row.encaps if one in encaps))
            count = sum(binding.chassis == uuid for binding in bindings)
            return [f"Chassis {name}: host {row.hostname}, {ways}, {count} ports"], []
    return [], [f"there is no Chassis {name}: its ovn-controller has not registered in the southbound database"]


def _flows(client: OvsdbClient, query: Query, datapaths: Mapping[str, str]) -> Iterable[Flow]:
    """Yield the logical flows that result from the rows, or refer to them."""
    hints = {row.uuid[:8] for row in query.rows}
    words = {f'"{row.name}"' for row in query.rows if row.table.endswith("_Port")}
    words |= {f"@{row.name}" for row in query.rows if row.table == "Port_Group"}
    words |= {f"${row.name}" for row in query.rows if row.table == "Address_Set"}
    for _, row in _all(client, "Logical_Flow"):
        ids = row.external_ids
        if ids.get("stage-hint") in hints or any(word in row.match or word in row.actions for word in words):
            datapath = datapaths.get(row.logical_datapath, "several") if row.logical_datapath else "several"
            stage = ids.get("stage-name", "")
            yield Flow(datapath, row.pipeline, row.table_id, stage, row.priority, row.match, row.actions)


def _all(client: OvsdbClient, table: str) -> list[tuple[str, Any]]:
    return list(client.cache.rows(table).items())
