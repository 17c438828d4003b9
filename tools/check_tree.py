"""Refuse files that only make sense on one machine: absolute paths of a developer, package mirrors in lock files.

    python tools/check_tree.py [FOLDER]

Checks every file that `make` does not create.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Written in pieces, so that this file passes its own check.
MACHINE_PATHS = re.compile(
    "|".join(
        [r"(?<![\w.-])/wor" + r"k/", r"(?<![\w.])/roo" + r"t/", r"(?<![\w.])/hom" + r"e/[a-z]", r"\.\./share" + r"d\b"]
    )
)
URL_HOST = re.compile(r"https?://([^/\"'\s]+)")
LOCK_HOSTS = {"pypi.org", "files.pythonhosted.org"}
LARGEST = 1_500_000
MADE = {
    *(".git", ".venv", "build", "dist", "__pycache__"),
    *(".hypothesis", ".import_linter_cache", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".schemathesis"),
}


def complaints(path: Path) -> list[str]:
    """Return the problems of one file, one sentence each."""
    data = path.read_bytes()
    found = []
    if len(data) > LARGEST:
        found.append(f"{path}: {len(data)} bytes; a file may have at most {LARGEST}")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return found
    for number, line in enumerate(text.splitlines(), 1):
        if match := MACHINE_PATHS.search(line):
            found.append(f"{path}:{number}: {match[0]!r} is a path of one machine")
        if path.name == "uv.lock":
            hosts = set(URL_HOST.findall(line)) - LOCK_HOSTS
            found.extend(f"{path}:{number}: {host} is not PyPI" for host in hosts)
    return found


def files(folder: Path) -> Iterator[Path]:
    """Yield every file of the tree that `make` does not create.  Not from git: a tree may have no history."""
    for path in sorted(folder.iterdir()):
        if path.name in MADE or path.is_symlink():
            continue
        if path.is_dir():
            yield from files(path)
        elif path.suffix != ".pyc":
            yield path


def main(folder: str = ".") -> int:
    """Check the tree at `folder` and return the exit status."""
    found = [complaint for path in files(Path(folder)) for complaint in complaints(path)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
