"""The REST API over a store in memory, without HTTP."""

import asyncio
import json
from typing import Any

from netloom.errors import NetloomError
from netloom.front.vtep import routes
from netloom.front.vtep.operations import Vtep
from netloom.model.kind import Kind
from netloom.model.registry import (
    BGP_PEER,
    BGP_SPEAKER,
    EVPN_NETWORK,
    NETWORK,
    NODE,
    REMOTE_VTEP,
)
from netloom.store.base import Store
from netloom.store.memory import MemoryStore

KINDS = (BGP_SPEAKER, BGP_PEER, EVPN_NETWORK, NETWORK, REMOTE_VTEP)
SPEAKER = {"as_number": 65000, "router_id": "192.168.10.20"}
CLIENT = {"port": "vm1", "mac": "02:ac:10:ff:00:12", "ip": "192.168.222.12"}


class Rest:
    """Requests, and the objects that they change."""

    def __init__(self, runner: asyncio.Runner, store: Store | None = None, **settings: Any) -> None:
        self.runner = runner
        self.store = store or MemoryStore()
        self.vtep = Vtep(self.store, **({"node": "gw"} | settings))

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            answer = self.runner.run(routes.answer(self.vtep, method, path, raw))
        except NetloomError as error:
            return routes.failure(error, method, path)
        return 200, json.loads(json.dumps(answer))

    def get(self, path: str) -> Any:
        code, answer = self.request("GET", path)
        assert code == 200, answer
        return answer

    def post(self, path: str, body: Any) -> Any:
        code, answer = self.request("POST", path, body)
        assert code == 200, answer
        return answer

    def delete(self, path: str) -> Any:
        code, answer = self.request("DELETE", path)
        assert code == 200, answer
        return answer

    def create(self, kind: Kind, name: str, spec: Any, **metadata: Any) -> Any:
        namespace = {"namespace": "default"} if kind.namespaced else {}
        document = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {"name": name, **namespace, **metadata},
            "spec": spec,
        }
        return self.runner.run(self.store.create(kind, document)).document()

    def object(self, kind: Kind, name: str, namespace: str = "default") -> Any:
        namespace = namespace if kind.namespaced else ""
        return self.runner.run(self.store.get(kind, namespace, name)).document()

    def set_status(self, kind: Kind, name: str, status: Any) -> None:
        document = self.object(kind, name) | {"status": status}
        self.runner.run(self.store.update(kind, document, subresource="status"))

    def names(self, kind: Kind) -> list[str]:
        return [one.name for one in self.runner.run(self.store.list(kind)).items]

    def contents(self) -> list[bytes]:
        """Return all objects as they are stored."""
        return [one.raw for kind in (*KINDS, NODE) for one in self.runner.run(self.store.list(kind)).items]

    def learn(self, network: str, address: str, vni: int, macs: dict[str, list[str]], *, node: str = "gw") -> None:
        """Write what a speaker has learned of a VTEP."""
        owner = self.object(EVPN_NETWORK, network)["metadata"]
        spec = {
            "evpnNetwork": network,
            "network": self.object(EVPN_NETWORK, network)["spec"]["network"],
            "node": node,
            "address": address,
            "vni": vni,
            "localVNI": vni,
            "macs": [{"mac": mac, "ips": ips} for mac, ips in macs.items()],
        }
        reference = {"apiVersion": EVPN_NETWORK.api_version, "kind": "EVPNNetwork", "name": network}
        owned = [{**reference, "uid": owner["uid"]}]
        self.create(REMOTE_VTEP, f"{network}.{address}.{vni}.0", spec, ownerReferences=owned)
