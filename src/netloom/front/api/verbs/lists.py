"""list.

A list without `limit` may be large: the store returns references to its objects, and the answer is sent in chunks, each
when the client has read most of the one before. So it costs one chunk of memory, whatever the client does.
"""

import zlib
from collections.abc import Iterator, Sequence
from itertools import chain

from netloom.errors import Cause, TimedOut
from netloom.front.api.http.exchange import COMPRESSED, Exchange, Headers
from netloom.front.api.http.limits import Limits
from netloom.front.api.http.negotiation import Media
from netloom.front.api.http.paths import Match, Options, Request
from netloom.front.api.output.forms import View
from netloom.store.base import Page, Store, Stored

CHUNK = 128 * 1024
_MADE = {Media.JSON: CHUNK, Media.YAML: 16 * 1024, Media.PROTOBUF: 32 * 1024}
"""How many bytes of objects to convert to another form at once."""


async def list_(exchange: Exchange, request: Request, store: Store) -> None:
    """Answer with a collection."""
    view = exchange.view(request)
    await reply_page(exchange, view, await read(request, store, exchange.limits))


async def read(request: Request, store: Store, limits: Limits) -> Page:
    """Return the requested page of a collection."""
    asked = request.options
    limit = None if asked.limit is None else min(asked.limit, limits.page)
    return await store.list(
        request.kind,
        request.namespace,
        selector=asked.selector,
        revision=await _revision(asked, store),
        limit=limit,
        token=asked.token,
    )


async def check_revision(revision: int, store: Store) -> None:
    """Refuse a revision that does not exist yet."""
    current = await store.revision()
    if revision > current:
        raise TimedOut(
            f"Too large resource version: {revision}, current: {current}",
            causes=[Cause("", "Too large resource version", "ResourceVersionTooLarge")],
            retry_after=1,
        )


async def _revision(asked: Options, store: Store) -> int | None:
    """Return the exact revision to list at, or None for the current one, which is never older than requested."""
    if not asked.revision or asked.token:
        return None
    await check_revision(asked.revision, store)
    # With a limit and without resourceVersionMatch, old clients mean exactly this revision.
    exact = asked.match is Match.EXACT or (asked.match is None and asked.limit is not None)
    return asked.revision if exact else None


async def reply_page(exchange: Exchange, view: View, page: Page, code: int = 200) -> None:
    """Send a page, in one piece if it is small, else in chunks; other requests have their turns in between."""
    view.check(page.items)
    groups = _groups(view, page.items)
    total = 0
    if view.binary:  # Its length comes first, so all of it is made before it is sent.
        made = []
        for group in groups:
            made.append(group)
            total += sum(map(len, group))
            await exchange.turn.take()
        groups = iter(made)
    elif view.raw:
        total = sum(len(stored.raw) for stored in page.items)
    before, between, after = view.around(page, total)
    first, second = next(groups, []), next(groups, None)
    if second is None:
        await exchange.reply(code, b"".join((before, between.join(first), after)), view.media)
        return
    headers: Headers = []
    packer = None
    if exchange.accepts_gzip() and exchange.limits.gzip_over <= CHUNK:
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        headers += COMPRESSED
    elif total:
        size = len(before) + total + len(between) * (len(page.items) - 1) + len(after)
        headers.append((b"content-length", b"%d" % size))
    await exchange.start(code, view.media, headers)
    opening = before
    for group in chain((first, second), groups):
        chunk = opening + between.join(group)
        opening = between
        if chunk := chunk if packer is None else packer.compress(chunk):
            await exchange.write(chunk)
        await exchange.turn.take()
    await exchange.finish(after if packer is None else packer.compress(after) + packer.flush())


def _groups(view: View, items: Sequence[Stored]) -> Iterator[list[bytes]]:
    """Yield the elements of a list in groups that take at most some milliseconds to make, of about a chunk each.

    Bytes read count like bytes written: a row of a Table is short, however large its object is.
    """
    size = CHUNK if view.raw else _MADE[view.output.media]
    group: list[bytes] = []
    have = 0
    for stored in items:
        part = view.part(stored)
        group.append(part)
        have += max(len(part), len(stored.raw))
        if have >= size:
            yield group
            group, have = [], 0
    if group:
        yield group
