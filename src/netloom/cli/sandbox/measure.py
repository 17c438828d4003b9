"""`netloom sandbox measure`: the shaped links of a Sandbox, asked for and found."""

import socket
import statistics
from collections.abc import Iterator
from math import inf

import click

from netloom.cli.options import OUTPUT, connected
from netloom.cli.sandbox import stored, traffic
from netloom.cli.sandbox.files import FILE, sandbox_of, topology_of
from netloom.cli.sandbox.traffic import Responder
from netloom.cli.tables import Aligner
from netloom.cli.terminal import paint, print_json
from netloom.client import lists
from netloom.client.lists import Scope
from netloom.client.resources import Target, of_kind
from netloom.client.session import Session
from netloom.diagnose.links import Finding, Leg, Pair, ShapedLink, is_loss, is_rate, is_round_trip, shaped_links
from netloom.diagnose.snapshot import value
from netloom.errors import BadRequest, NotFound
from netloom.lab.daemons.entering import NETNS
from netloom.model.kinds.paths import Shaping
from netloom.model.kinds.sandbox import Backend, Sandbox
from netloom.model.registry import SANDBOX, SHAPING

TRIPS, MOST_TRIPS = 100, 1000
"""Round trips to time; more where loss is measured."""
INTERVAL = 0.01
"""Seconds between two datagrams."""
SHARE = 0.2
"""The part of a link's rate that round trips may use."""
DATAGRAM = 110
"""Bytes of a datagram of a round trip, about."""
SECONDS = 10.0
"""The longest time for which round trips are started."""


@click.command()
@click.argument("host", default="")
@click.argument("network", default="")
@click.option("-f", "--file", type=FILE, help="Measure the Sandbox that this file describes.")
@click.option("--name", default="", metavar="NAME", help="Measure this Sandbox.")
@click.option("--tolerance", type=click.FloatRange(0, 100), default=15, show_default=True, help="Tolerance in percent.")
@OUTPUT
@connected
def measure(
    session: Session, host: str, network: str, file: str | None, name: str, tolerance: float, output: str
) -> int:
    """Measure the shaped links of a Sandbox with real packets, and compare them with what was asked for.

    All links are measured, or those of HOST, or its link to NETWORK. Hosts must run as network namespaces on this
    machine. Each link is measured between two hosts, so other shaped links on the way count as well. The exit status is
    1 if a link is outside the tolerance, or could not be measured.
    """
    if bool(file) == bool(name):
        raise BadRequest("give either -f FILE or --name NAME")
    if file:
        topology, reading = topology_of(file)
        name = str(sandbox_of(topology, reading, None, "")["metadata"]["name"])
    links = [
        one for one in shaped_links(*_objects(session, name)) if host in ("", one.host) and network in ("", one.network)
    ]
    if (host or network) and not links:
        raise NotFound(f"Sandbox {name} has no shaped link of {host}{f' to {network}' if network else ''}")
    findings = [finding for link in links for finding in _measured(link, tolerance / 100)]
    if output == "json":
        print_json(findings)
    elif not findings:
        click.echo(f"No link of Sandbox {name} is shaped.")
    else:
        _print(findings)
    return 0 if all(one.ok for one in findings) else 1


def _objects(session: Session, name: str) -> tuple[Sandbox, list[Shaping]]:
    where = Scope(session.namespace)
    sandbox = value(lists.one(session.client, Target(of_kind(SANDBOX), name), where), Sandbox)
    if sandbox.spec.backend is Backend.LINUX:  # Which has no such objects, and the same links.
        planned = stored.plan_alone(sandbox).objects
        return sandbox, [one for one in planned if isinstance(one, Shaping)]
    shapings, _ = lists.objects(session.client, Target(of_kind(SHAPING), ""), where)
    return sandbox, [value(one, Shaping) for one in shapings]


