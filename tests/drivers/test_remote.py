"""Programs on hosts with a real sshd: in parallel, refused keys, jump hosts, failures, and hosts that misbehave."""

import ast
import asyncio
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from netloom.drivers.remote import protocol, ssh
from netloom.drivers.remote.hosts import Fleet, Job
from netloom.drivers.remote.protocol import Result
from netloom.lab.daemons.entering import inside
from tests.support.process import wait_until
from tests.support.ssh_hosts import SshHosts, devices, differences, programs, ssh_hosts, wait_until_quiet

pytestmark = pytest.mark.root
PROGRAM = (Path(__file__).parents[1] / "support" / "host_program.py").read_bytes()


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with ssh_hosts(8, tmp_path_factory.mktemp("ssh")) as hosts:
        yield hosts


@pytest.fixture
def hosts(eight: SshHosts) -> SshHosts:
    """All hosts, without what a failed test left."""
    eight.write()
    clean = "rm -rf /run/wait /run/netloom-test; for b in one two old new; do ip link del $b 2>/dev/null; done; true"
    for host in eight.hosts.values():
        host.run("sh", "-c", clean)
    return eight


class Session:
    """One run of a program on hosts, and what it said."""

    def __init__(
        self,
        hosts: SshHosts,
        *,
        program: bytes = PROGRAM,
        parallel: int = 8,
        timeout: float = 120.0,
        rollback: bool = False,
    ) -> None:
        self.steps: list[tuple[str, str]] = []
        self.ends: list[tuple[str, Result]] = []
        self._hosts, self._rollback = hosts, rollback
        access = ssh.Access(config=hosts.config, connect_timeout=30, timeout=timeout)
        on_step = lambda host, step: self.steps.append((host, step))  # noqa: E731
        self._fleet = Fleet(program, "test", partial(ssh.run, access), parallel=parallel, on_step=on_step)

    def do(self, jobs: Mapping[str, Job]) -> dict[str, Result]:
        return inside(self._hosts.netns, lambda: asyncio.run(self._do(jobs)))

    async def _do(self, jobs: Mapping[str, Job]) -> dict[str, Result]:
        on_end = lambda host, result: self.ends.append((host, result))  # noqa: E731
        if not self._rollback:
            return await self._fleet.do(jobs, on_end)
        before = await self._fleet.do(dict.fromkeys(jobs, Job("show")), lambda *_: None)
        return {**before, **await self._fleet.do_or_undo(jobs, on_end, before)}


def apply(*bridges: str, **more: object) -> Job:
    return Job("apply", json.dumps({"bridges": bridges, **more}).encode())


def test_eight_hosts_without_netloom_work_at_once_and_are_left_as_they_were(hosts: SshHosts) -> None:
    before = {name: host.traces() for name, host in hosts.hosts.items()}
    for host in hosts.hosts.values():
        assert "No module named 'netloom'" in host.run("sh", "-c", "python3 -I -c 'import netloom' 2>&1 || true")
        host.run("touch", "/run/wait")
    session = Session(hosts)
    results: dict[str, Result] = {}
    jobs = {name: apply("one", "two", wait="/run/wait") for name in hosts.hosts}
    working = threading.Thread(target=lambda: results.update(session.do(jobs)))
    working.start()
    # None of them goes on before all of them have begun.
    wait_until(lambda: len(session.steps) == 8, what="a step of each host")
    for host in hosts.hosts.values():
        host.run("rm", "/run/wait")
    working.join()
    assert results == dict.fromkeys(hosts.hosts, Result(changes=2))
    assert all({"one", "two"} <= devices(host) for host in hosts.hosts.values())
    assert Session(hosts).do(jobs) == dict.fromkeys(hosts.hosts, Result(changes=0))
    assert Session(hosts).do(dict.fromkeys(hosts.hosts, Job("remove"))) == dict.fromkeys(hosts.hosts, Result(changes=2))
    for name, host in hosts.hosts.items():
        assert differences(before[name], host.traces()) == [], name


def test_no_more_hosts_than_allowed_work_at_once() -> None:
    now: set[str] = set()
    most = 0

    async def counted(host: str, _: bytes, __: object) -> Result:
        nonlocal most
        now.add(host)
        most = max(most, len(now))
        await asyncio.sleep(0)
        now.remove(host)
        return Result()

    fleet = Fleet(b"", "test", counted, parallel=3, on_step=lambda *_: None)
    asyncio.run(fleet.do({f"h{number}": Job("apply") for number in range(20)}, lambda *_: None))
    assert most == 3


