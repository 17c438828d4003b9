"""The options of `netloom bench`, in groups."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from netloom.cli.durations import DURATION
from netloom.cli.options import CONTEXT, KUBECONFIG, lab_option
from netloom.load.arrivals import Arrivals
from netloom.load.plan import Placement

F = TypeVar("F", bound=Callable[..., Any])

SHARE = click.FloatRange(0.0, 1.0)
POSITIVE = click.FloatRange(0.0, min_open=True)
MANY = click.IntRange(1, 100_000)
FILE = click.Path(path_type=Path)


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator that adds several options, shown in this order."""

    def decorated(command: F) -> F:
        return functools.reduce(lambda made, option: option(made), reversed(options), command)

    return decorated


def _option(
    names: str,
    text: str,
    type_: Any = None,  # noqa: ANN401  # what click takes
    default: Any = None,  # noqa: ANN401
    **more: Any,  # noqa: ANN401
) -> Callable[[F], F]:
    """Return an option that takes a value; `names` may end with that of its parameter."""
    return click.option(
        *names.split(), type=type_, default=default, show_default=default not in (None, ""), help=text, **more
    )


def _flag(names: str, text: str) -> Callable[[F], F]:
    return click.option(*names.split(), is_flag=True, help=text)


CONNECTION = _options(
    KUBECONFIG, CONTEXT, lab_option("Use the lab in DIR: its API server, and its workloads for tests.")
)
SHAPE = _options(
    _option("--networks", "Number of Networks.", MANY, 10, metavar="N"),
    _option("--top-size top", "Number of attachments in the largest Network.", MANY, 100, metavar="N"),
    _option("--exponent", "How fast the sizes of Networks decrease.", click.FloatRange(0, 10), 1.0),
    _option("--bias", "Larger values keep the first Networks at similar sizes.", click.FloatRange(0), 0.0),
    _flag("--single-subnet", "Create one Subnet per Network; otherwise every other Network has two."),
    _option(
        "--base-address bases",
        "First address of the Subnets; repeat it with an IPv6 address for dual stack.",
        default=("172.24.0.0",),
        multiple=True,
        metavar="IP",
    ),
    _option("--subnet-factor", "Addresses in a Subnet per attachment.", click.FloatRange(1), 2.0),
    _option("--fabric", "Fabric of the Networks.", click.Choice(["ovn", "vxlan"]), "ovn"),
)
COURSE = _options(
    _option("--alive", "Number of attachments that exist at a time; 0 means all.", click.IntRange(0), 0, metavar="N"),
    _option("--rate", "Creations and deletions per second.", POSITIVE, 10.0),
    _option("--edge-rate", "Rate of warm-up and cool-down.  [default: as --rate]", POSITIVE),
    _option(
        "--arrivals", "Distribution of the times between operations.", click.Choice(list(map(str, Arrivals))), "steady"
    ),
    _option("--cruise", "Duration of the cruise phase.", DURATION, "30s"),
    _flag("--no-cool-down", "Remove the remaining attachments at once, without measuring."),
    _option("--node", "Use this node only.", default="", metavar="NAME"),
    _option("--node-selector labels", "Use the Ready nodes with these labels.", default="", metavar="LABELS"),
    _option(
        "--placement",
        "How attachments are distributed over the nodes.",
        click.Choice(list(map(str, Placement))),
        "random",
    ),
    _option(
        "--simulated-agents simulated",
        "Simulate this many nodes and their agents.",
        click.IntRange(0, 65_000),
        0,
        metavar="N",
    ),
    _option("--agent-processes processes", "Number of processes for the simulated agents.", click.IntRange(1, 64), 1),
    _option("--test-share", "Share of the attachments to test by ping.  [default: 0.1 in a lab]", SHARE),
    _option("--ping-count pings", "Number of replies that a test requires.", click.IntRange(1, 1000), 1),
    _option("--pending-wait pending", "Time within which an attachment must become usable.", DURATION, "1m"),
    _flag("--stop-on-error", "Stop and clean up at the first error."),
)
OUTPUT = _options(
    _option("--seed", "Random seed; the same seed repeats a run.", int, 0),
    _option("--run run_id", "Identifier of the run, and label of its objects.", default="", metavar="ID"),
    _flag("--estimate", "Print the objects that the run would create, and exit."),
    _option("--output", "Write all times to FILE (.json or .csv).", FILE, metavar="FILE"),
    _option("--plot", "Write a plot to FILE (.svg).", FILE, metavar="FILE"),
    _flag("--histogram", "Print histograms of the times."),
)
