"""`netloom bench`: attachments that come and go, and how long it takes until they work."""

import asyncio
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from netloom.cli.bench.flags import CONNECTING, COURSE, SHAPE, TELLING
from netloom.cli.bench.progress import Progress
from netloom.cli.tables import align
from netloom.cli.terminal import counted
from netloom.lab import Lab
from netloom.load import reports, running, svg
from netloom.load.arrivals import Arrivals
from netloom.load.plan import Load, Placement
from netloom.load.records import Outcome
from netloom.load.running import Options
from netloom.load.sizes import Shape
from netloom.model.addresses import is_ip
from netloom.model.networks import Fabric
from netloom.store import kubeconfig as kubeconfigs
from netloom.store.kubeconfig import Cluster

T = TypeVar("T")

RUN = re.compile(r"[a-z]([-a-z0-9]{0,18}[a-z0-9])?")
DEFAULT_SHARE = 0.1


@click.group()
def bench() -> None:
    """Ask much of a control plane, and see how long it takes.

    Any API server will do: one of ours, one behind kube-apiserver, or a plain cluster with our CRDs.
    """


@bench.command()
@CONNECTING
@click.option("-n", "--namespace", metavar="NS", help="The namespace.")
@SHAPE
@COURSE
@TELLING
def attachments(
    kubeconfig: str | None,
    context_name: str | None,
    namespace: str | None,
    lab: Path | None,
    output: Path | None,
    plot: Path | None,
    estimate: bool,
    histogram: bool,
    **given: Any,  # noqa: ANN401  # what click gives
) -> int:
    """Have attachments come and go, and measure how long each takes to work.

    The i-th Network has (1 + bias) * top-size / (i + bias) ^ exponent attachments. They are created until as many are
    alive as you say (warm-up), then deleted and created turn about (cruise), then deleted (cool-down). All of it
    carries a label, and is removed in the end.
    """
    _check_files(output, plot)
    load = _load(given, lab)
    if estimate:
        _estimate(load)
        return 0
    file, name, cluster = _connected(kubeconfig, context_name, lab)
    options = Options(
        namespace=namespace or _root("namespace") or cluster.namespace or "default",
        node=given["node"],
        labels=given["labels"],
        lab=lab,
        pings=given["pings"],
        pending=given["pending"],
        stop_on_error=given["stop_on_error"],
        simulated=given["simulated"],
        processes=given["processes"],
        kubeconfig=file,
        context=name,
    )
    with Progress(load) as progress:
        outcome = _to_the_end(running.attachments(cluster, load, options, progress.show))
    _tell(load, outcome, histogram=histogram)
    if output is not None:
        output.write_bytes(reports.as_csv(outcome) if output.suffix == ".csv" else reports.as_json(load, outcome))
    if plot is not None:
        plot.write_text(svg.plot(outcome, title=f"Attachments, run {load.run}", subtitle=_subtitle(load, options)))
    return 1 if outcome.errors else 0


@bench.command()
@CONNECTING
@click.option("--run", "run_id", required=True, metavar="ID", help="The run.")
def clean(kubeconfig: str | None, context_name: str | None, lab: Path | None, run_id: str) -> None:
    """Remove what a run left behind, whose driver was killed."""
    _, _, cluster = _connected(kubeconfig, context_name, lab)
    count = _to_the_end(running.clean(cluster, _checked(run_id), lab))
    click.echo(f"Removed {counted(count, 'object')} of run {run_id}.")


