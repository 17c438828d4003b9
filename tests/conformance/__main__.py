"""Run Kubernetes' end-to-end tests of the network on a lab of two nodes: Netloom alone, without kube-proxy.

    python -m tests.conformance [--focus REGEX] [--workers N] [--data DIR] [--out DIR]

Needs `e2e.test` and `agnhost` (tools/kube/build). Writes reports in JUnit's format and the output of the tests, prints
what did not pass and the counts; the exit status is 0 if all passed.
"""

import argparse
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from netloom.cli.terminal import ended_by_term
from netloom.lab import Lab
from tests.conformance import image, results
from tests.lab import labs
from tests.support.kube import CURRENT, kube_cache

SECONDS = 3600


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suite; return 0 if every test passed that is not excluded."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--focus", default="", metavar="REGEX", help="Only the tests whose names match.")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="Tests that run beside each other.")
    parser.add_argument("--data", type=Path, metavar="DIR", help="Use this lab, which is up and has the images.")
    parser.add_argument("--out", type=Path, default=Path("build/conformance"), metavar="DIR", help="For the reports.")
    given = parser.parse_args(argv)
    e2e = kube_cache() / f"v{CURRENT}" / "e2e.test"
    names = [name for name in results.selected(_output(e2e, "--list-tests")) if re.search(given.focus, name)]
    if not names:
        parser.error(f"no test matches {given.focus!r}")
    excluded = results.exclusions(names, sctp=_has_sctp())
    run = [name for name in names if name not in excluded]
    given.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, results.Outcome] = {}
    with ended_by_term(), _lab(given.data, e2e) as lab:
        *beside, alone = results.portions(run, given.workers)
        for portions in (beside, [alone]):
            found |= _run(e2e, lab, portions, given.out.resolve())
    text = results.summary(names, found, excluded)
    (given.out / "summary.txt").write_text(f"{text}\n")
    sys.stdout.write(f"{text}\n")
    return 0 if results.has_passed(run, found) else 1


@contextmanager
def _lab(data: Path | None, e2e: Path) -> Iterator[Lab]:
    """Give a lab with the images."""
    if data is not None:
        yield Lab(data)
        return
    with labs.running(nodes=2, kube=CURRENT) as lab:
        archive = lab.layout.folder / "images.tar"
        archive.write_bytes(image.make(e2e.with_name("agnhost"), _output(e2e, "--list-images").split()))
        for node in lab.nodes:
            lab.exec(node, ["ctr", "images", "import", str(archive)], timeout=600)
        yield lab


def _run(e2e: Path, lab: Lab, portions: Sequence[list[str]], out: Path) -> dict[str, results.Outcome]:
    """Run portions of the tests, beside each other."""
    found: dict[str, results.Outcome] = {}
    with ExitStack() as stack:
        started = [
            (portion, stack.enter_context(_started(e2e, lab, portion, out / f"{number}")))
            for number, portion in enumerate(filter(None, portions), start=1)
        ]
        for number, (portion, process) in enumerate(started, start=1):
            process.wait()
            report = out / f"{number}" / "junit_01.xml"
            if report.exists():
                found |= results.outcomes(report.read_text(), portion)
    return found


@contextmanager
def _started(e2e: Path, lab: Lab, names: Sequence[str], out: Path) -> "Iterator[subprocess.Popen[bytes]]":
    out.mkdir(parents=True, exist_ok=True)
    (out / "junit_01.xml").unlink(missing_ok=True)
    argv = [
        *(str(e2e), f"--kubeconfig={lab.kubeconfig}", "--provider=skeleton", f"--num-nodes={len(lab.nodes)}"),
        *(f"--report-dir={out}", "--ginkgo.no-color", "--ginkgo.v", f"--ginkgo.timeout={SECONDS}s"),
        f"--ginkgo.focus={results.focus(names)}",
    ]
    with (out / "output").open("wb") as output:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=out, env=lab.environment("")
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _has_sctp() -> bool:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP).close()
    except OSError:
        return False
    return True


def _output(e2e: Path, option: str) -> str:
    if not e2e.exists():
        raise SystemExit(f"{e2e} not found: run `tools/kube/build {CURRENT} e2e.test agnhost`")
    return subprocess.run([e2e, option], capture_output=True, text=True, timeout=120, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
