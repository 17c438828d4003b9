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


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator that adds several options, shown in this order."""

    def decorated(command: F) -> F:
        return functools.reduce(lambda made, option: option(made), reversed(options), command)

    return decorated


CONNECTION = _options(
    KUBECONFIG, CONTEXT, lab_option("Use the lab in DIR: its API server, and its workloads for tests.")
)
SHAPE = _options(
    click.option("--networks", default=10, show_default=True, type=MANY, metavar="N", help="Number of Networks."),
    click.option(
        "--top-size",
        "top",
        default=100,
        show_default=True,
        type=MANY,
        metavar="N",
        help="Number of attachments in the largest Network.",
    ),
    click.option(
        "--exponent",
        default=1.0,
        show_default=True,
        type=click.FloatRange(0, 10),
        help="How fast the sizes of Networks decrease.",
    ),
    click.option(
        "--bias",
        default=0.0,
        show_default=True,
        type=click.FloatRange(0),
        help="Larger values keep the first Networks at similar sizes.",
    ),
    click.option(
        "--single-subnet", is_flag=True, help="Create one Subnet per Network; otherwise every other Network has two."
    ),
    click.option(
        "--base-address",
        "bases",
        multiple=True,
        default=("172.24.0.0",),
        show_default=True,
        metavar="IP",
        help="First address of the Subnets; repeat it with an IPv6 address for dual stack.",
    ),
    click.option(
        "--subnet-factor",
        default=2.0,
        show_default=True,
        type=click.FloatRange(1),
        help="Addresses in a Subnet per attachment.",
    ),
    click.option(
        "--fabric",
        default="ovn",
        show_default=True,
        type=click.Choice(["ovn", "vxlan"]),
        help="Fabric of the Networks.",
    ),
)
COURSE = _options(
    click.option(
        "--alive",
        default=0,
        type=click.IntRange(0),
        metavar="N",
        help="Number of attachments that exist at a time; 0 means all.",
    ),
    click.option("--rate", default=10.0, show_default=True, type=POSITIVE, help="Creations and deletions per second."),
    click.option("--edge-rate", type=POSITIVE, help="Rate of warm-up and cool-down.  [default: --rate]"),
    click.option(
        "--arrivals",
        default="steady",
        show_default=True,
        type=click.Choice([one.value for one in Arrivals]),
        help="Distribution of the times between operations.",
    ),
    click.option("--cruise", default="30s", show_default=True, type=DURATION, help="Duration of the cruise phase."),
    click.option("--no-cool-down", is_flag=True, help="Remove the remaining attachments at once, without measuring."),
    click.option("--node", default="", metavar="NAME", help="Use this node only."),
    click.option(
        "--node-selector", "labels", default="", metavar="LABELS", help="Use the Ready nodes with these labels."
    ),
    click.option(
        "--placement",
        default="random",
        show_default=True,
        type=click.Choice([one.value for one in Placement]),
        help="How attachments are distributed over the nodes.",
    ),
    click.option(
        "--simulated-agents",
        "simulated",
        default=0,
        type=click.IntRange(0, 65_000),
        metavar="N",
        help="Simulate this many nodes and their agents.",
    ),
    click.option(
        "--agent-processes",
        "processes",
        default=1,
        show_default=True,
        type=click.IntRange(1, 64),
        help="Number of processes for the simulated agents.",
    ),
    click.option("--test-share", type=SHARE, help="Share of the attachments to test by ping.  [default: 0.1 in a lab]"),
    click.option(
        "--ping-count",
        "pings",
        default=1,
        show_default=True,
        type=click.IntRange(1, 1000),
        help="Number of replies that a test requires.",
    ),
    click.option(
        "--pending-wait",
        "pending",
        default="1m",
        show_default=True,
        type=DURATION,
        help="Time within which an attachment must become usable.",
    ),
    click.option("--stop-on-error", is_flag=True, help="Stop and clean up at the first error."),
)
OUTPUT = _options(
    click.option("--seed", default=0, show_default=True, type=int, help="Random seed; the same seed repeats a run."),
    click.option("--run", "run_id", default="", metavar="ID", help="Identifier of the run, and label of its objects."),
    click.option("--estimate", is_flag=True, help="Print the objects that the run would create, and exit."),
    click.option(
        "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write all times to FILE (.json or .csv)."
    ),
    click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Write a plot to FILE (.svg)."),
    click.option("--histogram", is_flag=True, help="Print histograms of the times."),
)
