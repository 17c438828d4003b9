"""Refuse a Sandbox whose topology fails the checks of model/topology, with all causes and in the words for files.

Not part of model/schemas/validation.py: an API server of Kubernetes cannot evaluate these checks, and what is in a CRD
is the same for both. A write that leaves the spec as it is passes, so that finalizers of an object that is older than a
check can be removed.
"""

import msgspec

from netloom.errors import Cause
from netloom.front.api.admission.admission import Write
from netloom.model.kinds.sandbox import SandboxSpec
from netloom.model.registry import SANDBOX
from netloom.model.schemas.validation import refuse
from netloom.model.topology import checks
from netloom.store.base import Store


class SandboxTopology:
    """The admission that checks topologies."""

    async def review(self, write: Write, store: Store) -> None:
        """Refuse with every problem of the topology and of the links; warnings are not refused."""
        if write.kind is not SANDBOX or write.new is None or write.subresource:
            return
        if write.old is not None and write.old.document().get("spec") == write.new["spec"]:
            return
        spec = msgspec.convert(write.new["spec"], SandboxSpec)
        causes = [
            Cause(f"spec.topology.{problem.path}", problem.message)
            for problem in checks.check(spec.topology)
            if not problem.is_warning
        ]
        causes += [Cause(f"spec.{one.path}", one.message) for one in checks.check_links(spec.topology, spec.links)]
        if causes:
            refuse(SANDBOX, write.new["metadata"], causes)
