"""Each operation writes the objects that it should, and answers as the old systems do."""

import asyncio
from typing import Any

import pytest

from netloom.bgp.communities import route_distinguisher_text
from netloom.model.kind import Kind
from netloom.model.kinds.bgp import BGPSpeaker, EVPNNetwork
from netloom.model.registry import (
    BGP_PEER,
    BGP_SPEAKER,
    EVPN_NETWORK,
    NETWORK,
    NETWORK_ATTACHMENT,
    NODE,
    ROUTER,
)
from netloom.plan.evpn.evi import evi_of
from netloom.store.base import Page
from netloom.store.memory import MemoryStore
from tests.front.vtep.rest import CLIENT, SPEAKER, Rest

NEIGHBOR = {"address": "192.168.10.10", "remote_as": 65000}
NETWORKS = "/vtep/networks"


def test_a_speaker_is_a_bgpspeaker_on_the_configured_node(bare: Rest) -> None:
    answer = bare.post("/vtep/speakers", SPEAKER)
    assert answer == {
        "192.168.10.20": {"EvpnSpeaker": {"as_number": 65000, "neighbors": {}, "router_id": "192.168.10.20"}}
    }
    assert bare.object(BGP_SPEAKER, "vtep")["spec"] == {
        "asn": 65000,
        "routerID": "192.168.10.20",
        "node": "gw",
        "listen": {"port": 179},
    }
    assert bare.get("/vtep/speakers") == answer


def test_without_a_configured_node_the_underlay_address_decides(bare: Rest) -> None:
    rest = Rest(bare.runner, bare.store, node="")
    for name, ip in {"a": "192.168.10.10", "b": "192.168.10.20"}.items():
        rest.create(NODE, name, {"underlayIP": ip})
    rest.post("/vtep/speakers", SPEAKER)
    assert rest.object(BGP_SPEAKER, "vtep")["spec"]["node"] == "b"


@pytest.mark.parametrize(("nodes", "words"), [([], "no Node has"), (["a", "b"], "several Nodes have")])
@pytest.mark.parametrize(("dpid", "shown"), [({}, "192.168.10.20"), ({"dpid": 7}, "7")])
def test_a_speaker_without_one_node_is_not_found(
    bare: Rest, nodes: list[str], words: str, dpid: dict[str, int], shown: str
) -> None:
    rest = Rest(bare.runner, bare.store, node="")
    for name in nodes:
        rest.create(NODE, name, {"underlayIP": "192.168.10.20"})
    code, answer = rest.request("POST", "/vtep/speakers", SPEAKER | dpid)
    assert code == 404
    assert answer["error"].startswith(f"No such datapath: {shown}: {words}")
    assert rest.names(BGP_SPEAKER) == []


def test_the_dpid_of_ryu_is_returned_as_it_was_given(bare: Rest) -> None:
    answer = bare.post("/vtep/speakers", SPEAKER | {"dpid": "0x1"})
    assert list(answer["192.168.10.20"]["EvpnSpeaker"]) == ["as_number", "dpid", "neighbors", "router_id"]
    assert answer["192.168.10.20"]["EvpnSpeaker"]["dpid"] == 1
    assert bare.get("/vtep/speakers") == answer


def test_the_port_and_the_namespace_are_settings(bare: Rest) -> None:
    rest = Rest(bare.runner, bare.store, namespace="prod", bgp_port=1179)
    rest.post("/vtep/speakers", SPEAKER)
    assert rest.object(BGP_SPEAKER, "vtep", "prod")["spec"]["listen"] == {"port": 1179}
    assert bare.request("GET", "/vtep/speakers")[0] == 404


def test_a_neighbor_is_a_bgppeer_and_up_when_it_is_established(rest: Rest) -> None:
    down = {"192.168.10.10": {"EvpnNeighbor": {"address": "192.168.10.10", "remote_as": 65000, "state": "down"}}}
    assert rest.post("/vtep/neighbors", NEIGHBOR) == down
    spec = rest.object(BGP_PEER, "vtep-192.168.10.10")["spec"]
    assert (spec["speaker"], spec["address"], spec["remoteASN"], spec["port"]) == ("vtep", "192.168.10.10", 65000, 179)
    for state in ("Idle", "OpenConfirm"):
        rest.set_status(BGP_PEER, "vtep-192.168.10.10", {"state": state})
        assert rest.get("/vtep/neighbors") == down
    rest.set_status(BGP_PEER, "vtep-192.168.10.10", {"state": "Established"})
    up = {"192.168.10.10": {"EvpnNeighbor": down["192.168.10.10"]["EvpnNeighbor"] | {"state": "up"}}}
    assert rest.get("/vtep/neighbors") == rest.get("/vtep/neighbors/192.168.10.10") == up
    assert rest.get("/vtep/speakers")["192.168.10.20"]["EvpnSpeaker"]["neighbors"] == up
    assert rest.delete("/vtep/neighbors/192.168.10.10") == up
    assert rest.names(BGP_PEER) == []


