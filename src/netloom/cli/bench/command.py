"""`netloom bench`: create and delete attachments, and measure how long each takes to become usable."""

import asyncio
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from netloom.cli import options as shared
from netloom.cli.bench.flags import CONNECTION, COURSE, OUTPUT, SHAPE
from netloom.cli.bench.progress import Progress
from netloom.cli.tables import align
from netloom.cli.terminal import counted
from netloom.load import reports, running, svg
from netloom.load.arrivals import Arrivals
from netloom.load.plan import Load, Placement
from netloom.load.records import RunResult
from netloom.load.running import Options
from netloom.load.sizes import Shape
from netloom.model.kinds.networks import Fabric
from netloom.model.values.addresses import is_ip
from netloom.store.kube import kubeconfig as kubeconfigs
from netloom.store.kube.kubeconfig import Cluster

T = TypeVar("T")

RUN = re.compile(r"[a-z]([-a-z0-9]{0,18}[a-z0-9])?")
DEFAULT_SHARE = 0.1


@click.group()
def bench() -> None:
    """Put a control plane under load, and measure its latency.

    It works with any API server: Netloom's own, one aggregated by kube-apiserver, or a cluster with Netloom's CRDs.
    """


@bench.command()
@CONNECTION
@shared.NAMESPACE
@SHAPE
@COURSE
@OUTPUT
def attachments(
    output: Path | None,
    plot: Path | None,
    estimate: bool,
    histogram: bool,
    **given: Any,  # noqa: ANN401  # what click parsed
) -> int:
    """Create and delete attachments, and measure the latency.

    It measures how long each attachment takes to become usable. The i-th Network has
    (1 + bias) * top-size / (i + bias) ^ exponent attachments. Attachments are created until --alive of them exist
    (warm-up), then deleted and created in turn (cruise), then deleted (cool-down). All objects carry a label and are
    removed at the end.
    """
    _check_files(output, plot)
    lab = shared.given("lab")
    load = _load(given, lab)
    if estimate:
        _estimate(load)
        return 0
    file, name, cluster = _connected()
    options = Options(
        namespace=shared.given("namespace") or cluster.namespace or "default",
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
    with Progress() as progress:
        outcome = _run(running.attachments(cluster, load, options, progress.show))
    _report(load, outcome, histogram=histogram)
    if output is not None:
        output.write_bytes(reports.as_csv(outcome) if output.suffix == ".csv" else reports.as_json(load, outcome))
    if plot is not None:
        plot.write_text(svg.plot(outcome, title=f"Attachments, run {load.run}", subtitle=_subtitle(load, options)))
    return 1 if outcome.errors else 0


@bench.command()
@CONNECTION
@click.option("--run", "run_id", required=True, metavar="ID", help="Identifier of the run.")
def clean(run_id: str, **given: object) -> None:
    """Remove the objects that a run left behind because it was killed."""
    _, _, cluster = _connected()
    count = _run(running.clean(cluster, _checked(run_id), shared.given("lab")))
    click.echo(f"Removed {counted(count, 'object')} of run {run_id}.")


def _load(given: dict[str, Any], lab: Path | None) -> Load:
    """Return the load that the options describe; raise a usage error that names the wrong option."""
    for base in given["bases"]:
        if not is_ip(base):
            raise click.BadParameter(f"{base!r} is not an IP address.", param_hint="--base-address")
    if len({":" in base for base in given["bases"]}) != len(given["bases"]):
        raise click.BadParameter("give at most one IPv4 and one IPv6 address.", param_hint="--base-address")
    share = given["test_share"]
    if share and lab is None:
        raise click.UsageError("--test-share requires --lab: only there the workloads can be reached.")
    if share and given["simulated"]:
        raise click.UsageError("--test-share does not work with --simulated-agents, which plug nothing.")
    if given["simulated"] and (given["node"] or given["labels"]):
        raise click.UsageError("--simulated-agents creates its own nodes: omit --node and --node-selector.")
    if given["node"] and given["labels"]:
        raise click.UsageError("--node and --node-selector exclude each other.")
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
            f"{run!r} must be up to 20 lower-case letters, digits and -, beginning with a letter.", param_hint="--run"
        )
    return run


def _check_files(output: Path | None, plot: Path | None) -> None:
    """Check before the run that its results can be written."""
    for path, hint, suffixes in ((output, "--output", (".json", ".csv")), (plot, "--plot", (".svg",))):
        if path is None:
            continue
        if path.suffix not in suffixes:
            raise click.BadParameter(f"{path} must end in {' or '.join(suffixes)}.", param_hint=hint)
        if not path.absolute().parent.is_dir():
            raise click.BadParameter(f"directory {path.absolute().parent} does not exist.", param_hint=hint)


def _connected() -> tuple[str, str, Cluster]:
    """Return the kubeconfig and its context that the options name, and the cluster they describe."""
    file, name = shared.kubeconfig(), shared.given("context_name")
    return file or "", name or "", kubeconfigs.load(file, context=name)


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; on an interrupt, it cleans up first."""
    try:
        return asyncio.run(running.interruptible(work))
    except asyncio.CancelledError:
        click.echo("Interrupted; the objects of the run are removed.", err=True)
        raise click.Abort from None


def _estimate(load: Load) -> None:
    total, peers = running.totals(load)
    click.echo(align(running.estimate(load)))
    click.echo(
        f"\n{counted(total, 'attachment')} in {counted(load.shape.count, 'Network')}, "
        f"{peers:.1f} peers each on average."
    )


def _report(load: Load, outcome: RunResult, *, histogram: bool) -> None:
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
        click.echo("\n" + align([["ERROR", "COUNT", "FIRST"], *rows]))


def _subtitle(load: Load, options: Options) -> str:
    total, peers = running.totals(load)
    where = f"{options.simulated} simulated agents" if options.simulated else "real agents"
    return (
        f"{load.shape.count} Networks, {min(load.alive or total, total)} of {total} alive, {peers:.0f} peers on average"
        f", {load.rate:g} operations per second ({load.arrivals}), {load.fabric}, {where}, seed {load.seed}"
    )
