"""What the shell offers after a tab: kinds from our own registry, names from the server.

A tab that hangs or prints an error is worse than one that offers nothing: the server gets two seconds, and whatever
goes wrong ends in an empty list.
"""

import click

ANSWER_SECONDS = 2.0


def complete_targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Offer kinds for the first word, then names of that kind; after `KIND/` its names."""
    given = tuple(ctx.params.get(param.name or "") or ())
    if "/" in incomplete:
        kind, _, start = incomplete.partition("/")
        return [f"{kind}/{name}" for name in names(ctx, kind) if name.startswith(start)]
    if given:
        return [name for name in names(ctx, given[0]) if name.startswith(incomplete) and name not in given]
    done, comma, start = incomplete.rpartition(",")
    return [done + comma + word for word in kinds() if word.startswith(start)]


def kinds() -> list[str]:
    """Return the plural of every kind."""
    from netloom.model.registry import KINDS  # only a tab after the command needs it

    return sorted(kind.plural for kind in KINDS)


def names(ctx: click.Context, kind: str) -> list[str]:
    """Ask the server for the names of a kind; nothing where it does not answer."""
    from netloom.cli import options as session  # only a tab on a name needs them
    from netloom.client import http as client
    from netloom.client import lists as reading
    from netloom.client import resources
    from netloom.errors import NetloomError

    client.CONNECT_SECONDS = client.READ_SECONDS = ANSWER_SECONDS
    flags = {**(ctx.find_root().obj or {}), **ctx.find_root().params, **ctx.params}
    try:
        found = session.connect(flags.get("kubeconfig"), flags.get("context_name"), flags.get("namespace"))
        target = resources.Target(resources.named(found.client, kind))
        where = reading.scope(found, everywhere=bool(flags.get("everywhere")))
        return [str(one["metadata"]["name"]) for one in reading.objects(found.client, target, where)[0]]
    except (NetloomError, click.ClickException, OSError, KeyError, ValueError):
        return []