def test_ipv6_neighbors_are_found_in_any_spelling(rest: Rest) -> None:
    answer = rest.post("/vtep/neighbors", {"address": "2001:DB8:0::", "remote_as": "65001"})
    assert list(answer) == ["2001:db8::"]
    assert rest.get("/vtep/neighbors/2001:0db8::0") == answer
    assert rest.delete("/vtep/neighbors/2001%3Adb8%3A%3A") == answer


def test_peers_that_others_made_for_the_speaker_are_neighbors_too(rest: Rest) -> None:
    rest.create(BGP_PEER, "spine", {"speaker": "vtep", "address": "10.0.0.1", "remoteASN": 64512})
    rest.create(BGP_PEER, "else", {"speaker": "other", "address": "10.0.0.2", "remoteASN": 64512})
    assert list(rest.get("/vtep/neighbors")) == ["10.0.0.1"]
    rest.delete("/vtep/neighbors/10.0.0.1")
    assert rest.names(BGP_PEER) == ["else"]


def test_a_network_of_ryu_is_named_after_its_vni(rest: Rest) -> None:
    answer = rest.post(NETWORKS, {"vni": 10})
    assert answer == {"10": {"EvpnNetwork": {"clients": {}, "ethernet_tag_id": 0, "route_dist": "65000:10", "vni": 10}}}
    spec = rest.object(EVPN_NETWORK, "vni-10")["spec"]
    assert (spec["network"], spec["speaker"], spec["vni"], spec["rd"]) == ("vni-10", "vtep", 10, "65000:10")
    assert rest.object(NETWORK, "vni-10")["spec"]["fabric"] == "ovn"
    assert rest.get(NETWORKS) == rest.get("/vtep/networks/10") == rest.get("/vtep/networks/0x0a") == answer


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"logical_switch": "ls1"}, "ls1"),
        ({"network_id": "4c3e0b5a-0000-4000-8000-0123456789ab"}, "neutron-4c3e0b5a-0000-4000-8000-0123456789ab"),
        ({"logical_switch": "neutron-a", "network_id": "a"}, "neutron-a"),
    ],
)
def test_a_network_extends_the_logical_switch_of_either_spelling(rest: Rest, given: Any, name: str) -> None:
    answer = rest.post(NETWORKS, {"vni": "10", **given})
    assert answer["10"]["EvpnNetwork"]["logical_switch"] == name
    assert list(answer["10"]["EvpnNetwork"]) == ["clients", "ethernet_tag_id", "logical_switch", "route_dist", "vni"]
    assert rest.names(NETWORK) == [name]


def test_a_network_that_existed_before_is_used_and_stays(rest: Rest) -> None:
    before = rest.create(NETWORK, "ls1", {"fabric": "vxlan", "vni": 77})
    rest.post(NETWORKS, {"vni": 10, "logical_switch": "ls1"})
    rest.delete("/vtep/networks/10")
    assert rest.object(NETWORK, "ls1") == before
    assert rest.names(EVPN_NETWORK) == []


def test_a_network_that_was_created_goes_with_its_last_vni(rest: Rest) -> None:
    for vni in (10, 20):
        rest.post(NETWORKS, {"vni": vni, "logical_switch": "ls1"})
    rest.delete("/vtep/networks/10")
    assert rest.names(NETWORK) == ["ls1"]
    rest.delete("/vtep/networks/20")
    assert rest.names(NETWORK) == []


@pytest.mark.parametrize(
    ("kind", "spec"),
    [(NETWORK_ATTACHMENT, {"node": "n1", "network": "ls1"}), (ROUTER, {"networks": [{"network": "ls1"}]})],
)
def test_a_network_that_was_created_stays_while_others_use_it(rest: Rest, kind: Any, spec: Any) -> None:
    rest.post(NETWORKS, {"vni": 10, "logical_switch": "ls1"})
    rest.create(kind, "user", spec)
    rest.delete("/vtep/networks/10")
    assert (rest.names(EVPN_NETWORK), rest.names(NETWORK)) == ([], ["ls1"])
    rest.runner.run(rest.store.delete(kind, "default", "user"))
    rest.post(NETWORKS, {"vni": 11})
    rest.delete("/vtep/networks/11")
    assert rest.names(NETWORK) == []


