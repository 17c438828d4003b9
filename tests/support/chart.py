"""Helm, as tools/helm/build makes it, and the chart."""

import functools
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netloom.model import codec
from tests.support.process import fail_missing

TREE = Path(__file__).parent.parent.parent
CHART = TREE / "deploy/chart"
VERSION = "4.3.1"
SETTINGS = {"apiServer": "192.0.2.1", "central.node": "node-1", "central.address": "192.0.2.1"}
"""What tools/manifests sets."""


@functools.cache
def program() -> Path:
    """Return the path of helm, or fail the test with how to build it."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(os.environ.get("NETLOOM_HELM_BIN") or Path(cache, "netloom/helm")) / f"v{VERSION}" / "helm"
    if not os.access(path, os.X_OK):
        fail_missing(f"helm {VERSION} ({path})", "make helm (or tools/helm/build)")
    return path


def helm(*words: str | Path, scratch: Path, kubeconfig: Path | None = None, check: bool = True) -> str:
    """Run helm, whose files are in `scratch`; return what it printed."""
    homes = {f"HELM_{name}_HOME": str(scratch / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    own = {**os.environ, **homes, **({} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig)})}
    argv = [str(program()), *(str(word) for word in words)]
    ended = subprocess.run(argv, capture_output=True, text=True, env=own, timeout=600, check=False)
    assert not check or ended.returncode == 0, f"{' '.join(argv)}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout + ended.stderr


def settings(values: Mapping[str, str]) -> list[str]:
    """Return values as options of helm."""
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def rendered(scratch: Path, **values: str) -> list[dict[str, Any]]:
    """Return the objects of the chart, with values besides those that are required."""
    text = helm("template", "netloom", CHART, *settings(SETTINGS | values), scratch=scratch)
    return [one for one in codec.documents(text) if one]
