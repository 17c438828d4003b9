"""The doctor's section on the store: objects that it cannot decode.

The server knows them (store/damage.py) and lists them. A server that is not Netloom's does not have that list, and is
responsible for its own storage. Nothing is repaired: only its author knows what an object was.
"""

from msgspec import ValidationError, convert

from netloom.client.session import Session
from netloom.diagnose.doctor.report import Complaint, Report
from netloom.errors import NetloomError, NotFound
from netloom.model.damaged import PATH, DamagedList

_ADVICE = (
    "Lists and watches omit it, and nothing that it owns is removed. Delete it by name"
    " (`netloom delete KIND NAME`), and create it again from its manifest."
)


def examine(session: Session) -> Report:
    """Report the objects that the server lists as damaged."""
    try:
        answer = convert(session.client.get(PATH), DamagedList)
    except NotFound:
        return Report(section="store", checked={})
    except (NetloomError, ValidationError) as error:
        return Report(section="store", checked={}, unseen=(f"damaged objects: {error}",))
    complaints = tuple(
        Complaint(
            check="damaged",
            kind=one.kind,
            namespace=one.namespace,
            name=one.name,
            message=f"cannot be read from the store, at revision {one.revision}: {one.reason}",
            advice=_ADVICE,
        )
        for one in answer.items
    )
    return Report(section="store", checked={"kinds": answer.kinds}, complaints=complaints)
