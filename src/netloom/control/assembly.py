"""All of Netloom's controllers, put together over one store: what `serve` and `controller` run.

The store may be our own (sqlite, etcd, memory) or a Kubernetes. A Kubernetes collects garbage and expires Events by
itself: then `own_store` is False and that is left to it.
"""

from functools import partial
from random import Random, SystemRandom
from typing import Any

from netloom.control.client import Client, always
from netloom.control.clock import Clock
from netloom.control.clock import now as time_of_day
from netloom.control.controller import Controller
from netloom.control.election import Election
from netloom.control.events import Recorder
from netloom.control.gc import Collector, ItemKey, collected_informers
from netloom.control.informer import Informer, informer
from netloom.control.manager import GRACE, Manager
from netloom.control.subnets import BY_NETWORK, SubnetValidator, by_network
from netloom.control.sweep import expire_events
from netloom.model.networks import Network, Subnet
from netloom.store.base import Store

COMPONENT = "netloom-controller"


def assemble(
    store: Store,
    *,
    own_store: bool,
    election: Election | None = None,
    host: str = "",
    random: Random | None = None,
    clock: Clock = time_of_day,
    grace: float = GRACE,
) -> Manager:
    """Return a manager of all controllers, not yet running.  Without an election this process is the only one."""
    random = random or SystemRandom()
    client = Client(store, fence=election.certain if election else always)
    recorder = Recorder(store, COMPONENT, random=random, host=host, clock=clock)
    subnets = informer(store, Subnet, random=random, indexes={BY_NETWORK: by_network})
    networks = informer(store, Network, random=random)
    controllers: list[Controller[Any]] = [_validator(client, subnets, networks, recorder, random=random, clock=clock)]
    informers: list[Informer[Any]] = [subnets, networks]
    chores = []
    if own_store:
        items = collected_informers(store, random=random)
        controllers.append(_collector(client, items, recorder, random=random))
        informers += items
        chores.append(partial(expire_events, client, random=random, clock=clock))
    return Manager(
        controllers=controllers,
        informers=informers,
        recorder=recorder,
        random=random,
        election=election,
        chores=chores,
        grace=grace,
    )


def _validator(
    client: Client,
    subnets: Informer[Subnet],
    networks: Informer[Network],
    recorder: Recorder,
    *,
    random: Random,
    clock: Clock,
) -> Controller[Any]:
    validator = SubnetValidator(client, subnets.cache, recorder, clock=clock)
    controller = Controller(
        "subnets",
        validator.reconcile,
        random=random,
        everything=validator.everything,
        fence=client.fence,
        recorder=recorder,
        about=validator.about,
    )
    controller.watch(subnets, validator.subnet_changed)
    controller.watch(networks, validator.network_changed)
    return controller


def _collector(
    client: Client, items: list[Informer[Any]], recorder: Recorder, *, random: Random
) -> Controller[ItemKey]:
    collector = Collector(client, items, recorder)
    controller = Controller(
        "gc",
        collector.reconcile,
        random=random,
        everything=collector.everything,
        fence=client.fence,
        recorder=recorder,
        about=collector.about,
    )
    for following in items:
        controller.watch(following, partial(collector.changed, following.kind))
    return controller
