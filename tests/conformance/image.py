"""The image of the pods of Kubernetes' end-to-end tests: agnhost, a busybox, and what those tests call in a shell.

There need not be a registry, so one image is made of this machine's programs, and has every name that the tests use.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from netloom.lab.kube import images
from netloom.run.access import certificates

PROGRAMS = {"bin/nc": "nc.openbsd", "bin/curl": "curl", "bin/dig": "dig", "bin/getent": "getent", "bin/ss": "ss"}
"""Programs of the image -> of this machine; they are linked dynamically."""
# The shell of a busybox prefers its own nc, which has fewer options.
PROGRAMS |= {"bin/sh": "dash"}
SHOWN = "agnhost"
PLAIN = ("busybox", "glibc-dns-testing", "nginx", "pause")
"""Images of which the tests need no more than that they run, or those programs."""
_LIBRARY = re.compile(r"(?:=>\s+|^\s+)(/\S+) \(0x", re.MULTILINE)


def make(agnhost: Path, names: Iterable[str]) -> bytes:
    """Return an archive with the image under those of `names` that can be made."""
    served = {"Entrypoint": ["/agnhost"], "Cmd": ["pause"], "Env": [images.PATH], "WorkingDir": "/"}
    waiting = {"Cmd": ["/bin/sleep", "infinity"], "Env": [images.PATH]}
    found = {name: served if kind(name) == SHOWN else waiting for name in names if kind(name) in (SHOWN, *PLAIN)}
    contents = {"agnhost": agnhost.read_bytes(), **dict(_programs()), **_certificate()}
    return images.archive(images.layer(contents), found)


def kind(name: str) -> str:
    """Return the last part of the name of an image, without its tag."""
    return name.rpartition("/")[2].partition(":")[0]


def _certificate() -> dict[str, bytes]:
    """Return the certificate of agnhost's servers, which nobody verifies."""
    now, key = datetime.now(UTC), certificates.new_key()
    ca = certificates.Pair(certificates.make_ca(key, name="localhost", now=now), key)
    own = certificates.new_key()
    return {"localhost.crt": certificates.make_server(ca, own, hosts=["localhost"], now=now), "localhost.key": own}


def _programs() -> Iterator[tuple[str, bytes]]:
    for path, name in PROGRAMS.items():
        program = shutil.which(name)
        if program is None:
            raise SystemExit(f"program not found: {name}: run `tools/system-packages conformance`")
        yield path, Path(program).read_bytes()
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=20, check=True)
        for library in _LIBRARY.findall(listed.stdout):
            yield library.lstrip("/"), Path(library).read_bytes()
