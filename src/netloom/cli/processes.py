"""`netloom serve`, `apiserver`, `controller` and `agent`: flags in, a process of run/ out."""

import click

from netloom.cli.settings import effective, flags
from netloom.run.config import AgentSettings, ApiserverSettings, ControllerSettings, ServeSettings


@click.command()
@flags(ServeSettings)
def serve(**given: object) -> int:
    """Run the whole control plane in one process.

    The first start makes the data directory with a CA, certificates, an admin token and admin.kubeconfig.
    """
    from netloom.run import serve as process  # the server and all it needs: only when it runs

    return process.main(effective(ServeSettings, given)[0])


@click.command()
@flags(ApiserverSettings)
def apiserver(**given: object) -> int:
    """Run the API alone, over sqlite or etcd."""
    from netloom.run import apiserver as process  # as above

    return process.main(effective(ApiserverSettings, given)[0])


@click.command()
@flags(ControllerSettings)
def controller(**given: object) -> int:
    """Run the controllers alone; of several, one leads."""
    from netloom.run import controller as process  # as above

    root = click.get_current_context().find_root().obj or {}
    given["kubeconfig"] = given.get("kubeconfig") or root.get("kubeconfig")
    given["context"] = given.get("context") or root.get("context_name")
    return process.main(effective(ControllerSettings, given)[0])


@click.command()
@flags(AgentSettings)
def agent(**given: object) -> int:
    """Run a node's agent: plug the attachments of this node.

    In the node's network namespace, as root. Reads what the node's credential may read, and changes nothing that is not
    its own; --prepare makes a bare Open vSwitch ready for OVN first.
    """
    from netloom.run import agent as process  # as above

    root = click.get_current_context().find_root().obj or {}
    given["kubeconfig"] = given.get("kubeconfig") or root.get("kubeconfig")
    given["context"] = given.get("context") or root.get("context_name")
    return process.main(effective(AgentSettings, given)[0])