def test_a_host_that_is_down_fails_alone_and_by_name(hosts: SshHosts) -> None:
    hosts["h3"].stop()
    try:
        results = Session(hosts).do({name: apply("one") for name in ("h1", "h2", "h3")})
    finally:
        hosts["h3"].start()
    assert results["h1"] == results["h2"] == Result(changes=1)
    assert "cannot connect" in results["h3"].error
    assert Session(hosts).do({name: Job("remove") for name in ("h1", "h2")})["h1"].changes == 1


def test_a_key_that_is_unknown_or_changed_is_refused_whatever_the_config_says(hosts: SshHosts) -> None:
    other = (hosts["h4"].folder / "host_key.pub").read_text()
    lax = {"UserKnownHostsFile": "none", "StrictHostKeyChecking": "no"}
    hosts.write(h2=lax, h3={"UserKnownHostsFile": str(hosts.folder / "none")})
    known = hosts.known.read_text().replace((hosts["h1"].folder / "host_key.pub").read_text(), other)
    hosts.known.write_text(known)
    results = Session(hosts).do({name: apply("one") for name in ("h1", "h2", "h3", "h5")})
    for name in ("h1", "h2", "h3"):
        assert "its host key is not the known one, or none is known" in results[name].error
        assert f"`ssh -F {hosts.config} {name}` adds it" in results[name].error
        assert "one" not in devices(hosts[name])
    assert results["h5"] == Result(changes=1)
    Session(hosts).do({"h5": Job("remove")})


def test_jump_hosts_are_followed_and_their_keys_checked_too(hosts: SshHosts) -> None:
    hosts.write(
        h2={"ProxyJump": "h1"},
        h3={"ProxyJump": "h1,root@h4:22"},
        h6={"ProxyJump": "h5"},
        h5={"UserKnownHostsFile": "none"},
    )
    results = Session(hosts).do({name: Job("show") for name in ("h2", "h3", "h6")})
    assert results["h2"].error == results["h3"].error == ""
    assert "host key" in results["h6"].error


def test_jump_hosts_in_a_circle_are_refused(hosts: SshHosts) -> None:
    hosts.write(h1={"ProxyJump": "h2"}, h2={"ProxyJump": "h1"})
    assert "ProxyJump leads through more than" in Session(hosts).do({"h1": Job("show")})["h1"].error


def test_a_key_that_the_host_does_not_accept_and_an_unreadable_config_are_named(hosts: SshHosts) -> None:
    hosts.write(h1={"IdentityFile": str(hosts["h2"].folder / "host_key")}, h2={"Port": "many"})
    results = Session(hosts).do({"h1": Job("show"), "h2": Job("show")})
    assert "it accepts no key of ours" in results["h1"].error
    assert "Invalid Port integer value: many" in results["h2"].error


def test_a_jump_host_with_a_port_that_is_none_costs_its_host_alone(hosts: SshHosts) -> None:
    for port in ("abc", "0", "65536", "²", "9" * 5000):
        hosts.write(h1={"ProxyJump": f"h2:{port}"})
        results = Session(hosts).do({"h1": Job("show"), "h3": Job("show")})
        assert "is no port, in a ProxyJump" in results["h1"].error
        assert not results["h3"].error


def test_a_host_on_which_this_side_fails_costs_itself_alone() -> None:
    async def failing(host: str, _: bytes, __: object) -> Result:
        await asyncio.sleep(0)
        if host == "h1":
            raise ValueError("broken")
        return Result(changes=1)

    fleet = Fleet(b"", "test", failing, parallel=3, on_step=lambda *_: None)
    results = asyncio.run(fleet.do({"h1": Job("apply"), "h2": Job("apply")}, lambda *_: None))
    assert results == {"h1": Result(error="ValueError: broken"), "h2": Result(changes=1)}


def test_changes_stay_where_they_succeeded_unless_they_are_to_be_undone(hosts: SshHosts) -> None:
    Session(hosts).do({"h1": apply("old")})
    jobs = {"h1": apply("old", "new"), "h2": apply("new"), "h3": apply("new", fail=True)}
    results = Session(hosts, rollback=True).do(jobs)
    assert results["h3"].error == "bridge new was told to fail"
    assert results["h1"].error == results["h2"].error == "undone, because h3 failed"
    assert devices(hosts["h1"]) == {"lo", "mgmt", "old"}
    assert devices(hosts["h2"]) == devices(hosts["h3"]) == {"lo", "mgmt"}
    results = Session(hosts).do(jobs)
    assert [results[name].changes for name in jobs] == [1, 1, 0]
    assert "new" in devices(hosts["h1"])
    Session(hosts).do({"h1": Job("remove"), "h2": Job("remove")})


