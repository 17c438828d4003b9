"""The settings of a Kubernetes cluster's network, checked, and its API."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import combinations

from netloom.errors import Cause, Invalid
from netloom.model.values import addresses
from netloom.plan.kube.planned import ClusterSettings
from netloom.plan.kube.services import pools
from netloom.plan.kube.services.pools import MOST_POOLS, Pool
from netloom.run.config import ControlSettings
from netloom.store.base import Store

MOST_BLOCKS = 16
"""Of pods, and of Services: a node has a route to each of them."""
POOLS = "kubeLoadBalancerPools"
SMALLEST_MTU = {4: 576, 6: 1280}


def cluster_settings(settings: ControlSettings) -> ClusterSettings | None:
    """Return the settings of the cluster to connect, or None; raise `Invalid` if they are not valid."""
    if not settings.kube:
        return None
    causes = [
        *_blocks("kubePodCidrs", settings.kube_pod_cidrs),
        *_blocks("kubeServiceCidrs", settings.kube_service_cidrs),
    ]
    if not causes:
        causes = _contradictions(settings)
    found, wrong = _pools(settings.kube_load_balancer_pools)
    causes += wrong or _overlaps(settings, found)
    if causes:
        raise Invalid("invalid configuration", causes=causes)
    return ClusterSettings(
        namespace=settings.kube_namespace,
        pod_blocks=settings.kube_pod_cidrs,
        service_blocks=settings.kube_service_cidrs,
        mtu=settings.kube_mtu or None,
        load_balancer_pools=tuple(found),
        pool_size=settings.kube_pool_size,
        pool_max_size=settings.kube_pool_max_size,
    )


@asynccontextmanager
async def opened(settings: ControlSettings) -> AsyncIterator[Store | None]:
    """Open the API of the cluster to connect; None: there is none, or it is that of Netloom's own objects."""
    if not settings.kube or not settings.kube_cluster:
        yield None
        return
    from netloom.store.kube import kubeconfig  # few need it
    from netloom.store.kube.store import KubeStore  # likewise

    store = await KubeStore.open(kubeconfig.load(settings.kube_cluster))
    try:
        yield store
    finally:
        await store.close()


def _blocks(key: str, blocks: Sequence[str]) -> list[Cause]:
    if not blocks:
        return [Cause(key, "with kube, name at least one block, as 10.128.0.0/14")]
    if len(blocks) > MOST_BLOCKS:
        return [Cause(key, f"{len(blocks)} blocks are too many: at most {MOST_BLOCKS}")]
    wrong = [one for one in blocks if not addresses.is_block(one)]
    return [Cause(key, f"{one!r} is not an address block, as 10.128.0.0/14") for one in wrong]


def _contradictions(settings: ControlSettings) -> list[Cause]:
    pods = [("kubePodCidrs", one) for one in settings.kube_pod_cidrs]
    services = [("kubeServiceCidrs", one) for one in settings.kube_service_cidrs]
    found = [
        Cause(key, f"{one} overlaps {other}: choose blocks that do not")
        for (_, other), (key, one) in combinations([*pods, *services], 2)
        if addresses.inside(one, other) or addresses.inside(other, one)
    ]
    families = {addresses.family(one) for _, one in pods}
    found += [
        Cause(key, f"{one} is of a family that pods do not have")
        for key, one in services
        if addresses.family(one) not in families
    ]
    if settings.kube_pool_max_size and settings.kube_pool_max_size < settings.kube_pool_size:
        text = f"{settings.kube_pool_max_size} is less than kubePoolSize: set it to 0, or to at least as much"
        found.append(Cause("kubePoolMaxSize", text))
    least = max(SMALLEST_MTU[family] for family in families)
    if settings.kube_mtu and settings.kube_mtu < least:
        found.append(Cause("kubeMtu", f"{settings.kube_mtu} is too small: at least {least}"))
    return found


def _pools(texts: Sequence[str]) -> tuple[list[Pool], list[Cause]]:
    """Return the pools of addresses outside, and what is wrong with some of them."""
    if len(texts) > MOST_POOLS:
        return [], [Cause(POOLS, f"{len(texts)} pools are too many: at most {MOST_POOLS}")]
    found, causes = [], []
    for text in texts:
        try:
            found.append(pools.parse(text))
        except Invalid as error:
            causes.append(Cause(POOLS, error.message))
    return found, causes


def _overlaps(settings: ControlSettings, found: Sequence[Pool]) -> list[Cause]:
    texts = settings.kube_load_balancer_pools
    causes = [
        Cause(POOLS, f"{text} overlaps {other}: choose pools that do not")
        for (other, one), (text, two) in combinations(zip(texts, found, strict=True), 2)
        if one.overlaps(two)
    ]
    inside = [one for one in (*settings.kube_pod_cidrs, *settings.kube_service_cidrs) if addresses.is_block(one)]
    causes += [
        Cause(POOLS, f"{text} overlaps {block}: addresses of a pool are outside of the cluster's blocks")
        for text, pool in zip(texts, found, strict=True)
        for block in inside
        if pool.overlaps(pools.parse(block))
    ]
    return causes
