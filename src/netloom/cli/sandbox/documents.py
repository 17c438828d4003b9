"""The command that prints the documents of the backend `linux`, for hosts that no transport of ours reaches."""

import click
import msgspec

from netloom.cli.sandbox.files import describing
from netloom.cli.tables import clean
from netloom.cli.terminal import print_json
from netloom.errors import BadRequest
from netloom.model.document import Document
from netloom.model.kinds.sandbox import Sandbox
from netloom.model.registry import SANDBOX
from netloom.model.schemas.validation import admit
from netloom.plan.linux.documents import plan_documents


@click.command()
@describing
@click.option(
    "--node",
    "nodes",
    multiple=True,
    required=True,
    metavar="NAME=ADDRESS",
    help="A host to place machines on, and the address that other hosts reach it at. Repeat for each host.",
)
@click.option("--only", default="", metavar="NAME", help="Print the document of this host alone.")
def documents(document: Document, nodes: tuple[str, ...], only: str) -> int:
    """Print what each host must have for a file, on the backend linux.

    The program netloom/drivers/linux/applier.py applies a document: copy both to the host, and run
    `python3 applier.py apply OWNER < DOCUMENT` there as root. Use the owner that this command prints.
    """
    document["spec"]["backend"] = "linux"
    document["metadata"]["namespace"] = "default"
    admit(SANDBOX, document)
    hosts = dict(_host(text) for text in nodes)
    if only and only not in hosts:
        raise BadRequest(f"--only: there is no --node {only}=ADDRESS")
    plan = plan_documents(msgspec.convert(document, Sandbox), hosts)
    for problem in plan.problems:
        click.echo(clean(f"{problem.reason}: {problem.message}"), err=True)
    if not only:
        print_json({"owner": plan.owner, "documents": plan.documents})
    elif only in plan.documents:
        print_json(plan.documents[only])
    else:
        raise BadRequest(f"nothing of the Sandbox is on {only}")
    return 1 if plan.problems else 0


def _host(text: str) -> tuple[str, str]:
    name, found, address = text.partition("=")
    if not name or not found:
        raise BadRequest(f"--node: {text!r} is not NAME=ADDRESS")
    return name, address
