"""The doctor's chapter on the store: is there anything in it that cannot be read?

The server knows (store/damage.py); here it is asked. A server that is not Netloom's does not know the question: what it
stores is its own to look after. Nothing is mended: what an object was, only its author can say.
"""

from msgspec import ValidationError, convert

from netloom.cli.diagnosis.doctor import Complaint, Report
from netloom.cli.options import Session
from netloom.errors import NetloomError, NotFound
from netloom.front.api.verbs.damaged import PATH, DamagedList

_ADVICE = (
    "It is left out of lists and watches, and nothing that it owns is removed. Delete it by its name"
    " (`netloom delete KIND NAME`), and create it again from where you keep it."
)


class StoreChapter:
    """The chapter."""

    def examine(self, session: Session, *, repair: bool) -> Report:
        """Ask the server."""
        try:
            answer = convert(session.client.get(PATH), DamagedList)
        except NotFound:
            return Report(chapter="store", looked_at={})
        except (NetloomError, ValidationError) as error:
            return Report(chapter="store", looked_at={}, unseen=(f"what cannot be read ({error})",))
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
        return Report(chapter="store", looked_at={"kinds": answer.kinds}, complaints=complaints)
