"""Names: each Network answers for the names of its attachments.  Pure.

A Network has one row of records; an attachment adds one entry to it, so a change of one is a small change. The name is
the attachment's, in the domain that its Subnet tells machines.

Only where a Subnet has a domain: on a switch with records OVN lets UDP from port 53 pass every rule about what comes in
(its own flow, above all ACLs), and a firewall must not have a hole that nobody asked for.
"""

from netloom.plan.rows import Member, Ref, Row


def records(namespace: str, network: str) -> Ref:
    """Return which row holds a Network's records."""
    return Ref("DNS", f"{namespace}/{network}")


def zone(ref: Ref) -> Row:
    """Return a Network's row; its records are members."""
    return Row(ref.table, ref.key, {})


def record(ref: Ref, name: str, domain: str, ips: str) -> Member:
    """Return an attachment's entry: its name in its domain, and its addresses parted by spaces."""
    return Member(ref, "records", ips, f"{name}.{domain}")
