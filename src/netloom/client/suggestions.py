"""The nearest existing names, for a name that does not exist."""

import contextlib
import difflib
from collections.abc import Collection, Iterator

from netloom.client import lists
from netloom.client.lists import Scope
from netloom.client.resources import Target
from netloom.client.session import Session
from netloom.errors import NetloomError, NotFound


@contextlib.contextmanager
def suggesting(session: Session, target: Target) -> Iterator[None]:
    """Add the nearest existing name to a `NotFound` for this object."""
    try:
        yield
    except NotFound as error:
        scope = Scope(session.namespace if target.resource.namespaced else "")
        try:
            every = lists.objects(session.client, Target(target.resource), scope)[0]
        except NetloomError:
            raise error from None
        raise NotFound(error.message + nearest(target.name, {str(one["metadata"]["name"]) for one in every})) from None


def nearest(name: str, known: Collection[str]) -> str:
    """Return ` (did you mean …?)`, or else a list of the known names, or "" if there are none."""
    near = difflib.get_close_matches(name, sorted(known), n=1)
    if near:
        return f' (did you mean "{near[0]}"?)'
    few = ", ".join(sorted(known)[:8])
    return f" (there {'is' if len(known) == 1 else 'are'} {few}{', ...' if len(known) > 8 else ''})" if known else ""
