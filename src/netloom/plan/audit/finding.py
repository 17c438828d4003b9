"""What an audit can find, and one thing that it found."""

from enum import StrEnum

from msgspec import Struct

from netloom.plan.problem import Unit


class Check(StrEnum):
    """What can be inconsistent."""

    # Addresses and VNIs (`addresses`).
    DUPLICATE_ADDRESS = "duplicate-address"
    """Two attachments have the same address of a VNI."""
    DUPLICATE_LOCK = "duplicate-lock"
    """The same address of a VNI is locked in two namespaces, where the names of locks do not collide."""
    DUPLICATE_MAC = "duplicate-mac"
    """Two attachments have the same MAC on a Network."""
    DUPLICATE_VNI = "duplicate-vni"
    """Two Networks have the same VNI."""
    ORPHANED_LOCK = "orphaned-lock"
    """An address is locked for an attachment that does not exist any more."""
    SPARE_LOCK = "spare-lock"
    """An address is locked for an attachment that does not have it."""
    MISNAMED_LOCK = "misnamed-lock"
    """A lock's name is not that of its VNI and address, so it locks nothing."""
    LOST_LOCK = "lost-lock"
    """An attachment has an address whose lock is missing, being deleted, or another's."""
    OUTSIDE = "outside"
    """An attachment has an address of no Subnet of its Network."""
    STALE_VNI = "stale-vni"
    """An attachment has addresses under a VNI that is not its Network's."""
    UNHELD_VNI = "unheld-vni"
    """A Network has a VNI without its lock."""
    ORPHANED_VNI = "orphaned-vni"
    """A VNI is locked for a Network that does not exist any more, and for no address."""

    # The southbound and the switches of nodes (`ovn`).
    PORT_UNKNOWN = "port-unknown"
    PORT_UNBOUND = "port-unbound"
    PORT_ELSEWHERE = "port-elsewhere"
    GATEWAY_UNBOUND = "gateway-unbound"
    CHASSIS_WITHOUT_NODE = "chassis-without-node"
    NODE_WITHOUT_CHASSIS = "node-without-chassis"
    NODE_NOT_READY = "node-not-ready"
    MISSING_INTERFACE = "missing-interface"
    LEFTOVER_INTERFACE = "leftover-interface"
    WRONG_INTERFACE = "wrong-interface"
    BROKEN_INTERFACE = "broken-interface"
    NOT_INSTALLED = "not-installed"
    WRONG_DEVICE = "wrong-device"
    LEFTOVER_DEVICE = "leftover-device"
    LEFTOVER_MIRROR = "leftover-mirror"
    MISSING_MIRROR = "missing-mirror"
    FLOWS_MISSING = "missing-flows"
    LEFTOVER_FLOWS = "leftover-flows"
    WRONG_BRIDGE = "wrong-bridge"

    # BGP speakers and EVPNNetworks (`evpn`).
    SPEAKER_NOT_READY = "speaker-not-ready"
    PEER_NOT_ESTABLISHED = "peer-not-established"
    EVPN_NOT_READY = "evpn-not-ready"
    DUPLICATE_EVPN_MAC = "duplicate-evpn-mac"
    """A MAC address is attached here, and another site announces it."""
    ORPHANED_VTEP = "orphaned-vtep"
    """A RemoteVTEP is of an EVPNNetwork that does not exist."""

    # Rows of the northbound (`drivers/northbound/audit`).
    MISSING_ROW = "missing-row"
    DRIFTED_ROW = "drifted-row"
    LEFTOVER_ROW = "leftover-row"
    DOUBLE_ROW = "double-row"
    REFUSED_ROWS = "refused-rows"


class Finding(Struct, frozen=True, order=True):
    """One inconsistency of one object."""

    check: Check
    kind: str
    namespace: str
    name: str
    message: str
    what: str = ""
    """The device, interface or chassis that it is about."""
    uid: str = ""
    replaced: bool = False
    """Whether the interface belongs to an attachment that was deleted and created again under the same name."""

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.check}: {self.kind} {where}: {self.message}"

    @property
    def unit(self) -> Unit:
        """The resource that it is about."""
        return Unit(self.kind, self.namespace, self.name)
