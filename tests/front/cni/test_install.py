"""`netloom cni`: the configuration comes when the agent can add pods, and not before."""

import json
import socket
import threading
from pathlib import Path

from click.testing import CliRunner, Result

from netloom.cli.cni import cni
from netloom.front.cni.install import CONFIGURATION, PLUGIN


def install(folder: Path, *, timeout: float = 0.0) -> Result:
    argv = ["install", "--bin", folder / "bin", "--conf", folder / "conf", "--socket", folder / "cni.sock"]
    return CliRunner().invoke(cni, [*map(str, argv), "--timeout", str(timeout)])


def agent(folder: Path, *answers: bytes) -> threading.Thread:
    """Answer so many calls."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "cni.sock"))
    listening.listen()

    def serve() -> None:
        with listening:
            for answer in answers:
                connection, _ = listening.accept()
                with connection, connection.makefile("rb") as reader:
                    assert b"CNI_COMMAND=STATUS" in reader.read(int(reader.readline()))
                    connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_without_an_agent_only_the_plugin_is_installed(tmp_path: Path) -> None:
    found = install(tmp_path)
    assert found.exit_code == 1
    assert "does not answer: No such file or directory" in found.output
    assert [one.name for one in (tmp_path / "bin").iterdir()] == [PLUGIN]
    assert not (tmp_path / "conf").exists()


def test_the_configuration_is_written_once_the_agent_is_ready(tmp_path: Path) -> None:
    thread = agent(tmp_path, b'1\n{"code": 50, "msg": "there is no bridge br-int"}', b"rubbish", b"0\n")
    found = install(tmp_path, timeout=60.0)
    thread.join()
    assert found.exit_code == 0, found.output
    assert found.output.splitlines() == [str(tmp_path / "bin" / PLUGIN), str(tmp_path / "conf" / CONFIGURATION)]
    written = json.loads((tmp_path / "conf" / CONFIGURATION).read_text())
    assert [one["type"] for one in written["plugins"]] == [PLUGIN]
    assert [one.name for one in (tmp_path / "conf").iterdir()] == [CONFIGURATION]


def test_an_agent_that_is_not_ready_is_named_with_its_reason(tmp_path: Path) -> None:
    thread = agent(tmp_path, b'1\n{"code": 50, "msg": "there is no bridge br-int"}')
    found = install(tmp_path)
    thread.join()
    assert (found.exit_code, "there is no bridge br-int" in found.output) == (1, True)


def test_the_printed_configuration_is_the_one_that_is_installed(tmp_path: Path) -> None:
    thread = agent(tmp_path, b"0\n")
    install(tmp_path)
    thread.join()
    printed = CliRunner().invoke(cni, ["print-conf"]).output
    assert (tmp_path / "conf" / CONFIGURATION).read_text() == printed
