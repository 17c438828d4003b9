"""What the sections of the doctor report, and the list of the sections.

A section compares one part of the system, through the API, in OVN's databases or on the nodes, with the resources. Each
complaint names an object, what is wrong with it, and what to do; a section may be able to repair it. What cannot be
reached is listed as unseen and is no complaint.
"""

from typing import Protocol

from msgspec import Struct, field

from netloom.client.session import Session
from netloom.diagnose.access import Access

SECTIONS = ("store", "addresses", "northbound", "southbound", "nodes")


class Complaint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One inconsistency."""

    check: str
    """The name of the check that found it, such as `missing-row`."""
    kind: str
    namespace: str = ""
    name: str
    uid: str = ""
    message: str
    """What is wrong with the object."""
    advice: str
    """What to do."""
    repair: str = ""
    """What a repair did, or why it failed; "" if none was attempted."""

    @property
    def subject(self) -> str:
        """The object, as KIND NAMESPACE/NAME."""
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where}"


class Report(Struct, frozen=True, kw_only=True):
    """The result of one section."""

    section: str = field(name="chapter")
    checked: dict[str, int] = field(name="looked_at")
    """The number of objects that were checked, by kind."""
    repaired: tuple[Complaint, ...] = field(name="mended", default=())
    complaints: tuple[Complaint, ...] = ()
    """The inconsistencies that remain."""
    unseen: tuple[str, ...] = ()
    """What could not be checked, and why."""


class Section(Protocol):
    """One part of the system that can be checked."""

    def examine(self, session: Session, *, repair: bool) -> Report:
        """Check this part, and repair what is safe to repair if asked to."""


def sections(access: Access) -> dict[str, Section]:
    """Return all sections by name, in the order of `SECTIONS`."""
    from netloom.diagnose.doctor.addresses import AddressSection  # each is imported only when it is used
    from netloom.diagnose.doctor.nodes import NodeSection
    from netloom.diagnose.doctor.northbound import NorthboundSection
    from netloom.diagnose.doctor.southbound import SouthboundSection
    from netloom.diagnose.doctor.store import StoreSection

    return {
        "store": StoreSection(),
        "addresses": AddressSection(),
        "northbound": NorthboundSection(access),
        "southbound": SouthboundSection(access),
        "nodes": NodeSection(access),
    }


def examine(session: Session, access: Access, only: tuple[str, ...] = (), *, repair: bool = False) -> list[Report]:
    """Return the reports of all sections, or of those named in `only`."""
    chosen = [section for name, section in sections(access).items() if not only or name in only]
    return [section.examine(session, repair=repair) for section in chosen]
