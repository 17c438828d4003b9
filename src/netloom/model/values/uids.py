"""Uids that contain the time of creation: UUIDv7 (RFC 9562).

    ┌ 48 bits: milliseconds ┬ 4: version ┬ 12: fraction of the millisecond ┬ 2: variant ┬ 62: random ┐

`creationTimestamp` has whole seconds only. With these uids, which our own stores create, any component can measure how
long it took to reconcile a new object, and uids sort by creation time. Kubernetes creates random uids, which contain no
time. To all other code a uid is an opaque string.
"""

_TICKS = 4096
"""Fractions per millisecond."""
_LONGEST = 1 << 48


def mint(seconds: float, chance: int) -> str:
    """Return a new uid for this time; it uses 62 bits of `chance`, a random number."""
    milliseconds, part = divmod(max(0, int(seconds * 1000 * _TICKS)), _TICKS)
    digits = f"{milliseconds % _LONGEST:012x}7{part:03x}{0x8000000000000000 | chance & 0x3FFFFFFFFFFFFFFF:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def made(uid: str) -> float | None:
    """Return when a uid was created, in seconds since 1970, or None if it contains no time."""
    if len(uid) != 36 or uid[14] != "7" or uid[19] not in "89abAB" or uid[8:24:5] != "----":
        return None
    try:
        milliseconds, part = int(uid[:8] + uid[9:13], 16), int(uid[15:18], 16)
    except ValueError:
        return None
    return (milliseconds * _TICKS + part) / (1000 * _TICKS)
