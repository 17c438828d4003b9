"""etcd as a store: many API servers may share one cluster, and watchers at each of them see all writes.

etcd's own revision is our resourceVersion. An object is one key, `/netloom/GROUP/PLURAL/NAMESPACE/NAME`; its value is
the document without resourceVersion, which is the key's mod_revision and is put in when it is read. Writes compare that
revision, so the semantics are decided here (`store/semantics.py`) and the race is decided by etcd.

One watch on everything feeds the hub, beginning some way back in the past, so that watchers resume here as they do on a
store that never stopped. When its connection is lost, it resumes from the last revision, with the next server.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from random import Random, SystemRandom
from typing import Unpack

from netloom.errors import AlreadyExists, Expired, Internal, NetloomError, TooLarge, Unreachable
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.registry import KINDS
from netloom.model.values.selectors import EVERYTHING, Selector
from netloom.store.base import Damaged, Page, Precondition, Propagation, Stored, Watch
from netloom.store.damage import Unreadable, placeholder
from netloom.store.engine import Minter, candidate, check
from netloom.store.etcd.api import KEEPALIVE, Etcd, Tls, prefix_end
from netloom.store.etcd.feed import Feed, stored_at
from netloom.store.etcd.wire import delete_key, put, unless_changed
from netloom.store.hub import WINDOW_CHANGES, Hub, Limits
from netloom.store.paging import position, too_old
from netloom.store.paging import token as make_token
from netloom.store.semantics import (
    Verdict,
    WriteOutcome,
    already_exists,
    conflict,
    encode_outcome,
    key_of,
    not_found,
    prepare_delete,
    prepare_update,
    stamp,
)

PAGE = 2_000
"""How many objects one range request asks for: some megabytes; fewer where they are large."""
_SCAN = 40
"""How many one request asks for when all are read: together at most as large as one answer may be."""
_ATTEMPTS = 16
_NAME_ATTEMPTS = 8
_MARKER = "/.opened"
_REMEMBERED, _REMEMBERED_BYTES = 4096, 8192
"""How many objects the cache holds, and how large one may be."""


_Items = list[Stored]


class EtcdStore:
    """A `Store` in an etcd cluster."""

    def __init__(self, etcd: Etcd, feed: Feed, minter: Minter, prefix: str) -> None:
        self._etcd = etcd
        self._feed = feed
        self._hub = feed.hub
        self._minter = minter
        self._roots = feed.roots
        self._marker = prefix + _MARKER
        self._recent: dict[str, Stored] = {}
        self._closed = False

    @classmethod
    async def open(
        cls,
        urls: Sequence[str],
        *,
        prefix: str = "/netloom",
        kinds: Iterable[Kind] = KINDS,
        tls: Tls | None = None,
        compact_every: float | None = None,
        keepalive: float = KEEPALIVE,
        clock: Callable[[], float] = time.time,
        random: Random | None = None,
        **limits: Unpack[Limits],
    ) -> "EtcdStore":
        """Connect to the etcd cluster at `urls` and take up its recent history.

        With `compact_every`, history older than that many seconds is dropped; leave it out where etcd is configured to
        do so itself, or where another of its users needs the history. A server that is silent for `keepalive` seconds
        is sent a PING, and given up for the next one after as long again.
        """
        etcd = Etcd(urls, tls, keepalive=keepalive)
        try:
            # A write of our own, so that there is an event at which the history is known to be whole.
            now = (await etcd.txn([], [put(prefix + _MARKER, b"1")])).revision
            hub = Hub(revision=max(now - limits.get("window_changes", WINDOW_CHANGES), 0), **limits)
            roots = {kind: f"{prefix}/{kind.group or 'core'}/{kind.plural}/" for kind in kinds}
            feed = Feed(etcd, hub, roots, prefix + "/")
            await feed.start(until=now, compact_every=compact_every)
        except BaseException:
            await etcd.close()
            raise
        return cls(etcd, feed, Minter(clock, random or SystemRandom()), prefix)

    async def create(self, kind: Kind, document: Document, *, dry_run: bool = False) -> Stored:
        """Store a new object."""
        generated = not (document.get("metadata") or {}).get("name")
        for _ in range(_NAME_ATTEMPTS - 1 if generated else 0):
            with suppress(AlreadyExists):
                return await self._create(kind, document, dry_run=dry_run)
        return await self._create(kind, document, dry_run=dry_run)

    async def get(self, kind: Kind, namespace: str, name: str, *, known: int = 0) -> Stored:
        """Return one object as it is now, or as it was at the revision `known`."""
        key = self._key(kind, namespace, name)
        recent = self._recent.get(key) if known else None
        if recent is not None and recent.revision == known:
            return recent
        found = (await self._etcd.range(key)).kvs
        if not found:
            raise not_found(kind, name)
        try:
            return self._remember(key, stored_at(kind, found[0], len(self._root(kind))))
        except Unreadable as error:
            self._feed.aside.note(error.damaged)
            raise

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        selector: Selector = EVERYTHING,
        revision: int | None = None,
        limit: int | None = None,
        token: str = "",
    ) -> Page:
        """Return the objects of a kind."""
        begin = where = self._root(kind) + (f"{namespace}/" if namespace else "")
        at = revision or 0
        if revision is not None and revision <= 0:
            raise Expired(f"too old resource version: {revision}")
        if token:
            found = position(token, revision=revision)
            at, where = found.rv, max(begin, f"{self._root(kind)}{found.start}\0")
        try:
            return await self._page(kind, where, prefix_end(begin), selector, at, limit)
        except Expired as error:
            raise too_old() if token else error from None

    async def watch(self, kind: Kind, namespace: str = "", *, selector: Selector = EVERYTHING, since: int) -> Watch:
        """Watch the changes after revision `since`."""
        self._root(kind)
        if since > self._hub.revision and since > (current := await self.revision()):
            raise Expired(f"too large resource version: {since}, current: {current}")
        return self._hub.watch(kind, namespace, selector, since)

    async def update(self, kind: Kind, document: Document, *, subresource: str = "", dry_run: bool = False) -> Stored:
        """Replace an object, or its status."""
        metadata = document["metadata"]

        def decide(old: Document) -> WriteOutcome:
            return prepare_update(kind, old, document, subresource=subresource)

        return await self._change(kind, metadata.get("namespace", ""), metadata["name"], decide, dry_run=dry_run)

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        propagation: Propagation = Propagation.BACKGROUND,
        uid: str = "",
        revision: int | None = None,
        unless: Precondition | None = None,
        dry_run: bool = False,
    ) -> Stored:
        """Delete an object and return its last state."""

        def decide(old: Document) -> WriteOutcome:
            now = self._minter.clock()
            if unless is not None:
                check(unless, self._hub)
            return prepare_delete(kind, old, propagation=propagation, uid=uid, revision=revision, now=now)

        try:
            return await self._change(kind, namespace, name, decide, dry_run=dry_run)
        except Unreadable as error:
            if uid or revision is not None:
                raise
            return await self._discard(error.damaged, dry_run=dry_run)

    async def revision(self) -> int:
        """Return the revision of the newest write."""
        return (await self._etcd.range(self._marker, count_only=True)).revision

    async def damaged(self) -> Sequence[Damaged]:
        """Return the objects that cannot be read: all are read for it, by one request after another."""
        found: list[Damaged] = []
        for kind, root in self._roots.items():
            where, more = root, True
            while more:
                page = await self._etcd.range(where, end=prefix_end(root), limit=_SCAN)
                for kv in page.kvs:
                    try:
                        stored_at(kind, kv, len(root))
                    except Unreadable as error:
                        found.append(error.damaged)
                more = page.more
                where = page.kvs[-1].key.decode(errors="surrogateescape") + "\0" if more else ""
        return found

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        await self._feed.stop()
        self._hub.fail(Unreachable("the store is closed"))
        await self._etcd.close()

    async def _create(self, kind: Kind, document: Document, *, dry_run: bool) -> Stored:
        namespace, name, body = candidate(kind, document, self._minter)
        key = self._key(kind, namespace, name)
        if dry_run:
            if (await self._etcd.range(key, count_only=True)).count:
                raise already_exists(kind, name)
            return Stored(kind, namespace, name, 0, body)
        done = await self._etcd.txn([unless_changed(key, 0)], [put(key, body)])
        if not done.succeeded:
            raise already_exists(kind, name)
        return self._remember(key, stamp(kind, namespace, name, done.revision, body))

    async def _change(
        self, kind: Kind, namespace: str, name: str, decide: Callable[[Document], WriteOutcome], *, dry_run: bool
    ) -> Stored:
        """Read, decide, and write if the object is unchanged; otherwise start again.

        What is remembered is as good as what is read: if it is no longer so, the write does not happen. Where there is
        no write to find that out (nothing changes, or it is refused), it is decided by what is read.
        """
        key = self._key(kind, namespace, name)
        recent = None if dry_run else self._recent.get(key)
        guess = None if recent is None else _guessed(decide, recent)
        if recent is not None and guess is not None and (done := await self._write(key, recent, guess)):
            return done
        for _ in range(_ATTEMPTS):
            old = await self.get(kind, namespace, name)
            outcome = decide(old.document())
            if outcome.verdict is Verdict.SAME:
                return old
            if dry_run:
                return stamp(kind, namespace, name, old.revision, encode_outcome(outcome, old))
            if done := await self._write(key, old, outcome):
                return done
        raise conflict(kind, name)

    async def _write(self, key: str, old: Stored, outcome: WriteOutcome) -> Stored | None:
        """Write the change if `old` is still stored; return None if it is not."""
        kind, removes = old.kind, outcome.verdict is Verdict.REMOVE
        body = encode_outcome(outcome, old)
        done = await self._etcd.txn(
            [unless_changed(key, old.revision)], [delete_key(key) if removes else put(key, body)]
        )
        if not done.succeeded:
            return None
        new = stamp(kind, old.namespace, old.name, done.revision, body)
        if removes:
            self._recent.pop(key, None)
            return new
        return self._remember(key, new)

    async def _discard(self, damaged: Damaged, *, dry_run: bool) -> Stored:
        """Remove a damaged object, unless it was written meanwhile."""
        key = self._key(damaged.kind, damaged.namespace, damaged.name)
        if not dry_run:
            done = await self._etcd.txn([unless_changed(key, damaged.revision)], [delete_key(key)])
            if not done.succeeded:
                raise conflict(damaged.kind, damaged.name)
        return placeholder(damaged)

    def _remember(self, key: str, stored: Stored) -> Stored:
        """Cache an object: the client that just read or wrote it is likely to change it next."""
        self._recent.pop(key, None)
        if len(stored.raw) <= _REMEMBERED_BYTES:
            self._recent[key] = stored
            if len(self._recent) > _REMEMBERED:
                del self._recent[next(iter(self._recent))]
        return stored

    async def _page(
        self, kind: Kind, where: str, end: str, selector: Selector, revision: int, limit: int | None
    ) -> Page:
        """Collect up to `limit` objects from `where` on, all at one revision."""
        cut = len(self._root(kind))
        items: _Items = []
        most = PAGE
        while True:
            # One more than the limit shows whether there is more.
            ask = most if selector or not limit else min(most, limit + 1 - len(items))
            try:
                found = await self._etcd.range(where, end=end, limit=ask, revision=revision)
            except TooLarge:
                if ask == 1:
                    raise
                most = ask // 2
                continue
            revision = revision or found.revision
            for index, kv in enumerate(found.kvs):
                stored = self._feed.aside.readable(kind, kv, cut)
                if stored is None or not stored.selected(selector):
                    continue
                if limit and len(items) == limit:
                    last = key_of(items[-1].namespace, items[-1].name)
                    left = None if selector else found.count - index
                    return Page(items, revision, make_token(revision, last), left)
                items.append(stored)
            if not found.more:
                return Page(items, revision)
            where = found.kvs[-1].key.decode(errors="surrogateescape") + "\0"

    def _root(self, kind: Kind) -> str:
        if self._closed:
            raise Unreachable("the store is closed")
        try:
            return self._roots[kind]
        except KeyError:
            raise Internal(f"this store was opened without {kind.qualified}") from None

    def _key(self, kind: Kind, namespace: str, name: str) -> str:
        return self._root(kind) + key_of(namespace, name)


def _guessed(decide: Callable[[Document], WriteOutcome], recent: Stored) -> WriteOutcome | None:
    """Return the outcome of a change based on the cached `recent`, if a write would detect that it is stale."""
    try:
        outcome = decide(recent.document())
    except NetloomError:
        return None
    return None if outcome.verdict is Verdict.SAME else outcome
