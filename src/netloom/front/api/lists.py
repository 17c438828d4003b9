"""list.

A list without `limit` may be large: the store gives references to what it holds, and the answer goes out in chunks,
each sent when the client has read most of the one before. So it costs one chunk of memory, whatever the client does.
"""

import asyncio
import zlib

from netloom.errors import Cause, TimedOut
from netloom.front.api.exchange import COMPRESSED, Exchange
from netloom.front.api.forms import View, batches
from netloom.front.api.limits import Limits
from netloom.front.api.negotiation import Form, Media
from netloom.front.api.paths import Match, Options, Request
from netloom.store.base import Page, Store

CHUNK = 128 * 1024
_TOGETHER = 32
"""How many elements are made without letting the others go on."""


async def list_(exchange: Exchange, request: Request, store: Store) -> None:
    """Answer with a collection."""
    view = View(request.kind, exchange.output(request.kind, request.served), request.options.include)
    page = await read(request, store, exchange.limits)
    await reply_page(exchange, view, page)


async def read(request: Request, store: Store, limits: Limits) -> Page:
    """Return the page of a collection that a request asks for."""
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
    """Refuse to answer for a future that has not come."""
    current = await store.revision()
    if revision > current:
        raise TimedOut(
            f"Too large resource version: {revision}, current: {current}",
            causes=[Cause("", "Too large resource version", "ResourceVersionTooLarge")],
            retry_after=1,
        )


async def _revision(asked: Options, store: Store) -> int | None:
    """Return the exact revision to list at, or None for now, which is never older than asked."""
    if not asked.revision or asked.token:
        return None
    await check_revision(asked.revision, store)
    # With a limit, and no word about how it is meant, clients of old mean exactly.
    exact = asked.match is Match.EXACT or (asked.match is None and asked.limit is not None)
    return asked.revision if exact else None


async def reply_page(exchange: Exchange, view: View, page: Page, code: int = 200) -> None:
    """Send a page, in one piece where it is small."""
    if view.output.form is Form.TABLE:
        await exchange.reply(code, view.table(page), view.media)
        return
    parts = await _parts(view, page)
    total = sum(map(len, parts))
    head, joint, end = view.around(page, total)
    size = len(head) + total + len(joint) * max(0, len(parts) - 1) + len(end)
    if size <= CHUNK or view.output.media is Media.YAML:
        await exchange.reply(code, view.whole(b"".join((head, joint.join(parts), end))), view.media)
        return
    packer = None
    if size > exchange.limits.gzip_over and exchange.accepts_gzip():
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        await exchange.start(code, view.media, COMPRESSED)
    else:
        await exchange.start(code, view.media, [(b"content-length", b"%d" % size)])
    opening = head
    for group in batches(parts, CHUNK):
        chunk = opening + joint.join(group)
        opening = joint
        if packer is None:
            await exchange.write(chunk)
            continue
        if packed := packer.compress(chunk):
            await exchange.write(packed)
        # A chunk takes a millisecond or two: let the others go on.
        await asyncio.sleep(0)
    await exchange.finish(end if packer is None else packer.compress(end) + packer.flush())


async def _parts(view: View, page: Page) -> list[bytes]:
    """Return the elements of a list, letting the others go on where each of them costs something."""
    if view.raw:
        return [stored.raw for stored in page.items]
    parts = []
    for start in range(0, len(page.items), _TOGETHER):
        parts += [view.part(stored) for stored in page.items[start : start + _TOGETHER]]
        await asyncio.sleep(0)
    return parts