def _load(given: dict[str, Any], lab: Path | None) -> Load:
    """Return what is asked for, or say which flag is wrong."""
    for base in given["bases"]:
        if not is_ip(base):
            raise click.BadParameter(f"{base!r} is not an address.", param_hint="--base-address")
    if len({":" in base for base in given["bases"]}) != len(given["bases"]):
        raise click.BadParameter("one for each family, IPv4 and IPv6.", param_hint="--base-address")
    share = given["test_share"]
    if share and lab is None:
        raise click.UsageError("--test-share needs --lab: only there can anybody look into the machines.")
    if share and given["simulated"]:
        raise click.UsageError("--test-share: simulated agents plug nothing that could be tested.")
    if given["simulated"] and (given["node"] or given["labels"]):
        raise click.UsageError("--simulated-agents brings its own nodes: leave --node and --node-selector out.")
    if given["node"] and given["labels"]:
        raise click.UsageError("--node is one node, --node-selector chooses among all: say one of them.")
    default = DEFAULT_SHARE if lab is not None and not given["simulated"] else 0.0
    return Load(
        run=_checked(given["run_id"] or running.new_run()),
        shape=Shape(count=given["networks"], top=given["top"], exponent=given["exponent"], bias=given["bias"]),
        fabric=Fabric(given["fabric"]),
        single_subnet=given["single_subnet"],
        bases=tuple(given["bases"]),
        subnet_factor=given["subnet_factor"],
        alive=given["alive"],
        rate=given["rate"],
        edge_rate=given["edge_rate"] or 0.0,
        arrivals=Arrivals(given["arrivals"]),
        cruise=given["cruise"],
        cool_down=not given["no_cool_down"],
        placement=Placement(given["placement"]),
        test_share=default if share is None else share,
        seed=given["seed"],
    )


def _checked(run: str) -> str:
    if not RUN.fullmatch(run):
        raise click.BadParameter(
            f"{run!r} is not up to 20 lower-case letters, digits and -, a letter first.", param_hint="--run"
        )
    return run


def _check_files(output: Path | None, plot: Path | None) -> None:
    """Refuse before the run what could not be written after it."""
    for path, hint, suffixes in ((output, "--output", (".json", ".csv")), (plot, "--plot", (".svg",))):
        if path is None:
            continue
        if path.suffix not in suffixes:
            raise click.BadParameter(f"{path} does not end in {' or '.join(suffixes)}.", param_hint=hint)
        if not path.absolute().parent.is_dir():
            raise click.BadParameter(f"there is no folder {path.absolute().parent}.", param_hint=hint)


def _connected(kubeconfig: str | None, context_name: str | None, lab: Path | None) -> tuple[str, str, Cluster]:
    file = kubeconfig or _root("kubeconfig") or (str(Lab(lab).kubeconfig) if lab is not None else "")
    name = context_name or _root("context_name")
    return file, name, kubeconfigs.load(file or None, context=name or None)


def _root(name: str) -> str:
    """Return what was given before the command's name."""
    given: dict[str, str | None] = click.get_current_context().find_root().obj or {}
    return given.get(name) or ""


def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Do something; interrupted, it cleans up first."""
    try:
        return asyncio.run(running.interruptible(work))
    except asyncio.CancelledError:
        click.echo("Interrupted; what was made is removed.", err=True)
        raise click.Abort from None


def _estimate(load: Load) -> None:
    total, peers = running.totals(load)
    click.echo(align(running.estimate(load)))
    click.echo(
        f"\n{counted(total, 'attachment')} in {counted(load.shape.count, 'Network')}, "
        f"{peers:.1f} peers each on average."
    )


def _tell(load: Load, outcome: Outcome, *, histogram: bool) -> None:
    click.echo(f"Run {load.run}: {counted(len(outcome.lives), 'attachment')} in {outcome.seconds:.1f} s.\n")
    click.echo(align(reports.rows(outcome.summaries())))
    if histogram:
        for measure in ("addressed", "ready", "informed"):
            if lines := reports.histogram(outcome, measure):
                click.echo("\n" + "\n".join(lines))
    if outcome.notes:
        click.echo("\n" + align([[name, f"{value:,.0f}"] for name, value in outcome.notes.items()]))
    if outcome.errors:
        rows = [[kind, count, outcome.examples[kind]] for kind, count in outcome.errors.most_common()]
        click.echo("\n" + align([["BROKE", "COUNT", "FIRST"], *rows]))


def _subtitle(load: Load, options: Options) -> str:
    total, peers = running.totals(load)
    where = f"{options.simulated} simulated agents" if options.simulated else "real agents"
    return (
        f"{load.shape.count} Networks, {min(load.alive or total, total)} of {total} alive, {peers:.0f} peers on average"
        f", {load.rate:g} operations per second ({load.arrivals}), {load.fabric}, {where}, seed {load.seed}"
    )
