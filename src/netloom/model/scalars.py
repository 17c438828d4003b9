"""The words fields are made of: names, addresses, quantities, each with what may be written in it.

A constraint stands in the field's annotation, put there by `says`, and nowhere else. It is data for `schema`, from which
validation, CRDs and OpenAPI are made; decoding a stored document does not look at it again. So what a newer version
wrote under looser rules can still be read.
"""

from typing import Annotated, Any

from msgspec import Meta

from netloom.model import rules


def says(description: str = "", **schema: Any) -> Meta:
    """Return an annotation: what a field is for, and what its JSON schema says besides its type.

    Keywords are those of OpenAPI v3 (maxLength, pattern, default, …), and `rules`, a tuple of `rules.Rule`. `default` is
    written into the document when the field is absent; a default of the Python type alone is not.
    """
    return Meta(description=description or None, extra_json_schema=schema or None)


Name = Annotated[str, says(minLength=1, maxLength=63, pattern=rules.LABEL_PATTERN)]
"""A DNS-1123 label: what namespaces and most objects are called."""

ObjectName = Annotated[str, says(minLength=1, maxLength=253, pattern=rules.SUBDOMAIN_PATTERN)]
"""A DNS-1123 subdomain: the name of another object."""

LabelKey = Annotated[str, says(minLength=1, maxLength=317, pattern=rules.LABEL_KEY_PATTERN)]
LabelValue = Annotated[str, says(maxLength=63, pattern=rules.LABEL_VALUE_PATTERN)]

Ip = Annotated[str, says(minLength=2, maxLength=45, rules=(rules.IP,))]
"""An IPv4 or IPv6 address in its usual notation."""

Ipv4 = Annotated[str, says(minLength=7, maxLength=15, rules=(rules.IPV4,))]

Cidr = Annotated[str, says(minLength=4, maxLength=49, rules=(rules.CIDR,))]
"""An address block: no bits are set behind the prefix."""

Interface = Annotated[str, says(minLength=4, maxLength=49, rules=(rules.INTERFACE,))]
"""An address with the length of its subnet's prefix, as `10.0.0.1/24`."""

IpRange = Annotated[str, says(minLength=2, maxLength=91, rules=(rules.IP_RANGE,))]
"""One address, or two joined by `-`."""

Mac = Annotated[str, says(minLength=17, maxLength=17, pattern=rules.MAC_PATTERN)]
"""A unicast MAC address, six pairs of hexadecimal digits joined by colons."""

Vni = Annotated[int, says(format="int64", minimum=1, maximum=2**24 - 1)]
Mtu = Annotated[int, says(format="int32", minimum=576, maximum=65535)]
Vlan = Annotated[int, says(format="int32", minimum=1, maximum=4094)]
Port = Annotated[int, says(format="int32", minimum=1, maximum=65535)]
Asn = Annotated[int, says(format="int64", minimum=1, maximum=2**32 - 1)]
Count = Annotated[int, says(format="int64", minimum=0, maximum=2**53 - 1)]
Seconds = Annotated[int, says(format="int32", minimum=0, maximum=2**31 - 1)]

Rate = Annotated[str, says(minLength=1, maxLength=32, pattern=rules.RATE_PATTERN)]
"""Bits in a second, as tc writes it: `10mbit`, `1.5gbit`, `64kibit`."""

Size = Annotated[str, says(minLength=1, maxLength=32, pattern=rules.SIZE_PATTERN)]
"""Bytes, as tc writes it: `64kb`, `1mb`, `1500b`."""

Duration = Annotated[str, says(minLength=1, maxLength=32, pattern=rules.DURATION_PATTERN)]
"""A time, as tc writes it: `20ms`, `1.5s`, `300us`."""

Percentage = Annotated[str, says(minLength=2, maxLength=16, pattern=rules.PERCENTAGE_PATTERN)]
"""From `0%` to `100%`."""

DeviceName = Annotated[str, says(minLength=1, maxLength=15, pattern=rules.DEVICE_PATTERN)]
"""The name of a network device: at most 15 characters, as the kernel has it."""

AbsolutePath = Annotated[str, says(minLength=2, maxLength=4096, pattern=rules.PATH_PATTERN)]
Argument = Annotated[str, says(maxLength=4096)]
Text = Annotated[str, says(maxLength=32768)]
Line = Annotated[str, says(maxLength=1024)]
Uid = Annotated[str, says(minLength=1, maxLength=128)]

Timestamp = Annotated[str, says(format="date-time", maxLength=64)]
"""A time in RFC 3339, as `2026-11-15T09:00:00Z`."""

RouteDistinguisher = Annotated[str, says(minLength=3, maxLength=26, pattern=rules.DISTINGUISHER_PATTERN)]
"""`auto`, or ASN:NUMBER, or IPv4:NUMBER."""

RouteTarget = RouteDistinguisher
