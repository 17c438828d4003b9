"""Programs are run, watched, and ended with all they started.

Every program here ends by itself within 20 seconds, and is at most 14 processes at a time, whatever a test does.
"""

import ast
import asyncio
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.drivers.programs.programs import OUTPUT, Ended, Programs
from netloom.drivers.programs.runner import Kept
from netloom.plan.node.hooks import CROWDED, INTERRUPTED, NOT_STARTED, OVERDUE
from tests.support.process import Program, wait_until

PATIENT = 30.0
FORKING = [sys.executable, "-S", str(Path(__file__).with_name("forking.py"))]
LOOKING = """
import os, sys
open_ = [file for file in range(256) if os.path.exists(f"/proc/self/fd/{file}")]
print({"environment": dict(os.environ), "session": os.getsid(0), "input": sys.stdin.read(), "directory": os.getcwd(),
       "files": open_})
"""
FAMILY = 4
"""How many processes that one begins, of which one goes."""


def run(*command: str, timeout: float = PATIENT) -> Ended:
    return asyncio.run(Programs(timeout=timeout).run(command))


def alive(pids: Path) -> list[int]:
    """Return those of the processes that wrote their number down that still run."""
    written = {int(line) for line in pids.read_text().split()}
    assert written
    return [pid for pid in written if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_exit_status_and_outputs_are_told_and_arguments_are_passed_as_they_are() -> None:
    odd = ["", "a b", "$HOME", "`id`", "*", "-n", "\n", "é"]
    ended = run(
        sys.executable, "-c", "import sys; print(sys.argv[1:]); print('oh', file=sys.stderr); sys.exit(7)", *odd
    )
    assert ended == Ended(exit_status=7, stdout=f"{odd}\n", stderr="oh\n")


def test_a_program_gets_a_short_environment_nothing_to_read_and_no_file_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    with open(os.devnull) as inherited:
        os.set_inheritable(inherited.fileno(), True)
        ended = run(sys.executable, "-IS", "-c", LOOKING)
    seen = ast.literal_eval(ended.stdout)
    assert seen.pop("environment").keys() == {"PATH", "LANG", "HOME"}
    assert seen.pop("session") != os.getsid(0)
    assert seen == {"input": "", "directory": "/", "files": [0, 1, 2]}
    assert (ended.exit_status, ended.stderr) == (0, "")


def test_a_program_that_a_signal_ended_has_the_status_a_shell_gives_it() -> None:
    assert run("/bin/sh", "-c", "kill -9 $$").exit_status == 128 + 9


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["/nowhere/at-all"], "No such file or directory"),
        (["/usr"], "Permission denied"),
        (["/bin/echo", "a\0b"], "embedded null byte"),
        (["/bin/echo", "x" * 200_000], "Argument list too long"),
    ],
)
def test_what_cannot_be_run_says_why(command: Sequence[str], why: str) -> None:
    assert run(*command) == Ended(exit_status=NOT_STARTED, stderr=f"[could not be started: {why}]")


def test_an_overdue_program_is_ended_with_all_that_it_started_whatever_they_do_against_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    ended = run(*FORKING, "family", str(pids), timeout=1.0)
    assert (ended.exit_status, ended.stdout) == (OVERDUE, "begun\n")
    assert ended.stderr == "[ended after 1 s: see --exec-timeout]"
    assert len(pids.read_text().split()) == FAMILY
    assert alive(pids) == []


@pytest.mark.parametrize("way", ["chain", "respawn"])
def test_a_program_that_keeps_on_forking_is_ended_with_all_that_it_forked(way: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    ended = run(*FORKING, way, str(pids), timeout=0.5)
    assert (ended.exit_status, ended.stdout) == (OVERDUE, "")
    assert ended.stderr == "[ended after 0.5 s: see --exec-timeout]"
    assert len(pids.read_text().split()) >= 5
    assert alive(pids) == []


def test_a_program_that_becomes_too_many_processes_is_ended_before_its_time(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    programs = Programs(timeout=PATIENT, processes=8)
    ended = asyncio.run(programs.run([*FORKING, "wide", str(pids)]))
    assert ended == Ended(exit_status=CROWDED, stderr="[ended: it had more than 8 processes]")
    assert alive(pids) == []


def test_an_overdue_program_may_go_by_itself_when_it_is_asked_to() -> None:
    asked = "trap 'echo tidied; exit 3' TERM; for turn in $(seq 500); do sleep 0.02; done"
    ended = run("/bin/sh", "-c", asked, timeout=0.3)
    assert (ended.exit_status, ended.stdout) == (OVERDUE, "tidied\n")


def test_what_a_program_leaves_running_is_ended_and_its_own_status_stands(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    assert run(*FORKING, "leave", str(pids)).exit_status == 4
    assert alive(pids) == []


def test_of_a_noisy_program_the_beginning_and_the_end_are_kept() -> None:
    ended = run("/bin/sh", "-c", "echo first; head -c 20000000 /dev/zero; echo last; echo quiet >&2")
    assert ended.stdout.startswith("first\n\ufffd")
    assert ended.stdout.endswith("\ufffdlast\n")
    assert f"\n[{20_000_011 - OUTPUT} bytes are left out]\n" in ended.stdout
    assert (len(ended.stdout) < OUTPUT + 100, ended.stderr) == (True, "quiet\n")


def test_what_is_no_text_or_would_steer_a_terminal_is_replaced() -> None:
    assert run("/bin/printf", r"\377\033[31m\302\233x\t\n").stdout == "\ufffd\ufffd[31m\ufffdx\t\n"


def test_a_run_that_is_cancelled_ends_everything(tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    async def main() -> None:
        running = asyncio.ensure_future(Programs(timeout=PATIENT).run([*FORKING, "family", str(pids)]))
        await asyncio.to_thread(wait_until, lambda: is_whole(pids), what="the program to run")
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()

    asyncio.run(main())
    assert alive(pids) == []


def test_killing_whoever_runs_programs_ends_them(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    main = textwrap.dedent(f"""
        import asyncio
        from netloom.drivers.programs.programs import Programs
        asyncio.run(Programs(timeout=15).run({[*FORKING, "family", str(pids)]!r}))
    """)
    with Program([sys.executable, "-c", main], log=tmp_path / "log") as program:
        wait_until(lambda: is_whole(pids), what="the program to run")
        program.kill()
    wait_until(lambda: not alive(pids), what="all of it to be gone")


def is_whole(pids: Path) -> bool:
    """Whether all of a family has begun."""
    return pids.exists() and len(pids.read_text().split()) == FAMILY


def test_killing_the_process_that_watches_over_a_program_kills_the_program_and_is_told(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    assert run("/bin/sh", "-c", f"echo $$ > {pids}; kill -9 $PPID; sleep 20").exit_status == INTERRUPTED
    wait_until(lambda: not alive(pids), what="the program to be gone")


@given(st.lists(st.binary(max_size=40)), st.integers(1, 20).map(lambda half: 2 * half))
def test_however_output_comes_what_is_kept_of_it_is_the_same(chunks: list[bytes], limit: int) -> None:
    kept, whole = Kept(limit), Kept(limit)
    for chunk in chunks:
        kept.add(chunk)
    data = b"".join(chunks)
    whole.add(data)
    assert kept.text() == whole.text()
    if len(data) <= limit:
        assert "left out" not in kept.text() or b"left out" in data
    else:
        assert f"\n[{len(data) - limit} bytes are left out]\n" in kept.text()
