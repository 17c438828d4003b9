"""Runs the commands that a page of the documents shows, and compares what they print with what the page says.

A page is one session of one shell in an empty folder. In it:

- a fenced `yaml` block whose first line is `# file: NAME` becomes that file;
- in a fenced `console` block, lines after `$ ` are commands (a `\\` at the end goes on), the lines below are what they
  print. `...` in a line stands for anything, a line that is only `...` for any lines. A command with nothing below it
  may print what it likes. `$ false-ish # fails` (a comment `# fails`) must fail; every other command must not.

`netloom serve` and the like are started with `&` and end with the session. They get a free port, because the pages
leave the port to its default.
"""

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from netloom.lab import down, state
from tests.support.process import free_port

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# file: (\S+)\n")
MARK = "@@netloom-docs"
TIMEOUT = 300


@dataclass
class Command:
    """One command of a page, and the lines the page shows below it."""

    text: str
    expected: list[str] = field(default_factory=list)

    @property
    def fails(self) -> bool:
        return bool(re.search(r"#\s*fails\b", self.text))


def parse(page: str) -> tuple[dict[str, str], list[Command]]:
    """Return the files and the commands of a page."""
    files: dict[str, str] = {}
    commands: list[Command] = []
    for language, body in FENCE.findall(page):
        if language == "yaml" and (named := FILE.match(body)):
            files[named[1]] = body
        if language == "console":
            commands += _commands(body)
    return files, commands


def _commands(body: str) -> list[Command]:
    found: list[Command] = []
    going_on = False
    for line in body.splitlines():
        if going_on:
            found[-1].text += "\n" + line.removeprefix("> ")
        elif line.startswith("$ "):
            found.append(Command(line.removeprefix("$ ")))
        elif found:
            found[-1].expected.append(line)
        going_on = (line.startswith("$ ") or going_on) and line.endswith("\\")
    return found


def matches(expected: list[str], printed: list[str]) -> bool:
    """Whether printed lines are as expected, `...` being anything."""
    if not expected:
        return True
    parts = []
    for line in expected:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*")
        else:
            escaped = r".*".join(re.escape(part.rstrip()) for part in line.split("..."))
            # Columns are as wide as what stands in them: any gap is as good as another.
            parts.append(re.sub(r"(?:\\ ){2,}", r" +", escaped) + r" *\n")
    return re.fullmatch("".join(parts), "".join(line.rstrip() + "\n" for line in printed)) is not None


def run(page: Path, folder: Path, *, serving: bool, environment: Mapping[str, str] | None = None) -> list[str]:
    """Run a page and return what went otherwise than it says.

    With `serving`, a server is there from the start; `environment` adds to the shell's.
    """
    files, commands = parse(page.read_text())
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "examples").symlink_to(ROOT / "examples")
    before = [
        "netloom serve --data ./data >/dev/null 2>&1 &",
        "export KUBECONFIG=./data/admin.kubeconfig",
        "netloom wait server",
    ]
    lines = before if serving else []
    for number, command in enumerate(commands):
        lines += [f"printf '\\n{MARK} {number}\\n'", command.text, f"printf '\\n{MARK} status %s\\n' $?"]
    try:
        output = _session("\n".join([*lines, "exit 0"]), folder, environment or {})
    finally:
        for lab in folder.glob(f"*/{state.FILE}"):
            down(lab.parent)  # A lab outlives the shell.
    return list(_complaints(commands, output))


def _session(script: str, folder: Path, more: Mapping[str, str]) -> str:
    out = folder / ".output"
    environment = {
        "PATH": f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "NETLOOM_LISTEN": f"127.0.0.1:{free_port()}",
        "LC_ALL": "C.UTF-8",
        **more,
    }
    with out.open("wb") as stdout:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        try:
            shell.wait(TIMEOUT)
        finally:
            # The shell's own process group: what it started with & ends here.
            try:
                os.killpg(shell.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            shell.wait()
    return out.read_text(errors="replace")


def _complaints(commands: list[Command], output: str) -> list[str]:
    complaints: list[str] = []
    for number, command in enumerate(commands):
        found = re.search(rf"\n{MARK} {number}\n(.*?)\n?\n{MARK} status (\d+)\n", output, re.DOTALL)
        if found is None:
            return [*complaints, f"$ {command.text}\nnever ended; all output:\n{output}"]
        # What servers in the background log comes when it comes.
        printed = [line for line in found[1].splitlines() if not line.startswith('{"time": ')]
        status = int(found[2])
        if bool(status) != command.fails:
            complaints.append(f"$ {command.text}\nended with {status} and printed:\n{found[1]}")
        elif not matches(command.expected, printed):
            expected = "\n".join(command.expected)
            complaints.append(f"$ {command.text}\nprinted:\n{found[1]}\nbut the page says:\n{expected}")
    return complaints
