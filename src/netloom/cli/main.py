"""The entry point: the table of commands, and the exit status and message of a failure.

Sub-commands are imported when called; the table below is all that `netloom --help` needs. A failure prints one line on
standard error. The exit status is 0 for success, 1 for a failure, 2 for wrong usage, 130 for an interrupt.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("netloom.cli.processes", "Run the whole control plane in one process."),
    "apiserver": ("netloom.cli.processes", "Run the API server, on sqlite or etcd."),
    "agent": ("netloom.cli.processes", "Run the agent of a node, which plugs its attachments."),
    "controller": ("netloom.cli.processes", "Run the controllers, with leader election."),
    "speaker": ("netloom.cli.processes", "Run the BGP speakers of a node."),
    "vtep": ("netloom.cli.processes", "Serve the VTEP API of rest_vtep and evpn-for-ovn."),
    "apply": ("netloom.cli.objects.apply", "Create or update objects from files."),
    "get": ("netloom.cli.objects.get", "Show objects as a table, YAML or JSON."),
    "describe": ("netloom.cli.objects.describe", "Show all fields of objects, and their Events."),
    "delete": ("netloom.cli.objects.delete", "Delete objects by file, name or label."),
    "watch": ("netloom.cli.objects.watch", "Show changes to objects as they happen."),
    "wait": ("netloom.cli.objects.wait", "Wait until objects meet a condition."),
    "plan": ("netloom.cli.diagnosis.plan", "Show what applying files would change in OVN and on the nodes."),
    "status": ("netloom.cli.diagnosis.status", "Show problems, and all objects as a tree."),
    "explain": ("netloom.cli.diagnosis.explain", "Show the state of an object in the API, in OVN and on its node."),
    "trace": ("netloom.cli.diagnosis.trace", "Show the path of a packet, and what drops it."),
    "doctor": (
        "netloom.cli.diagnosis.doctor",
        "Check the whole system for inconsistencies, and optionally repair them.",
    ),
    "evpn": ("netloom.cli.evpn", "Show what the BGP speakers know now: peers, routes, MAC addresses, VTEPs."),
    "sandbox": ("netloom.cli.sandbox.group", "Check, show and deploy cyber-range topology files."),
    "lab": ("netloom.cli.lab", "Run a network of many hosts on this machine, with real Open vSwitch and OVN."),
    "bench": ("netloom.cli.bench.command", "Create and delete attachments under load, and measure the latency."),
    "cni": ("netloom.cli.cni", "Install the CNI plugin of this node's agent, or print its configuration."),
    "ovn": ("netloom.cli.ovn", "Keep the certificates of OVN's connections in a Kubernetes cluster."),
    "crds": ("netloom.cli.crds", "Print the CustomResourceDefinitions for a Kubernetes cluster."),
    "credential": ("netloom.cli.credential", "Create, list and revoke credentials of a data directory."),
    "config": ("netloom.cli.settings", "Show the effective configuration of a process."),
    "version": ("netloom.cli.version", "Show the versions of client and server."),
    "completion": ("netloom.cli.shell_completion", "Print a shell completion script."),
}
INTERRUPTED = 130
BROKEN_PIPE = 141


class LazyGroup(click.Group):
    """A group that imports a sub-command when it is called, and not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one sub-command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the sub-command; suggest the nearest one if there is none of that name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib  # only needed for an error

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kubeconfig", metavar="FILE", help="Use this file instead of $KUBECONFIG or ~/.kube/config.")
@click.option("--context", "context_name", metavar="NAME", help="Use this context instead of the current one.")
@click.option("-n", "--namespace", metavar="NS", help="Use this namespace instead of the context's.")
@click.option("--lab", metavar="DIR", type=click.Path(path_type=Path), help="Use the API server of the lab in DIR.")
def cli(kubeconfig: str | None, context_name: str | None, namespace: str | None, lab: Path | None) -> None:
    """Netloom: virtual networks on OVN and Open vSwitch.

    `netloom serve --data DIR` runs the control plane. `netloom apply -f FILE`, `netloom get KIND` and the other
    commands talk to the API server that the kubeconfig names: Netloom's own or a Kubernetes cluster's.
    """


def main() -> None:
    """Run the command line and exit with its status."""
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit status; print errors on standard error."""
    try:
        result = cli.main(list(args), prog_name="netloom", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        # `netloom` without arguments prints the help and succeeds.
        click.echo(error.format_message())
        return 0 if not args else error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe. Redirect stdout to /dev/null, so that the interpreter's last flush is quiet too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:  # noqa: BLE001  # the edge of the process: print a line, not a traceback
        return _failed(error)
    return result if isinstance(result, int) else 0


def _failed(error: Exception) -> int:
    from netloom.cli.failure import explain  # only needed for an error

    if os.environ.get("NETLOOM_TRACEBACK"):
        raise error
    click.echo(explain(error), err=True)
    return 1


if __name__ == "__main__":
    main()
