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
_END = b"]}"


async def list_(exchange: Exchange, request: Request, store: Store) -> None:
    """Answer with a collection."""
    view = View(request.kind, exchange.output(), request.options.include)
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
    head = view.head(page)
    parts = [view.part(stored) for stored in page.items]
    size = len(head) + sum(map(len, parts)) + max(0, len(parts) - 1) + len(_END)
    if size <= CHUNK or view.output.media is not Media.JSON:
        await exchange.reply(code, view.whole(b"".join((head, b",".join(parts), _END))), view.media)
        return
    if size > exchange.limits.gzip_over and exchange.accepts_gzip():
        await _stream_gzip(exchange, view, code, head, parts)
        return
    await exchange.start(code, view.media, [(b"content-length", b"%d" % size)])
    opening = head
    for group in batches(parts, CHUNK):
        await exchange.write(opening + b",".join(group))
        opening = b","
    await exchange.finish(_END)


async def _stream_gzip(exchange: Exchange, view: View, code: int, head: bytes, parts: list[bytes]) -> None:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    await exchange.start(code, view.media, COMPRESSED)
    opening = head
    for group in batches(parts, CHUNK):
        packed = packer.compress(opening + b",".join(group))
        opening = b","
        if packed:
            await exchange.write(packed)
        # A chunk takes a millisecond or two: let the others go on.
        await asyncio.sleep(0)
    await exchange.finish(packer.compress(_END) + packer.flush())
