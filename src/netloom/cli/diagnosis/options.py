"""The options that say where OVN's databases and the nodes' switches are, and the hints that name them.

`--ovn-nb` and `--ovn-sb` are the databases, by default OVN_NB_DB and OVN_SB_DB, as for ovn-nbctl. `--ovs` is the switch
of this machine. `--lab DIR` stands for all of a lab: its API server, its databases and its nodes. None is required.
"""

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from netloom.cli import options
from netloom.client.session import Session
from netloom.diagnose.access import NOT_CONFIGURED, Access, Enter, Switch
from netloom.errors import Unreachable
from netloom.plan.names import OWNER
from netloom.run.config import ControllerSettings
from netloom.run.ovn import Ovn, from_settings

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

LAB_HELP = "Use the lab in DIR: its API server, OVN databases and nodes."
OVS = click.option("--ovs", "switches", multiple=True, metavar="REMOTE", help="Open vSwitch database of this machine.")
_OPTIONS = (
    click.option("--ovn-nb", metavar="A,B", help="Northbound database, instead of $OVN_NB_DB."),
    click.option("--ovn-sb", metavar="A,B", help="Southbound database, instead of $OVN_SB_DB."),
    click.option("--ovn-key", default="", metavar="FILE", help="Private key for ssl: databases."),
    click.option("--ovn-cert", default="", metavar="FILE", help="Certificate for ssl: databases."),
    click.option("--ovn-ca", default="", metavar="FILE", help="CA of the databases' certificates."),
    click.option("--ovn-server-names", default="", metavar="NAME,...", help="Accepted names in their certificates."),
    click.option("--ovn-owner", default=OWNER, show_default=True, metavar="NAME", help="Owner of Netloom's rows."),
    OVS,
)
_HINTS = {
    "northbound": "use --ovn-nb, OVN_NB_DB or --lab",
    "southbound": "use --ovn-sb, OVN_SB_DB or --lab",
    "switch": "run this on the node with --ovs unix:/run/openvswitch/db.sock, or use --lab",
}


def accessing(command: F) -> F:
    """Add the options to a command, and pass it the `session` and the `access` that they describe."""

    @functools.wraps(command)
    def wrapped(
        connecting: Callable[[], Session],
        ovn_nb: str | None,
        ovn_sb: str | None,
        ovn_server_names: str,
        switches: tuple[str, ...],
        **given: Any,  # noqa: ANN401  # what click parsed
    ) -> object:
        settings = ControllerSettings(
            ovn_nb=_remotes(ovn_nb, "OVN_NB_DB"),
            ovn_sb=_remotes(ovn_sb, "OVN_SB_DB"),
            ovn_server_names=_remotes(ovn_server_names),
            **{name: given.pop(name) for name in ("ovn_key", "ovn_cert", "ovn_ca", "ovn_owner")},
        )
        access = _access(settings, given_switches(switches))
        session = connecting()
        try:
            return command(session=session, access=access, **given)
        finally:
            session.client.close()

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return options.connectable(wrapped, lab_help=LAB_HELP)  # type: ignore[return-value]  # click takes it as it is


def hinted(text: str) -> str:
    """Return a message, with the options to use if it is about a part that is not configured."""
    return f"{text}; {_HINTS[text.split()[0]]}" if text.endswith(NOT_CONFIGURED) else text


def _access(settings: ControllerSettings, switches: tuple[Switch, ...]) -> Access:
    lab: Path | None = options.given("lab")
    root = ""
    if lab is not None:
        lab = lab.absolute()
        layout = options.layout(lab)
        given = click.get_current_context().params
        # The variables of the environment are about another OVN.
        settings = replace(
            settings,
            ovn_nb=_remotes(given["ovn_nb"]) or _remotes(layout.remotes("nb")),
            ovn_sb=_remotes(given["ovn_sb"]) or _remotes(layout.remotes("sb")),
        )
        switches += lab_switches(layout)
        root = layout.root("central")
    # `from_settings` checks both databases, and requires a northbound.
    ovn = from_settings(replace(settings, ovn_nb=settings.ovn_nb or settings.ovn_sb)) or Ovn(
        nb=(), owner=settings.ovn_owner
    )
    return Access(
        owner=ovn.owner,
        nb=settings.ovn_nb,
        sb=ovn.sb,
        tls=ovn.tls,
        names=ovn.names,
        north=lambda: ovn.connect_north(SystemRandom(), lambda: True),
        ovn_command=functools.partial(_ovn_command, settings, root, lab),
        switches=switches,
    )


def lab_switches(layout: Any) -> tuple[Switch, ...]:  # noqa: ANN401  # see `options.layout`
    """Return the switches of a lab's nodes."""
    return tuple(
        Switch(f"unix:{layout.switch_socket(node)}", node, _entering(layout.netns(node))) for node in layout.nodes
    )


def _entering(netns: str) -> Enter:
    """Return a function that runs another in a network namespace of a lab."""

    def enter(action: Callable[[], T]) -> T:
        from netloom.lab.daemons.entering import inside  # only where a lab is named

        try:
            return inside(netns, action)
        except OSError as error:
            raise Unreachable(f"network namespace {netns}: {error.strerror or error}") from None

    return enter


def _ovn_command(settings: ControllerSettings, root: str, lab: Path | None, argv: Sequence[str]) -> list[str]:
    """Return the command line of an OVN program with the options by which it reaches the southbound."""
    program, *args = argv
    if root and lab is not None:
        from netloom.lab.daemons.entering import entered  # only where a lab is named

        # In that root, the lab's directory is mounted at its own path and at no other.
        remotes = ",".join(f"unix:{lab / 'ovn' / Path(one).name}" for one in settings.ovn_sb)
        return entered([program, "--db", remotes, *args], root=root, folder=lab)
    files = ("--private-key", settings.ovn_key, "--certificate", settings.ovn_cert, "--ca-cert", settings.ovn_ca)
    secure = files if any(one.startswith("ssl:") for one in (*settings.ovn_nb, *settings.ovn_sb)) else ()
    return [program, "--db", ",".join(settings.ovn_sb), *secure, *args]


def _remotes(given: str | None, variable: str = "") -> tuple[str, ...]:
    text = given if given is not None else os.environ.get(variable, "") if variable else ""
    return tuple(filter(None, (one.strip() for one in text.split(","))))


def given_switches(remotes: Sequence[str]) -> tuple[Switch, ...]:
    """Return the switches that `--ovs` names."""
    for remote in remotes:
        if not remote.startswith("unix:/"):
            raise click.BadParameter(
                f"{remote!r} is not unix:/PATH, such as unix:/run/openvswitch/db.sock.", param_hint="--ovs"
            )
    return tuple(map(Switch, remotes))
