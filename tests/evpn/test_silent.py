"""A machine that sends nothing for an hour of virtual time: its routes, and what follows from them, stay."""

import asyncio

import pytest

from netloom.bgp.evi import Instances
from netloom.bgp.fsm import State
from netloom.bgp.io import Changes
from netloom.bgp.nlri import EVPN
from netloom.control.evpn.stretched import Stretched
from netloom.control.runtime.cache import Change, Key
from netloom.model.document import ObjectMeta
from netloom.model.kinds.attachments import (
    AttachmentLock,
    NetworkAttachment,
    NetworkAttachmentSpec,
    NetworkAttachmentStatus,
)
from netloom.model.kinds.bgp import BGPSpeaker, BGPSpeakerSpec, EVPNNetwork, EVPNNetworkSpec
from netloom.model.kinds.networks import Fabric
from netloom.plan.evpn.evi import evi_of
from tests.bgp.test_speaker import Net

A, B = "192.0.2.1", "192.0.2.2"
MAC, IPS = "02:00:00:00:00:01", ("10.10.0.1", "fd10::1")
HOUR = 3600.0


class Sites(Net):
    """Two speakers, each with one EVPNNetwork."""

    def __init__(self, fabric: Fabric) -> None:
        super().__init__()
        self.instances = {A: Instances(), B: Instances()}
        self.stretched: dict[str, Stretched] = {}
        for name in (A, B):
            speaker = self.add(name, 65000)
            value = BGPSpeaker(
                api_version="netloom.dev/v1alpha1",
                kind="BGPSpeaker",
                metadata=ObjectMeta(name="main"),
                spec=BGPSpeakerSpec(asn=65000, router_id=name, node="gw"),
            )
            network = EVPNNetwork(
                api_version="netloom.dev/v1alpha1",
                kind="EVPNNetwork",
                metadata=ObjectMeta(name="blue", uid="uid"),
                spec=EVPNNetworkSpec(network="blue", speaker="main"),
            )
            made = self.stretched[name] = Stretched(
                network, evi_of(value, network, 10), fabric, "gw", speaker=speaker, on_routes=lambda: None
            )
            self.instances[name].add(made.instance, {})
            made.forward(True)
            made.settle()
            speaker.complete()
        self.peer(A, B)

    def changed(self, name: str, changes: Changes) -> None:
        """Import what a peer has announced or withdrawn."""
        self.instances[name].apply(changes.get(EVPN, {}))
        asyncio.run(self.stretched[name].take_up(self.now))

    def attach(self, name: str) -> None:
        value = NetworkAttachment(
            api_version="netloom.dev/v1alpha1",
            kind="NetworkAttachment",
            metadata=ObjectMeta(name="silent", namespace="default"),
            spec=NetworkAttachmentSpec(node="n1", network="blue"),
            status=NetworkAttachmentStatus(
                mac=MAC,
                host_ip="192.0.2.11",
                ips=tuple(f"{ip}/64" if ":" in ip else f"{ip}/24" for ip in IPS),
                locks=tuple(AttachmentLock(ip=ip, uid="uid") for ip in IPS),
            ),
        )
        self.stretched[name].put_attachment(Change(Key("default", "silent"), None, value))
        self.stretched[name].export(self.now)


@pytest.mark.parametrize("fabric", [Fabric.OVN, Fabric.VXLAN])
def test_a_machine_that_is_silent_for_an_hour_is_where_it_was(fabric: Fabric) -> None:
    net = Sites(fabric)
    net.attach(A)
    net.pass_time(10)
    imports = net.stretched[B].imports
    written = {name: imports.spec(name) for name in imports.take()}
    [machine] = [mac for spec in written.values() if spec is not None for mac in spec.macs]
    assert (machine.mac, machine.ips) == (MAC, IPS)
    sent = {name: net.speakers[name].neighbor(other).bytes_out for name, other in ((A, B), (B, A))}

    net.pass_time(HOUR)

    for name, other in ((A, B), (B, A)):
        neighbor = net.speakers[name].neighbor(other)
        assert (neighbor.peer.state, neighbor.flaps) == (State.ESTABLISHED, 0)
        assert neighbor.bytes_out > sent[name], "keepalives, and so an hour"
        assert neighbor.updates <= 10, "and nothing is announced again"
    assert imports.take() == set(), "nothing is written again"
    assert {name: imports.spec(name) for name in written} == written


def test_a_machine_of_a_site_that_is_gone_for_an_hour_goes_too() -> None:
    net = Sites(Fabric.OVN)
    net.attach(A)
    net.pass_time(10)
    net.kill(A)
    net.pass_time(HOUR)
    imports = net.stretched[B].imports
    assert all(imports.spec(name) is None for name in imports.take())
    assert imports.macs == 0
