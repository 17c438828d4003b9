"""Speakers of two sites over real sockets: machines of one become RemoteVTEPs of the other."""

import asyncio
from pathlib import Path
from typing import Any

from netloom.bgp.nlri import EVPN
from netloom.model.registry import (
    BGP_PEER,
    EVENT,
    EVPN_NETWORK,
    NETWORK,
    NETWORK_ATTACHMENT,
    REMOTE_VTEP,
    ROUTER,
    SUBNET,
)
from tests.evpn.sites import Site, eventually, sites

MACS = [f"02:00:00:00:00:{number:02x}" for number in range(1, 10)]


async def _status(site: Site, kind: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (await site.store.get(kind, "default", name)).document().get("status", {})
    return found


def test_machines_of_one_site_become_remote_vteps_of_the_other_and_go(tmp_path: Path) -> None:
    async def main() -> None:
        async with sites(tmp_path) as (one, two):
            for site in (one, two):
                await site.stretch()
            await one.attach("web", MACS[0], ["10.0.0.1", "2001:db8::1"])

            async def arrived() -> bool:
                return await two.remote() == {MACS[0]: [one.vtep, "10.0.0.1", "2001:db8::1"]}

            await eventually(arrived, "the machine of site 1 at site 2")
            assert await two.flooded() == {one.vtep}

            async def counted() -> bool:
                status = await _status(two, EVPN_NETWORK, "blue")
                return bool(status.get("remoteMACs") == 1 and status["remoteVTEPs"] == [one.vtep])

            await eventually(counted, "the status of the EVPNNetwork")
            await one.store.delete(NETWORK_ATTACHMENT, "default", "web")

            async def gone() -> bool:
                return await two.remote() == {}

            await eventually(gone, "no machine")
            assert await two.flooded() == {one.vtep}
            await one.store.delete(EVPN_NETWORK, "default", "blue")

            async def empty() -> bool:
                return not (await two.store.list(REMOTE_VTEP)).items

            await eventually(empty, "no RemoteVTEP")

    asyncio.run(main())


def test_a_speaker_that_was_killed_keeps_what_it_has_written_and_what_peers_have(tmp_path: Path) -> None:
    async def main() -> None:
        async with sites(tmp_path) as (one, two):
            for site in (one, two):
                await site.stretch()
            await one.attach("web", MACS[0], ["10.0.0.1"])
            await two.attach("db", MACS[1], ["10.0.0.2"])

            async def both() -> bool:
                return set(await one.remote()) == {MACS[1]} and set(await two.remote()) == {MACS[0]}

            await eventually(both, "both machines at the other site")
            before = {stored.name: stored.revision for stored in (await two.store.list(REMOTE_VTEP)).items}
            await one.silence()
            await one.attach("late", MACS[2], ["10.0.0.3"])
            assert await both()
            one.speak()

            async def late() -> bool:
                return set(await two.remote()) == {MACS[0], MACS[2]} and set(await one.remote()) == {MACS[1]}

            await eventually(late, "what came meanwhile")
            after = {stored.name: stored.revision for stored in (await two.store.list(REMOTE_VTEP)).items}
            assert before.keys() == after.keys()
            status = await _status(one, BGP_PEER, "site2")
            assert status["state"] == "Established"

    asyncio.run(main())


def test_a_machine_of_both_sites_is_a_duplicate_and_stays_where_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with sites(tmp_path) as (one, two):
            for site in (one, two):
                await site.stretch()
                await site.attach("twin", MACS[0], ["10.0.0.1"])

            async def found() -> bool:
                states = [await _status(site, EVPN_NETWORK, "blue") for site in (one, two)]
                return all(state.get("duplicateMACs") == [MACS[0]] for state in states)

            await eventually(found, "the duplicate at both sites")

            async def reported() -> bool:
                return {("EVPNNetwork", "DuplicateMAC"), ("BGPPeer", "SessionUp")} <= await one.events()

            await eventually(reported, "Events of the session and of the duplicate")
            assert (await one.remote(), await two.remote()) == ({}, {})
            (entry,) = one.ask("explain", mac=MACS[0])
            assert entry["local"] is True
            assert entry["duplicate"] is True
            await two.store.delete(NETWORK_ATTACHMENT, "default", "twin")

            async def settled() -> bool:
                return set(await two.remote()) == {MACS[0]}

            await eventually(settled, "the other site's machine")

    asyncio.run(main())


def test_a_session_that_ends_is_an_event_that_says_why(tmp_path: Path) -> None:
    async def main() -> None:
        async with sites(tmp_path) as (one, two):

            async def up() -> bool:
                return await one.established() == 1

            await eventually(up, "the session")
            await two.store.delete(BGP_PEER, "default", "site1")

            async def down() -> bool:
                return ("BGPPeer", "SessionDown") in await one.events()

            await eventually(down, "the Event")
            (found,) = [
                stored.document()["message"]
                for stored in (await one.store.list(EVENT)).items
                if stored.document()["reason"] == "SessionDown"
            ]
            assert found.startswith(f"the session with {two.address} ended: ")
            assert len(found) > len(f"the session with {two.address} ended: ")

    asyncio.run(main())


def test_nodes_of_fabric_vxlan_are_vteps_of_their_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with sites(tmp_path) as (one, two):
            for site in (one, two):
                await site.stretch(fabric="vxlan")
            await one.attach("a", MACS[0], ["10.0.0.1"], host="192.0.2.101")
            await one.attach("b", MACS[1], ["10.0.0.2"], host="192.0.2.102")

            async def both() -> bool:
                found = await two.remote()
                return found == {MACS[0]: ["192.0.2.101", "10.0.0.1"], MACS[1]: ["192.0.2.102", "10.0.0.2"]}

            await eventually(both, "both nodes")
            assert await two.flooded() == {"192.0.2.101", "192.0.2.102"}
            await one.attach("a", MACS[0], ["10.0.0.1"], host="192.0.2.102")

            async def moved() -> bool:
                return (await two.remote()).get(MACS[0]) == ["192.0.2.102", "10.0.0.1"]

            await eventually(moved, "the machine on the other node")

    asyncio.run(main())


def test_subnets_behind_a_router_are_prefixes_with_the_router_as_gateway(tmp_path: Path) -> None:
    async def main() -> None:
        async with sites(tmp_path) as (one, two):
            await one.stretch(advertiseSubnets=True)
            await two.stretch()
            await one.create(NETWORK, "red", {"vni": 11})
            for name, network, cidr in (("b4", "blue", "10.0.0.0/24"), ("r4", "red", "10.1.0.0/24")):
                await one.create(SUBNET, name, {"network": network, "cidr": cidr})
            await one.create(SUBNET, "r6", {"network": "red", "cidr": "2001:db8:1::/64"})
            await one.create(ROUTER, "main", {"networks": [{"network": "blue"}, {"network": "red"}]})

            async def prefixes() -> list[tuple[str, str, str]]:
                found = [route for route in two.ask("routes") if route["type"] == 5]
                return [(route["prefix"], route["gateway"], route["nextHop"]) for route in found]

            await eventually(prefixes, "a prefix")
            # There is no gateway of IPv6 in the extended Network.
            assert await prefixes() == [("10.1.0.0/24", "10.0.0.1", one.vtep)]

            async def gateway() -> bool:
                return ["10.0.0.1"] in [ips for _, *ips in (await two.remote()).values()]

            await eventually(gateway, "the router's port as a machine")
            await one.store.delete(ROUTER, "default", "main")

            async def gone() -> bool:
                return not await prefixes() and not await two.remote()

            await eventually(gone, "no prefix, and no router")

    asyncio.run(main())


def test_a_speaker_that_forwards_again_writes_what_is_missing_and_deletes_what_is_left(tmp_path: Path) -> None:
    async def main() -> None:
        async with sites(tmp_path) as (one, two):
            for site in (one, two):
                await site.stretch()
            await one.attach("web", MACS[0], ["10.0.0.1"])

            async def arrived() -> bool:
                return set(await two.remote()) == {MACS[0]}

            await eventually(arrived, "the machine")
            await two.end_controllers()
            assert two.host is not None
            (running,) = two.host.running.values()
            (evpn,) = running.evpns.values()

            async def forwards() -> bool:
                return evpn.stretched is not None and evpn.stretched.is_forwarding

            async def waits() -> bool:
                return not await forwards()

            await two.status(EVPN_NETWORK, "blue", {"forwarding": False})
            await eventually(waits, "another speaker")
            (stored,) = (await two.store.list(REMOTE_VTEP)).items
            left = stored.document()
            await two.create(REMOTE_VTEP, "blue.192-0-2-77.10.0", {**left["spec"], "address": "192.0.2.77"})
            await two.store.delete(REMOTE_VTEP, "default", stored.name)
            await one.attach("late", MACS[1], ["10.0.0.2"])

            async def learned() -> bool:
                assert evpn.stretched is not None
                gone = two.host is not None and two.host.remote.cache.get("default", stored.name) is None
                return gone and evpn.stretched.imports.macs == 2 and not len(running.writer.queue)

            await eventually(learned, "the other machine")
            assert [item.name for item in (await two.store.list(REMOTE_VTEP)).items] == ["blue.192-0-2-77.10.0"]
            await two.status(EVPN_NETWORK, "blue", {"forwarding": True})

            async def again() -> bool:
                found = {item.name for item in (await two.store.list(REMOTE_VTEP)).items}
                return found == {stored.name} and set(await two.remote()) == {MACS[0], MACS[1]}

            await eventually(again, "both machines, and no other VTEP")

    asyncio.run(main())


def test_a_peer_whose_password_cannot_be_used_leaves_the_other_sessions_alone(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 81)
    (tmp_path / "empty").write_bytes(b"\n")
    (tmp_path / "good").write_bytes(b"secret\n")

    async def main() -> None:
        async with sites(tmp_path) as (one, two):
            for name, address in (("long", "127.0.0.77"), ("empty", "127.0.0.78"), ("good", "2001:db8::77")):
                password = {"file": str(tmp_path / name)}
                spec = {"speaker": "main", "address": address, "remoteASN": 65000, "passwordFrom": password}
                await one.create(BGP_PEER, name, spec)

            async def said() -> bool:
                long, empty, good = [await _status(one, BGP_PEER, name) for name in ("long", "empty", "good")]
                return bool(long.get("lastError") and empty.get("lastError") and good.get("state"))

            await eventually(said, "the statuses of the peers")
            assert "is not a file of at most 80 bytes" in (await _status(one, BGP_PEER, "long"))["lastError"]
            assert "is empty" in (await _status(one, BGP_PEER, "empty"))["lastError"]

            async def established() -> bool:
                return (await one.established(), await two.established()) == (1, 1)

            await eventually(established, "the session of the others")

    asyncio.run(main())


def test_after_a_restart_what_an_absent_peer_has_announced_stays_until_it_is_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with sites(tmp_path, 3) as (one, two, three):
            for site in (one, two, three):
                await site.stretch()
            await two.attach("web", MACS[1], ["10.0.0.2"])
            await three.attach("db", MACS[2], ["10.0.0.3"])

            async def both() -> bool:
                return set(await one.remote()) == {MACS[1], MACS[2]}

            await eventually(both, "the machines of both sites")
            await three.silence()
            await one.silence()
            one.speak()

            async def restarted() -> bool:
                assert one.host is not None
                running = list(one.host.running.values())
                if not running or two.address not in running[0].speaker.configs():
                    return False
                return EVPN in running[0].speaker.neighbor(two.address).ended

            await eventually(restarted, "all routes of site 2")
            assert one.host is not None
            (running,) = one.host.running.values()
            assert not running.is_settled
            assert await both()
            await three.store.delete(NETWORK_ATTACHMENT, "default", "db")
            three.speak()

            async def gone() -> bool:
                return set(await one.remote()) == {MACS[1]} and running.is_settled

            await eventually(gone, "what site 3 has not announced again")

    asyncio.run(main())


def test_after_a_restart_without_a_password_nothing_is_deleted(tmp_path: Path) -> None:
    async def main() -> None:
        async with sites(tmp_path) as (one, two):
            for site in (one, two):
                await site.stretch()
            await two.attach("web", MACS[1], ["10.0.0.2"])

            async def arrived() -> bool:
                return set(await one.remote()) == {MACS[1]}

            await eventually(arrived, "the machine")
            await one.silence()
            await one.store.delete(BGP_PEER, "default", "site2")
            await one.peer(two, passwordFrom={"file": str(tmp_path / "missing")})
            one.speak()

            async def refused() -> bool:
                return "passwordFrom" in (await _status(one, BGP_PEER, "site2")).get("lastError", "")

            await eventually(refused, "the status of the peer")
            assert one.host is not None
            (running,) = one.host.running.values()
            assert not running.is_settled
            assert await arrived()

    asyncio.run(main())


def test_a_machine_that_flaps_is_in_the_end_as_it_was_announced_last(tmp_path: Path) -> None:
    async def main() -> None:
        async with sites(tmp_path) as (one, two):
            for site in (one, two):
                await site.stretch()
            await one.attach("web", MACS[0], ["10.0.0.1"])

            async def arrived() -> bool:
                return set(await two.remote()) == {MACS[0]}

            await eventually(arrived, "the machine")
            for number in range(2, 150):
                await one.attach("web", MACS[0], [f"10.0.0.{number}"])
                await asyncio.sleep(0.002)

            async def last() -> bool:
                return (await two.remote()).get(MACS[0]) == [one.vtep, "10.0.0.149"]

            await eventually(last, "the last address")

    asyncio.run(main())


class Constrained(Site):
    """A site that tells its peers which route targets it imports."""

    async def peer(self, other: Site, **spec: Any) -> None:
        await super().peer(other, additionalFamilies=["rt-constraint"], **spec)


class Reflected(Constrained):
    """Such a site, whose routes the first one reflects."""

    async def peer(self, other: Site, **spec: Any) -> None:
        if 1 in (self.number, other.number):
            await super().peer(other, routeReflectorClient=self.number == 1, **spec)


def test_a_peer_with_route_target_constraint_gets_what_it_imports_only(tmp_path: Path) -> None:
    async def main() -> None:
        async with sites(tmp_path, kind=Constrained) as (one, two):
            for site in (one, two):
                await site.stretch()
            await one.stretch(name="red", vni=11)
            await one.attach("red", MACS[1], ["10.1.0.1"], network="red")
            await one.attach("web", MACS[0], ["10.0.0.1"])

            async def arrived() -> bool:
                return await two.remote() == {MACS[0]: [one.vtep, "10.0.0.1"]}

            await eventually(arrived, "the machine of blue at site 2")
            assert MACS[1] not in str(two.ask("routes"))
            await two.stretch(name="red", vni=11)

            async def both() -> bool:
                return (await two.remote()).keys() == {MACS[0], MACS[1]}

            await eventually(both, "the machine of red, which is imported now")
            await two.store.delete(EVPN_NETWORK, "default", "red")

            async def gone() -> bool:
                return (await two.remote()).keys() == {MACS[0]} and MACS[1] not in str(two.ask("routes"))

            await eventually(gone, "no route of red")

    asyncio.run(main())


def test_a_reflector_asks_for_all_targets_and_sends_each_client_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with sites(tmp_path, count=3, kind=Reflected) as (_, two, three):
            for site in (two, three):
                await site.stretch()
            await two.stretch(name="red", vni=11)
            await two.attach("red", MACS[1], ["10.1.0.1"], network="red")
            await two.attach("web", MACS[0], ["10.0.0.1"])
            await three.attach("web", MACS[2], ["10.0.0.3"])

            async def arrived() -> bool:
                return (await three.remote()).keys() == {MACS[0]} and (await two.remote()).keys() == {MACS[2]}

            await eventually(arrived, "the machines of the clients at each other")
            assert MACS[1] not in str(three.ask("routes"))

    asyncio.run(main())
