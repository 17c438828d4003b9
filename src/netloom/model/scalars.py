"""The words fields are made of: names, addresses, quantities, each with what may be written in it.

A constraint stands in the field's annotation, put there by `says`, and nowhere else. It is data for `schema`, from
which validation, CRDs and OpenAPI are made; decoding a stored document does not look at it again. So what a newer
version wrote under looser rules can still be read.
"""

from typing import Annotated

from msgspec import Meta

from netloom.model import rules


def says(description: str = "", **schema: object) -> Meta:
    """Return an annotation: what a field is for, and what its JSON schema says besides its type.

    Keywords are those of OpenAPI v3 (maxLength, pattern, default, …), and these: `must` says in words what a pattern
    asks for; `rules` is a tuple of `Rule`, and `key_rules` the same, for a map whose keys are of this type; `list_type`
    is set where a list's order means nothing, `list_map_keys` what tells a list's items apart. `default` is written
    into the document when the field is absent; a default of the Python type alone is not.
    """
    return Meta(extra={"description": description, **schema} if description else schema)


Name = Annotated[
    str,
    says(
        minLength=1,
        maxLength=63,
        pattern=rules.LABEL_PATTERN,
        must="be lower case letters, digits and '-', and start and end with a letter or digit",
    ),
]
"""A DNS-1123 label."""

ObjectName = Annotated[
    str,
    says(
        minLength=1,
        maxLength=253,
        pattern=rules.SUBDOMAIN_PATTERN,
        must="be a name: lower case letters, digits, '-' and '.', starting and ending with a letter or digit",
    ),
]
"""A DNS-1123 subdomain: the name of another object."""

LabelKey = Annotated[
    str,
    says(
        minLength=1,
        maxLength=317,
        pattern=rules.LABEL_KEY_PATTERN,
        must="be a label key: letters, digits, '-', '_' and '.', at most 63, after an optional DNS name and '/'",
        key_rules=(rules.LABEL_KEYS,),
    ),
]
LabelValue = Annotated[
    str,
    says(
        maxLength=63,
        pattern=rules.LABEL_VALUE_PATTERN,
        must="be letters, digits, '-', '_' and '.', and start and end with a letter or digit",
    ),
]

Ip = Annotated[str, says(maxLength=45, rules=(rules.IP,))]
"""An IPv4 or IPv6 address in its usual notation."""

Ipv4 = Annotated[str, says(maxLength=15, rules=(rules.IPV4,))]

Cidr = Annotated[str, says(maxLength=49, rules=(rules.CIDR,))]
"""An address block: no bits are set behind the prefix."""

Interface = Annotated[str, says(maxLength=49, rules=(rules.INTERFACE,))]
"""An address with the length of its subnet's prefix, as `10.0.0.1/24`."""

IpOrCidr = Annotated[str, says(maxLength=49, rules=(rules.IP_OR_CIDR,))]

IpRange = Annotated[str, says(maxLength=91, rules=(rules.IP_RANGE,))]
"""One address, or two joined by `-`."""

Mac = Annotated[
    str,
    says(
        minLength=17,
        maxLength=17,
        pattern=rules.MAC_PATTERN,
        must="be a unicast MAC address, such as 02:00:00:00:00:09: the second digit is even",
        rules=(rules.NONZERO_MAC,),
    ),
]
"""A unicast MAC address, six pairs of hexadecimal digits joined by colons."""

Vni = Annotated[int, says(format="int64", minimum=1, maximum=2**24 - 1)]
Mtu = Annotated[int, says(format="int32", minimum=576, maximum=65535)]
Vlan = Annotated[int, says(format="int32", minimum=1, maximum=4094)]
Port = Annotated[int, says(format="int32", minimum=1, maximum=65535)]
Asn = Annotated[int, says(format="int64", minimum=1, maximum=2**32 - 1)]
Count = Annotated[int, says(format="int64", minimum=0, maximum=2**53 - 1)]
Int32 = Annotated[int, says(format="int32", minimum=-(2**31), maximum=2**31 - 1)]
Seconds = Annotated[int, says(format="int32", minimum=0, maximum=2**31 - 1)]

Rate = Annotated[
    str,
    says(
        minLength=4,
        maxLength=24,
        pattern=rules.RATE_PATTERN,
        must="be a rate: a number and bit, kbit, mbit, gbit or tbit (1000s) or kibit, mibit, gibit or tibit (1024s), "
        "such as 10mbit",
        rules=(rules.NOT_ZERO,),
    ),
]
"""Bits in a second, as tc writes it: `10mbit`, `1.5gbit`, `64kibit`."""

Size = Annotated[
    str,
    says(
        minLength=2,
        maxLength=24,
        pattern=rules.SIZE_PATTERN,
        must="be a size: a number and b, kb, mb or gb, such as 64kb",
        rules=(rules.NOT_ZERO,),
    ),
]
"""Bytes, as tc writes it: `64kb`, `1mb`, `1500b`."""

Duration = Annotated[
    str,
    says(
        minLength=2,
        maxLength=24,
        pattern=rules.DURATION_PATTERN,
        must="be a time: a number and s, ms, us or ns, such as 20ms",
    ),
]
"""A time, as tc writes it: `20ms`, `1.5s`, `300us`."""

Percentage = Annotated[
    str,
    says(
        minLength=2,
        maxLength=16,
        pattern=rules.PERCENTAGE_PATTERN,
        must="be a share from 0% to 100%, such as 0.5%",
    ),
]
"""From `0%` to `100%`."""

DeviceName = Annotated[
    str,
    says(
        minLength=1,
        maxLength=15,
        pattern=rules.DEVICE_PATTERN,
        must="be a device's name: at most 15 letters, digits, '-', '_' and '.'",
    ),
]
"""The name of a network device: at most 15 characters, as the kernel has it."""

AbsolutePath = Annotated[
    str,
    says(minLength=2, maxLength=1024, pattern=rules.PATH_PATTERN, must="be an absolute path, such as /run/netns/web"),
]
Argument = Annotated[str, says(maxLength=1024)]
Text = Annotated[str, says(maxLength=32768)]
Line = Annotated[str, says(maxLength=1024)]
Word = Annotated[str, says(maxLength=256)]
Uid = Annotated[str, says(minLength=1, maxLength=128)]

Timestamp = Annotated[str, says(format="date-time", maxLength=64)]
"""A time in RFC 3339, as `2026-11-15T09:00:00Z`."""

RouteDistinguisher = Annotated[
    str,
    says(
        minLength=3,
        maxLength=26,
        pattern=rules.DISTINGUISHER_PATTERN,
        must="be auto, ASN:NUMBER or IPv4:NUMBER, such as 65000:10",
        rules=(rules.DISTINGUISHER,),
    ),
]
"""`auto`, or ASN:NUMBER, or IPv4:NUMBER; a route target is written the same way."""

RouteTarget = RouteDistinguisher

TopologyName = Annotated[
    str,
    says(
        minLength=1,
        maxLength=63,
        pattern=rules.TOPOLOGY_NAME_PATTERN,
        must="start with a lower case letter and be letters, digits and '-'",
    ),
]
"""A name inside a sandbox's topology."""
