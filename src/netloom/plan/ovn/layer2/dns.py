"""DNS: each Network resolves the names of its attachments.  Pure.

A Network has one row of records; each attachment adds one entry to it, so the change of one is small. The name is the
attachment's, in the domain of its Subnet.

Only Networks with a domain have records: on a switch with records OVN lets UDP from port 53 pass every ingress rule (by
its own flow, above all ACLs), and a firewall must not have a hole that was not requested.
"""

from netloom.plan.rows import Member, Ref, Row


def records(namespace: str, network: str) -> Ref:
    """Return which row has a Network's records."""
    return Ref("DNS", f"{namespace}/{network}")


def zone(ref: Ref) -> Row:
    """Return a Network's row; its records are members."""
    return Row(ref.table, ref.key, {})


def record(ref: Ref, name: str, domain: str, ips: str) -> Member:
    """Return an attachment's entry: its name in its domain, and its addresses separated by spaces."""
    return Member(ref, "records", ips, f"{name}.{domain}")
