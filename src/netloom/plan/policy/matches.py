"""Match expressions, as OVN's ACLs, QoS rules and router policies have them.  Pure.

OVN translates an expression to OpenFlow, and its form decides how many flows that takes. A "!=" on an address becomes a
flow for each bit, and several of them multiply. So a block with exceptions is written as the blocks that remain, which
are few and only add up. Alternatives for one field are one set, which OVN combines with the other fields without
multiplying (a conjunctive match).
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, collapse_addresses
from typing import cast

from netloom.model.kinds.policy import PortRange, RuleProtocol
from netloom.model.values import addresses
from netloom.model.values.addresses import Block


def left(cidr: str, exceptions: Iterable[str]) -> list[str]:
    """Return the blocks that remain of one without some exceptions, in order; [] if nothing remains."""
    remaining: list[Block] = [addresses.block(cidr)]
    for exception in exceptions:
        hole = addresses.block(exception)
        remaining = [part for one in remaining for part in _cut(one, hole)]
    return [str(one) for one in sorted(remaining, key=lambda one: int(one.network_address))]


def _cut(one: Block, hole: Block) -> Iterable[Block]:
    if one.version != hole.version:
        return (one,)  # An exception of another family excludes nothing.
    same, other = cast("tuple[IPv4Network, IPv4Network]", (one, hole))
    if same.subnet_of(other):
        return ()
    return same.address_exclude(other) if other.subnet_of(same) else (one,)


def merged(blocks: Iterable[str]) -> list[str]:
    """Return the fewest blocks with the same addresses as some blocks of one family, in order."""
    found = [addresses.interface(one).network for one in blocks]
    v4 = collapse_addresses(one for one in found if isinstance(one, IPv4Network))
    v6 = collapse_addresses(one for one in found if isinstance(one, IPv6Network))
    return [str(one) for one in (*v4, *v6)]


def either(alternatives: Sequence[str]) -> str:
    """Return an expression for "one of these holds" that can be an operand of `&&`."""
    return alternatives[0] if len(alternatives) == 1 else f"({' || '.join(alternatives)})"


def one_of(name: str, values: Sequence[str]) -> str:
    """Return an expression for "the field has one of these values", each a constant or `$SET`."""
    return f"{name} == {values[0]}" if len(values) == 1 else f"{name} == {{{', '.join(values)}}}"


def addressed(version: int, end: str, values: Sequence[str]) -> str:
    """Return an expression for "the source or destination (`src`, `dst`) is in these blocks" of one family."""
    if any(value.endswith("/0") for value in values):
        return f"ip{version}"
    return one_of(f"ip{version}.{end}", values)


def carried(ports: Sequence[PortRange], version: int | None = None) -> str:
    """Return an expression for "the packet is for one of these ports", of which there is at least one."""
    terms = []
    for protocol in RuleProtocol:
        chosen = [one for one in ports if one.protocol is protocol]
        if not chosen:
            continue
        if protocol is RuleProtocol.ICMP:
            terms.append(f"icmp{version}" if version else "icmp")
        elif any(one.port is None for one in chosen):
            terms.append(str(protocol))
        else:
            terms += _ranges(f"{protocol}.dst", chosen)
    return either(terms)


def _ranges(name: str, ports: Sequence[PortRange]) -> list[str]:
    """Return expressions for "the field is in one of these ranges"."""
    found = spans(ports)
    singles = [str(first) for first, last in found if first == last]
    wide = [f"{first} <= {name} <= {last}" for first, last in found if first != last]
    return ([one_of(name, singles)] if singles else []) + wide


def spans(ports: Iterable[PortRange]) -> list[tuple[int, int]]:
    """Return the first and last ports of ranges, with adjacent and overlapping ranges merged."""
    found: list[tuple[int, int]] = []
    for first, last in sorted((one.port or 0, one.end_port or one.port or 0) for one in ports):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found
