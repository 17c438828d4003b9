"""The images of a lab's pods: made of one statically linked busybox, since there need not be a registry.

`netloom.dev/pause:1` keeps the namespaces of a pod; `netloom.dev/tools:1` is a small system with a shell, ip, ping,
wget, nc and httpd. Both are in one archive, as `docker save` writes it, which `ctr images import` reads.
"""

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from netloom.errors import Invalid
from netloom.run import files

PAUSE = "netloom.dev/pause:1"
TOOLS = "netloom.dev/tools:1"
ARCHIVE = "tools.tar"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "ppc64le": "ppc64le", "s390x": "s390x"}
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
_FOLDERS = {"bin": 0o755, "etc": 0o755, "root": 0o700, "tmp": 0o1777, "usr": 0o755, "var": 0o755, "www": 0o755}
_LINKS = {"sbin": "bin", "usr/bin": "../bin", "usr/sbin": "../bin", "var/run": "../run"}
_INTERPRETER = 3
"""The type of the program header that names a dynamic loader: see elf(5)."""


def prepare(folder: Path) -> None:
    """Write the archive of the images for every node."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    wait = {"Cmd": ["/bin/sleep", "infinity"], "Env": [PATH]}
    files.write_whole(folder / ARCHIVE, archive(layer(), {PAUSE: wait, TOOLS: wait}), mode=0o644)


def layer(more: Mapping[str, bytes] | None = None) -> bytes:
    """Return a layer with the system of a busybox, and further programs: path -> contents."""
    program = Path(shutil.which("busybox") or "busybox").resolve()
    contents = program.read_bytes()
    if is_dynamic(contents):
        raise Invalid(f"{program} is not statically linked: install it, as with apt-get install busybox-static")
    listed = subprocess.run([program, "--list"], capture_output=True, text=True, timeout=20, check=True)
    return _layer(contents, listed.stdout.split(), more or {})


def archive(layer: bytes, images: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Return an archive of images of one layer: name -> configuration of its containers."""
    digest = hashlib.sha256(layer).hexdigest()
    contents = {f"{digest}/layer.tar": layer}
    manifest = []
    for name, config in images.items():
        document = {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {**config, "Labels": {"dev.netloom.image": name}},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
        encoded = json.dumps(document, sort_keys=True).encode()
        key = f"{hashlib.sha256(encoded).hexdigest()}.json"
        contents[key] = encoded
        manifest.append({"Config": key, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]})
    contents["manifest.json"] = json.dumps(manifest).encode()
    return _tar(_file(name, data) for name, data in contents.items())


def is_dynamic(program: bytes) -> bool:
    """Whether a program (ELF) needs a dynamic loader, or is none."""
    if program[:4] != b"\x7fELF" or len(program) < 64:
        return True
    wide, order = program[4] == 2, "little" if program[5] == 1 else "big"

    def number(at: int, size: int) -> int:
        return int.from_bytes(program[at : at + size], "big" if order == "big" else "little")

    start, size, count = (
        (number(32, 8), number(54, 2), number(56, 2)) if wide else (number(28, 4), number(42, 2), number(44, 2))
    )
    return any(number(start + index * size, 4) == _INTERPRETER for index in range(count))


def _layer(busybox: bytes, applets: Iterable[str], more: Mapping[str, bytes]) -> bytes:
    members = [_folder(name, mode) for name, mode in _FOLDERS.items()]
    members.append(_file("bin/busybox", busybox, mode=0o755))
    linked = {f"bin/{name}" for name in applets} - {"bin/busybox", *more}
    members += [_link(name, "busybox") for name in sorted(linked)]
    members += [_link(name, target) for name, target in _LINKS.items()]
    members += [_file(name, text.encode()) for name, text in _FILES.items()]
    members += [_file(name, data, mode=0o755) for name, data in sorted(more.items())]
    return _tar(members)


_Member = tuple[tarfile.TarInfo, bytes]


def _tar(members: Iterable[_Member]) -> bytes:
    """Return a tar of members: the same for the same contents."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return written.getvalue()


def _file(name: str, data: bytes, *, mode: int = 0o644) -> _Member:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    return info, data


def _folder(name: str, mode: int) -> _Member:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, mode
    return info, b""


def _link(name: str, target: str) -> _Member:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info, b""
