"""What cannot be is refused in words that say what to do, before anything is made."""

import os
from pathlib import Path

import msgspec
import pytest

from netloom.errors import Conflict, Forbidden, Invalid, NotFound
from netloom.lab import checks, state
from netloom.lab.daemons.entering import entered
from netloom.lab.daemons.programs import programs
from netloom.lab.layout import Layout
from netloom.lab.state import State
from tests.lab import labs


def test_who_is_not_root_is_told_to_use_sudo() -> None:
    with pytest.raises(Forbidden, match="sudo"):
        checks.root(1000)
    checks.root(0)


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(Conflict, match="is not empty and not a lab: choose another folder with --data"):
        state.check_folder(tmp_path)
    with pytest.raises(Conflict, match="is not a folder"):
        state.check_folder(tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_empty_or_missing_folder_can_become_a_lab(tmp_path: Path) -> None:
    assert state.check_folder(tmp_path) is None
    assert state.check_folder(tmp_path / "new") is None


def test_a_folder_in_which_an_up_was_killed_at_once_can_become_a_lab(tmp_path: Path) -> None:
    (tmp_path / state.LOCK).touch()
    assert state.check_folder(tmp_path) is None


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    tmp_path.chmod(0o777)
    with pytest.raises(Conflict, match="is writable by other users"):
        state.check_folder(tmp_path)
    tmp_path.chmod(0o755)
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(Conflict, match="is writable by other users"):
        state.check_folder(tmp_path)
    monkeypatch.setenv("SUDO_UID", "12345")
    assert state.check_folder(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{}", '{"nodes": 0, "port": 1}', '{"nodes": 1, "port": 1, "ovn": 2}', "[]"])
def test_a_state_that_is_no_labs_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / state.FILE).write_text(text)
    with pytest.raises(Invalid, match=r"lab\.json is not a valid lab file"):
        state.load(tmp_path)


def test_a_state_of_another_version_is_refused(tmp_path: Path) -> None:
    state.save(tmp_path, State(format=2, nodes=1, port=20000))
    with pytest.raises(Invalid, match="another version"):
        state.load(tmp_path)


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = State(nodes=3, ovn=3, port=20000, outside=True, roots={"n1": "/srv/newer"}, phase="up")
    state.save(tmp_path, written)
    assert state.load(tmp_path) == written


def test_roots_of_nobody_and_without_programs_are_refused(tmp_path: Path) -> None:
    layout = Layout(tmp_path, State(nodes=2, port=1, roots={"n3": "/"}))
    with pytest.raises(Invalid, match="no such host 'n3': use one of central, n1, n2"):
        checks.places(layout)
    with pytest.raises(NotFound, match="programs not found in it: ovs-vswitchd, ovsdb-server"):
        checks.programs(1, {"n1": str(tmp_path)})


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--nodes", "0"], "0 is not in the range"),
        (["--nodes", "many"], "'many' is not a valid integer"),
        (["--ovn", "2"], "'2' is not one of 'none', '1', '3'"),
        (["--root-of", "n1"], "'n1' is not NODE=DIR"),
        (["--root-of", "n1=/nowhere"], "'n1=/nowhere' is not NODE=DIR"),
    ],
)
def test_wrong_usage_ends_with_2(tmp_path: Path, args: list[str], says: str) -> None:
    ended = labs.command("up", "--data", tmp_path / "lab", *args)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert not (tmp_path / "lab").exists()


def test_a_missing_program_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "SBIN", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        NotFound, match=r"programs not found: ip, .*ovn-controller.*apt-get install .*iproute2.*ovn-host"
    ):
        checks.programs(1, {})
    assert os.environ["PATH"].startswith(str(tmp_path))


def test_no_lab_is_no_lab(tmp_path: Path) -> None:
    for args in (["down"], ["exec", "n1", "--", "true"], ["status"]):
        ended = labs.command(args[0], "--data", tmp_path, *args[1:])
        assert ended.returncode == 1
        assert f"no lab in {tmp_path}" in ended.stderr


def test_two_folders_are_two_labs_and_a_folder_is_always_the_same(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    assert state.identity(one) != state.identity(other)
    one.mkdir()
    other.symlink_to(one)
    assert state.identity(one) == state.identity(other) == state.identity(tmp_path / "x" / ".." / "one")


def test_sockets_have_names_that_the_kernel_takes_however_long_the_folders_is(tmp_path: Path) -> None:
    layout = Layout(tmp_path / ("long" * 40), State(nodes=250, ovn=3, port=1))
    sockets = [program.socket for program in programs(layout) if program.socket.startswith("/")]
    assert len(sockets) == 256
    assert max(map(len, sockets)) < 108


def test_every_need_is_somebody(tmp_path: Path) -> None:
    for servers in (0, 1, 3):
        wanted = msgspec.convert({"nodes": 3, "ovn": servers, "port": 1, "outside": True}, State)
        found = programs(Layout(tmp_path, wanted))
        names = {program.name for program in found}
        assert len(names) == len(found)
        assert all(need in names for program in found for need in program.needs)


def test_a_program_is_entered_by_programs_that_replace_themselves(tmp_path: Path) -> None:
    assert entered(["true"], folder=tmp_path) == ["true"]
    assert entered(["true"], netns="x", folder=tmp_path) == ["nsenter", "--net=/run/netns/x", "--", "true"]
    chrooted = entered(["true"], root="/srv/newer/", folder=tmp_path)
    assert chrooted[0] == "unshare"
    assert chrooted[-3:] == ["/srv/newer", str(tmp_path), "true"]
