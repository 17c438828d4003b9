"""One option for each setting of a process, and `netloom config show`, which prints the effective settings."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from netloom.run import config as configuration
from netloom.run.config import Loaded, Settings

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=Settings)

KINDS: dict[str, type[Settings]] = {
    "serve": configuration.ServeSettings,
    "apiserver": configuration.ApiserverSettings,
    "controller": configuration.ControllerSettings,
    "agent": configuration.AgentSettings,
    "speaker": configuration.SpeakerSettings,
    "vtep": configuration.VtepSettings,
}

_METAVARS = {
    **dict.fromkeys(("kubeconfig", "key", "cert", "ca", "tokens", "revoked", "file"), "FILE"),
    **dict.fromkeys(("quarantine", "rest", "timeout"), "SECONDS"),
    **dict.fromkeys(("context", "identity", "node", "owner"), "NAME"),
    **dict.fromkeys(("ovs", "openflow"), "REMOTE"),
    "data": "DIR",
    "passwords": "DIR",
    "socket": "PATH",
    "listen": "HOST:PORT",
    "encap": "PROTOCOL",
    "housekeeping": "MODE",
    "rabbit": "URL",
    "datapath": "TYPE",
}
"""What the value of a setting is, by the last word of its name."""


def flags(kind: type[Settings]) -> Callable[[F], F]:
    """Add an option for each setting to a command, and --config."""

    def decorate(command: F) -> F:
        for field in reversed(configuration.fields(kind)):
            command = _option(field)(command)
        return click.option("--config", "config_file", metavar="FILE", help="Read settings from this YAML file.")(
            command
        )

    return decorate


def effective(kind: type[S], given: dict[str, object]) -> tuple[S, Loaded]:
    """Return the settings from options, environment and file, and the source of each."""
    file = str(given.pop("config_file", None) or "") or os.environ.get(configuration.PREFIX + "CONFIG", "")
    return configuration.load(kind, flags=given, environ=os.environ, file=file)


@click.group()
def config() -> None:
    """Show the effective configuration of a process."""


@config.group()
def show() -> None:
    """Print the effective settings of a process and their sources."""


def _shower(name: str, kind: type[Settings]) -> click.Command:
    @click.command(name, help=f"Print the effective configuration of `netloom {name}`.")
    @flags(kind)
    def command(**given: object) -> None:
        click.echo(effective(kind, given)[1].text(), nl=False)

    return command


def _option(field: msgspec.structs.FieldInfo) -> Callable[[F], F]:
    flag = f"--{field.name.replace('_', '-')}"
    meta = field.type.__metadata__[0] if hasattr(field.type, "__metadata__") else None
    text = (getattr(meta, "description", None) or "").rstrip(".")
    default = field.default
    shown = ",".join(default) if isinstance(default, tuple) else str(default).lower()
    text += f".  [default: {shown}]" if shown else "."
    if isinstance(default, bool):
        return click.option(f"{flag}/--no-{flag[2:]}", field.name, default=None, help=text)
    word = field.name.rpartition("_")[2]
    metavar = "A,B" if isinstance(default, tuple) else _METAVARS.get(word, word.upper())
    return click.option(flag, field.name, default=None, metavar=metavar, help=text)


for _name, _kind in KINDS.items():
    show.add_command(_shower(_name, _kind))
