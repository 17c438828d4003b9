"""The command that installs Open vSwitch and OVN on hosts over SSH."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from netloom.cli.durations import DURATION
from netloom.cli.sandbox.ssh.hosts import DRY_RUN, PARALLEL, Hosts, Reach, task
from netloom.drivers.remote.hosts import Job
from netloom.errors import BadRequest

if TYPE_CHECKING:
    from netloom.run.ovn_hosts import Nic

PROGRAM = "netloom.drivers.remote.ovn"
OWNER = "ovn"


@click.command("deploy-ovn")
@click.option(
    "--ssh-config", "config", type=click.Path(dir_okay=False), required=True, help="OpenSSH client config of the hosts."
)
@click.option("--master", required=True, metavar="HOST", help="The host that gets the databases and ovn-northd.")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME[=ADDRESS]",
    help="A network host, and the address of its tunnels. Repeat for each.  "
    "[default: all Hosts of the SSH config but the master; their HostName]",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder for the keys of the CAs and all certificates. Keep it: the next run needs it.",
)
@click.option("--encap", type=click.Choice(["geneve", "vxlan"]), default="geneve", show_default=True, help="Tunnels.")
@click.option(
    "--datapath", type=click.Choice(["system", "netdev"]), help="Datapath of br-int: the kernel's, or a userspace one."
)
@click.option(
    "--move-nic",
    "moves",
    multiple=True,
    metavar="HOST:NIC[=PORT]",
    help="Move a NIC from its bridge to br-int, as logical port PORT, or without one to br-ex. Repeatable.",
)
@click.option(
    "--move-back", "back", multiple=True, metavar="HOST:NIC", help="Move a NIC back to its bridge. Repeatable."
)
@PARALLEL
@DRY_RUN
@click.option(
    "--timeout", type=DURATION, default="15m", show_default=True, metavar="TIME", help="Time limit for each host."
)
def deploy_ovn(
    config: str,
    master: str,
    nodes: tuple[str, ...],
    data: Path,
    encap: str,
    datapath: str | None,
    moves: tuple[str, ...],
    back: tuple[str, ...],
    parallel: int,
    dry_run: bool,
    timeout: float,
) -> int:
    """Install and configure Open vSwitch and OVN on Debian and Ubuntu hosts, over SSH, with TLS.

    The master gets ovn-central, the network hosts get ovn-host. A second run changes nothing; one after an interrupt
    completes what is missing. The hosts need python3, and packages from their own sources of apt.
    """
    from netloom.run.ovn_hosts import Deployment, documents  # makes certificates, with a large library

    hosts, reach = Hosts(config, (), nodes), Reach(config, timeout=timeout)
    if master not in hosts.names.values():
        hosts = Hosts(config, (), [*(nodes or hosts.names.values()), master])
        chosen = [name for name in hosts.names.values() if name != master]
    else:
        chosen = [name for name in hosts.names.values() if nodes or name != master]
    found, failed = asyncio.run(hosts.reach(reach))
    for name, result in failed.items():
        raise BadRequest(f"{name}: {result.error}")
    wanted = Deployment(
        master=master,
        addresses={name: found[node] for node, name in hosts.names.items()},
        hosts=chosen,
        encap=encap,
        datapath=datapath or "",
        nics=tuple(_nic(text, "--move-nic", hosts) for text in moves),
        back=tuple(_nic(text, "--move-back", hosts) for text in back),
    )
    made = {host: msgspec.json.encode(one) for host, one in documents(wanted, data, now=datetime.now(UTC)).items()}
    work = task(PROGRAM, OWNER, reach, parallel)
    jobs = {host: Job("plan" if dry_run else "apply", one) for host, one in made.items()}
    ended = work.carry_out(jobs, dry_run=dry_run)
    if dry_run or any(one.error for one in ended.values()):
        return 1 if any(one.error for one in ended.values()) else 0
    click.echo("Waiting until every network host is connected to the southbound.", err=True)
    checks = {host: Job("check", made[host]) for host in chosen}
    ended = work.carry_out(checks, unchanged="connected to the southbound")
    return 1 if any(one.error for one in ended.values()) else 0


def _nic(text: str, option: str, hosts: Hosts) -> "Nic":
    from netloom.run.ovn_hosts import Nic

    host, _, rest = text.partition(":")
    nic, _, port = rest.partition("=")
    if not nic or host not in hosts.names.values():
        raise BadRequest(f"{option}: {text!r} is not HOST:NIC with a host of this deployment")
    return Nic(host=host, nic=nic, port=port)
