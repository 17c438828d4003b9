"""A virtual machine with Debian's kernel that runs one Python module, and returns what it prints.

Its root is an initramfs with this Python, the modules that the guest's module imports, and the libraries that they
need: no disk, no network and no other program. It is emulated in software, which works anywhere, and starts in seconds.
"""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULT = "RESULT "
SECONDS = 300
_LOADED = """
import sys, json, importlib
importlib.import_module(sys.argv[1])
import encodings.utf_8, encodings.ascii, encodings.idna, encodings.latin_1
print(json.dumps(sorted({one.__file__ for one in sys.modules.values() if getattr(one, "__file__", None)})))
"""


def run_in_vm(module: str, kernel_modules: list[str], folder: Path) -> dict[str, Any]:
    """Return the JSON that the module prints after RESULT in a virtual machine, as its first process."""
    kernel = Path(subprocess.run([ROOT / "tools/vm-kernel"], check=True, capture_output=True, text=True).stdout.strip())
    image = folder / "initramfs"
    image.write_bytes(gzip.compress(_archive(_files(module, kernel, kernel_modules)), 1))
    argv = [
        "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "512", "-nodefaults", "-no-reboot",
        "-display", "none", "-serial", "stdio", "-kernel", str(next((kernel / "boot").glob("vmlinuz-*"))),
        "-initrd", str(image), "-append", "console=ttyS0 quiet panic=-1 random.trust_cpu=on no_timer_check",
    ]  # fmt: skip
    ended = subprocess.run(
        argv, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False, stdin=subprocess.DEVNULL
    )
    found = re.search(rf"^{RESULT}(.*)$", ended.stdout, re.MULTILINE)
    assert found is not None, f"{ended.stdout[-4000:]}\n{ended.stderr[-2000:]}"
    result: dict[str, Any] = json.loads(found[1])
    return result


def _files(module: str, kernel: Path, kernel_modules: list[str]) -> dict[str, bytes]:
    """Return the files of the guest, by path; paths are the same as here."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    argv = [sys.executable, "-c", _LOADED, module]
    loaded = subprocess.run(argv, check=True, capture_output=True, text=True, env=environment, cwd="/").stdout
    paths = {Path(one) for one in json.loads(loaded)}
    python = Path(os.path.realpath(sys.executable))
    base = Path(sys.base_prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    paths |= {python, base / "os.py"}
    for binary in [python, *(one for one in paths if one.suffix == ".so")]:
        shown = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False).stdout
        paths |= {Path(one) for one in re.findall(r"(/[^ ]+) \(0x", shown)}
    found = {str(one): one.read_bytes() for one in paths}
    for number, name in enumerate(kernel_modules):
        found[f"/modules/{number}-{name}.ko"] = next((kernel / "lib").rglob(f"{name}.ko")).read_bytes()
    search = [str(ROOT / "src"), str(ROOT), *(one for one in sys.path if one.endswith("site-packages"))]
    start = f"import sys\nsys.path += {search!r}\nimport runpy\nrunpy.run_module({module!r}, run_name='__main__')\n"
    found["/init"] = f"#!{python} -IS\n{start}".encode()
    return found


def _archive(files: dict[str, bytes]) -> bytes:
    """Return files as the kernel reads an initramfs: cpio in the format `newc`."""
    folders = {str(parent) for name in files for parent in Path(name).parents if str(parent) != "/"}
    folders |= {"/proc", "/sys", "/dev", "/run"}
    entries = [
        *((name, 0o040755, b"") for name in sorted(folders)),
        *((name, 0o100755, data) for name, data in files.items()),
    ]
    parts = []
    for inode, (name, mode, data) in enumerate([*entries, ("/TRAILER!!!", 0, b"")], 1):
        text = name[1:].encode() + b"\0"
        fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(text), 0)
        header = b"070701" + b"".join(b"%08x" % one for one in fields) + text
        parts += [header, bytes(-len(header) % 4), data, bytes(-len(data) % 4)]
    return b"".join(parts)
