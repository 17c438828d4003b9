"""A small program of the kind that is sent to hosts: it makes bridges, and knows which are its own.

    {"bridges": ["a", "b"], "fail": false, "wait": ""}

With `fail` it fails after its first change, and turns back. With `wait` it stops there while that file exists.
"""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

FOLDER = Path("/run/netloom-test")


def say(**line: object) -> None:
    print(json.dumps(line))  # noqa: T201  # its output is its answer


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def exists(name: str) -> bool:
    return Path("/sys/class/net", name).exists()


def main(argv: list[str], document: bytes) -> int:
    verb, owner = argv
    FOLDER.mkdir(exist_ok=True)
    state = FOLDER / f"{owner}.json"
    before: dict[str, Any] | None = json.loads(state.read_text()) if state.exists() else None
    if verb == "show":
        say(show={"document": before and before["document"]})
        say(result="done", changes=0)
        return 0
    wanted = json.loads(document) if verb in ("apply", "plan") else {"bridges": []}
    mine = set(before["mine"]) if before else set()
    steps = [("del", name) for name in sorted(mine - set(wanted["bridges"])) if exists(name)]
    steps += [("add", name) for name in wanted["bridges"] if not exists(name)]
    if verb != "plan":
        # Recorded before they exist, so that a killed run leaves nothing that nobody knows.
        state.write_text(json.dumps({"document": wanted, "mine": sorted(mine | set(wanted["bridges"]))}))
    for number, (action, name) in enumerate(steps):
        if verb != "plan":
            ip("link", action, name, *(["type", "bridge"] if action == "add" else []))
        say(step=f"bridge {name} {'created' if action == 'add' else 'removed'}")
        while number == 0 and wanted.get("wait") and Path(wanted["wait"]).exists():
            time.sleep(0.02)
        if number == 0 and wanted.get("fail"):
            ip("link", "del", name)
            state.unlink() if before is None else state.write_text(json.dumps(before))
            say(result="failed", changes=0, error=f"bridge {name} was told to fail")
            return 1
    if verb == "remove":
        state.unlink()
        FOLDER.rmdir()
    say(result="done", changes=len(steps))
    return 0