def _measured(link: ShapedLink, tolerance: float) -> Iterator[Finding]:
    """Measure a link between the first two hosts that can."""
    note = "no other host can be reached over it"
    for pair in link.pairs:
        absent = [one.host for one in (pair.near, pair.far) if not (NETNS / one.netns).exists()]
        if absent:
            note = f"{absent[0]} does not run on this machine"
            continue
        with (
            Responder(pair.near.netns, pair.near.ip) as near,
            Responder(pair.far.netns, pair.far.ip) as far,
            traffic.client(pair.near.netns, pair.near.ip) as here,
            traffic.client(pair.far.netns, pair.far.ip) as there,
        ):
            delay = sum(leg.delay + leg.jitter for leg in (pair.sent, pair.received))
            if pair.loss < 1 and not traffic.answers(here, far, loss=pair.loss, delay=delay):
                note = f"{pair.far.host} does not answer to {pair.near.host}"
                continue
            yield from _round_trips(link, pair, here, far, tolerance)
            for leg, word, sender, sink in (
                (pair.sent, "sent", here, far),
                (pair.received, "received", there, near),
            ):
                if leg.rate < inf and leg.loss < 1:
                    yield _rate(link, pair, leg, word, traffic.throughput(sender, sink, **_offer(leg)), tolerance)
        return
    yield Finding(host=link.host, network=link.network, note=note)


def _offer(leg: Leg) -> dict[str, float]:
    return {"rate": leg.rate, "burst": leg.burst, "delay": leg.delay}


def _round_trips(
    link: ShapedLink, pair: Pair, here: socket.socket, far: Responder, tolerance: float
) -> Iterator[Finding]:
    rate = min(pair.sent.rate, pair.received.rate)
    interval = max(INTERVAL, DATAGRAM * 8 / (rate * SHARE))
    count = int(min(MOST_TRIPS if pair.loss else TRIPS, SECONDS / interval))
    wait = 1.0 + 1.5 * sum(leg.delay + leg.jitter for leg in (pair.sent, pair.received))
    trips = traffic.round_trips(here, far, count=count, interval=interval, wait=wait)
    asked = pair.sent.delay + pair.received.delay
    about = {"host": link.host, "network": link.network, "peer": pair.far.host}
    if asked and trips.seconds:
        found = statistics.median(trips.seconds)
        fits = is_round_trip(found, pair, tolerance)
        yield Finding(**about, quantity="round trip", unit="ms", asked=asked * 1e3, measured=found * 1e3, ok=fits)
    if pair.loss:
        lost = 1 - len(trips.seconds) / trips.sent
        fits = is_loss(lost, trips.sent, pair, tolerance)
        yield Finding(**about, quantity="loss", unit="%", asked=pair.loss * 100, measured=lost * 100, ok=fits)


def _rate(link: ShapedLink, pair: Pair, leg: Leg, word: str, flow: traffic.Flow, tolerance: float) -> Finding:
    fits, note = is_rate(flow.received, leg, tolerance), ""
    if not fits and flow.offered < leg.rate * (1 + tolerance):
        note = f"this machine sends {flow.offered / 1e6:.4g} Mbit/s only"
    return Finding(
        host=link.host,
        network=link.network,
        peer=pair.far.host,
        quantity=f"rate {word}",
        unit="Mbit/s",
        asked=leg.rate / 1e6,
        measured=flow.received / 1e6,
        ok=fits,
        note=note,
    )


def _print(findings: list[Finding]) -> None:
    rows = [["HOST", "NETWORK", "PEER", "QUANTITY", "ASKED", "FOUND", "VERDICT"]]
    for one in findings:
        verdict = paint("ok", "green") if one.ok else paint(one.note or "outside", "red")
        asked = f"{one.asked:.4g} {one.unit}" if one.quantity else ""
        found = "" if one.measured is None else f"{one.measured:.4g} {one.unit}"
        rows.append([one.host, one.network, one.peer, one.quantity, asked, found, verdict])
    for line in Aligner().lines(rows):
        click.echo(line)
