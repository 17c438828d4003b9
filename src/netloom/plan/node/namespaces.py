"""The record of a network namespace that the agent created, in the switch's database.  Pure.

A namespace is recorded before it gets its path, with its identity: boot and inode. So only what the agent created is
ever removed, after a crash at any point: a path that leads to another namespace, or to none, is not ours. A reboot ends
all namespaces, and no identity of an earlier boot is that of a present one.
"""

import msgspec
from msgspec import Struct


class NetnsRecord(Struct, frozen=True, kw_only=True):
    """A network namespace that the agent created."""

    namespace: str
    """The namespace of the attachments that it is for."""
    identity: str
    root: str = ""
    """The part of the path that the node's operator set: below it no symbolic link is followed."""


def written(record: NetnsRecord) -> str:
    """Return a record as text."""
    return msgspec.json.encode(record).decode()


def read_record(text: str) -> NetnsRecord | None:
    """Return the record of a text; None: it is none."""
    try:
        return msgspec.json.decode(text, type=NetnsRecord)
    except msgspec.MsgspecError:
        return None
