"""What plans need to know of this node: the underlay's device and MTU, physical networks and grants, kept current."""

import asyncio
import logging
from collections.abc import Mapping
from typing import NoReturn

from msgspec import structs

from netloom.control.node.switch import NodeSwitch
from netloom.drivers.link.worker import Links
from netloom.errors import NetloomError
from netloom.plan.node.grants import NodeGrants
from netloom.plan.node.ports import host_of
from netloom.signals import Signal

log = logging.getLogger(__name__)

INTERVAL = 30.0
"""Seconds between two checks of the underlay's device."""


class NodeHost:
    """The present `Host`, and the device that holds the underlay's address."""

    def __init__(
        self,
        underlay: str,
        *,
        devices: Links,
        switch: NodeSwitch,
        grants: NodeGrants,
        capabilities: Mapping[str, bool],
    ) -> None:
        """`capabilities` is what the kernel and the agent can do."""
        self.on_change: Signal[[]] = Signal()
        """Sent when all ports must be planned again."""
        able = [name for name, has in capabilities.items() if has]
        self.current = host_of(underlay, mtu=None, physical_networks=(), grants=grants, capabilities=able)
        self.device = ""
        """The name of the device with the underlay's address; attachments must not take it."""
        self.remark = ""
        """What users should know of the underlay; it prevents no port from being plugged."""
        self._underlay = underlay
        self._devices = devices
        self._switch = switch

    async def refresh(self) -> None:
        """Read the underlay's device and the physical networks."""
        device = await self._devices.holder(self._underlay)
        self.device = device.name if device is not None else ""
        self.remark = ""
        if device is None:
            self.remark = f"no device has the underlay address {self._underlay}: other nodes may not reach this one"
            log.warning("no device has the underlay address", extra={"address": self._underlay})
        mtu = None if device is None else device.mtu
        networks, now = self._switch.physical_networks, self.current
        host = host_of(
            self._underlay, mtu=mtu, physical_networks=networks, grants=now.grants, capabilities=now.capabilities
        )
        if host != self.current:
            self.current = host
            self.on_change()

    def refresh_physical_networks(self) -> None:
        """Read the physical networks, of which the switch announces changes."""
        networks = self._switch.physical_networks
        if networks != self.current.physical_networks:
            self.current = structs.replace(self.current, physical_networks=networks)

    async def run(self) -> NoReturn:
        """Refresh every half minute until cancelled: the kernel's changes are not watched."""
        while True:
            await asyncio.sleep(INTERVAL)
            try:
                await self.refresh()
            except NetloomError as error:
                log.info("cannot read the underlay's device: %s", error)
