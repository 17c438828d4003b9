"""The tools that the make targets call."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parent.parent / "tools"


def _run(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)


def _check(folder: Path, name: str, text: str) -> subprocess.CompletedProcess[str]:
    (folder / name).write_text(text)
    return _run(sys.executable, TOOLS / "check_tree.py", folder)


@pytest.mark.parametrize(
    "path", ["/wor" + "k/main/x.py", "'/roo" + "t/.cache'", "/hom" + "e/ann/netloom", "../share" + "d/notes"]
)
def test_a_path_of_one_machine_is_refused_with_its_line(tmp_path: Path, path: str) -> None:
    ended = _check(tmp_path, "notes.md", f"fine\nsee {path}\n")
    assert ended.returncode == 1
    assert "notes.md:2: " in ended.stdout


@pytest.mark.parametrize(
    "text", ["see docs/work/plan.md", "https://example.org/home/ann", "~/.cache/netloom", "net/root/x"]
)
def test_what_only_looks_like_a_machine_path_passes(tmp_path: Path, text: str) -> None:
    ended = _check(tmp_path, "notes.md", text + "\n")
    assert (ended.returncode, ended.stdout) == (0, "")


def test_a_lock_file_that_names_a_mirror_is_refused(tmp_path: Path) -> None:
    good = 'url = "https://files.pythonhosted.org/packages/x.whl"\n'
    assert _check(tmp_path, "uv.lock", good).returncode == 0
    ended = _check(tmp_path, "uv.lock", good + 'url = "https://mirror.example/x.whl"\n')
    assert ended.returncode == 1
    assert "uv.lock:2: mirror.example is not PyPI" in ended.stdout


def test_this_tree_passes() -> None:
    ended = _run(sys.executable, TOOLS / "check_tree.py", TOOLS.parent)
    assert ended.returncode == 0, ended.stdout


def test_code_that_only_tests_use_is_dead(tmp_path: Path) -> None:
    for folder, text in (("src", "def used(): pass\ndef dead(): pass\n"), ("bench", "used()\n"), ("tests", "dead()\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.py").write_text(text)
    ended = _run(sys.executable, TOOLS / "dead_code.py", tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "src/one.py:2: unused function 'dead'\n")


def test_an_entry_for_code_that_is_gone_or_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "src/netloom").mkdir(parents=True)
    ended = _run(sys.executable, TOOLS / "dead_code.py", tmp_path)
    assert ended.returncode == 1
    assert "the entry for ended_due in load/* matches nothing: remove it" in ended.stdout


@pytest.mark.slow
def test_this_tree_has_no_dead_code() -> None:
    ended = _run(sys.executable, TOOLS / "dead_code.py", TOOLS.parent)
    assert ended.returncode == 0, ended.stdout


def test_system_packages_is_silent_when_nothing_is_missing() -> None:
    ended = _run(TOOLS / "system-packages", "base", "lab", "test")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_system_packages_refuses_a_group_it_does_not_know() -> None:
    ended = _run(TOOLS / "system-packages", "rest")
    assert ended.returncode == 2
    assert "no group 'rest': use base, lab, kube, test, conformance, versions, bench or vm" in ended.stderr


def test_a_kubernetes_version_without_a_pinned_module_is_refused() -> None:
    ended = _run(TOOLS / "kube" / "build", "1.2.3")
    assert ended.returncode == 2
    assert "v1.36.3" in ended.stderr
