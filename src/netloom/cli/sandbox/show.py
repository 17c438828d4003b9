"""The commands that need files only: validate, convert and show."""

import json
from typing import BinaryIO

import click
from msgspec import Struct

from netloom.cli.options import OUTPUT
from netloom.cli.sandbox.files import FILE, describing, read_or_fail, topology_of
from netloom.cli.tables import clean
from netloom.cli.terminal import counted, print_json
from netloom.model import codec
from netloom.model.document import Document
from netloom.model.kinds.sandbox import Topology
from netloom.model.topology import containers, exports, views
from netloom.model.topology.findings import Finding, at, collect
from netloom.model.topology.instance import known_links
from netloom.model.topology.reading import Format, Reading

VIEWS = ("tree", "svg", "mermaid", "dot", "json", "links", "ssh-config", "inventory")


class Report(Struct, frozen=True):
    """What `validate -o json` says of a file."""

    file: str
    format: str
    valid: bool
    findings: tuple[Finding, ...]


@click.command()
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@OUTPUT
def validate(files: tuple[str, ...], output: str) -> int:
    """Check files and print all problems.

    Each problem is a line FILE:LINE:COLUMN: MESSAGE. The exit status is 1 if any file has an error; warnings do not
    count. The hosts of a containers.yml are compared with the topology, if one is given as well.
    """
    readings = [(file, read_or_fail(file)) for file in files]
    topologies = [reading.topology for _, reading in readings if reading.topology is not None]
    reports = [_report(file, reading, topologies) for file, reading in readings]
    if output == "json":
        print_json(reports)
    else:
        for report, (_, reading) in zip(reports, readings, strict=True):
            for finding in report.findings:
                click.echo(clean(f"{report.file}:{finding}"))
            if report.valid:
                click.echo(clean(f"{report.file}: valid {_summary(reading)}"))
    return 0 if all(report.valid for report in reports) else 1


@click.command()
@describing
def convert(document: Document) -> None:
    """Print the Sandbox that a file describes.

    `netloom apply -f -` takes the output.
    """
    click.echo(codec.encode_yaml(document), nl=False)


@click.command()
@click.argument("file", type=FILE)
@click.option("-o", "--output", type=click.Choice(VIEWS), default="tree", show_default=True, help="Output format.")
@click.option(
    "--links",
    "known",
    type=click.File("rb"),
    help="The links.yml of a sandbox that runs: its addresses, for links, ssh-config and inventory.",
)
def show(file: str, output: str, known: BinaryIO | None) -> None:
    """Show the routers, networks and hosts of a file.

    json is what the front end of CyberRangeCZ draws. links, inventory (for Ansible) and ssh-config contain addresses of
    the management network: those of --links, or in the order in which the platform gives them out.
    """
    topology, reading = topology_of(file)
    found = known_links(known.read(codec.SIZE_LIMIT + 1)) if known is not None else {}
    match output:
        case "json":
            text = json.dumps(exports.front_end(topology), indent=4) + "\n"
        case "inventory":
            text = codec.encode_yaml(exports.inventory(topology, known=found))
        case "links":
            text = codec.encode_yaml(exports.links(topology, found))
        case "ssh-config":
            text = exports.ssh_config(topology, found)
        case "tree":
            text = views.tree(topology, reading.links)
        case "svg":
            text = views.svg(topology)
        case "mermaid":
            text = views.mermaid(topology)
        case _:
            text = views.dot(topology)
    click.echo(text, nl=False)


def _report(file: str, reading: Reading, topologies: list[Topology]) -> Report:
    findings = reading.findings
    if reading.containers is not None and len(topologies) == 1:
        wrong = containers.check_hosts(reading.containers, topologies[0])
        findings = collect([*findings, *(at(reading.spot, f".{one.path}", one.message) for one in wrong)])
    return Report(file, reading.format, all(finding.is_warning for finding in findings), findings)


def _summary(reading: Reading) -> str:
    if reading.topology is not None:
        found = reading.topology
        hosts, routers = counted(len(found.hosts), "host"), counted(len(found.routers), "router")
        return f"{reading.format}: {hosts}, {routers}, {counted(len(found.networks), 'network')}"
    if reading.format is Format.SSH_CONFIG:
        return f"{reading.format}: {counted(len(reading.machines), 'machine')}"
    return str(reading.format)
