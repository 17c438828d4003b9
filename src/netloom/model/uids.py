"""Uids that say when they were made, finer than `creationTimestamp`, which has whole seconds: UUIDv7 (RFC 9562).

    ┌ 48 bits: milliseconds ┬ 4: version ┬ 12: part of the millisecond ┬ 2: variant ┬ 62: chance ┐

Our own stores make such uids, so that how long a wish took is known to the millisecond, by whoever sees the object, and
objects made one after the other are in that order by their uids. A Kubernetes makes uids of chance alone: of those
nothing is said. To everybody else a uid is a string and no more.
"""

_TICKS = 4096
"""Parts of a millisecond."""
_LONGEST = 1 << 48


def mint(seconds: float, chance: int) -> str:
    """Return the uid of what is made at this time; of `chance` 62 bits are used."""
    milliseconds, part = divmod(max(0, int(seconds * 1000 * _TICKS)), _TICKS)
    digits = f"{milliseconds % _LONGEST:012x}7{part:03x}{0x8000000000000000 | chance & 0x3FFFFFFFFFFFFFFF:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def made(uid: str) -> float | None:
    """Return when a uid was made, in seconds since 1970; None where it does not say."""
    if len(uid) != 36 or uid[14] != "7" or uid[19] not in "89abAB" or uid[8:24:5] != "----":
        return None
    try:
        milliseconds, part = int(uid[:8] + uid[9:13], 16), int(uid[15:18], 16)
    except ValueError:
        return None
    return (milliseconds * _TICKS + part) / (1000 * _TICKS)