def test_a_request_that_died_half_way_is_completed_by_the_next(rest: Rest) -> None:
    rest.post(NETWORKS, {"vni": 10})
    rest.runner.run(rest.store.delete(NETWORK, "default", "vni-10"))
    rest.post(NETWORKS, {"vni": 10})
    assert rest.names(NETWORK) == ["vni-10"]
    rest.runner.run(rest.store.delete(EVPN_NETWORK, "default", "vni-10"))
    assert rest.request("DELETE", "/vtep/networks/10")[0] == 404
    assert rest.names(NETWORK) == []


def test_what_is_being_deleted_is_not_taken_for_added(rest: Rest) -> None:
    rest.post(NETWORKS, {"vni": 10, "logical_switch": "ls1"})
    rest.post("/vtep/neighbors", NEIGHBOR)
    for kind, name in (
        (EVPN_NETWORK, "vni-10"), (NETWORK, "ls1"), (BGP_PEER, "vtep-192.168.10.10"), (BGP_SPEAKER, "vtep"),
    ):  # fmt: skip
        document = rest.object(kind, name)
        document["metadata"]["finalizers"] = ["example.com/kept"]
        rest.runner.run(rest.store.update(kind, document))
    rest.delete("/vtep/networks/10")
    rest.runner.run(rest.store.delete(NETWORK, "default", "ls1"))
    rest.delete("/vtep/neighbors/192.168.10.10")
    for path, body in (
        (NETWORKS, {"vni": 10, "logical_switch": "ls1"}),
        (NETWORKS, {"vni": 11, "logical_switch": "ls1"}),
        ("/vtep/neighbors", NEIGHBOR),
    ):
        code, answer = rest.request("POST", path, body)
        assert (code, "is being deleted: try again when it is gone" in answer["error"]) == (409, True)
    assert rest.names(EVPN_NETWORK) == ["vni-10"]
    rest.delete("/vtep/speakers")
    assert rest.request("POST", "/vtep/speakers", SPEAKER)[0] == 409


class Counting(MemoryStore):
    """A store that counts what is listed."""

    listed = 0

    async def list(self, kind: Kind, *args: Any, **options: Any) -> Page:
        found = await super().list(kind, *args, **options)
        self.listed += 1 + len(found.items)
        return found


def test_deleting_a_network_costs_no_search_for_each_of_the_others() -> None:
    def cost(networks: int) -> int:
        with asyncio.Runner() as runner:
            rest = Rest(runner, store := Counting())
            rest.post("/vtep/speakers", SPEAKER)
            for vni in range(1, networks + 1):
                rest.post(NETWORKS, {"vni": vni})
            store.listed = 0
            rest.delete("/vtep/networks/1")
            assert len(rest.names(NETWORK)) == networks - 1
            return store.listed

    # Each other network is read a few times, and nothing is listed for it.
    assert cost(40) - cost(20) <= 20 * 4


def test_adding_a_client_reads_its_own_network_only() -> None:
    def cost(networks: int) -> int:
        with asyncio.Runner() as runner:
            rest = Rest(runner, store := Counting())
            rest.post("/vtep/speakers", SPEAKER)
            for vni in range(10, networks + 10):
                rest.post(NETWORKS, {"vni": vni})
            store.listed = 0
            rest.post("/vtep/networks/10/clients", CLIENT)
            return store.listed

    assert cost(20) == cost(1)


def test_a_distinguisher_that_does_not_fit_is_shortened(bare: Rest) -> None:
    bare.post("/vtep/speakers", SPEAKER | {"as_number": 4200000000})
    shown = [bare.post(NETWORKS, {"vni": vni})[str(vni)]["EvpnNetwork"]["route_dist"] for vni in (10, 65536)]
    assert shown == ["4200000000:10", f"{4200000000 & 0xFFFF}:65536"]
    assert bare.object(EVPN_NETWORK, "vni-65536")["spec"]["rd"] == shown[1]


