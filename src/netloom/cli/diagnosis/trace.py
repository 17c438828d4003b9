"""`netloom trace FROM TO`: the path of a packet, hop by hop, and what drops it.

The exit status is 0 if the packet is delivered, else 1.
"""

import click
import msgspec

from netloom.cli.diagnosis.options import accessing, hinted
from netloom.cli.options import OUTPUT
from netloom.cli.shell_completion import complete_attachments
from netloom.cli.tables import align, clean, safe
from netloom.cli.terminal import paint, print_json
from netloom.client.session import Session
from netloom.diagnose.access import NOT_CONFIGURED, Access
from netloom.diagnose.trace.tracer import Result, Tracer
from netloom.errors import Unreachable


@click.command()
@click.argument("start", metavar="FROM", shell_complete=complete_attachments)
@click.argument("end", metavar="TO", shell_complete=complete_attachments)
@click.option("--tcp", type=click.IntRange(1, 65535), metavar="PORT", help="Trace a TCP packet to this port.")
@click.option("--udp", type=click.IntRange(1, 65535), metavar="PORT", help="Trace a UDP packet to this port.")
@click.option("--icmp", is_flag=True, help="Trace an ICMP echo request (default).")
@click.option("-6", "--ipv6", "v6", is_flag=True, help="Prefer IPv6 if both ends have addresses of both families.")
@click.option("--raw", is_flag=True, help="Print the output of ovn-trace and ofproto/trace.")
@OUTPUT
@accessing
def trace(
    session: Session,
    access: Access,
    start: str,
    end: str,
    tcp: int | None,
    udp: int | None,
    icmp: bool,
    v6: bool,
    raw: bool,
    output: str,
) -> int:
    """Show the path of a packet from one attachment or address to another, and what drops it.

    FROM and TO are attachments, such as alice or other/alice, or IP addresses. No packet is sent.
    """
    if sum((tcp is not None, udp is not None, icmp)) > 1:
        raise click.UsageError("--tcp, --udp and --icmp exclude each other.")
    protocol = "tcp" if tcp else "udp" if udp else "icmp"
    try:
        result = Tracer(session, access).trace(start, end, protocol=protocol, number=tcp or udp or 0, v6=v6)
    except Unreachable as error:
        if error.message.endswith(NOT_CONFIGURED):
            raise Unreachable(f"cannot trace: {hinted(error.message)}") from None
        raise
    raw = raw and bool(result.raw)
    if raw:
        click.echo(safe("\n\n".join(result.raw)))
    if output == "json":
        document = msgspec.structs.asdict(result)
        del document["raw"]
        print_json(document)
    elif not raw:
        click.echo("\n".join(lines(result)))
    return 0 if result.delivered else 1


def lines(result: Result) -> list[str]:
    """Return the path of a packet as lines of text."""
    sent = result.packet
    what = f"{sent.protocol} {sent.number}" if sent.number else "ping"
    pairs = ((result.start, sent.src), (result.end, sent.dst))
    ends = [text if text == ip else f"{text} ({ip})" for text, ip in pairs]
    found = [clean(f"{ends[0]} to {ends[1]}, {what}")]
    found += [clean(f"  note: {sent.remark}")] if sent.remark else []
    found += align([(hop.place, hop.what) for hop in result.hops], indent="  ").splitlines()
    found += [clean(f"  not checked: {hinted(unseen)}") for unseen in result.unseen]
    found.append(paint(clean(result.verdict), "green" if result.delivered else "red", bold=True))
    return found
