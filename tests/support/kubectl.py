"""The unmodified kubectl, current and old, run against any kubeconfig.

    answer = kubectl.run("get", "networks", "-o", "wide", kubeconfig=path)
    answer.out, answer.err, answer.rc

The current one comes from `make kube`; the old one is Debian 12's kubernetes-client (1.20), unpacked into the cache by
tools/kubectl-1.20. Neither reads nor writes the user's home: discovery is cached per kubeconfig in a folder
of the tests.
"""

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from netloom.model.registry import GROUP, KINDS
from tests.support.kube import CURRENT, kube_program
from tests.support.process import Program, fail_missing, wait_until


@dataclass(frozen=True, slots=True)
class Answer:
    """The exit status and the output of a kubectl."""

    rc: int
    out: str
    err: str


class Kubectl:
    """One kubectl program."""

    def __init__(self, program: Path, *, scratch: Path) -> None:
        """Run `program`, keeping its caches and logs in `scratch`."""
        self.program = program
        self._scratch = scratch
        self._started = 0

    def run(
        self,
        *args: str | Path,
        kubeconfig: Path,
        stdin: str | None = None,
        check: bool = True,
        timeout: float = 120.0,
        env: dict[str, str] | None = None,
    ) -> Answer:
        """Run it and wait for it.  With `check`, a status other than 0 fails the test with its output."""
        ended = subprocess.run(
            [str(self.program), *(str(arg) for arg in args)],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=self._environment(kubeconfig) | (env or {}),
            check=False,
        )
        answer = Answer(ended.returncode, ended.stdout, ended.stderr)
        if check and answer.rc != 0:
            words = " ".join(str(arg) for arg in args)
            raise AssertionError(f"kubectl {words} failed with status {answer.rc}\n{answer.out}\n{answer.err}")
        return answer

    def until_known(self, *, kubeconfig: Path) -> None:
        """Return when it knows all of our kinds.

        It caches a server's resources, and refreshes the cache for an unknown name, but not for an unknown short name.
        And a server has a new kind some time before discovery shows it.
        """
        ours = {kind.qualified for kind in KINDS if kind.group == GROUP}
        words = ("api-resources", f"--api-group={GROUP}", "-o", "name")
        wait_until(
            lambda: ours <= set(self.run(*words, kubeconfig=kubeconfig, check=False).out.split()), what="all kinds"
        )

    @contextlib.contextmanager
    def running(self, *args: str | Path, kubeconfig: Path) -> Iterator[Program]:
        """Run it in the background, as for `get -w`, and stop it afterwards; see `Program.wait_for`."""
        self._started += 1
        stem = self._scratch / f"kubectl-{os.getpid()}-{self._started}"
        with Program(
            [self.program, *args],
            log=stem.with_suffix(".err"),
            out=stem.with_suffix(".out"),
            env=self._environment(kubeconfig),
        ) as program:
            yield program

    def _environment(self, kubeconfig: Path) -> dict[str, str]:
        # The discovery cache is keyed by host and port only, and ports come round again: one home per kubeconfig.
        name = hashlib.sha256(str(kubeconfig).encode() + kubeconfig.read_bytes()).hexdigest()[:16]
        home = self._scratch / f"home-{name}"
        home.mkdir(exist_ok=True)
        return {"HOME": str(home), "KUBECONFIG": str(kubeconfig), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


def current_kubectl(scratch: Path) -> Kubectl:
    """Return the kubectl of the current Kubernetes."""
    return Kubectl(kube_program("kubectl", CURRENT), scratch=scratch)


def old_kubectl(scratch: Path) -> Kubectl:
    """Return Debian 12's kubectl 1.20."""
    caches = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    program = Path(caches, "netloom", "kubectl-1.20", "usr", "bin", "kubectl")
    if not os.access(program, os.X_OK):
        fail_missing(f"kubectl 1.20 ({program})", "tools/kubectl-1.20")
    return Kubectl(program, scratch=scratch)