def test_nothing_changes_if_a_host_is_down_and_changes_are_to_be_undone(hosts: SshHosts) -> None:
    hosts.write(h2={"Port": "9"})
    results = Session(hosts, rollback=True).do({"h1": apply("new"), "h2": apply("new")})
    assert results["h1"].error == results["h2"].error == "not changed, because h2 failed"
    assert devices(hosts["h1"]) == {"lo", "mgmt"}


def test_hosts_that_misbehave_cost_themselves_alone(hosts: SshHosts) -> None:
    endless = b"def main(argv, document):\n while True: print('x' * 60000)\n"
    results = Session(hosts, program=endless).do({"h1": Job("apply")})
    assert "it sends more than 16 MiB: the connection was closed" in results["h1"].error
    wait_until_quiet(hosts["h1"])
    silent = b"import time\ndef main(argv, document):\n time.sleep(3600)\n"
    results = Session(hosts, program=silent, timeout=3).do({"h1": Job("apply")})
    assert "it was not done within 3 s" in results["h1"].error
    wait_until_quiet(hosts["h1"])
    broken = b"def main(argv, document):\n raise ValueError('broken')\n"
    assert "ValueError: broken" in Session(hosts, program=broken).do({"h1": Job("apply")})["h1"].error


def test_a_program_that_is_killed_fails_and_the_next_run_converges(hosts: SshHosts) -> None:
    hosts["h1"].run("touch", "/run/wait")
    session = Session(hosts)
    results: dict[str, Result] = {}
    job = apply("one", "two", wait="/run/wait")
    working = threading.Thread(target=lambda: results.update(session.do({"h1": job})))
    working.start()
    wait_until(lambda: session.steps, what="a step")
    for pid in programs(hosts["h1"]):
        hosts["h1"].run("kill", "-9", str(pid))
    working.join()
    assert "ended without a result" in results["h1"].error
    hosts["h1"].run("rm", "/run/wait")
    assert Session(hosts).do({"h1": job})["h1"] == Result(changes=1)
    assert Session(hosts).do({"h1": Job("remove")})["h1"] == Result(changes=2)


def test_a_program_inherits_no_input_and_daemons_do_not_hold_the_connection(hosts: SshHosts) -> None:
    program = b"""
import json, subprocess
def main(argv, document):
    read = subprocess.run(["cat"], capture_output=True).stdout
    daemon = subprocess.Popen(["sleep", "1000"])
    print(json.dumps({"step": repr((read, document))}))
    print(json.dumps({"result": "done", "changes": daemon.pid}))
    return 0
"""
    session = Session(hosts, program=program)
    result = session.do({"h1": Job("apply", b'{"a": 1}')})["h1"]
    assert session.steps == [("h1", "(b'', b'{\"a\": 1}')")]
    assert not result.error
    hosts["h1"].run("kill", str(result.changes))


@pytest.mark.parametrize("name", ["remote.bootstrap", "remote.ovn", "linux.applier", "linux.prober"])
def test_programs_for_hosts_need_an_old_python_and_its_library_alone(name: str) -> None:
    tree = ast.parse(protocol.source(f"netloom.drivers.{name}"), feature_version=(3, 9))
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert {module.partition(".")[0] for module in imported} <= sys.stdlib_module_names


def test_another_user_than_root_needs_sudo_without_a_password(hosts: SshHosts) -> None:
    public = Path(f"{hosts.key}.pub").read_text()
    for name, rule in (("h1", "op ALL=(ALL) NOPASSWD: ALL"), ("h2", "nobody ALL=(ALL) ALL")):
        files = f"echo '{rule}' >/etc/sudoers.d/op; echo '{public}' >/run/authorized_keys"
        hosts[name].run("sh", "-c", f"id op 2>/dev/null || useradd -m -p '*' -s /bin/sh op; {files}")
    hosts.write(h1={"User": "op"}, h2={"User": "op"})
    results = Session(hosts).do({"h1": apply("one"), "h2": apply("one")})
    assert results["h1"] == Result(changes=1)
    told = b"""
import json, os
def main(argv, document):
    print(json.dumps({"step": os.environ["SSH_CONNECTION"].split()[2]}))
    print(json.dumps({"result": "done"}))
    return 0
"""
    session = Session(hosts, program=told)
    session.do({"h1": Job("apply")})
    assert session.steps == [("h1", "10.99.0.1")]
    assert "root is required: sudo: a password is required" in results["h2"].error
    assert "one" not in devices(hosts["h2"])
    Session(hosts).do({"h1": Job("remove")})
