"""What the sections of the doctor report, and the list of the sections.

A section compares one part of the system, through the API, in OVN's databases or on the nodes, with the resources. Each
complaint names an object, what is wrong with it, and what to do; a section may be able to repair it. What cannot be
reached is listed as unseen and is no complaint.

What is read at different moments from a running system is briefly inconsistent without being wrong. So a finding counts
only if a second check, some seconds later, makes it again (`confirmed`).
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct, field

from netloom.client.session import Session
from netloom.diagnose.access import Access
from netloom.plan.audit.finding import Finding

F = TypeVar("F")

SETTLE_SECONDS = 3.0
Settle = Callable[[float], object]
SECTIONS = ("store", "addresses", "northbound", "southbound", "nodes", "evpn")


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


def complaint(finding: Finding, advice: str, repair: str = "") -> Complaint:
    """Return a finding as a complaint."""
    return Complaint(
        check=finding.check,
        kind=finding.kind,
        namespace=finding.namespace,
        name=finding.name,
        uid=finding.uid,
        message=finding.message,
        advice=advice,
        repair=repair,
    )


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


def confirmed(check: Callable[[], Sequence[F]], settle: Settle = time.sleep) -> list[F]:
    """Return the findings that two checks have in common; without findings, do not wait for the second."""
    before = set(check())
    if not before:
        return []
    settle(SETTLE_SECONDS)
    return [finding for finding in check() if finding in before]


def examine(session: Session, access: Access, only: tuple[str, ...] = (), *, repair: bool = False) -> list[Report]:
    """Return the reports of all sections, or of those named in `only`; repair what is safe to repair if asked to."""
    from netloom.diagnose.doctor import addresses, evpn, nodes, northbound, southbound, store  # they import this module

    work: dict[str, Callable[[], Report]] = {
        "store": lambda: store.examine(session),
        "addresses": lambda: addresses.AddressSection(session.client).examine(repair=repair),
        "northbound": lambda: northbound.NorthboundSection(session, access).examine(repair=repair),
        "southbound": lambda: southbound.SouthboundSection(session, access).examine(),
        "nodes": lambda: nodes.NodeSection(session, access).examine(repair=repair),
        "evpn": lambda: evpn.EvpnSection(session.client).examine(),
    }
    return [work[name]() for name in SECTIONS if not only or name in only]