@pytest.mark.parametrize("vni", [10, 65535, 65536, 2**24 - 1])
def test_an_automatic_distinguisher_is_shown_as_the_speaker_announces_it(bare: Rest, vni: int) -> None:
    bare.post("/vtep/speakers", SPEAKER | {"as_number": 4200000000})
    bare.create(EVPN_NETWORK, "other", {"speaker": "vtep", "network": "n", "vni": vni, "rd": "auto"})
    bare.set_status(EVPN_NETWORK, "other", {"vni": vni, "rdNumber": 7})
    speaker = bare.runner.run(bare.store.get(BGP_SPEAKER, "default", "vtep")).value()
    network = bare.runner.run(bare.store.get(EVPN_NETWORK, "default", "other")).value()
    assert isinstance(speaker, BGPSpeaker)
    assert isinstance(network, EVPNNetwork)
    announced = route_distinguisher_text(evi_of(speaker, network, vni).rd)
    assert bare.get(f"{NETWORKS}/{vni}")[str(vni)]["EvpnNetwork"]["route_dist"] == announced


def test_a_network_made_by_others_is_shown_when_its_vni_is_known(rest: Rest) -> None:
    rest.create(EVPN_NETWORK, "blue", {"network": "blue", "speaker": "vtep", "rd": "auto"})
    assert rest.get(NETWORKS) == {}
    rest.set_status(EVPN_NETWORK, "blue", {"vni": 4100})
    shown = rest.get(NETWORKS)["4100"]["EvpnNetwork"]
    assert (shown["logical_switch"], shown["route_dist"]) == ("blue", "192.168.10.20:4100")


def test_a_client_is_an_item_of_the_evpnnetwork(rest: Rest) -> None:
    rest.post(NETWORKS, {"vni": 10, "logical_switch": "ls1"})
    shown = {"ip": "192.168.222.12", "mac": "02:ac:10:ff:00:12", "next_hop": "192.168.10.20", "port": "vm1"}
    assert rest.post("/vtep/networks/10/clients", CLIENT) == {"10": {"EvpnClient": shown}}
    assert rest.object(EVPN_NETWORK, "vni-10")["spec"]["clients"] == [CLIENT]
    assert rest.get("/vtep/networks/10")["10"]["EvpnNetwork"]["clients"] == {CLIENT["mac"]: {"EvpnClient": shown}}
    assert rest.delete("/vtep/networks/0xa/clients/02:AC:10:FF:00:12") == {"10": {"EvpnClient": shown}}
    assert rest.get("/vtep/networks/10")["10"]["EvpnNetwork"]["clients"] == {}


@pytest.mark.parametrize(
    ("dpid", "port", "shown"), [({}, 7, "7"), ({"dpid": 1}, 7, 7), ({"dpid": 1}, "7", 7), ({"dpid": 1}, "s1-x", "s1-x")]
)
def test_a_port_is_a_number_for_ryu_and_a_text_for_evpn_for_ovn(bare: Rest, dpid: Any, port: Any, shown: Any) -> None:
    bare.post("/vtep/speakers", SPEAKER | dpid)
    bare.post(NETWORKS, {"vni": 10})
    answer = bare.post("/vtep/networks/10/clients", CLIENT | {"port": port})
    assert answer["10"]["EvpnClient"]["port"] == shown


def test_clients_of_other_sites_are_shown_with_the_local_ones(rest: Rest) -> None:
    rest.post(NETWORKS, {"vni": 10, "logical_switch": "ls1"})
    rest.post("/vtep/networks/10/clients", CLIENT)
    rest.learn("vni-10", "192.168.10.10", 10, {"02:ac:10:ff:00:11": ["2001:db8::11", "192.168.222.11"]})
    rest.learn("vni-10", "192.168.10.30", 10, {"02:ac:10:ff:00:13": []})
    rest.learn("vni-10", "192.168.10.40", 10, {"02:ac:10:ff:00:14": []}, node="someone-else")
    clients = rest.get(NETWORKS)["10"]["EvpnNetwork"]["clients"]
    assert clients == rest.get("/vtep/networks/10")["10"]["EvpnNetwork"]["clients"]
    assert sorted(clients) == ["02:ac:10:ff:00:11", "02:ac:10:ff:00:12", "02:ac:10:ff:00:13"]
    assert clients["02:ac:10:ff:00:11"]["EvpnClient"] == {
        "ip": "192.168.222.11",
        "mac": "02:ac:10:ff:00:11",
        "next_hop": "192.168.10.10",
        "port": "vxlan_192.168.10.10_10",
    }
    assert clients["02:ac:10:ff:00:13"]["EvpnClient"]["ip"] == ""
    code, answer = rest.request("DELETE", "/vtep/networks/10/clients/02:ac:10:ff:00:11")
    assert (code, answer["error"]) == (404, "Specified client is not local: 02:ac:10:ff:00:11")
    # The old systems remove the local clients before the network.
    gone = rest.delete("/vtep/networks/10")["10"]["EvpnNetwork"]["clients"]
    assert sorted(gone) == ["02:ac:10:ff:00:11", "02:ac:10:ff:00:13"]


