"""The group of the `netloom sandbox` commands."""

import click

from netloom.cli.sandbox.deploy import apply, destroy
from netloom.cli.sandbox.documents import documents
from netloom.cli.sandbox.execute import execute
from netloom.cli.sandbox.fault import fault
from netloom.cli.sandbox.measure import measure
from netloom.cli.sandbox.plan import plan
from netloom.cli.sandbox.show import convert, show, validate
from netloom.cli.sandbox.snapshot import restore, snapshot
from netloom.cli.sandbox.ssh.deploy_ovn import deploy_ovn
from netloom.cli.sandbox.verify import verify_command


@click.group()
def sandbox() -> None:
    """Check, show and deploy cyber-range topology files.

    The content of a file tells its format: topology.yml and containers.yml of CyberRangeCZ; sandbox JSON, dumps of
    KYPODB and SSH configs of KYPO; Sandbox objects. `-` stands for standard input. Commands that act on Sandboxes need
    an API server; verify --plan-only and what works over SSH does not.
    """


for _command in (
    validate,
    convert,
    show,
    documents,
    verify_command,
    plan,
    apply,
    execute,
    measure,
    fault,
    snapshot,
    restore,
    destroy,
    deploy_ovn,
):
    sandbox.add_command(_command)
