"""The entry point: which commands there are, and how their failures look.

Sub-commands are imported when called; the table below is all that `netloom --help` needs. Failures are one clear line
on standard error and an exit status: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted.
"""

import importlib
import os
import sys
from collections.abc import Sequence

import click

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("netloom.cli.processes", "Run the whole control plane in one process."),
    "apiserver": ("netloom.cli.processes", "Run the API alone, over sqlite or etcd."),
    "agent": ("netloom.cli.processes", "Run a node's agent: plug the attachments of this node."),
    "controller": ("netloom.cli.processes", "Run the controllers alone; one leads."),
    "apply": ("netloom.cli.objects.apply", "Make objects be as files say."),
    "get": ("netloom.cli.objects.get", "Show objects as a table, YAML or JSON."),
    "describe": ("netloom.cli.objects.describe", "Show one object in full, with its Events."),
    "delete": ("netloom.cli.objects.delete", "Delete objects by file, name or label."),
    "watch": ("netloom.cli.objects.watch", "Show changes to objects as they happen."),
    "wait": ("netloom.cli.objects.wait", "Wait until objects are as they should be."),
    "plan": ("netloom.cli.diagnosis.plan", "Show what applying files would change in OVN and on the nodes."),
    "status": ("netloom.cli.diagnosis.status", "Show what there is, as a tree, problems first."),
    "explain": ("netloom.diagnose.explain.explanation", "Show what came of an object: in OVN, and on its node."),
    "trace": ("netloom.diagnose.trace.tracer", "Show how a packet goes from one place to another, and who stops it."),
    "doctor": ("netloom.cli.diagnosis.doctor", "Show what is amiss, and mend it where that is safe."),
    "lab": ("netloom.cli.lab", "Run many hosts on this machine, with real Open vSwitch and OVN."),
    "bench": ("netloom.cli.bench.command", "Have attachments come and go, and see how long it takes."),
    "crds": ("netloom.cli.crds", "Print the CustomResourceDefinitions for a Kubernetes cluster."),
    "credential": ("netloom.cli.credential", "Make, list and revoke credentials of a data directory."),
    "config": ("netloom.cli.settings", "Show the configuration a process would run with."),
    "version": ("netloom.cli.version", "Show the versions of client and server."),
    "completion": ("netloom.cli.completion", "Print a shell's completion script."),
}
INTERRUPTED = 130
BROKEN_PIPE = 141


class LazyGroup(click.Group):
    """A group that imports a sub-command when it is called, and not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table: processes first, then what people do with objects."""
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
        """Find the sub-command, and say which one may have been meant where there is none."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib  # only needed to word an error

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kubeconfig", metavar="FILE", help="The kubeconfig to use, instead of $KUBECONFIG or ~/.kube/config.")
@click.option("--context", "context_name", metavar="NAME", help="The context in it, instead of the current one.")
@click.option("-n", "--namespace", metavar="NS", help="The namespace, instead of the context's.")
@click.pass_context
def cli(ctx: click.Context, kubeconfig: str | None, context_name: str | None, namespace: str | None) -> None:
    """Netloom weaves virtual networks.

    `netloom serve --data DIR` runs the control plane; `netloom apply -f FILE` and `netloom get KIND` talk to it, or to
    any Kubernetes-style API the kubeconfig names.
    """
    ctx.obj = {"kubeconfig": kubeconfig, "context_name": context_name, "namespace": namespace}


def main() -> None:
    """Run the command line and leave with its exit status."""
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit status, having said on standard error what went wrong."""
    try:
        result = cli.main(list(args), prog_name="netloom", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        # `netloom` alone is a question, and the help its answer.
        click.echo(error.format_message())
        return 0 if not args else error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough. Point stdout at nothing, so that the interpreter's last flush is quiet too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:  # noqa: BLE001  # the edge of the process: people get a line, not a traceback
        return _failed(error)
    return result if isinstance(result, int) else 0


def _failed(error: Exception) -> int:
    from netloom.cli.failure import explain  # imported only to fail

    if os.environ.get("NETLOOM_TRACEBACK"):
        raise error
    click.echo(explain(error), err=True)
    return 1


if __name__ == "__main__":
    main()
