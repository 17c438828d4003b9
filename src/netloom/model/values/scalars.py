"""Scalar types of fields: names, addresses and quantities, with their constraints.

A constraint is in the field's annotation, made by `meta`, and nowhere else. `schema` reads it and derives validation,
CRDs and OpenAPI from it. Decoding a stored document does not check it again, so objects that a newer version wrote
under looser rules can still be read.
"""

from typing import Annotated

from msgspec import Meta

from netloom.model.schemas import rules


def meta(description: str = "", **schema: object) -> Meta:
    """Return an annotation with the description of a field and the keywords of its schema.

    Keywords are those of OpenAPI v3 (maxLength, pattern, default, …), and these: `must` describes a pattern in words;
    `rules` is a tuple of `Rule`, and `key_rules` the same for a map with keys of this type; `list_type` is "set" for a
    list whose order has no meaning; `list_map_keys` are the fields that identify an item of a list. `default` is
    written into the document when the field is absent; a default of the Python type alone is not.
    """
    return Meta(extra={"description": description, **schema} if description else schema)


def _matching(least: int, most: int, pattern: str, must: str, **schema: object) -> Meta:
    """Return an annotation of a text of `least` to `most` characters that matches a pattern."""
    length = {"minLength": least, "maxLength": most} if least else {"maxLength": most}
    return Meta(extra={**length, "pattern": pattern, "must": must, **schema})


Name = Annotated[
    str,
    _matching(
        1, 63, rules.LABEL_PATTERN, "be lower case letters, digits and '-', and start and end with a letter or digit"
    ),
]
"""A DNS-1123 label."""

ObjectName = Annotated[
    str,
    _matching(
        1,
        253,
        rules.SUBDOMAIN_PATTERN,
        "be a name: lower case letters, digits, '-' and '.', starting and ending with a letter or digit",
    ),
]
"""A DNS-1123 subdomain: the name of another object."""

LabelKey = Annotated[
    str,
    _matching(
        1,
        317,
        rules.LABEL_KEY_PATTERN,
        "be a label key: letters, digits, '-', '_' and '.', at most 63, after an optional DNS name and '/'",
        key_rules=(rules.LABEL_KEYS,),
    ),
]
LabelValue = Annotated[
    str,
    _matching(
        0,
        63,
        rules.LABEL_VALUE_PATTERN,
        "be letters, digits, '-', '_' and '.', and start and end with a letter or digit",
    ),
]

Ip = Annotated[str, meta(maxLength=45, rules=(rules.IP,))]
"""An IPv4 or IPv6 address."""

Ipv4 = Annotated[str, meta(maxLength=15, rules=(rules.IPV4,))]

Cidr = Annotated[str, meta(maxLength=49, rules=(rules.CIDR,))]
"""An address block: no host bits are set."""

Interface = Annotated[str, meta(maxLength=49, rules=(rules.INTERFACE,))]
"""An address with a prefix length, such as `10.0.0.1/24`."""

IpOrCidr = Annotated[str, meta(maxLength=49, rules=(rules.IP_OR_CIDR,))]

IpRange = Annotated[str, meta(maxLength=91, rules=(rules.IP_RANGE,))]
"""One address, or two joined by `-`."""

Mac = Annotated[
    str,
    _matching(
        17,
        17,
        rules.MAC_PATTERN,
        "be a unicast MAC address, such as 02:00:00:00:00:09: the second digit is even",
        rules=(rules.NONZERO_MAC,),
    ),
]
"""A unicast MAC address, six pairs of hexadecimal digits joined by colons."""

Vni = Annotated[int, meta(format="int64", minimum=1, maximum=2**24 - 1)]
Mtu = Annotated[int, meta(format="int32", minimum=576, maximum=65535)]
Vlan = Annotated[int, meta(format="int32", minimum=1, maximum=4094)]
Port = Annotated[int, meta(format="int32", minimum=1, maximum=65535)]
Asn = Annotated[int, meta(format="int64", minimum=1, maximum=2**32 - 1)]
Count = Annotated[int, meta(format="int64", minimum=0, maximum=2**53 - 1)]
Int32 = Annotated[int, meta(format="int32", minimum=-(2**31), maximum=2**31 - 1)]
Seconds = Annotated[int, meta(format="int32", minimum=0, maximum=2**31 - 1)]

Rate = Annotated[
    str,
    _matching(
        4,
        24,
        rules.RATE_PATTERN,
        "be a rate: a number and bit, kbit, mbit, gbit or tbit (1000s) or kibit, mibit, gibit or tibit (1024s), "
        "such as 10mbit",
        rules=(rules.NOT_ZERO,),
    ),
]
"""Bits per second, in the notation of tc: `10mbit`, `1.5gbit`, `64kibit`."""

Size = Annotated[
    str,
    _matching(
        2, 24, rules.SIZE_PATTERN, "be a size: a number and b, kb, mb or gb, such as 64kb", rules=(rules.NOT_ZERO,)
    ),
]
"""Bytes, in the notation of tc: `64kb`, `1mb`, `1500b`."""

Duration = Annotated[
    str, _matching(2, 24, rules.DURATION_PATTERN, "be a duration: a number and s, ms, us or ns, such as 20ms")
]
"""A duration, in the notation of tc: `20ms`, `1.5s`, `300us`."""

Percentage = Annotated[str, _matching(2, 16, rules.PERCENTAGE_PATTERN, "be a percentage from 0% to 100%, such as 0.5%")]
"""From `0%` to `100%`."""

DeviceName = Annotated[
    str, _matching(1, 15, rules.DEVICE_PATTERN, "be a device name: at most 15 letters, digits, '-', '_' and '.'")
]
"""The name of a network device: at most 15 characters, the limit of the kernel."""

AbsolutePath = Annotated[str, _matching(2, 1024, rules.PATH_PATTERN, "be an absolute path, such as /run/netns/web")]
Argument = Annotated[str, meta(maxLength=1024)]
Text = Annotated[str, meta(maxLength=32768)]
Line = Annotated[str, meta(maxLength=1024)]
Word = Annotated[str, meta(maxLength=256)]
Uid = Annotated[str, meta(minLength=1, maxLength=128)]

Timestamp = Annotated[str, meta(format="date-time", maxLength=64)]
"""A time of RFC 3339, such as `2026-11-15T09:00:00Z`."""

RouteDistinguisher = Annotated[
    str,
    _matching(
        3,
        26,
        rules.DISTINGUISHER_PATTERN,
        "be auto, ASN:NUMBER or IPv4:NUMBER, such as 65000:10",
        rules=(rules.DISTINGUISHER,),
    ),
]
"""`auto`, or ASN:NUMBER, or IPv4:NUMBER; a route target is written the same way."""

RouteTarget = RouteDistinguisher

TopologyName = Annotated[
    str,
    _matching(
        1, 63, rules.TOPOLOGY_NAME_PATTERN, "start with a lower case letter and contain only letters, digits and '-'"
    ),
]
"""A name inside a sandbox's topology."""
