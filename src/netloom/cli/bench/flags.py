"""The flags of `netloom bench`, in the groups in which they are read."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from netloom.cli.durations import DURATION
from netloom.load.arrivals import Arrivals
from netloom.load.plan import Placement

F = TypeVar("F", bound=Callable[..., Any])

SHARE = click.FloatRange(0.0, 1.0)
POSITIVE = click.FloatRange(0.0, min_open=True)
MANY = click.IntRange(1, 100_000)


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator for many flags, shown in this order."""

    def decorated(command: F) -> F:
        return functools.reduce(lambda made, option: option(made), reversed(options), command)

    return decorated


CONNECTING = _options(
    click.option("--kubeconfig", metavar="FILE", help="The kubeconfig to use."),
    click.option("--context", "context_name", metavar="NAME", help="The context in it."),
    click.option("--lab", metavar="DIR", type=click.Path(path_type=Path), help="This lab: its API, and its machines."),
)
SHAPE = _options(
    click.option("--networks", default=10, show_default=True, type=MANY, metavar="N", help="How many Networks."),
    click.option(
        "--top-size", "top", default=100, show_default=True, type=MANY, metavar="N", help="The size of the largest."
    ),
    click.option(
        "--exponent", default=1.0, show_default=True, type=click.FloatRange(0, 10), help="How steeply sizes fall."
    ),
    click.option("--bias", default=0.0, show_default=True, type=click.FloatRange(0), help="How late they begin to."),
    click.option("--single-subnet", is_flag=True, help="One Subnet for each Network; otherwise every other has two."),
    click.option(
        "--base-address",
        "bases",
        multiple=True,
        default=("172.24.0.0",),
        show_default=True,
        metavar="IP",
        help="Where blocks begin; twice, IPv4 and IPv6, for both.",
    ),
    click.option(
        "--subnet-factor",
        default=2.0,
        show_default=True,
        type=click.FloatRange(1),
        help="Addresses for each attachment.",
    ),
    click.option(
        "--fabric", default="ovn", show_default=True, type=click.Choice(["ovn", "vxlan"]), help="What carries them."
    ),
)
COURSE = _options(
    click.option(
        "--alive", default=0, type=click.IntRange(0), metavar="N", help="How many are alive at a time; all, if 0."
    ),
    click.option("--rate", default=10.0, show_default=True, type=POSITIVE, help="Creates and deletes, per second."),
    click.option("--edge-rate", type=POSITIVE, help="The same for warm-up and cool-down.  [default: the same]"),
    click.option(
        "--arrivals",
        default="steady",
        show_default=True,
        type=click.Choice([one.value for one in Arrivals]),
        help="How they come.",
    ),
    click.option("--cruise", default="30s", show_default=True, type=DURATION, help="How long they come and go."),
    click.option("--no-cool-down", is_flag=True, help="Remove what is left at once, unmeasured."),
    click.option("--node", default="", metavar="NAME", help="The one node to use."),
    click.option("--node-selector", "labels", default="", metavar="LABELS", help="The Ready nodes with these labels."),
    click.option(
        "--placement",
        default="random",
        show_default=True,
        type=click.Choice([one.value for one in Placement]),
        help="Who goes where.",
    ),
    click.option(
        "--simulated-agents",
        "simulated",
        default=0,
        type=click.IntRange(0, 65_000),
        metavar="N",
        help="Simulate so many nodes.",
    ),
    click.option(
        "--agent-processes",
        "processes",
        default=1,
        show_default=True,
        type=click.IntRange(1, 64),
        help="In so many processes.",
    ),
    click.option("--test-share", type=SHARE, help="The share tested by ping, in a lab.  [default: 0.1 in a lab]"),
    click.option(
        "--ping-count",
        "pings",
        default=1,
        show_default=True,
        type=click.IntRange(1, 1000),
        help="Answers a test wants.",
    ),
    click.option(
        "--pending-wait", "pending", default="1m", show_default=True, type=DURATION, help="How long one may take."
    ),
    click.option("--stop-on-error", is_flag=True, help="Stop, and clean up, when something broke."),
)
TELLING = _options(
    click.option("--seed", default=0, show_default=True, type=int, help="The same seed gives the same run."),
    click.option("--run", "run_id", default="", metavar="ID", help="The run's name, and its objects' label."),
    click.option("--estimate", is_flag=True, help="Only show what it would be made of."),
    click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="All times: FILE.json or FILE.csv."),
    click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="A plot: FILE.svg."),
    click.option("--histogram", is_flag=True, help="Show histograms, too."),
)
