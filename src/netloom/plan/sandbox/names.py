"""Names and labels of the objects of a Sandbox.  Pure.

An object is named after the Sandbox and its part of the topology: `SANDBOX-HOST-NETWORK`. Names of a topology may have
capital letters and end in `-`, two parts may lead to one name (host `a` on `b-c`, host `a-b` on `c`), and the whole may
be too long: such a name ends in a digest of the part. Of the parts that lead to one name, the first in order has it.
"""

import re
from collections.abc import Iterable
from hashlib import blake2s
from typing import NamedTuple

from netloom.model.metadata import is_name
from netloom.model.schemas.rules import LABEL_VALUE_PATTERN

SANDBOX_LABEL = "netloom.dev/sandbox"
HOST_LABEL = "netloom.dev/sandbox-host"
GROUP_PREFIX = "group.netloom.dev/"
FAULT_PREFIX = "fault.netloom.dev/"
LONGEST = 253
LONGEST_LABEL = 63
_LABEL = re.compile(LABEL_VALUE_PATTERN)
_UNFIT = re.compile(r"[^a-z0-9.-]+")
_UNFIT_LABEL = re.compile(r"[^A-Za-z0-9_.-]+")


class Part(NamedTuple):
    """A part of a topology that needs an object."""

    words: tuple[str, ...]
    """What the name is made of."""
    distinction: str = ""
    """What distinguishes it from other parts with the same words."""


def assign(sandbox: str, parts: Iterable[Part], taken: Iterable[str] = ()) -> dict[Part, str]:
    """Return a name for each part of a Sandbox, no two of them equal, and none that is taken."""
    names: dict[Part, str] = {}
    used = set(taken)
    for part in sorted(set(parts)):
        plain = "-".join((sandbox, *part.words)).lower()
        name, attempt = plain, 0
        while name in used or not is_name(name):
            name = _digested(plain, f"{part.distinction}\0{attempt}", part.words)
            attempt += 1
        names[part] = name
        used.add(name)
    return names


def label_value(text: str) -> str:
    """Return a text as the value of a label, or as the name in its key."""
    if text and len(text) <= LONGEST_LABEL and _LABEL.fullmatch(text):
        return text
    start = _UNFIT_LABEL.sub("-", text)[: LONGEST_LABEL - 9].strip("-_.")
    return f"{start}-{_digest(text)}".lstrip("-")


def _digested(plain: str, distinction: str, words: tuple[str, ...]) -> str:
    digest = _digest("\0".join((*words, distinction)))
    return f"{_UNFIT.sub('-', plain)[: LONGEST - 9].rstrip('-.')}-{digest}"


def _digest(text: str) -> str:
    return blake2s(text.encode(), digest_size=4).hexdigest()
