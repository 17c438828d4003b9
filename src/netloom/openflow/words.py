"""The texts of a switch's errors.  Pure; the numbers are those of OpenFlow 1.4 and of Open vSwitch."""

_NAMES: dict[int, tuple[str, dict[int, str]]] = {
    0: ("hello failed", {0: "no version in common", 1: "not permitted"}),
    1: ("bad request", {
        0: "bad version", 1: "bad type", 2: "bad multipart", 3: "bad experimenter", 4: "bad experimenter type",
        5: "not permitted", 6: "bad length", 9: "bad table", 10: "is slave", 11: "bad port", 12: "bad packet",
        13: "too many multipart requests",
    }),
    2: ("bad action", {
        0: "bad type", 1: "bad length", 2: "bad experimenter", 3: "bad experimenter type", 4: "bad output port",
        5: "bad argument", 6: "not permitted", 7: "too many actions", 8: "bad queue", 9: "bad output group",
        10: "inconsistent with the match", 11: "unsupported order", 12: "bad tag", 13: "bad field in set_field",
        14: "bad length of set_field", 15: "bad value in set_field",
    }),
    3: ("bad instruction", {
        0: "unknown", 1: "unsupported", 2: "bad table", 3: "unsupported metadata", 4: "unsupported metadata mask",
        5: "bad experimenter", 6: "bad experimenter type", 7: "bad length", 8: "not permitted",
        9: "duplicate instruction",
    }),
    4: ("bad match", {
        0: "bad type", 1: "bad length", 2: "bad tag", 3: "bad link address mask", 4: "bad network address mask",
        5: "bad wildcards", 6: "bad field", 7: "bad value", 8: "bad mask", 9: "bad prerequisite",
        10: "duplicate field", 11: "not permitted",
    }),
    5: ("flow mod failed", {
        0: "unknown", 1: "table full", 2: "bad table", 3: "overlap", 4: "not permitted", 5: "bad timeout",
        6: "bad command", 7: "bad flags", 8: "cannot synchronize", 9: "bad priority",
    }),
    12: ("meter mod failed", {
        0: "unknown", 1: "meter exists", 2: "bad meter", 3: "unknown meter", 4: "bad command",
        5: "bad flags", 6: "bad rate", 7: "bad burst", 8: "bad band", 9: "bad band value", 10: "out of meters",
        11: "out of bands",
    }),
    17: ("bundle failed", {
        0: "unknown", 1: "not permitted", 2: "bad id", 3: "bundle exists", 4: "bundle closed",
        5: "out of bundles", 6: "bad type", 7: "bad flags", 8: "bad length of a message", 9: "bad xid of a message",
        10: "unsupported message", 11: "conflicting message", 12: "too many messages",
        13: "message failed", 14: "timeout", 15: "bundle in use",
    }),
}  # fmt: skip

METER_MOD, METER_UNKNOWN = 12, 3
EXPERIMENTER = 0xFFFF

_OF_OPEN_VSWITCH = {
    2: "bad match: invalid", 3: "bad match: unknown type of field", 4: "bad request: reserved bytes are not zero",
    10: "an error without a number in OpenFlow", 11: "bad action: reserved bytes are not zero",
    12: "flow mod failed: hardware", 13: "flow mod failed: bad table",
    15: "bad action: a conjunction must be the only action, with 2 to 64 clauses",
    22: "bundle failed: message of another version",
}  # fmt: skip


def error_words(kind: int, code: int) -> str:
    """Return the text of an error, such as "bad match: bad mask"."""
    name, codes = _NAMES.get(kind, (f"error of type {kind}", {}))
    return f"{name}: {codes.get(code, f'code {code}')}"


def experimenter_words(number: int) -> str:
    """Return the text of an error of Open vSwitch's own."""
    return _OF_OPEN_VSWITCH.get(number, f"Open vSwitch error {number}")
