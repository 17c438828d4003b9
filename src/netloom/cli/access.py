"""Ways to OVN's databases and to the nodes' switches, for commands that look behind the API.

`--ovn-nb` and `--ovn-sb` say where the databases are, else OVN_NB_DB and OVN_SB_DB, as for ovn-nbctl; `--ovs` names the
switch of the machine this is run on; `--lab DIR` stands for all of a lab, its API too. Nothing is needed: what cannot
be reached is said, and the rest is looked at.
"""

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from netloom.cli.session import Session, connect, connectable
from netloom.drivers.northbound.driver import OWNER, Northbound
from netloom.errors import Unreachable
from netloom.ovsdb.io import OvsdbClient
from netloom.run.config import ControllerSettings
from netloom.run.ovn import Ovn, from_settings

F = TypeVar("F", bound=Callable[..., Any])

ANSWER_SECONDS = 5.0
"""How long a database may take to answer."""


class Switch(Struct, frozen=True):
    """A node's switch, and how to be where it is."""

    remote: str
    node: str = ""
    """"": the one its database names."""
    netns: str = ""
    """The node's network namespace; "" is this machine's own."""

    @property
    def folder(self) -> Path:
        """Where the switch's sockets are."""
        return Path(self.remote.partition(":")[2]).parent


class Access(Struct, frozen=True):
    """What can be looked at besides the API."""

    ovn: Ovn
    switches: tuple[Switch, ...] = ()
    secure: tuple[str, ...] = ()
    """The flags by which OVN's own programs use the same key and certificates."""
    root: str = ""
    """Where OVN's own programs are, of the version of its databases; "": here."""
    folder: Path | None = None
    """The folder of the lab."""

    @property
    def owner(self) -> str:
        """Whose rows are ours."""
        return self.ovn.owner

    def command(self, program: str, *args: str) -> list[str]:
        """Return the command that runs one of OVN's own programs on the southbound."""
        remotes = ",".join(self.ovn.sb)
        if self.root and self.folder is not None:
            from netloom.lab.entering import entered  # only where a lab is named

            # From there the lab's folder is seen at its own path, and at no other.
            remotes = ",".join(f"unix:{self.folder / 'ovn' / Path(one).name}" for one in self.ovn.sb)
            return entered([program, "--db", remotes, *args], root=self.root, folder=self.folder)
        return [program, "--db", remotes, *self.secure, *args]

    def north(self, fence: Callable[[], bool] = lambda: True) -> Northbound:
        """Return the hands on the northbound; only inside an event loop."""
        return self.ovn.connect_north(SystemRandom(), fence)

    def south(self, tables: Mapping[str, Sequence[str] | None]) -> OvsdbClient:
        """Return a connection to the southbound that follows these tables."""
        return OvsdbClient(
            self.ovn.sb,
            "OVN_Southbound",
            tables=tables,
            random=SystemRandom(),
            leader_only=False,
            tls=self.ovn.tls,
            names=self.ovn.names,
        )


NO_NORTHBOUND = "northbound database: say where it is by --ovn-nb, OVN_NB_DB or --lab"
NO_SOUTHBOUND = "southbound database: say where it is by --ovn-sb, OVN_SB_DB or --lab"


def no_switch(node: str) -> str:
    """Return what to say where a node's switch cannot be looked at."""
    return f"switch of node {node}: run this on the node with --ovs unix:/run/openvswitch/db.sock, or name a --lab"


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, Any], ready: asyncio.Event, *, silent: str) -> AsyncIterator[None]:
    """Have something run, from when it is ready to the end of the block; `Unreachable`, `silent`, where it is not."""
    task = asyncio.create_task(work)
    try:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await ready.wait()
        except TimeoutError:
            raise Unreachable(silent) from None
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def following(client: OvsdbClient) -> AsyncIterator[OvsdbClient]:
    """Have a database followed, from when all of it is known; `Unreachable` where it does not answer."""
    async with running(client.run(), client.synced, silent=f"{client.remote} does not answer"):
        yield client


