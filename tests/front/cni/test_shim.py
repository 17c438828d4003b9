"""The plugin starts quickly: it imports nothing that is not built in, and is small."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from netloom.front.cni import install

ALLOWED = {
    "_abc", "_codecs", "_frozen_importlib_external", "_imp", "_io", "_signal", "_socket", "_stat", "_thread",
    "_warnings", "_weakref", "abc", "codecs", "encodings", "encodings.aliases", "encodings.utf_8", "io", "marshal",
    "posix", "sys", "time", "winreg", "zipimport",
}  # fmt: skip
"""What an interpreter imports before it runs anything, and `_socket`."""


def plugin(folder: Path, agent: str) -> Path:
    return install.put_plugin(folder, agent=agent, python=sys.executable)


def test_the_plugin_imports_only_what_is_built_in(tmp_path: Path) -> None:
    program = plugin(tmp_path, "/nowhere")
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", program], stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    lines = [line for line in found.stderr.splitlines() if line.startswith("import time:")]
    imported = {line.rpartition("|")[2].strip() for line in lines} - {"imported package"}
    assert "_socket" in imported | set(sys.builtin_module_names)
    assert imported <= ALLOWED


def test_the_plugin_is_short() -> None:
    lines = install.SHIM.read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 60


@pytest.mark.parametrize("agent", ["/nowhere/cni.sock", "/" + "x" * 200])
def test_without_an_agent_the_plugin_prints_one_error(tmp_path: Path, agent: str) -> None:
    program = plugin(tmp_path, agent)
    found = subprocess.run([program], input=b"x" * 1_000_000, capture_output=True, check=False, env={})
    assert found.returncode == 1
    assert b'"code": 11' in found.stdout
    assert not found.stderr


@pytest.mark.parametrize(
    ("answer", "status", "printed"),
    [
        (b"0\n{}\n", 0, b"{}\n"),
        (b"0\n", 0, b""),
        (b"1\n{}\n", 1, b"{}\n"),
        (b"0\n" + b"x" * 500_000, 0, b"x" * 500_000),
        (b"", 1, None),
        (b"2\n{}", 1, None),
        (b"HTTP/1.1 400", 1, None),
    ],
)
def test_the_plugin_passes_the_request_and_the_answer(
    tmp_path: Path, answer: bytes, status: int, printed: bytes | None
) -> None:
    agent = tmp_path / "cni.sock"
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(agent))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as reader:
                length = int(reader.readline())
                heard.append(reader.read(length))
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        env = {"CNI_COMMAND": "ADD", "CNI_ARGS": "a=b;c=d", "OTHER": "x", "CNI_ODD": "two\nlines"}
        found = subprocess.run(
            [plugin(tmp_path, str(agent))], input=b'{"a": 1}', capture_output=True, check=False, env=env
        )
        thread.join()
    variables, stdin = heard[0].split(b"\0\0")
    assert stdin == b'{"a": 1}'
    assert set(variables.split(b"\0")) == {b"CNI_COMMAND=ADD", b"CNI_ARGS=a=b;c=d", b"CNI_ODD=two\nlines"}
    assert found.returncode == status
    assert found.stdout == printed if printed is not None else b'"code": 11' in found.stdout


def test_the_plugin_is_replaced_by_a_rename_while_it_runs(tmp_path: Path) -> None:
    program = plugin(tmp_path, "/first")
    with program.open() as old:
        assert plugin(tmp_path, "/second") == program
        assert 'SOCKET = "/first"' in old.read()
    assert 'SOCKET = "/second"' in program.read_text()
    assert program.stat().st_mode & 0o777 == 0o755
    assert os.listdir(tmp_path) == [program.name]
