"""A cluster without OVN: of what wishes say nobody does, people are told; and what the nodes do themselves is Ready."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from netloom.model.registry import KINDS, NETWORK, NETWORK_ATTACHMENT, SUBNET
from netloom.run.controllers import Options
from tests.control.helpers import assemble, document, run, subnet
from tests.control.ovn_world import Site

RULES: dict[str, Any] = {
    "selector": {"matchLabels": {"app": "web"}},
    "ingress": [{"action": "reject", "log": True}, {"from": [{"profile": "gone"}]}],
}


@asynccontextmanager
async def running(site: Site) -> AsyncIterator[None]:
    """Run the controllers, with a Network that VXLAN carries and an attachment in it."""
    manager = assemble(site.store, random=site.random, parts=[""], options=Options(quarantine=0.0))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(manager.run())
        await site.store.create(NETWORK, document(NETWORK, "blue", {"fabric": "vxlan"}))
        await site.store.create(SUBNET, subnet("blue-v4", "10.0.0.0/24", dhcp={}))
        await site.attach("a", labels={"app": "web"})
        await site.settle()
        yield
        task.cancel()


async def message(site: Site, kind: str, name: str, of: str = "Ready") -> str:
    (found,) = [one for one in (await site.status(kind, name))["conditions"] if one["type"] == of]
    return str(found.get("message", ""))


def test_what_needs_ovn_is_told_that_there_is_none() -> None:
    async def main() -> None:
        site = Site()
        async with running(site):
            await site.put("router", "r", {"networks": [{"network": "blue"}]})
            await site.put("mirror", "m", {"source": {"attachment": "a"}, "destination": {"attachment": "b"}})
            vips = [{"ip": "10.0.0.9", "port": 80}]
            await site.put("loadbalancer", "l", {"networks": ["blue"], "vips": vips, "endpoints": []})
            await site.settle()
            assert await site.condition("router", "r") == ("False", "WrongFabric")
            assert await site.condition("loadbalancer", "l") == ("False", "WrongFabric")
            assert (await site.condition("mirror", "m"))[0] == "False"
            for kind, name in (("router", "r"), ("loadbalancer", "l"), ("mirror", "m")):
                assert "this cluster runs without OVN" in await message(site, kind, name)
            await site.put("router", "bare", {})
            await site.settle()
            assert await site.condition("router", "bare") == ("False", "OvnMissing")
            assert await site.condition("subnet", "blue-v4", "Programmed") == ("False", "WrongFabric")

    run(main())


def test_profiles_and_shapings_are_ready_and_say_what_is_otherwise() -> None:
    async def main() -> None:
        site = Site()
        async with running(site):
            await site.put("securityprofile", "p", {**RULES, "ingress": RULES["ingress"][:1]})
            await site.put("shaping", "s", {"from": {"network": "blue"}, "rate": "10mbit"})
            await site.settle()
            assert await site.condition("securityprofile", "p") == ("True", "Programmed")
            said = await message(site, "securityprofile", "p")
            assert said.startswith("in Networks of fabric vxlan (blue): spec.ingress[0].action: what is rejected is dr")
            assert "spec.ingress[0].log: nothing is logged" in said
            assert (await site.status("securityprofile", "p"))["ports"] == 1
            assert await site.condition("shaping", "s") == ("True", "Programmed")
            assert (await site.status("shaping", "s"))["applied"]["rate"] == "10mbit"
            await site.attach("b", labels={"app": "web"})
            await site.settle()
            assert (await site.status("securityprofile", "p"))["ports"] == 2

    run(main())


def test_an_unknown_profile_is_told_to_who_names_it() -> None:
    async def main() -> None:
        site = Site()
        async with running(site):
            await site.put("securityprofile", "p", RULES)
            await site.attach("c", securityProfiles=["late"])
            await site.settle()
            assert await site.condition("securityprofile", "p") == ("False", "ProfileMissing")
            assert await site.condition("networkattachment", "c", "Programmed") == ("False", "ProfileMissing")
            await site.put("securityprofile", "late", {})
            await site.put("securityprofile", "gone", {})
            await site.settle()
            assert await site.condition("securityprofile", "p") == ("True", "Programmed")
            assert await site.condition("networkattachment", "c", "Programmed") == ("", "")
            await site.store.delete(NETWORK_ATTACHMENT, "ns1", "c")
            await site.store.delete(KINDS.named("securityprofile"), "ns1", "late")
            await site.settle()
            assert await site.condition("securityprofile", "p") == ("True", "Programmed")

    run(main())


def test_nothing_is_written_for_what_stays() -> None:
    async def main() -> None:
        site = Site()
        async with running(site):
            await site.put("securityprofile", "p", RULES)
            await site.put("router", "r", {"networks": [{"network": "blue"}]})
            await site.settle()
            revision = await site.store.revision()
            await asyncio.sleep(3000)
            assert await site.store.revision() == revision

    run(main())
