"""`netloom lab`: a network of many hosts on this machine, each with its own real Open vSwitch and OVN."""

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import click

from netloom.cli.terminal import ended_by_term
from netloom.errors import Invalid

if TYPE_CHECKING:
    from netloom.lab import Lab
    from netloom.lab.state import Reflector

LOAD_SECONDS = 600
OVN = {"none": 0, "1": 1, "3": 3}
DATA = click.option(
    "--data", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Directory of the lab."
)

SITE = click.option("--site", metavar="N", type=int, help="Number of the site, in a lab with several.")

NODES = click.argument("nodes", nargs=-1, required=True, metavar="NODE...")


@click.group()
def lab() -> None:
    """Run a network of many hosts on this machine, without virtual machines.

    Each host is a network namespace with its own Open vSwitch, ovn-controller and agent. OVN's central databases and
    the control plane run as well. `lab up` returns when every node is Ready.
    """


@lab.command()
@click.option(
    "--nodes",
    default=3,
    show_default=True,
    metavar="N",
    type=click.IntRange(1, 250),
    help="Number of hosts, in each site.",
)
@DATA
@click.option("--sites", metavar="N", type=click.IntRange(2, 9), help="Start N labs, joined by a router.")
@click.option(
    "--reflector",
    default="none",
    show_default=True,
    type=click.Choice(["none", "netloom", "frr"]),
    help="With --sites: route reflector between the sites. With none, the sites are a full mesh.",
)
@click.option(
    "--ovn", default="1", show_default=True, type=click.Choice(list(OVN)), help="Number of OVN central servers."
)
@click.option("--plain-ovn", is_flag=True, help="Connect to OVN's databases over unix sockets, without TLS or RBAC.")
@click.option("--no-restart", is_flag=True, help="Do not restart processes that exit.")
@click.option("--outside", is_flag=True, help="Add an external router, 192.0.2.1, on the physical network physnet1.")
@click.option(
    "--root-of",
    "roots",
    multiple=True,
    metavar="NODE=DIR",
    help="Run the OVS and OVN programs of NODE, or of `central`, with DIR as their root directory.",
)
@click.option(
    "--kubeconfig", metavar="FILE", type=click.Path(path_type=Path), help="Use this API server instead of starting one."
)
@click.option(
    "--agents",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="With --kubeconfig: directory with a NODE.kubeconfig for the agent of each node.",
)
@click.option(
    "--kube",
    is_flag=False,
    flag_value="newest",
    default="",
    metavar="[VERSION]",
    help="Start a Kubernetes cluster with a kubelet on each host, and use its API server.",
)
@click.option(
    "--cni",
    default="netloom",
    show_default=True,
    type=click.Choice(["netloom", "bridge"]),
    help="With --kube: network of the pods. With bridge, the reference plugin, pods reach only pods on their host.",
)
@click.option("--timeout", default=120.0, show_default=True, metavar="SECONDS", help="Fail after this time.")
def up(
    data: Path,
    ovn: str,
    no_restart: bool,
    roots: tuple[str, ...],
    sites: int | None,
    reflector: "Reflector",
    **given: Any,  # noqa: ANN401  # what click parsed
) -> None:
    """Start a lab; a lab that was stopped keeps its data.

    With --sites, start several labs, in the directories site1, site2, ..., joined by a router. Each has a BGP speaker.
    """
    from netloom.lab import Lab  # the lab and its dependencies: only when used
    from netloom.lab import sites as several

    began = time.monotonic()
    servers: Literal[0, 1, 3] = OVN[ovn]  # type: ignore[assignment]  # the choices are these

    def say(text: str) -> None:
        click.echo(f"{time.monotonic() - began:5.1f} s  {text}")

    if given["kube"] == "newest":
        from netloom.lab.kube import binaries  # as above

        given["kube"] = binaries.NEWEST
    given |= {"ovn": servers, "restart": not no_restart, "roots": _roots(roots), "say": say}
    where = _shown(data)
    if sites is not None:
        del given["cni"]
        if any([given.pop("kubeconfig"), given.pop("agents"), given.pop("kube")]):
            raise click.UsageError(
                "--sites cannot be used with --kubeconfig, --agents or --kube: each site has its own API server."
            )
        with ended_by_term():
            up = several.up(data, sites=sites, reflector=reflector, **given)
        click.echo(_next_steps(where, up))
        return
    if given["kube"] and given["kubeconfig"]:
        raise click.UsageError("--kube cannot be used with --kubeconfig: it starts a cluster of its own.")
    if reflector != "none":
        raise click.UsageError("--reflector needs --sites.")
    with ended_by_term():
        found = Lab.up(data, **given)
    click.echo(
        f"\nThe lab is up: {', '.join(found.nodes)}.\n"
        f"  export KUBECONFIG={_shown(found.kubeconfig)}\n"
        f"  {'kubectl get nodes,pods -A' if given['kube'] else 'netloom get nodes'}\n"
        f"  netloom lab status --data {where}\n"
        f"  netloom lab exec --data {where} n1 -- ovs-vsctl show\n"
        f"  netloom lab down --data {where}"
    )


def _next_steps(where: str, sites: "list[Lab]") -> str:
    return (
        f"\nThe lab is up: {len(sites)} sites with {', '.join(sites[0].nodes)}.\n"
        f"  export KUBECONFIG={_shown(sites[0].kubeconfig)}\n"
        f"  netloom get bgppeers\n"
        f"  netloom lab status --data {where}\n"
        f"  netloom lab exec --data {where} --site {len(sites)} n1 -- ovs-vsctl show\n"
        f"  netloom lab down --data {where}"
    )


