"""Looking at everything now and then, in case a hint was lost; and clearing away what is old.

A sweep queues every key of every controller, spread over a while so that it is no burst. Events are kept for an hour
after they were made, as the store says: the times in them are their writer's to choose. What is told again later is
another Event. Where the store is a Kubernetes, it expires its own.
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
from netloom.model.events import Event
from netloom.model.registry import EVENT

logger = logging.getLogger(__name__)

EVERY = 600.0
SPREAD = 60.0
EVENTS_EVERY = 300.0
EVENTS_KEPT = timedelta(hours=1)


async def sweep(
    controllers: Sequence[Controller[Hashable]], *, random: Random, every: float = EVERY, spread: float = SPREAD
) -> NoReturn:
    """Have everything looked at every now and then, until cancelled."""
    while True:
        await asyncio.sleep(every * random.uniform(0.75, 1.25))
        for controller in controllers:
            for key in controller.all_keys():
                controller.queue.add_after(key, random.uniform(0, spread))


async def expire_events(client: Client, *, random: Random, clock: Clock = time_of_day) -> NoReturn:
    """Delete Events that are more than an hour old, every now and then, until cancelled."""
    while True:
        await asyncio.sleep(EVENTS_EVERY * random.uniform(0.75, 1.25))
        try:
            await expire_events_once(client, clock=clock)
        except NetloomError as error:
            logger.info("old Events stay for now: %s", error)


async def expire_events_once(client: Client, *, clock: Clock = time_of_day) -> int:
    """Delete Events that were made more than an hour ago; return how many."""
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
            continue  # Another of the same name has taken its place.
        gone += 1
    return gone
