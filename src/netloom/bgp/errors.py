"""What ends a session, and what only costs an attribute or some routes (RFC 4271, 7606, 7313, 9003, 9687)."""

from enum import IntEnum

from msgspec import Struct


class Code(IntEnum):
    """The error codes of NOTIFICATION."""

    HEADER = 1
    OPEN = 2
    UPDATE = 3
    HOLD_TIMER = 4
    STATE_MACHINE = 5
    CEASE = 6
    ROUTE_REFRESH = 7
    SEND_HOLD_TIMER = 8


class Header(IntEnum):
    """Subcodes of a wrong message header."""

    NOT_SYNCHRONIZED = 1
    BAD_LENGTH = 2
    BAD_TYPE = 3


class OpenError(IntEnum):
    """Subcodes of a wrong OPEN."""

    MALFORMED = 0
    VERSION = 1
    BAD_PEER_AS = 2
    BAD_IDENTIFIER = 3
    OPTIONAL_PARAMETER = 4
    HOLD_TIME = 6
    UNSUPPORTED_CAPABILITY = 7


class UpdateError(IntEnum):
    """Subcodes of a wrong UPDATE."""

    ATTRIBUTE_LIST = 1
    UNKNOWN_WELL_KNOWN = 2
    MISSING_WELL_KNOWN = 3
    FLAGS = 4
    LENGTH = 5
    ORIGIN = 6
    NEXT_HOP = 8
    OPTIONAL_ATTRIBUTE = 9
    NETWORK_FIELD = 10
    AS_PATH = 11


class Cease(IntEnum):
    """Subcodes of Cease (RFC 4486, 8538, 9003)."""

    MAX_PREFIXES = 1
    SHUTDOWN = 2
    DECONFIGURED = 3
    RESET = 4
    REJECTED = 5
    CONFIGURATION = 6
    COLLISION = 7
    RESOURCES = 8
    HARD_RESET = 9


_SUBCODES: dict[int, type[IntEnum]] = {
    Code.HEADER: Header,
    Code.OPEN: OpenError,
    Code.UPDATE: UpdateError,
    Code.CEASE: Cease,
}


class Notification(Exception):
    """The session ends; this NOTIFICATION is sent, or was received."""

    def __init__(self, code: int, subcode: int = 0, data: bytes = b"", why: str = "") -> None:
        self.code = code
        self.subcode = subcode
        self.data = data
        super().__init__(why or describe(code, subcode))


def describe(code: int, subcode: int) -> str:
    """Return the name of an error, as `update: as path`."""
    kinds = _SUBCODES.get(code)
    name = Code(code).name if code in Code._value2member_map_ else f"code {code}"
    detail = kinds(subcode).name if kinds and subcode in kinds._value2member_map_ else str(subcode)
    text = name if not subcode and kinds is not OpenError else f"{name}: {detail}"
    return text.lower().replace("_", " ")


class TooLong(Exception):
    """Attributes have no room in a message: their routes cannot be sent (RFC 4271 section 9.2, RFC 8654 section 4)."""


class Reaction(IntEnum):
    """How a malformed attribute is handled (RFC 7606 section 2), the mildest first."""

    DISCARD_ATTRIBUTE = 1
    TREAT_AS_WITHDRAW = 2
    RESET_SESSION = 3


class Malformed(Struct, frozen=True):
    """An attribute that is wrong, and the reaction to it."""

    attribute: int
    reaction: Reaction
    reason: str
    subcode: int = UpdateError.ATTRIBUTE_LIST
