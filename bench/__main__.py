"""Run every bench, or those named: ours, theirs (or the limit), the ratio, and whether the promise is kept."""

import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench import api


def main() -> None:
    """Print the tables, or those that are named; exit 1 when a promise is not kept."""
    benches = {
        "api": _api,
        "ipam": _ipam,
        "northbound": _northbound,
        "lab": _lab,
        "openflow": _openflow,
        "agents": _agents,
    }
    kept = [benches[name]() for name in sys.argv[1:] or benches]
    sys.exit(0 if all(kept) else 1)


def _api() -> bool:
    rows = [*api.rows(), import_row()]
    print(f"{'':38} {'netloom':>12} {'other':>12} {'ratio':>7}   promised")
    for row in rows:
        sign = ">=" if row.more_is_better else "<="
        verdict = "kept" if row.kept else "NOT KEPT"
        print(
            f"{row.what:38} {row.netloom:>9,.1f} {row.unit:2} {row.other:>9,.1f} {row.unit:2} {row.ratio:>7.2f}"
            f"   {sign} {row.wanted:g}  {verdict}"
        )
    return all(row.kept for row in rows)


def _ipam() -> bool:
    from bench import ipam  # as above

    return _table(46, 13, "the store", ipam.rows())


def _northbound() -> bool:
    from bench import northbound  # as above

    return _table(46, 14, "other", northbound.rows())


def _lab() -> bool:
    from bench import lab  # as above

    return _table(46, 14, "plain OVSDB", lab.rows())


def _openflow() -> bool:
    from bench import openflow  # as above

    return _table(46, 14, "ovs-ofctl", openflow.rows())


def _table(first: int, width: int, beside: str, rows: Sequence[Any], name: str = "") -> bool:
    """Print a table; whether all that it promises is kept."""
    print(f"\n{name:{first}} {'netloom':>{width}} {beside:>{width}} {'ratio':>7}   promised")
    for row in rows:
        print(row)
    return all(row.kept for row in rows)


def _agents() -> bool:
    from bench import agents  # as above

    kept = [_table(52, 14, beside, rows, name) for name, beside, rows in agents.tables()]  # all of them, kept or not
    return all(kept)


def import_row() -> api.Row:
    """Return the start-up cost of the CLI beside its budget, which was set where an empty interpreter took 11 ms."""
    empty = min(_milliseconds("pass") for _ in range(9))
    cli = min(_milliseconds("import netloom.cli.main") for _ in range(9))
    return api.Row("import of netloom.cli, above nothing", "ms", cli - empty, 55 * empty / 11, False, 1.0)


def _milliseconds(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - start) * 1000


if __name__ == "__main__":
    main()
