"""The check before a Sandbox is applied: whether its plan reaches what its topology declares, and nothing else."""

from collections.abc import Mapping

from msgspec import structs

from netloom.cli.sandbox import stored
from netloom.cli.tables import clean
from netloom.errors import BadRequest
from netloom.model.document import Document
from netloom.model.kinds.sandbox import Backend, Sandbox
from netloom.plan.linux.documents import plan_documents
from netloom.plan.linux.reachability import verify_documents
from netloom.plan.sandbox.reachability import Verification, verify


def refuse_leaks(sandbox: Sandbox) -> None:
    """Raise an error with the paths if the plan of a Sandbox does not reach as its topology declares."""
    found = verified_alone(without_faults(sandbox))
    if found is not None and found.differences:
        text = "\n  ".join(map(clean, found.differences[: stored.SHOWN]))
        raise BadRequest(
            f"Sandbox {sandbox.metadata.name} does not reach as declared; --no-verify skips this:\n  {text}"
        )


def verified_alone(sandbox: Sandbox) -> Verification | None:
    """Return what the plan of a Sandbox on its backend reaches, without a server or hosts; None: it has nothing."""
    if sandbox.spec.backend is Backend.LINUX:
        documents = _documents(sandbox)
        return verify_documents(sandbox, documents) if documents else None
    objects = stored.plan_alone(sandbox).objects
    return verify(sandbox, objects) if objects else None


def without_faults(sandbox: Sandbox) -> Sandbox:
    """Return a Sandbox without its deliberate faults, which cut what its topology declares."""
    return structs.replace(sandbox, spec=structs.replace(sandbox.spec, faults=()))


def _documents(sandbox: Sandbox) -> Mapping[str, Document]:
    """Return the documents of a Sandbox on no hosts but those that it names."""
    placement = sandbox.spec.placement
    named = {placement.default, *placement.hosts.values()} if placement is not None else set()
    nodes = sorted({stored.UNKNOWN_NODE, *named} - {""})
    return plan_documents(sandbox, {node: f"198.18.{at // 256}.{at % 256}" for at, node in enumerate(nodes)}).documents
