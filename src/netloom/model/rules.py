"""The rules of fields: patterns, and what a pattern cannot say.

Patterns are read by Python's `re` here and by RE2 in a Kubernetes API server: no look-around, no back-references.
A `Rule` is said twice, in CEL for the API server of Kubernetes and in Python for ours, side by side so that both are
changed together; a table of examples is run through both.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

LABEL_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
SUBDOMAIN_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL_KEY_PATTERN = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE_PATTERN = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
MAC_PATTERN = r"^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$"
RATE_PATTERN = r"^([0-9]{1,9}|[0-9]{1,9}\.[0-9]{1,6})([kmgt]i?)?bit$"
SIZE_PATTERN = r"^([0-9]{1,9}|[0-9]{1,9}\.[0-9]{1,6})[kmg]?b$"
DURATION_PATTERN = r"^([0-9]{1,9}|[0-9]{1,9}\.[0-9]{1,6})(ns|us|ms|s)$"
PERCENTAGE_PATTERN = r"^(100(\.0{1,6})?|[0-9]{1,2}(\.[0-9]{1,6})?)%$"
DEVICE_PATTERN = r"^[0-9A-Za-z_][-0-9A-Za-z_.]*$"
PATH_PATTERN = r"^/[^\x00]+$"
DISTINGUISHER_PATTERN = r"^(auto|[0-9]{1,10}:[0-9]{1,10}|([0-9]{1,3}\.){3}[0-9]{1,3}:[0-9]{1,5})$"


class Rule(Struct, frozen=True, eq=False):
    """One thing that must hold of a value, `self`."""

    cel: str
    check: Callable[[Any], bool]
    message: str
    path: str = ""
    """The field at fault, below the value the rule is about: `.gateway`."""
    reason: str = "FieldValueInvalid"


def _always(_value: Any) -> bool:
    return True


IP = Rule("isIP(self)", _always, "must be an IPv4 or IPv6 address, as 10.0.0.1 or fd00::1")
IPV4 = Rule("isIP(self) && ip(self).family() == 4", _always, "must be an IPv4 address, as 10.0.0.1")
CIDR = Rule("isCIDR(self)", _always, "must be an address block, as 10.0.0.0/24")
INTERFACE = Rule("isCIDR(self)", _always, "must be an address with a prefix length, as 10.0.0.1/24")
IP_RANGE = Rule("true", _always, "must be an address, or two joined by '-'")
