"""`netloom sandbox verify --over-ssh`: the plan, the documents on the hosts, and pings from there."""

from collections.abc import Callable, Collection

import msgspec
from msgspec import structs

from netloom.cli.sandbox.containment import without_faults
from netloom.cli.sandbox.probing import Pair
from netloom.cli.sandbox.ssh.deploying import Deployed
from netloom.cli.sandbox.ssh.hosts import Task, task
from netloom.drivers.linux import applier
from netloom.drivers.remote.hosts import Job
from netloom.drivers.remote.protocol import Result
from netloom.errors import BadRequest, NotFound
from netloom.model.document import Document
from netloom.plan.linux.placements import spaces
from netloom.plan.linux.reachability import verify_documents
from netloom.plan.sandbox.reachability import Verification, cut_pairs

PROBER = "netloom.drivers.linux.prober"
MARGIN = 60.0
"""Seconds for connections, besides those of the rounds."""


class LivingSandbox:
    """A Sandbox on hosts, as their documents are."""

    def __init__(self, found: Deployed) -> None:
        self.found = found
        self.documents = _documents(found)
        if not self.documents and not found.failed:
            name = found.sandbox.metadata.name
            raise NotFound(f"Sandbox {name} is on none of the hosts: apply it; --plan-only verifies a file alone")
        machines = spaces(found.sandbox)
        hosts = {one.name for one in found.sandbox.spec.topology.hosts}
        self.here: dict[str, str] = {}
        """The network namespace of each host of the topology that is somewhere."""
        self.where: dict[str, str] = {}
        """The host of the SSH config that has it, by namespace."""
        for node, document in sorted(self.documents.items()):
            for one in document["members"]:
                machine = machines.get(one["namespace"], "")
                if machine in hosts:
                    self.here.setdefault(machine, one["namespace"])
                    self.where.setdefault(one["namespace"], found.hosts.names[node])
        self.failed = dict(found.failed)

    def verifications(self) -> tuple[Verification, Verification]:
        """Return what the plan reaches, and what the documents on the hosts reach."""
        found = self.found
        plan = found.plan()
        if plan.problems:
            text = "\n  ".join(f"{one.reason}: {one.message}" for one in plan.problems)
            raise BadRequest(f"the Sandbox cannot be deployed as it is written:\n  {text}")
        planned = verify_documents(found.sandbox, plan.documents)
        cut: frozenset[tuple[str, str]] = frozenset()
        if found.sandbox.spec.faults:
            healthy = structs.replace(found, sandbox=without_faults(found.sandbox))
            whole = verify_documents(healthy.sandbox, healthy.plan().documents)
            cut = cut_pairs(whole, planned)
            planned = verify_documents(found.sandbox, plan.documents, cut=cut)
        return planned, verify_documents(found.sandbox, self.documents, cut=cut)

    def ask(self, pairs: Collection[Pair], rounds: int, on_answer: Callable[[int], object]) -> set[Pair]:
        """Return the pairs that answer a ping within some rounds of a second each."""
        by_host: dict[str, list[Pair]] = {}
        for pair in pairs:
            by_host.setdefault(self.where[pair.netns], []).append(pair)
        prober = task(PROBER, self.found.task.owner, self.found.task.reach, max(1, len(by_host)))
        jobs = {
            host: Job("ping", msgspec.json.encode({"pairs": [list(pair) for pair in mine], "rounds": rounds}))
            for host, mine in by_host.items()
        }
        found = {pair for host, result in self._results(prober, jobs).items() for pair in _taken(by_host[host], result)}
        on_answer(len(found))
        return found

    def _results(self, prober: Task, jobs: dict[str, Job]) -> dict[str, Result]:
        results = prober.do(jobs)
        self.failed |= {host: one for host, one in results.items() if one.error}
        return {host: one for host, one in results.items() if not one.error}


def _taken(pairs: list[Pair], result: Result) -> list[Pair]:
    """Return the pairs that a host says have answered."""
    try:
        digits = msgspec.json.decode(b"" if result.shown is None else bytes(result.shown.document), type=str)
        number, width = int(f"0{digits}", 16), 4 * len(digits)
    except (msgspec.DecodeError, ValueError):
        return []
    return [pair for at, pair in enumerate(pairs) if at < width and number >> (width - 1 - at) & 1]


def _documents(found: Deployed) -> dict[str, Document]:
    """Return the documents that hosts say they have, by node; what is not a document is none."""
    every: dict[str, Document] = {}
    for node, name in found.hosts.names.items():
        said = found.shown.get(name)
        if said is None or said.error or said.shown is None or bytes(said.shown.document) in (b"", b"null"):
            continue
        try:
            every[node] = applier.parse(bytes(said.shown.document))
        except applier.Failure:
            found.failed[name] = Result(error="what it says that it has is not a document of this version: apply again")
    return every
