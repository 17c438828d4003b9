"""How a process runs and ends, each in a process of its own."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from netloom.errors import Conflict
from netloom.run import files, frontends, health
from netloom.run.access.credentials import Directory
from tests.run.serving import environment


def run(main: str) -> subprocess.CompletedProcess[str]:
    script = (
        f"import asyncio, os, signal\nfrom netloom.run import logs, process\nlogs.configure()\n{textwrap.dedent(main)}"
    )
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=environment(), check=False
    )


def test_a_main_that_ends_is_exit_status_0() -> None:
    assert run("raise SystemExit(process.run(asyncio.sleep(0)))").returncode == 0


def test_a_process_takes_the_file_descriptors_it_may_have() -> None:
    ended = run("""
        import resource
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        async def main():
            print(resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard))
        process.run(main())
    """)
    assert ended.stdout == "True\n"


def test_the_first_signal_cancels_and_cleaning_up_is_waited_for() -> None:
    ended = run("""
        async def main():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.01)
                print("cleaned up")
        raise SystemExit(process.run(main()))
    """)
    assert (ended.returncode, ended.stdout) == (0, "cleaned up\n")


@pytest.mark.parametrize(("number", "status"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_the_second_signal_ends_at_once(number: str, status: int) -> None:
    ended = run(f"""
        async def main():
            try:
                os.kill(os.getpid(), signal.{number})
                await asyncio.sleep(60)
            finally:
                os.kill(os.getpid(), signal.{number})
                await asyncio.sleep(60)
        raise SystemExit(process.run(main()))
    """)
    assert ended.returncode == status


def test_a_bug_is_logged_with_its_place_and_raised() -> None:
    ended = run("""
        async def main():
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        async def fail():
            raise KeyError("x")
        process.run(main())
    """)
    assert ended.returncode == 1
    assert '"level": "critical"' in ended.stderr.splitlines()[0]
    assert "in fail" in ended.stderr.splitlines()[0]


def test_certificates_that_cannot_be_looked_after_do_not_stop_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Directory(tmp_path / "d")
    directory.make()
    directory.prepare(hosts=["127.0.0.1"], now=datetime.now(UTC))
    context = frontends.tls(frontends.of_directory(directory))
    (directory.path / "server.key").write_bytes(b"broken")
    monkeypatch.setattr(frontends, "CHECK_CERTIFICATES_EVERY", 0.001)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(frontends.renew(directory, context, hosts=["127.0.0.1"], server_url="https://x"))
            await _until(lambda: "cannot renew the certificates" in caplog.text)
            (directory.path / "server.key").unlink()
            await _until((directory.path / "admin.kubeconfig").exists)
            task.cancel()

    asyncio.run(asyncio.wait_for(main(), 120))


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a file and a log tell nobody
        await asyncio.sleep(0.001)


def test_a_lock_is_held_by_one_and_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        files.exclusive_lock(path, "taken"),
        pytest.raises(Conflict, match=r"taken \(process \d+\)"),
        files.exclusive_lock(path, "taken"),
    ):
        pass
    with files.exclusive_lock(path, "taken"):
        pass


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_addresses_may_be_listened_on_without_credentials(host: str) -> None:
    health.loopback(host, 1)