def test_what_an_earlier_network_learned_is_not_shown(rest: Rest) -> None:
    rest.post(NETWORKS, {"vni": 10})
    rest.learn("vni-10", "192.168.10.10", 10, {"02:ac:10:ff:00:11": []})
    rest.delete("/vtep/networks/10")
    assert rest.post(NETWORKS, {"vni": 10})["10"]["EvpnNetwork"]["clients"] == {}


def test_deleting_the_speaker_deletes_networks_and_neighbors(rest: Rest) -> None:
    rest.create(NETWORK, "mine", {})
    before = rest.names(NETWORK)
    rest.post("/vtep/neighbors", NEIGHBOR)
    rest.post(NETWORKS, {"vni": 10})
    rest.post(NETWORKS, {"vni": 11, "logical_switch": "mine"})
    answer = rest.delete("/vtep/speakers")
    assert answer["192.168.10.20"]["EvpnSpeaker"]["neighbors"] == {}
    for kind in (BGP_SPEAKER, BGP_PEER, EVPN_NETWORK):
        assert rest.names(kind) == []
    assert rest.names(NETWORK) == before


def test_deleting_the_speaker_deletes_networks_whose_vni_is_not_known_yet(rest: Rest) -> None:
    # Otherwise the API would refuse to delete the speaker, which is in use, after all else is gone.
    rest.create(EVPN_NETWORK, "new", {"speaker": "vtep", "network": "blue"})
    assert rest.get(NETWORKS) == {}
    rest.delete("/vtep/speakers")
    assert rest.names(EVPN_NETWORK) == rest.names(BGP_SPEAKER) == []


def test_a_new_process_knows_everything(rest: Rest) -> None:
    rest.post("/vtep/neighbors", NEIGHBOR)
    rest.post(NETWORKS, {"vni": 10, "logical_switch": "ls1"})
    rest.post("/vtep/networks/10/clients", CLIENT)
    again = Rest(rest.runner, rest.store)
    for path in ("/vtep/speakers", "/vtep/neighbors", NETWORKS):
        assert again.get(path) == rest.get(path)


@pytest.mark.parametrize(
    ("path", "body", "other"),
    [
        ("/vtep/speakers", SPEAKER, {"as_number": 65001}),
        ("/vtep/speakers", SPEAKER, {"router_id": "192.168.10.21"}),
        ("/vtep/speakers", SPEAKER, {"dpid": 1}),
        ("/vtep/neighbors", NEIGHBOR, {"remote_as": 65001}),
        (NETWORKS, {"vni": 10, "logical_switch": "ls1"}, {"logical_switch": "ls2"}),
        ("/vtep/networks/10/clients", CLIENT, {"port": "vm2"}),
        ("/vtep/networks/10/clients", CLIENT, {"ip": "192.168.222.13"}),
    ],
)
def test_a_repeated_request_changes_nothing_and_a_contradicting_one_is_refused(
    rest: Rest, path: str, body: Any, other: Any
) -> None:
    rest.post(NETWORKS, {"vni": 10, "logical_switch": "ls1"})
    first = rest.post(path, body)
    before = rest.contents()
    assert rest.post(path, body) == first
    code, answer = rest.request("POST", path, body | other)
    assert (code, answer["status"]) == (409, 409)
    assert "delete it" in answer["error"]
    assert rest.contents() == before


def test_names_that_belong_to_others_are_refused(rest: Rest) -> None:
    rest.create(BGP_PEER, "vtep-192.168.10.10", {"speaker": "other", "address": "192.168.10.10", "remoteASN": 65000})
    rest.create(EVPN_NETWORK, "vni-10", {"speaker": "other", "network": "vni-10", "vni": 10})
    before = rest.contents()
    for path, body in (("/vtep/neighbors", NEIGHBOR), (NETWORKS, {"vni": 10})):
        assert rest.request("POST", path, body)[0] == 409
    assert rest.contents() == before
