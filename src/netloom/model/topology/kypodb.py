"""Dumps of KYPODB, the database of the old platform: the rows of COPY and INSERT statements of psql, or of JSON.

    network(name, connectable_id, cidr4)             link(src_connectable_id, dst_connectable_id, measurable_id, …)
    node(name, measurable_id)                        node_interface(connectable_id, measurable_id, address4?)
    property(name, unit, value, measurable_id)       the bandwidth of a link

Networks and interfaces share their ids, and so do nodes and links. A link between two networks is a route; one between
a network and an interface attaches the node. Links are stored in both directions. Other tables are ignored.

In JSON, rows are objects in lists by table, as the old tools passed them on; a list may also have the name of their
function that reads the table: `_get_network_table_from_db`.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from netloom.model.codec import Malformed, Spot
from netloom.model.document import Document, Json
from netloom.model.topology.conversion import Converted, Item, OldHost, OldNetwork, OldPort, Written, assemble
from netloom.model.topology.findings import Finding, at, spot_of

COLUMNS = {
    "network": ("name", "connectable_id", "cidr4"),
    "link": ("src_connectable_id", "dst_connectable_id"),
    "node": ("name", "measurable_id"),
    "node_interface": ("connectable_id", "measurable_id"),
    "property": ("name", "value", "measurable_id"),
}
"""The tables, and the columns that they must have."""
MOST_ROWS = 20_000
_LIST = re.compile(rf"(?:[\w:]*_get_)?({'|'.join(COLUMNS)})(?:_table_from_db)?")
_STATEMENT = re.compile(
    r'^[ \t]*(COPY|INSERT[ \t]+INTO)[ \t]+(?:\w+\.)?"?(\w+)"?[ \t]*\(([^()\n]*)\)[ \t]*(FROM[ \t]+stdin;|VALUES)',
    re.MULTILINE | re.IGNORECASE,
)
_TOKEN = re.compile(r"'((?:[^']|'')*+)'|([(),;])|([^\s'(),;]+)")
_UNITS = {"mb/s": 8.0, "mbit/s": 1.0, "mbps": 1.0, "kb/s": 0.008, "kbit/s": 0.001, "gb/s": 8000.0, "gbit/s": 1000.0}
"""Units of bandwidth, in Mbit/s."""

Row = dict[str, Written]


class _Dump(Struct):
    text: str
    starts: list[int]
    """The offsets of the lines."""
    rows: dict[str, list[Row]]
    findings: list[Finding]

    def spot(self, offset: int) -> Spot:
        line = bisect_right(self.starts, offset)
        return Spot(line, offset - self.starts[line - 1] + 1)


def convert(text: str) -> Converted:
    """Return the topology document of a dump."""
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    dump = _Dump(text, starts, {table: [] for table in COLUMNS}, [])
    offset = 0
    while found := _STATEMENT.search(text, offset):
        offset = _take(dump, found)
    if any(not one.is_warning for one in dump.findings):
        return Converted(None, findings=dump.findings)
    return _assembled(dump.rows, dump.findings)


def is_rows(document: Document) -> bool:
    """Whether a document is rows by table: it has a list of networks with an id."""
    lists = [value for key, value in document.items() if (found := _LIST.fullmatch(key)) and found[1] == "network"]
    return any(isinstance(one, list) and all(isinstance(row, dict) for row in one) for one in lists)


def convert_rows(document: Document, spot: Spot) -> Converted:
    """Return the topology document of rows in JSON."""
    rows: dict[str, list[Row]] = {table: [] for table in COLUMNS}
    found: list[Finding] = []
    for key, several in document.items():
        table = _LIST.fullmatch(key)
        if table is None:
            continue
        if not isinstance(several, list):
            found.append(at(spot, f".{key}", f"the rows of {table[1]} are not a list"))
            continue
        for number, row in enumerate(several):
            place = spot_of(spot_of(spot, f".{key}"), f"[{number}]")
            missing = [one for one in COLUMNS[table[1]] if not isinstance(row, dict) or one not in row]
            if missing:
                said = f"a row of {table[1]} has no {missing[0]}"
                found.append(Finding(place.line, place.column, said))
                continue
            rows[table[1]].append({name: _cell(value, spot_of(place, f".{name}")) for name, value in row.items()})
    if sum(map(len, rows.values())) > MOST_ROWS:
        raise Malformed(f"the file has more than {MOST_ROWS} rows", line=1, column=1)
    return Converted(None, findings=found) if found else _assembled(rows, found)


def _cell(value: Json, spot: Spot) -> Written:
    """Return a value as it is in a dump."""
    if value is None:
        return Written("", spot)
    return Written(value if isinstance(value, str) else msgspec.json.encode(value).decode(), spot)


def _take(dump: _Dump, statement: "re.Match[str]") -> int:
    """Take the rows of a statement, and return where it ends."""
    table = statement[2].lower()
    columns = [column.strip().strip('"').lower() for column in statement[3].split(",")]
    is_copy = statement[4].lower().startswith("from")
    missing = [column for column in COLUMNS.get(table, ()) if column not in columns]
    if missing:
        spot = dump.spot(statement.start(2))
        dump.findings.append(Finding(spot.line, spot.column, f"the table {table} has no column {missing[0]}"))
    end = statement.end()
    for values, start, row_end in _copied(dump, end) if is_copy else _inserted(dump, end):
        end = row_end
        if table not in COLUMNS or missing or not values:
            continue
        if len(values) != len(columns):
            spot = dump.spot(start)
            message = f"a row of {table} has {len(values)} values, not {len(columns)}"
            dump.findings.append(Finding(spot.line, spot.column, message))
            continue
        if sum(map(len, dump.rows.values())) >= MOST_ROWS:
            raise Malformed(f"the dump has more than {MOST_ROWS} rows", line=dump.spot(start).line, column=1)
        dump.rows[table].append(dict(zip(columns, values, strict=True)))
    return end


Rows = Iterator[tuple[list[Written], int, int]]
"""Values, start and end of each row."""


def _copied(dump: _Dump, offset: int) -> Rows:
    """Yield the rows of a COPY statement: lines of values between tabs, to a line of `\\.`."""
    start = dump.text.find("\n", offset) + 1
    while start:
        end = dump.text.find("\n", start)
        line = dump.text[start : end if end >= 0 else len(dump.text)].rstrip("\r")
        if line == "\\.":
            yield [], start, start + 2
            return
        if not line and end < 0:
            break
        values, at = [], start
        for value in line.split("\t"):
            values.append(Written("" if value == "\\N" else value, dump.spot(at)))
            at += len(value) + 1
        yield values, start, start + len(line)
        start = end + 1
    spot = dump.spot(len(dump.text))
    dump.findings.append(Finding(spot.line, spot.column, "the rows do not end: a line of \\. is missing"))
    yield [], len(dump.text), len(dump.text)


def _inserted(dump: _Dump, offset: int) -> Rows:
    """Yield the rows of an INSERT statement: values in parentheses, to a semicolon."""
    values: list[Written] = []
    start = offset
    for token in _TOKEN.finditer(dump.text, offset):
        mark = token[2]
        if mark == ";":
            yield [], token.start(), token.end()
            return
        if mark == "(":
            values, start = [], token.start()
        elif mark == ")":
            yield values, start, token.end()
        elif mark is None:
            text = token[1].replace("''", "'") if token[1] is not None else token[3]
            values.append(Written("" if token[3] and text.upper() == "NULL" else text, dump.spot(token.start())))
    spot = dump.spot(len(dump.text))
    dump.findings.append(Finding(spot.line, spot.column, "the statement does not end: a semicolon is missing"))
    yield [], len(dump.text), len(dump.text)


def _assembled(rows: Mapping[str, list[Row]], found: list[Finding]) -> Converted:
    networks = {row["connectable_id"].text: OldNetwork(row["name"], row["cidr4"]) for row in rows["network"]}
    nodes = {row["measurable_id"].text: row["name"] for row in rows["node"]}
    interfaces = {row["connectable_id"].text: row for row in rows["node_interface"]}
    bandwidths = {row["measurable_id"].text: row for row in rows["property"] if row["name"].text.lower() == "bandwidth"}
    ports: dict[str, list[OldPort]] = {node: [] for node in nodes}
    routes: list[tuple[Written, Written]] = []
    links: list[Item] = []
    attached = set()
    for row in rows["link"]:
        ends = row["src_connectable_id"], row["dst_connectable_id"]
        unknown = [end for end in ends if end.text not in networks and end.text not in interfaces]
        found += [_finding(end, f"no network or interface with connectable_id {end.text:.64}") for end in unknown]
        if unknown or ends[0].text not in networks:
            continue  # The other direction of the link has the network first.
        network = networks[ends[0].text]
        if ends[1].text in networks:
            other = networks[ends[1].text]
            routes.append((Written(network.name.text, ends[0].spot), Written(other.name.text, ends[1].spot)))
            continue
        interface = interfaces[ends[1].text]
        node = interface["measurable_id"]
        if node.text not in nodes:
            found.append(_finding(node, f"no node with measurable_id {node.text:.64}"))
            continue
        if ends[1].text in attached:
            continue
        attached.add(ends[1].text)
        ip = interface.get("address4", Written("", node.spot))
        ports[node.text].append(OldPort(Written(network.name.text, ends[0].spot), ip))
        if bandwidth := bandwidths.get(row["measurable_id"].text if "measurable_id" in row else ""):
            if rate := _rate(bandwidth):
                quality = {"host": nodes[node.text].text, "network": network.name.text, "rate": rate}
                links.append((quality, bandwidth["value"].spot))
            else:
                found.append(_finding(bandwidth["value"], "the bandwidth is not a number of MB/s or Mbit/s"))
    hosts = [OldHost(name, tuple(ports[node])) for node, name in nodes.items()]
    return assemble(Written("kypodb", Spot(1, 1)), list(networks.values()), hosts, routes, found, links)


def _finding(written: Written, message: str) -> Finding:
    return Finding(written.spot.line, written.spot.column, message)


def _rate(bandwidth: Row) -> str:
    """Return the rate of a property, or an empty text."""
    factor = _UNITS.get(bandwidth["unit"].text.lower(), 0.0) if "unit" in bandwidth else 8.0
    value = bandwidth["value"].text
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", value) or not factor:
        return ""
    return f"{round(float(value) * factor * 1000)}kbit"
