"""Periodic tasks of the leader: the resync of all controllers, and the expiry of Events.

A resync enqueues every key of every controller, spread over a minute to avoid a burst; it repairs whatever a missed
hint left undone. Events expire an hour after their creation according to the store, because their writers choose the
other times in them. A note that is repeated later is a new Event. Kubernetes expires its Events itself.
"""

import asyncio
import logging
from collections.abc import Hashable, Sequence
from datetime import timedelta
from random import Random
from typing import NoReturn

from netloom.control.runtime.client import Client
from netloom.control.runtime.clock import Clock, parse
from netloom.control.runtime.clock import now as time_of_day
from netloom.control.runtime.controller import Controller
from netloom.errors import Conflict, NetloomError
from netloom.model.kinds.events import Event
from netloom.model.registry import EVENT

logger = logging.getLogger(__name__)

EVERY = 600.0
SPREAD = 60.0
EVENTS_EVERY = 300.0
EVENTS_KEPT = timedelta(hours=1)


async def sweep(
    controllers: Sequence[Controller[Hashable]], *, random: Random, every: float = EVERY, spread: float = SPREAD
) -> NoReturn:
    """Enqueue all keys of all controllers about every ten minutes, until cancelled."""
    while True:
        await asyncio.sleep(every * random.uniform(0.75, 1.25))
        for controller in controllers:
            for key in controller.all_keys():
                controller.queue.add_after(key, random.uniform(0, spread))


async def expire_events(client: Client, *, random: Random, clock: Clock = time_of_day) -> NoReturn:
    """Delete Events that are more than an hour old about every five minutes, until cancelled."""
    while True:
        await asyncio.sleep(EVENTS_EVERY * random.uniform(0.75, 1.25))
        try:
            await expire_events_once(client, clock=clock)
        except NetloomError as error:
            logger.info("cannot delete expired Events: %s", error)


async def expire_events_once(client: Client, *, clock: Clock = time_of_day) -> int:
    """Delete Events that were created more than an hour ago; return how many."""
    oldest = clock() - EVENTS_KEPT
    gone = 0
    for event in await client.list(Event):
        meta = event.metadata
        made = parse(meta.creation_timestamp)
        if made is None or made >= oldest:
            continue
        try:
            await client.delete(EVENT, meta.namespace, meta.name, uid=meta.uid)
        except Conflict:
            continue  # A new Event has the same name.
        gone += 1
    return gone
