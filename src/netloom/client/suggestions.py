"""Names that are not there, with the nearest that are."""

import contextlib
import difflib
from collections.abc import Collection, Iterator

from netloom.cli.options import Session
from netloom.client import lists as reading
from netloom.client.lists import Scope
from netloom.client.resources import Target
from netloom.errors import NetloomError, NotFound


@contextlib.contextmanager
def known_or_suggested(session: Session, target: Target) -> Iterator[None]:
    """Have a `NotFound` for an object say which one may have been meant."""
    try:
        yield
    except NotFound as error:
        scope = Scope(session.namespace if target.resource.namespaced else "")
        try:
            every = reading.objects(session.client, Target(target.resource), scope)[0]
        except NetloomError:
            raise error from None
        raise NotFound(error.message + nearest(target.name, {str(one["metadata"]["name"]) for one in every})) from None


def nearest(name: str, known: Collection[str]) -> str:
    """Return ` (did you mean …?)`, or which there are, or nothing where there is none."""
    near = difflib.get_close_matches(name, sorted(known), n=1)
    if near:
        return f' (did you mean "{near[0]}"?)'
    few = ", ".join(sorted(known)[:8])
    return f" (there {'is' if len(known) == 1 else 'are'} {few}{', ...' if len(known) > 8 else ''})" if known else ""
