"""`netloom cni`: the plugin by which container runtimes ask this node's agent for the interfaces of pods."""

import json
import time
from pathlib import Path

import click

PACE = 0.5
"""Seconds between two questions whether the agent is ready."""
PROGRAMS = click.option(
    "--bin",
    "programs",
    type=click.Path(path_type=Path),
    default=Path("/opt/cni/bin"),
    show_default=True,
    metavar="DIR",
    help="Folder of the runtime's CNI plugins.",
)
CONFIGURATIONS = click.option(
    "--conf",
    "configurations",
    type=click.Path(path_type=Path),
    default=Path("/etc/cni/net.d"),
    show_default=True,
    metavar="DIR",
    help="Folder of the runtime's CNI configurations.",
)


@click.group()
def cni() -> None:
    """Install or remove the CNI plugin, or print its configuration.

    The agent serves it at the socket of its setting cni.
    """


@cni.command()
@PROGRAMS
@CONFIGURATIONS
@click.option("--socket", "agent", default="", metavar="PATH", help="Socket of the agent: its setting cni.")
@click.option("--python", default="", metavar="PATH", help="Python on the node.  [default: /usr/bin/python3]")
@click.option(
    "--timeout", type=float, default=300.0, show_default=True, metavar="SECONDS", help="Wait so long for the agent."
)
def install(programs: Path, configurations: Path, agent: str, python: str, timeout: float) -> None:
    """Install the plugin, and its configuration once the agent can add pods.

    Both are replaced in one step, so running pods and a running runtime notice nothing.
    """
    from netloom.front.cni import install as installing  # only when asked

    agent = agent or installing.DEFAULT_SOCKET
    click.echo(installing.put_plugin(programs, agent=agent, python=python))
    end = time.monotonic() + timeout
    while why := installing.not_ready(agent):
        if time.monotonic() >= end:
            raise click.ClickException(f"the configuration is not written: {why}")
        time.sleep(PACE)
    click.echo(installing.put_configuration(configurations))


@cni.command()
@PROGRAMS
@CONFIGURATIONS
def uninstall(programs: Path, configurations: Path) -> None:
    """Remove the plugin and its configuration.

    Interfaces of running pods stay.
    """
    from netloom.front.cni.install import remove  # only when asked

    for path in remove(programs, configurations):
        click.echo(f"{path} removed")


@cni.command("print-conf")
def print_conf() -> None:
    """Print the network configuration list."""
    from netloom.front.cni.install import configuration  # as above

    click.echo(json.dumps(configuration(), indent=2))
