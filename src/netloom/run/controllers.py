"""The controllers, wired by hand: which there are, what each watches, what they share.

In `serve` they work on the sqlite store itself, in `netloom controller` on an API; they cannot tell.
"""

import socket
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

from netloom.control import gc, subnets
from netloom.control.client import Client, always
from netloom.control.controller import Controller
from netloom.control.election import Election
from netloom.control.events import Recorder
from netloom.control.informer import Informer, informer
from netloom.control.manager import Manager
from netloom.control.sweep import expire_events
from netloom.model.networks import Network, Subnet
from netloom.store.base import Store

COMPONENT = "netloom-controller"

Chore = Callable[[], Coroutine[Any, Any, Any]]


def assemble(store: Store, *, random: Random, election: Election | None = None, housekeeping: bool = True) -> Manager:
    """Return all controllers over `store`.

    `housekeeping` is what a Kubernetes does by itself: collecting owned objects, and old Events.
    """
    fence = election.certain if election is not None else always
    client = Client(store, fence=fence)
    recorder = Recorder(store, COMPONENT, random=random, host=socket.gethostname())
    controllers: list[Controller[Any]] = []
    informers: list[Informer[Any]] = []
    chores: list[Chore] = []

    controller, watched = _subnets(store, client, recorder, random, fence)
    controllers.append(controller)
    informers += watched
    if housekeeping:
        controller, watched = _garbage(store, client, recorder, random, fence)
        controllers.append(controller)
        informers += watched
        chores.append(partial(expire_events, client, random=random))
    return Manager(
        controllers=controllers,
        informers=informers,
        recorder=recorder,
        random=random,
        election=election,
        chores=chores,
    )


def _subnets(
    store: Store, client: Client, recorder: Recorder, random: Random, fence: Callable[[], bool]
) -> tuple[Controller[Any], list[Informer[Any]]]:
    networks = informer(store, Network, random=random)
    watched = informer(store, Subnet, random=random, indexes={subnets.BY_NETWORK: subnets.by_network})
    validator = subnets.SubnetValidator(client, watched.cache, recorder)
    controller = Controller(
        "subnets",
        validator.reconcile,
        random=random,
        everything=validator.everything,
        fence=fence,
        recorder=recorder,
        about=validator.about,
    )
    controller.watch(watched, validator.subnet_changed)
    controller.watch(networks, validator.network_changed)
    return controller, [networks, watched]


def _garbage(
    store: Store, client: Client, recorder: Recorder, random: Random, fence: Callable[[], bool]
) -> tuple[Controller[Any], list[Informer[Any]]]:
    watched = gc.collected_informers(store, random=random)
    collector = gc.Collector(client, watched, recorder)
    controller = Controller(
        "garbage",
        collector.reconcile,
        random=random,
        everything=collector.everything,
        fence=fence,
        recorder=recorder,
        about=collector.about,
    )
    for one in watched:
        controller.watch(one, partial(collector.changed, one.kind))
    return controller, list(watched)
