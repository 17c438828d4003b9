"""The operations: each reads and writes objects of one namespace.

| of the old systems | object |
|---|---|
| the speaker | BGPSpeaker `vtep` |
| a neighbor | BGPPeer with `spec.speaker: vtep`; a new one is `vtep-ADDRESS` |
| a network | EVPNNetwork with `spec.speaker: vtep`; a new one is `vni-VNI` |
| its logical switch | Network; created, with a label, if there is none of the name |
| a client of this site | an item of `spec.clients` of the EVPNNetwork |
| a client of another site | an item of `spec.macs` of a RemoteVTEP |

Adding what exists already with the same values changes nothing; with other values it is refused (409). Every argument
is checked before the first write. An EVPNNetwork is created before its Network and deleted before it, so that a
process that dies in between leaves nothing that a repeated request does not complete.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from netloom.control.runtime.client import Client
from netloom.errors import AlreadyExists, BadRequest, Conflict, Invalid, NetloomError, NotFound
from netloom.front.vtep import answers
from netloom.front.vtep.answers import name_of, vni_of
from netloom.front.vtep.arguments import checked, shown
from netloom.front.vtep.ports import SwitchPorts
from netloom.model.document import Document, Resource
from netloom.model.kind import Kind
from netloom.model.kinds.bgp import BGPPeer, BGPSpeaker, EVPNClient, EVPNNetwork, RemoteVTEP
from netloom.model.kinds.cluster import Node
from netloom.model.kinds.networks import Network
from netloom.model.references import references_to
from netloom.model.registry import BGP_PEER, BGP_SPEAKER, EVPN_NETWORK, NETWORK
from netloom.model.schemas.validation import admit
from netloom.model.values import addresses
from netloom.model.values.selectors import Selector, selector
from netloom.store.base import Store, Stored

R = TypeVar("R", bound=Resource)

SPEAKER = "vtep"
CREATED = "netloom.dev/vtep-created"
"""The label of a Network that was created here: it is deleted with its last EVPNNetwork."""
_ATTEMPTS = 8


class Missing(NotFound):
    """Something that the old systems have an exception for; `name` and `details` are what their RPC returns."""

    def __init__(self, name: str, message: str, **details: object) -> None:
        super().__init__(message)
        self.name = name
        self.details = details


class Vtep:
    """The operations on one namespace."""

    def __init__(
        self,
        store: Store,
        *,
        namespace: str = "default",
        node: str = "",
        bgp_port: int = 179,
        ports: SwitchPorts | None = None,
    ) -> None:
        """`node` is the Node of a new speaker; by default, the one whose underlay address is the router id.

        `ports` are those of ryu's clients: without them, the names of ports are shown, and datapaths not checked.
        """
        self._ports = ports
        self._writing = asyncio.Lock()
        """One write at a time: concurrent changes of one object would conflict and be repeated."""
        self._client = Client(store)
        self._namespace = namespace
        self._node = node
        self._bgp_port = bgp_port
        self._operations: Mapping[str, Callable[..., Awaitable[Document]]] = {
            "add_speaker": self._add_speaker,
            "get_speaker": self._get_speaker,
            "del_speaker": self._del_speaker,
            "add_neighbor": self._add_neighbor,
            "get_neighbors": self._get_neighbors,
            "del_neighbor": self._del_neighbor,
            "add_network": self._add_network,
            "get_networks": self._get_networks,
            "del_network": self._del_network,
            "add_client": self._add_client,
            "del_client": self._del_client,
        }

    async def run(self, operation: str, given: object) -> Document:
        """Run an operation with the arguments of a client, and return its answer.

        Raises `Missing` if something does not exist, `BadRequest` for invalid arguments, `Conflict` if they contradict
        what exists, and the errors of the store.
        """
        arguments = checked(operation, given)
        try:
            if operation.startswith("get_"):
                return await self._operations[operation](**arguments)
            async with self._writing:
                return await self._operations[operation](**arguments)
        except Invalid as error:
            causes = "; ".join(map(str, error.causes))
            raise BadRequest(f"{error.message}: {causes}" if causes else error.message) from None

    async def _add_speaker(self, *, as_number: int, router_id: str, dpid: int | None = None) -> Document:
        if dpid is not None and self._ports is not None and dpid not in await self._ports.datapaths():
            raise Missing("DatapathNotFound", f"No such datapath: {dpid}", dpid=dpid)
        metadata: Document = {"annotations": {answers.DPID: str(dpid)}} if dpid is not None else {}
        node = self._node or await self._node_of(router_id, dpid)
        spec = {"asn": as_number, "routerID": router_id, "node": node, "listen": {"port": self._bgp_port}}
        found = await self._ensure(BGP_SPEAKER, BGPSpeaker, SPEAKER, spec, metadata)
        if (found.spec.asn, found.spec.router_id, answers.dpid_of(found)) != (as_number, router_id, dpid):
            raise AlreadyExists(f"a BGPSpeaker exists already, with router_id {found.spec.router_id}: delete it first")
        return answers.speaker(found, await self._peers())

    async def _get_speaker(self) -> Document:
        return answers.speaker(await self._speaker(), await self._peers())

    async def _del_speaker(self) -> Document:
        found = await self._speaker()
        for network in await self._all_networks():
            await self._delete(EVPN_NETWORK, network)
        await self._sweep()
        for peer in await self._peers():
            await self._delete(BGP_PEER, peer)
        await self._delete(BGP_SPEAKER, found)
        return answers.speaker(found, ())

    async def _add_neighbor(self, *, address: str, remote_as: int) -> Document:
        await self._speaker()
        found = next((peer for peer in await self._peers() if peer.spec.address == address), None)
        if found is None:
            spec = {"speaker": SPEAKER, "address": address, "remoteASN": remote_as}
            found = await self._ensure(BGP_PEER, BGPPeer, _peer_name(address), spec)
        if (found.spec.speaker, found.spec.address, found.spec.remote_asn) != (SPEAKER, address, remote_as):
            raise AlreadyExists(
                f"the neighbor {address} exists already, as BGPPeer {found.metadata.name}: delete it first"
            )
        return answers.neighbors([found])

    async def _get_neighbors(self, *, address: str = "") -> Document:
        await self._speaker()
        return answers.neighbors(await self._neighbor(address) if address else await self._peers())

    async def _del_neighbor(self, *, address: str) -> Document:
        await self._speaker()
        found = await self._neighbor(address)
        for peer in found:
            await self._delete(BGP_PEER, peer)
        return answers.neighbors(found)

    async def _add_network(self, *, vni: int, logical_switch: str = "", network_id: str = "") -> Document:
        if logical_switch and network_id and logical_switch != network_id:
            raise BadRequest("use either logical_switch or network_id, not both")
        by = await self._speaker()
        name = logical_switch or network_id or name_of(vni)
        found = next((network for network in await self._networks() if vni_of(network) == vni), None)
        created = found is None
        if found is None:
            spec = {"network": name, "speaker": SPEAKER, "vni": vni, "rd": _distinguisher(by.spec.asn, vni)}
            found = await self._ensure(EVPN_NETWORK, EVPNNetwork, name_of(vni), spec)
        if (found.spec.speaker, found.spec.network, vni_of(found)) != (SPEAKER, name, vni):
            raise AlreadyExists(
                f"VNI {vni} already extends {found.spec.network}, by speaker {found.spec.speaker}: delete it first"
            )
        try:
            await self._ensure(NETWORK, Network, name, {"fabric": "ovn"}, {"labels": {CREATED: "true"}})
        except NetloomError:
            if created:
                await self._delete(EVPN_NETWORK, found)
            raise
        return await self._answer(by, found)

    async def _get_networks(self, *, vni: int | None = None) -> Document:
        by = await self._speaker()
        found = await self._networks() if vni is None else [await self._network(vni)]
        remote: dict[str, list[RemoteVTEP]] = {}
        for vtep in await self._vteps(by, found[0].metadata.name if vni is not None else ""):
            remote.setdefault(vtep.spec.evpn_network, []).append(vtep)
        numbers = await self._numbers(by)
        answer: Document = {}
        for network in found:
            answer |= _with_clients(network, by, remote.get(network.metadata.name, []), numbers)
        return answer

    async def _del_network(self, *, vni: int) -> Document:
        by = await self._speaker()
        try:
            found = await self._network(vni)
        except Missing:
            # An earlier request may have died after it had deleted the EVPNNetwork.
            await self._sweep()
            raise
        remote = await self._vteps(by, found.metadata.name)
        numbers = await self._numbers(by)
        await self._delete(EVPN_NETWORK, found)
        await self._sweep()
        # The old systems remove the local clients first.
        return _with_clients(found, by, remote, numbers, local=False)

    async def _add_client(self, *, vni: int, port: str, mac: str, ip: str) -> Document:
        by = await self._speaker()
        wanted = {"mac": mac, "ip": ip, "port": port}
        await self._network(vni)
        if answers.dpid_of(by) is not None and self._ports is not None:
            known = await self._ports.numbers()
            if port not in known and answers.number(port) not in known.values():
                raise Missing("OFPortNotFound", f"No such OFPort: {shown(port)}", port_name=shown(port))

        def add(clients: list[Document]) -> None:
            for client in clients:
                if client["mac"].lower() == mac:
                    if client | wanted != client | {"mac": mac}:
                        raise Conflict(
                            f"the client {mac} exists already, at port {client.get('port', '')!r}: delete it first"
                        )
                    return
            clients.append(wanted)

        return await self._change_clients(by, vni, mac, add)

    async def _del_client(self, *, vni: int, mac: str) -> Document:
        by = await self._speaker()
        network = await self._network(vni)
        if all(client.mac.lower() != mac.lower() for client in network.spec.clients):
            for vtep in await self._vteps(by, network.metadata.name):
                if any(machine.mac == mac.lower() for machine in vtep.spec.macs):
                    raise Missing("ClientNotLocal", f"Specified client is not local: {shown(mac)}", mac=shown(mac))

        def remove(clients: list[Document]) -> None:
            kept = [client for client in clients if client["mac"].lower() != mac.lower()]
            if len(kept) == len(clients):
                raise Missing("ClientNotFound", f"No such client: {shown(mac)}", mac=shown(mac))
            clients[:] = kept

        return await self._change_clients(by, vni, mac, remove)

    async def _change_clients(
        self, by: BGPSpeaker, vni: int, mac: str, change: Callable[[list[Document]], None]
    ) -> Document:
        """Change the clients of a network, and return the one that was added or removed."""
        numbers = await self._numbers(by)
        for attempt in range(1, _ATTEMPTS + 1):
            before = await self._client.read(EVPN_NETWORK, self._namespace, (await self._network(vni)).metadata.name)
            document = before.document()
            change(document["spec"].setdefault("clients", []))
            admit(EVPN_NETWORK, document, old=before.document())
            try:
                after = await self._client.replace(EVPN_NETWORK, document)
            except Conflict:
                if attempt == _ATTEMPTS:
                    raise
                continue
            clients = [*_clients(after), *_clients(before)]
            found = next(client for client in clients if client.mac.lower() == mac.lower())
            return {str(vni): answers.local_client(found, by, numbers)}
        raise AssertionError  # The last attempt returns or raises.

    async def _answer(self, by: BGPSpeaker, network: EVPNNetwork) -> Document:
        return _with_clients(network, by, await self._vteps(by, network.metadata.name), await self._numbers(by))

    async def _numbers(self, by: BGPSpeaker) -> Mapping[str, int]:
        """Return the numbers of ports to show to the clients of a speaker."""
        return await self._ports.numbers() if self._ports is not None and answers.dpid_of(by) is not None else {}

    async def _speaker(self) -> BGPSpeaker:
        found = await self._client.find(BGPSpeaker, self._namespace, SPEAKER)
        if found is None or found.metadata.deletion_timestamp:
            raise Missing("BGPSpeakerNotFound", "BGPSpeaker could not be found", address="")
        return found

    async def _node_of(self, router_id: str, dpid: int | None) -> str:
        found = [node.metadata.name for node in await self._client.list(Node) if node.spec.underlay_ip == router_id]
        if len(found) == 1:
            return found[0]
        number = "several Nodes have" if found else "no Node has"
        raise Missing(
            "DatapathNotFound",
            f"No such datapath: {router_id if dpid is None else dpid}: {number} the underlay address {router_id}: "
            "choose the Node with netloom vtep --node",
            dpid=dpid,
        )

    async def _peers(self) -> list[BGPPeer]:
        return _present(await self._client.list(BGPPeer, self._namespace, selector=_fields(BGP_PEER, SPEAKER)))

    async def _neighbor(self, address: str) -> list[BGPPeer]:
        """Return the neighbor with an address: more than one BGPPeer if it has several ports."""
        canonical = str(addresses.address(address)) if addresses.is_ip(address) else address
        found = [peer for peer in await self._peers() if peer.spec.address == canonical]
        if not found:
            raise Missing("NeighborNotFound", f"No such neighbor: {shown(address)}", address=shown(address))
        return found

    async def _networks(self) -> list[EVPNNetwork]:
        """Return the networks that can be shown: those whose VNI is known."""
        return [network for network in await self._all_networks() if vni_of(network) is not None]

    async def _all_networks(self) -> list[EVPNNetwork]:
        selected = _fields(EVPN_NETWORK, SPEAKER)
        return _present(await self._client.list(EVPNNetwork, self._namespace, selector=selected))

    async def _network(self, vni: int) -> EVPNNetwork:
        """Return the network of a VNI: by the name that it has if it was added here, else by a search."""
        named = await self._client.find(EVPNNetwork, self._namespace, name_of(vni)) if 0 < vni < 2**24 else None
        for network in _present([named] if named is not None else []):
            if (network.spec.speaker, vni_of(network)) == (SPEAKER, vni):
                return network
        for network in await self._networks():
            if vni_of(network) == vni:
                return network
        raise Missing("VniNotFound", f"No such VNI: {vni}", vni=vni)

    async def _vteps(self, by: BGPSpeaker, network: str) -> list[RemoteVTEP]:
        """Return what the speaker has learned for an EVPNNetwork, or ("") for all."""
        wanted = f"spec.node={by.spec.node}" + (f",spec.evpnNetwork={network}" if network else "")
        return await self._client.list(
            RemoteVTEP,
            self._namespace,
            selector=selector(fields=wanted, selectable=("spec.node", "spec.evpnNetwork")),
        )

    async def _ensure(self, kind: Kind, of: type[R], name: str, spec: Document, metadata: Document | None = None) -> R:
        """Create an object, or return the one of that name; raise `Conflict` while that is being deleted."""
        found = await self._client.find(of, self._namespace, name)
        if found is not None:
            if found.metadata.deletion_timestamp:
                raise Conflict(f"the {kind.name} {name} is being deleted: try again when it is gone")
            return found
        document: Document = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {"name": name, "namespace": self._namespace, **(metadata or {})},
            "spec": spec,
        }
        admit(kind, document)
        try:
            made = (await self._client.create_document(kind, document)).value()
        except AlreadyExists:
            return await self._client.get(of, self._namespace, name)
        assert isinstance(made, of)
        return made

    async def _delete(self, kind: Kind, found: Resource) -> None:
        with suppress(NotFound):
            await self._client.delete(kind, self._namespace, found.metadata.name, uid=found.metadata.uid)

    async def _sweep(self) -> None:
        """Delete the Networks that were created here and that nothing uses any more."""
        created = await self._client.list(Network, self._namespace, selector=selector(f"{CREATED}=true"))
        # After the Networks: each had its EVPNNetwork before it was created.
        extended = {network.spec.network for network in await self._client.list(EVPNNetwork, self._namespace)}
        for network in created:
            if network.metadata.name not in extended and not await self._is_used(network.metadata.name):
                with suppress(Conflict):  # It is used meanwhile.
                    await self._delete(NETWORK, network)

    async def _is_used(self, network: str) -> bool:
        for reference in references_to(NETWORK):
            wanted = f"{reference.path}={network}" if reference.selectable else ""
            selected = selector(fields=wanted, selectable=reference.holder.selectable)
            for user in await self._client.stored(reference.holder, self._namespace, selector=selected):
                if network in reference.names(user.document()):
                    return True
        return False


def _with_clients(
    network: EVPNNetwork,
    by: BGPSpeaker,
    remote: list[RemoteVTEP],
    numbers: Mapping[str, int],
    *,
    local: bool = True,
) -> Document:
    uid = network.metadata.uid
    known = [vtep for vtep in remote if any(owner.uid == uid for owner in vtep.metadata.owner_references)]
    clients = answers.remote_clients(known, numbers)
    if local:
        clients |= {client.mac: answers.local_client(client, by, numbers) for client in network.spec.clients}
    return answers.network(network, by, clients)


def _clients(found: Stored) -> tuple[EVPNClient, ...]:
    network = found.value()
    assert isinstance(network, EVPNNetwork)
    return network.spec.clients


def _present(found: list[R]) -> list[R]:
    return [one for one in found if not one.metadata.deletion_timestamp]


def _fields(kind: Kind, speaker: str) -> Selector:
    return selector(fields=f"spec.speaker={speaker}", selectable=kind.selectable)


def _peer_name(address: str) -> str:
    """Return the name of a neighbor's BGPPeer.  An IPv6 address in full, because a name ends with a letter or digit."""
    return f"{SPEAKER}-{addresses.address(address).exploded.replace(':', '-')}"


def _distinguisher(asn: int, vni: int) -> str:
    """Return ASN:VNI, with the lower half of a long ASN before a long VNI: a route distinguisher has six bytes."""
    return f"{asn}:{vni}" if asn < 2**16 or vni < 2**16 else f"{asn & 0xFFFF}:{vni}"
