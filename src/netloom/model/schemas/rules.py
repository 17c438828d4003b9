"""Validation rules of fields: patterns, and rules that a pattern cannot express.

Python's `re` and RE2 in a Kubernetes API server both evaluate the patterns, so they are anchored at both ends and use
neither look-around nor back-references. A `Rule` exists twice, in CEL for the API server of Kubernetes and in Python
for ours, side by side so that both are changed together; the tests run a table of examples through both.

A rule is evaluated only for a value of the right type, but strings in it may be malformed. Another rule reports that,
so a rule accepts what it cannot parse.
"""

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from netloom.model.values import addresses

LABEL_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
SUBDOMAIN_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL_KEY_PATTERN = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE_PATTERN = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
MAC_PATTERN = r"^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$"
RATE_PATTERN = r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?([kmgt]i?)?bit$"
SIZE_PATTERN = r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?[kmg]?b$"
DURATION_PATTERN = r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?(s|ms|us|ns)$"
PERCENTAGE_PATTERN = r"^(100(\.0{1,6})?|(0|[1-9][0-9]?)(\.[0-9]{1,6})?)%$"
DEVICE_PATTERN = r"^[0-9A-Za-z_][-0-9A-Za-z_.]*$"
PATH_PATTERN = r"^/[^\x00]+$"
DISTINGUISHER_PATTERN = r"^(auto|(0|[1-9][0-9]{0,9}|([0-9]{1,3}\.){3}[0-9]{1,3}):(0|[1-9][0-9]{0,9}))$"
TOPOLOGY_NAME_PATTERN = r"^[a-z][a-z0-9A-Z-]*$"


class Rule(Struct, frozen=True, eq=False):
    """A rule that a value, `self`, must satisfy.

    A rule whose CEL uses `oldSelf` is about a change: its `check` gets the new value and the old one.
    """

    cel: str
    check: Callable[..., bool]
    message: str
    path: str = ""
    """The field to report, relative to the value: `.gateway`."""
    reason: str = "FieldValueInvalid"

    @property
    def transition(self) -> bool:
        """Whether the rule is about a change (a transition rule)."""
        return "oldSelf" in self.cel


def immutable(name: str) -> Rule:
    """Return the rule that a required field never changes."""
    return Rule(
        f"self.{name} == oldSelf.{name}",
        lambda new, old: new.get(name) == old.get(name),
        "is immutable: delete the object and create it again",
        path=f".{name}",
    )


def once_set(name: str) -> Rule:
    """Return the rule that an optional field, once set, is neither changed nor removed."""
    return Rule(
        f"!has(oldSelf.{name}) || (has(self.{name}) && self.{name} == oldSelf.{name})",
        lambda new, old: name not in old or new.get(name) == old[name],
        "is immutable once set",
        path=f".{name}",
    )


def exactly_one(*names: str) -> Rule:
    """Return the rule that exactly one of these fields is set."""
    cel = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in names)
    return Rule(
        f"{cel} == 1",
        lambda self: sum(name in self for name in names) == 1,
        f"exactly one of {', '.join(names[:-1])} and {names[-1]} must be set",
    )


def at_least_one(*names: str) -> Rule:
    """Return the rule that one or more of these fields are set."""
    return Rule(
        " || ".join(f"has(self.{name})" for name in names),
        lambda self: any(name in self for name in names),
        f"at least one of {', '.join(names[:-1])} and {names[-1]} must be set",
        reason="FieldValueRequired",
    )


def needs(name: str, other: str) -> Rule:
    """Return the rule that a field may be set only together with another."""
    return Rule(
        f"!has(self.{name}) || has(self.{other})",
        lambda self: name not in self or other in self,
        f"must be set together with {other}",
        path=f".{name}",
    )


def required_when(name: str, other: str, value: str) -> Rule:
    """Return the rule that a field must be set when `other`, a required field, has this value."""
    return Rule(
        f"self.{other} != '{value}' || has(self.{name})",
        lambda self: self.get(other) != value or name in self,
        f"must be set when {other} is {value}",
        path=f".{name}",
        reason="FieldValueRequired",
    )


def only_when(name: str, other: str, value: str) -> Rule:
    """Return the rule that a field may be set only when `other`, a required field, has this value."""
    return Rule(
        f"!has(self.{name}) || self.{other} == '{value}'",
        lambda self: name not in self or self.get(other) == value,
        f"may be set only when {other} is {value}",
        path=f".{name}",
        reason="FieldValueForbidden",
    )