@lab.command()
@DATA
@SITE
@click.option("--delete", is_flag=True, help="Also delete the directory, with all data.")
def down(data: Path, site: int | None, delete: bool) -> None:
    """Stop a lab, with all its sites or one of them, and keep its data.

    This also removes what a lab left behind that failed to start.
    """
    from netloom.lab import down as take_down  # as above

    folder = _folder(data, site)
    take_down(folder, delete=delete)
    click.echo(f"The lab in {_shown(folder)} is down{' and gone' if delete else ''}.")


@lab.command()
@click.option(
    "--data", metavar="DIR", type=click.Path(path_type=Path), help="Directory of the lab.  [default: all labs]"
)
@SITE
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format.")
def status(data: Path | None, site: int | None, output: str) -> int:
    """Show a lab, or all labs of this machine, as a tree.

    The exit status is 1 if a part of a lab is not healthy.
    """
    import msgspec  # only to write JSON

    from netloom.cli.terminal import print_json
    from netloom.lab import state
    from netloom.lab.status import observe, tree  # as above

    if site is not None and data is None:
        raise click.UsageError("--site needs --data.")
    folders = [_folder(data, site)] if data else state.known()
    found = [observe(folder) for folder in folders]
    if output == "json":
        shown = [{**msgspec.to_builtins(one), "well": one.healthy} for one in found]
        print_json(shown[0] if data else shown)
    elif not found:
        click.echo("There is no lab on this machine.")
    else:
        click.echo("\n\n".join("\n".join(tree(one)) for one in found))
    return 0 if all(one.healthy for one in found) else 1


@lab.command("exec", context_settings={"ignore_unknown_options": True})
@DATA
@SITE
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def execute(data: Path, site: int | None, node: str, command: tuple[str, ...]) -> NoReturn:
    """Run a command, or a shell, on a node or in a workload.

    NODE is a node, central, underlay, outside, a workload, with --kube kube, or with --sites router. The tools of OVS
    and OVN connect to the node's own daemons; netloom and kubectl connect to the lab's API server.
    """
    from netloom.lab import Lab  # as above

    found = Lab(_folder(data, site))
    argv = found.command(node, command or [os.environ.get("SHELL", "/bin/sh")])
    sys.stdout.flush()
    os.execvpe(argv[0], argv, found.environment(node))  # noqa: S606  # without a shell


@lab.command()
@DATA
@SITE
@NODES
def off(data: Path, site: int | None, nodes: tuple[str, ...]) -> None:
    """Power hosts off.

    This kills all their processes and takes their links down. Nothing is restarted.
    """
    from netloom.lab import Lab  # as above

    found = Lab(_folder(data, site))
    for node in nodes:
        found.off(node)
        click.echo(f"{node} is off.")


@lab.command()
@DATA
@SITE
@NODES
def on(data: Path, site: int | None, nodes: tuple[str, ...]) -> None:
    """Power hosts on again, and wait until they are Ready."""
    from netloom.lab import Lab  # as above

    found = Lab(_folder(data, site))
    for node in nodes:
        found.on(node)
        click.echo(f"{node} is on and Ready.")


@lab.command("load-image")
@DATA
@click.argument(
    "archives",
    nargs=-1,
    required=True,
    metavar="FILE...",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
def load_image(data: Path, archives: tuple[Path, ...]) -> None:
    """Import images, from archives as `docker save` writes them, on every host of a lab with --kube."""
    from netloom.lab import Lab  # as above

    found = Lab(data)
    if not found.layout.state.kube:
        raise Invalid(f"the lab in {_shown(data)} has no Kubernetes cluster: bring up one with --kube")
    for node in found.nodes:
        for archive in archives:
            found.exec(node, ["ctr", "images", "import", str(archive.absolute())], timeout=LOAD_SECONDS)
        click.echo(f"{node} has the images.")


@lab.command()
@DATA
@SITE
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def workload(data: Path, site: int | None, names: tuple[str, ...]) -> None:
    """Create network namespaces for workloads, and print their paths.

    Use a path as `port.netns` of an attachment, and a name with `lab exec`. They are removed with the lab.
    """
    from netloom.lab import Lab  # as above

    found = Lab(_folder(data, site))
    for name in names:
        click.echo(found.workload(name))


def _folder(data: Path, site: int | None) -> Path:
    """Return the directory of a lab, or of one of its sites."""
    from netloom.lab import state  # as above

    if site is None:
        return data
    sites = state.load(data).sites
    if not 1 <= site <= sites:
        known = f"use one of 1 to {sites}" if sites else "start it with --sites to have several"
        raise click.BadParameter(f"the lab in {_shown(data)} has no site {site}: {known}.", param_hint="--site")
    return state.site(data, site)


def _roots(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in given:
        place, equals, folder = text.partition("=")
        if not (place and equals and Path(folder).is_dir()):
            raise click.BadParameter(f"{text!r} is not NODE=DIR with an existing directory.", param_hint="--root-of")
        found[place] = str(Path(folder).resolve())
    return found


def _shown(path: Path) -> str:
    """Return a path relative to the working directory, if it is inside."""
    with contextlib.suppress(ValueError):
        return f"./{path.absolute().relative_to(Path.cwd())}"
    return str(path)
