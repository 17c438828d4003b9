"""`--lab DIR` selects the API server of a lab, for every command that talks to one."""

import shutil
from pathlib import Path

import click
import pytest

from netloom.cli.main import cli
from netloom.lab import state
from netloom.lab.state import State
from tests.cli.test_commands import apply, network, text
from tests.run.serving import Serving, netloom

CONNECTING = [
    "apply",
    "get",
    "describe",
    "delete",
    "watch",
    "wait",
    "plan",
    "status",
    "explain",
    "trace",
    "doctor",
    "version",
    "evpn/summary",
    "evpn/explain",
    "bench/attachments",
    "bench/clean",
]


@pytest.fixture
def lab(server: Serving, tmp_path: Path) -> Path:
    folder = tmp_path / "lab"
    folder.mkdir()
    state.save(folder, State(nodes=1, ovn=0, port=server.port))
    shutil.copy(server.kubeconfig, folder / "admin.kubeconfig")
    return folder


@pytest.mark.parametrize("name", CONNECTING)
def test_every_command_that_connects_has_the_option(name: str) -> None:
    context = click.Context(cli)
    group, _, inner = name.partition("/")
    command = cli.get_command(context, group)
    if isinstance(command, click.Group) and inner:
        command = command.get_command(context, inner)
    assert command is not None
    assert "lab" in {parameter.name for parameter in command.params}


def test_it_selects_the_server_after_the_command_or_before_it(server: Serving, ns: str, lab: Path) -> None:
    apply(server, ns, network("blue"))
    netloom("wait", "-n", ns, "network/blue", "--lab", lab)
    assert netloom("get", "networks", "-n", ns, "-o", "name", "--lab", lab).out == "network.netloom.dev/blue\n"
    assert netloom("--lab", lab, "get", "networks", "-n", ns, "-o", "name").out == "network.netloom.dev/blue\n"
    assert "blue" in netloom("status", "-n", ns, "--lab", lab).out
    planned = netloom("plan", "-n", ns, "--lab", lab, "-f", "-", stdin=text(network("red"))).out
    assert "network.netloom.dev/red would be created" in planned
    assert "Server: " in netloom("version", "--lab", lab).out


def test_a_kubeconfig_takes_precedence(server: Serving, ns: str, lab: Path) -> None:
    (lab / "admin.kubeconfig").write_text("{}")
    assert netloom("get", "networks", "-n", ns, "--lab", lab, check=False).rc == 1
    assert netloom("get", "networks", "-n", ns, "--lab", lab, "--kubeconfig", server.kubeconfig).rc == 0


def test_a_directory_without_a_lab_is_one_clear_line(tmp_path: Path) -> None:
    answer = netloom("get", "networks", "--lab", tmp_path / "none", check=False)
    assert (answer.rc, f"no lab in {tmp_path / 'none'}" in answer.err) == (1, True)


def test_of_several_sites_one_must_be_chosen(tmp_path: Path) -> None:
    state.save(tmp_path, State(nodes=1, ovn=0, port=1, sites=2))
    answer = netloom("get", "nodes", "--lab", tmp_path, check=False)
    assert (answer.rc, f"has several sites: choose one, as --lab {tmp_path / 'site1'}." in answer.err) == (2, True)
