"""The addresses of Services of type LoadBalancer, in their statuses.

Without a pool, nothing is written: statuses are another program's.
"""

from collections.abc import Iterable

from netloom.control.runtime.cache import Cache, Change
from netloom.control.runtime.client import Client
from netloom.errors import Conflict, NotFound
from netloom.model.kinds.kubernetes import Service
from netloom.model.kubernetes import SERVICE
from netloom.plan.kube.planned import ClusterSettings
from netloom.plan.kube.services.addresses import Holder, ServiceAddresses
from netloom.plan.problem import Problem, Unit


class ServiceAddressWriter:
    """Allocates addresses of the pools and writes them."""

    def __init__(self, client: Client, services: Cache[Service], settings: ClusterSettings) -> None:
        """`client` is that of the cluster."""
        self._client = client
        self._services = services
        self._addresses = ServiceAddresses(settings.load_balancer_pools)

    @property
    def are_known(self) -> bool:
        """Whether it is known who has which address: a Service that cannot be decoded may have any."""
        return not self._addresses or not self._services.undecodable

    def service_changed(self, change: Change[Service]) -> Iterable[Unit]:
        """Observe a Service; return others that may get other addresses by this."""
        if not self._addresses:
            return ()
        found = self._addresses.put(Holder(*change.key), change.new)
        return [Unit(SERVICE.name, *holder) for holder in sorted(found)]

    async def write(self, key: Unit) -> tuple[Problem, ...]:
        """Write the addresses of a Service, unless they are written; return why it has no others."""
        service = self._services.get(key.namespace, key.name)
        if service is None or not self._addresses or not self.are_known:
            return ()
        wanted = self._addresses.allocate(Holder(key.namespace, key.name), service)
        if wanted.ips is not None and list(wanted.ips) != [one.ip for one in service.status.load_balancer.ingress]:
            await self._write(service, wanted.ips)
        return wanted.problems

    async def _write(self, service: Service, ips: tuple[str, ...]) -> None:
        meta = service.metadata
        try:
            document = await self._client.document(SERVICE, meta.namespace, meta.name)
        except NotFound:
            return
        if document["metadata"]["uid"] != meta.uid:
            return
        status = document.setdefault("status", {})
        ingress = (status.get("loadBalancer") or {}).get("ingress") or []
        live = {one.get("ip", ""): one for one in ingress}
        if list(live) == list(ips):
            return
        if list(live) != [one.ip for one in service.status.load_balancer.ingress]:
            raise Conflict(f"the addresses of Service {meta.namespace}/{meta.name} have changed: it is compared again")
        status["loadBalancer"] = {"ingress": [live.get(ip, {"ip": ip}) for ip in ips]} if ips else {}
        await self._client.replace_status(SERVICE, document)
