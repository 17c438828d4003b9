"""What an agent is told wrongly is said before it does anything; and how it reads what is right."""

from random import Random

import pytest

from netloom.errors import Invalid
from netloom.run import config
from netloom.run.config import AgentSettings
from netloom.run.node import agent
from tests.control.helpers import memory, run


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (AgentSettings(node="n1", ovs="ssl:192.0.2.1:6640"), "ovs"),
        (AgentSettings(node="n1", ovs="tcp:192.0.2.1:x"), "ovs"),
        (AgentSettings(node="n1", openflow="tcp:192.0.2.1:6653"), "openflow"),
        (AgentSettings(node="n1", underlay_ip="192.0.2"), "underlayIp"),
        (AgentSettings(node="n1", bridge_mappings=("physnet1",)), "bridgeMappings"),
        (AgentSettings(node="n1", netns_folders=("/run/netns",)), "netnsFolders"),
        (AgentSettings(node="n1", internal_routes=("prod=10.0.0.1/8",)), "internalRoutes"),
        (AgentSettings(node="n1", internal_names=("web*",)), "internalNames"),
        (AgentSettings(node="n1", existing_devices=("eth1",)), "existingDevices"),
        (AgentSettings(), "node"),
    ],
)
def test_wrong_settings_are_refused(settings: AgentSettings, key: str) -> None:
    with pytest.raises(Invalid) as raised:
        agent.main(settings)
    assert [cause.field for cause in raised.value.causes] == [key]


@pytest.mark.parametrize("owner", ["", "a/b", "/", "x" * 64])
def test_an_owner_whose_name_another_could_begin_with_is_refused(owner: str) -> None:
    with pytest.raises(Invalid) as raised:
        config.load(AgentSettings, flags={"ovn_owner": owner}, environ={})
    assert [cause.field for cause in raised.value.causes] == ["ovnOwner"]


def test_the_underlays_address_is_the_kernels_whatever_its_notation() -> None:
    async def main() -> str:
        made = agent.Agent(AgentSettings(node="n1", underlay_ip="2001:DB8:0::1"), memory(), random=Random(0))
        made.links.close()
        return await made._underlay()

    assert run(main()) == "2001:db8::1"