def never_when(name: str, other: str, value: str) -> Rule:
    """Return the rule that a field must not be set when `other`, a required field, has this value."""
    return Rule(
        f"!has(self.{name}) || self.{other} != '{value}'",
        lambda self: name not in self or self.get(other) != value,
        f"must not be set when {other} is {value}",
        path=f".{name}",
        reason="FieldValueForbidden",
    )


def _distinct(values: list[Any]) -> bool:
    return len(set(values)) == len(values)


UNIQUE = Rule("self.all(x, self.exists_one(y, y == x))", _distinct, "must not contain the same value twice")

_LABEL_KEY = re.compile(LABEL_KEY_PATTERN[1:-1])
LABEL_KEYS = Rule(
    f"self.all(k, size(k) <= 317 && k.matches('{LABEL_KEY_PATTERN}'))",
    lambda self: all(len(key) <= 317 and _LABEL_KEY.fullmatch(key) for key in self),
    "keys must be letters, digits, '-', '_' and '.', at most 63, after an optional DNS name and '/'",
)

IP = Rule("isIP(self)", addresses.is_ip, "must be an IPv4 or IPv6 address, such as 10.0.0.1 or fd00::1")
IPV4 = Rule("isIP(self) && ip(self).family() == 4", addresses.is_ipv4, "must be an IPv4 address, such as 10.0.0.1")
CIDR = Rule(
    "isCIDR(self) && cidr(self) == cidr(self).masked()",
    addresses.is_block,
    "must be an address block with no host bits set, such as 10.0.0.0/24 or fd00::/64",
)
INTERFACE = Rule(
    "isCIDR(self)", addresses.is_cidr, "must be an address with a prefix length, such as 10.0.0.1/24 or fd00::1/64"
)
IP_OR_CIDR = Rule(
    "isIP(self) || (isCIDR(self) && cidr(self) == cidr(self).masked())",
    lambda self: addresses.is_ip(self) or addresses.is_block(self),
    "must be an address or an address block, such as 10.0.0.1 or 10.0.0.0/24",
)

# CEL cannot compare addresses, but it can compare numbers. IPv6 ranges may be in either order: see `addresses.span`.
_ENDS = ("self.split('-')[0]", "self.split('-')[1]")
_NUMBERS = tuple(" + ".join(f"int({end}.split('.')[{i}]) * {256 ** (3 - i)}" for i in range(4)) for end in _ENDS)
IP_RANGE = Rule(
    f"isIP(self) || (size(self.split('-')) == 2 && isIP({_ENDS[0]}) && isIP({_ENDS[1]})"
    f" && ip({_ENDS[0]}).family() == ip({_ENDS[1]}).family()"
    f" && (ip({_ENDS[0]}).family() == 6 || {_NUMBERS[0]} <= {_NUMBERS[1]}))",
    addresses.is_range,
    "must be an address, or two of one family joined by '-', the smaller one first, such as 10.0.0.1-10.0.0.9",
)

NOT_ZERO = Rule("self.matches('[1-9]')", lambda self: re.search("[1-9]", self) is not None, "must be greater than zero")
NONZERO_MAC = Rule("self != '00:00:00:00:00:00'", lambda self: self != "00:00:00:00:00:00", "must not be all zeros")


def _distinguisher(text: str) -> bool:
    if text == "auto":
        return True
    administrator, _, number = text.rpartition(":")
    if "." in administrator:
        return addresses.is_ipv4(administrator) and int(number) < 2**16
    return int(administrator) < 2**32 and int(number) < (2**32 if int(administrator) < 2**16 else 2**16)


DISTINGUISHER = Rule(
    "self == 'auto' || (self.contains('.')"
    " ? isIP(self.split(':')[0]) && int(self.split(':')[1]) < 65536"
    " : int(self.split(':')[0]) < 4294967296"
    " && int(self.split(':')[1]) < (int(self.split(':')[0]) < 65536 ? 4294967296 : 65536))",
    _distinguisher,
    "must be auto, ASN:NUMBER or IPv4:NUMBER; the number must be below 65536 after an IPv4 address or an ASN of more "
    "than 16 bits",
)
