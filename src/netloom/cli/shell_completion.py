"""`netloom completion`, and the completion of arguments: kinds from the registry, names of objects from the server.

Completion must neither hang nor print an error: the server gets two seconds, and any failure yields no suggestions.
"""

import click

ANSWER_SECONDS = 2.0


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell completion script.

    \b
    bash: source <(netloom completion bash)
    zsh:  source <(netloom completion zsh)
    fish: netloom completion fish | source
    """
    from click.shell_completion import get_completion_class  # only this command needs it

    found = get_completion_class(shell)
    assert found is not None
    maker = found(ctx.find_root().command, {}, "netloom", "_NETLOOM_COMPLETE")
    # Not source(): for bash it runs bash to check its version, and bash may not be installed here.
    click.echo(maker.source_template % maker.source_vars())


def complete_targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Suggest kinds for the first word, then names of that kind; after `KIND/` suggest its names."""
    given = tuple(ctx.params.get(param.name or "") or ())
    if "/" in incomplete:
        kind, _, start = incomplete.partition("/")
        return [f"{kind}/{name}" for name in names(ctx, kind) if name.startswith(start)]
    if given:
        return [name for name in names(ctx, given[0]) if name.startswith(incomplete) and name not in given]
    done, comma, start = incomplete.rpartition(",")
    return [done + comma + word for word in kinds() if word.startswith(start)]


def complete_attachments(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Suggest the names of NetworkAttachments."""
    return [name for name in names(ctx, "networkattachments") if name.startswith(incomplete)]


def kinds() -> list[str]:
    """Return the plural of every kind."""
    from netloom.model.registry import KINDS  # only completion of a kind needs it

    return sorted(kind.plural for kind in KINDS)


def names(ctx: click.Context, kind: str) -> list[str]:
    """Return the names of a kind's objects; nothing if the server does not answer."""
    from netloom.cli import options  # only completion of a name needs these
    from netloom.client import http, lists, resources
    from netloom.errors import NetloomError

    http.CONNECT_SECONDS = http.READ_SECONDS = ANSWER_SECONDS
    try:
        with ctx.scope(cleanup=False):
            session = options.session()
        target = resources.Target(resources.named(session.client, kind))
        where = lists.Scope("" if ctx.params.get("everywhere") else session.namespace)
        return [str(one["metadata"]["name"]) for one in lists.objects(session.client, target, where)[0]]
    except (NetloomError, click.ClickException, OSError, KeyError, ValueError):
        return []
