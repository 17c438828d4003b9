"""Refuse code that nothing uses.

    python tools/dead_code.py [FOLDER]

vulture reports a name that nothing in src, bench and tools mentions. Tests do not count: what only tests call is dead
too, except in the libraries that exist for tests. USED lists what is used in a way that vulture cannot see, each with
its reason. An entry that matches nothing any more is reported as well.
"""

import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from vulture import Vulture

FOLDERS = ("src", "bench", "tools")

USED: tuple[tuple[str, str, str], ...] = (
    # path in src/netloom, names, reason
    ("ovsdb/rows/*", "*", "generated from the schemas of OVN and Open vSwitch"),
    ("errors.py", "__init_subclass__", "Python calls it"),
    ("model/document.py", "*", "fields of metadata: msgspec reads and writes them"),
    ("model/kinds/*", "*", "fields and enums of the kinds: msgspec reads and writes them, clients use them"),
    ("model/codec.py", "ignore_aliases", "PyYAML calls it"),
    ("model/schemas/validation.py", "IGNORE", "a value of the parameter fieldValidation"),
    ("front/api/http/paths.py", "OBJECT", "a value of the parameter includeObject"),
    ("load/arrivals.py", "POISSON", "a value of the option --arrivals"),
    ("load/*", "ended_due", "a column of the table of all attachments, which reports.py reads by name"),
    ("control/ipam/macs.py", "has_not unrequested", "compared as a part of the tuple"),
    ("ovsdb/notation.py", "__parameters__", "msgspec reads it"),
    ("ovsdb/notation.py", "Reals Booleans IntegerToString", "tools/ovsdb-rows writes them, if a schema needs them"),
    ("ovsdb/io.py", "disconnects downloads resumes probes bytes_in bytes_out", "counters that tests observe"),
    (
        "bgp/communities.py",
        "encapsulation_of routers_mac routers_mac_of esi_label es_import",
        "communities of EVPN that the library can do and this project does not use yet",
    ),
    ("bgp/errors.py", "REJECTED CONFIGURATION RESOURCES", "subcodes that a peer may send: their names are printed"),
    ("bgp/nlri.py", "encode_prefix decode_prefix", "unicast routes, which the library can do"),
    (
        "model/topology/legacy.py",
        "document_path teams logical_roles max_hosts phys_role logical_role ram host_interface hosts_access",
        "fields of a format: what a host has is kept as extra, the others are not converted",
    ),
    ("model/topology/containers.py", "hide_all", "a field of a format"),
    (
        "cli/*",
        "completion credential destroy doctor flap list_faults load_image print_conf uninstall",
        "click commands: main.py imports them by their name, or their group has them",
    ),
    ("cli/main.py", "list_commands get_command format_commands", "click calls them"),
    ("cli/objects/output.py", "get_metavar", "click calls it"),
    ("front/api/http/connection.py", "access_log waiting_for_100_continue total_requests run_asgi", "used by uvicorn"),
    ("front/api/http/connection.py", "on_url on_headers_complete", "callbacks of httptools"),
    ("front/api/http/server.py", "num_tickets max_size", "used by ssl and asyncio"),
    ("lab/kube/images.py", "linkname", "an attribute of tarfile's"),
    ("drivers/remote/ssh.py", "exit_status_received", "a callback of asyncssh"),
    ("store/http/http2.py", "GOAWAY CONTINUATION", "name the numbers that _frame matches"),
    ("store/http/http1.py", "eof_received", "a callback of asyncio"),
    ("store/http/http1.py", "on_header on_headers_complete on_body", "callbacks of httptools"),
    ("store/sqlite/log.py", "text_factory", "used by sqlite3"),
    ("lab/__init__.py", "__getattr__", "Python calls it for names that the module does not have"),
    ("openflow/memory.py", "*", "for tests: a switch in memory"),
    ("openflow/packets.py", "*", "for tests: packets for the switch in memory"),
    ("sim/*", "*", "for tests: the simulation"),
)


def findings(folder: Path) -> Iterator[str]:
    """Yield the unused code of the tree at `folder` and the entries of USED that match nothing, one sentence each."""
    vulture = Vulture()
    vulture.scavenge([str(folder / name) for name in FOLDERS if (folder / name).is_dir()])
    matched = set()
    for item in vulture.get_unused_code():
        path = Path(item.filename).resolve().relative_to(folder.resolve())
        entries = [entry for entry in USED if _covers(entry, path, item.name)]
        matched.update(entries)
        if not entries:
            yield f"{path}:{item.first_lineno}: unused {item.typ} {item.name!r}"
    for entry in USED:
        if entry not in matched and (folder / "src/netloom").is_dir():
            yield f"tools/dead_code.py: the entry for {entry[1]} in {entry[0]} matches nothing: remove it"


def _covers(entry: tuple[str, str, str], path: Path, name: str) -> bool:
    pattern, names, _ = entry
    return fnmatch(str(path), f"src/netloom/{pattern}") and (names == "*" or name in names.split())


def main(folder: str = ".") -> int:
    """Check the tree at `folder` and return the exit status."""
    found = list(findings(Path(folder)))
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
