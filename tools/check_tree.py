"""Refuse files that only make sense on one machine: absolute paths of a developer, package mirrors in lock files.

    python tools/check_tree.py [FOLDER]

Looks at every file git knows and at new ones it does not ignore.
"""

import re
import subprocess
import sys
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


def complaints(path: Path) -> list[str]:
    """Return what is wrong with one file, a sentence for each."""
    data = path.read_bytes()
    found = []
    if len(data) > LARGEST:
        found.append(f"{path}: {len(data)} bytes; the largest file may have {LARGEST}")
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


def main(folder: str = ".") -> int:
    """Check the tree at `folder` and return the exit status."""
    listed = subprocess.run(
        ["git", "-C", folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
        text=True,
    )
    paths = [Path(folder, name) for name in listed.stdout.split("\0") if name]
    found = [complaint for path in paths if path.is_file() for complaint in complaints(path)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