def accessing(command: F) -> F:
    """Give a command the flags that say where everything is, and the `session` and the `access` they make."""
    options = (
        click.option("--lab", metavar="DIR", type=click.Path(path_type=Path), help="All of this lab: API, OVN, nodes."),
        click.option("--ovn-nb", metavar="A,B", help="OVN's northbound database, instead of $OVN_NB_DB."),
        click.option("--ovn-sb", metavar="A,B", help="OVN's southbound database, instead of $OVN_SB_DB."),
        click.option("--ovn-key", default="", metavar="FILE", help="The key for ssl: databases."),
        click.option("--ovn-cert", default="", metavar="FILE", help="The certificate for ssl: databases."),
        click.option("--ovn-ca", default="", metavar="FILE", help="Who signed the databases' certificates."),
        click.option("--ovn-server-names", default="", metavar="NAME,...", help="Names they may be for."),
        click.option("--ovn-owner", default=OWNER, show_default=True, metavar="NAME", help="Whose rows are ours."),
        click.option("--ovs", "switches", multiple=True, metavar="REMOTE", help="This machine's Open vSwitch."),
    )

    @functools.wraps(command)
    def wrapped(connecting: Callable[[], Session], **given: Any) -> object:  # noqa: ANN401  # what click gives
        flags = {name: given.pop(name) for name in _FLAGS}
        access, kubeconfig = _access(**flags)
        session = _session(kubeconfig) if kubeconfig and not _told() else connecting()
        try:
            return command(session=session, access=access, **given)
        finally:
            session.client.close()

    for option in reversed(options):
        wrapped = option(wrapped)
    return connectable(wrapped)  # type: ignore[return-value]  # click takes it as the callable it is


_FLAGS = ("lab", "ovn_nb", "ovn_sb", "ovn_key", "ovn_cert", "ovn_ca", "ovn_server_names", "ovn_owner", "switches")


def _told() -> bool:
    """Whether a flag says which API is meant."""
    context = click.get_current_context()
    root = context.find_root().obj or {}
    return bool(context.params.get("kubeconfig") or root.get("kubeconfig"))


def _session(kubeconfig: str) -> Session:
    context = click.get_current_context()
    given = {**(context.find_root().obj or {})}
    namespace = context.params.get("namespace") or given.get("namespace")
    return connect(kubeconfig, context.params.get("context_name") or given.get("context_name"), namespace)


def _access(
    lab: Path | None,
    ovn_nb: str | None,
    ovn_sb: str | None,
    ovn_key: str,
    ovn_cert: str,
    ovn_ca: str,
    ovn_server_names: str,
    ovn_owner: str,
    switches: tuple[str, ...],
) -> tuple[Access, str]:
    """Return what the flags mean, and the kubeconfig of the lab they name."""
    nb, sb = _remotes(ovn_nb, "OVN_NB_DB"), _remotes(ovn_sb, "OVN_SB_DB")
    nodes = tuple(Switch(_database(remote)) for remote in switches)
    kubeconfig = root = ""
    if lab is not None:
        lab = lab.absolute()
        layout = _layout(lab)
        nb = _remotes(ovn_nb, "") or _remotes(layout.remotes("nb"), "")
        sb = _remotes(ovn_sb, "") or _remotes(layout.remotes("sb"), "")
        nodes += tuple(Switch(f"unix:{layout.switch_socket(n)}", n, layout.netns(n)) for n in layout.nodes)
        kubeconfig, root = str(layout.kubeconfig), layout.root("central")
    # Both are checked, and have their keys, in the one place that knows how; it begins with the northbound.
    settings = ControllerSettings(
        ovn_nb=nb or sb,
        ovn_sb=sb,
        ovn_key=ovn_key,
        ovn_cert=ovn_cert,
        ovn_ca=ovn_ca,
        ovn_server_names=_remotes(ovn_server_names, ""),
        ovn_owner=ovn_owner,
    )
    ovn = from_settings(settings) or Ovn(nb=(), owner=ovn_owner)
    secure = ("--private-key", ovn_key, "--certificate", ovn_cert, "--ca-cert", ovn_ca) if ovn.tls else ()
    return Access(replace(ovn, nb=nb), nodes, secure, root, lab), kubeconfig


def _layout(lab: Path) -> Any:  # noqa: ANN401  # its type is what is not to be loaded
    from netloom.lab import state  # only where a lab is named
    from netloom.lab.layout import Layout

    return Layout(lab.absolute(), state.load(lab.absolute()))


def _remotes(given: str | None, variable: str) -> tuple[str, ...]:
    text = given if given is not None else os.environ.get(variable, "") if variable else ""
    return tuple(filter(None, (one.strip() for one in text.split(","))))


def _database(remote: str) -> str:
    if not remote.startswith("unix:/"):
        raise click.BadParameter(f"{remote!r} is not unix:/PATH, as unix:/run/openvswitch/db.sock.", param_hint="--ovs")
    return remote
