"""Run all benchmarks, or those named: our figure, the reference, the ratio, and whether the target is met."""

import subprocess
import sys
import time

from bench.table import Row, show


def main() -> None:
    """Print all tables, or those named; exit with 1 if a target is not met."""
    benches = {
        "api": _api,
        "ipam": _ipam,
        "northbound": _northbound,
        "lab": _lab,
        "openflow": _openflow,
        "agents": _agents,
        "hostile": _hostile,
        "clients": _clients,
        "watches": _watches,
        "bgp": _bgp,
        "evpn": _evpn,
        "sandbox": _sandbox,
        "kube": _kube,
        "cni": _cni,
    }
    kept = [benches[name]() for name in sys.argv[1:] or benches]
    sys.exit(0 if all(kept) else 1)


# Each is imported on demand: some need programs that others do not.


def _api() -> bool:
    from bench import api

    return show("the API", "kube-apiserver", [*api.rows(), import_row()])


def _ipam() -> bool:
    from bench import ipam

    return show("addresses", "the store", ipam.rows())


def _northbound() -> bool:
    from bench import northbound

    return show("OVN's northbound", "other", northbound.rows())


def _lab() -> bool:
    from bench import lab

    return show("attachments in a lab", "plain OVSDB", lab.rows())


def _openflow() -> bool:
    from bench import openflow

    return show("flows", "ovs-ofctl", openflow.rows())


def _agents() -> bool:
    from bench import agents

    kept = [show(name, beside, rows) for name, beside, rows in agents.tables()]  # all of them, kept or not
    return all(kept)


def _hostile() -> bool:
    from bench import hostile

    return show("with hostile clients", "without", hostile.rows())


def _evpn() -> bool:
    from bench import evpn

    return show("EVPN", "a watch", evpn.rows())


def _sandbox() -> bool:
    from bench import sandbox

    return show("a sandbox of 20 hosts", "mininet", sandbox.rows())


def _kube() -> bool:
    from bench import kube

    return show("the network of a cluster", "reading", kube.rows())


def _cni() -> bool:
    from bench import cni

    return show("pods by CNI", "bridge", cni.rows())


def _bgp() -> bool:
    from bench import bgp

    kept = [show(name, beside, rows) for name, beside, rows in bgp.tables()]
    return all(kept)


def _clients() -> bool:
    from bench import clients

    return show("protocols", "library", clients.rows())


def _watches() -> bool:
    from bench import watches

    return show(f"{watches.WATCHES} watches of kube-apiserver", "HTTP/1.1", watches.rows())


def import_row() -> Row:
    """Return the start-up cost of the CLI and its budget, which was set where an empty interpreter took 11 ms."""
    empty = min(_milliseconds("pass") for _ in range(9))
    cli = min(_milliseconds("import netloom.cli.main") for _ in range(9))
    budget = 55 * empty / 11
    return Row("import of netloom.cli, above nothing", cli - empty, "ms", budget, 1.0, more_is_better=False)


def _milliseconds(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - start) * 1000


if __name__ == "__main__":
    main()
