"""Network namespaces that are created and removed by path: with loopback, and never those of others."""

import asyncio
import os
import subprocess
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from netloom.drivers.link.worker import Links
from netloom.plan.problem import ProblemError
from tests.support.ovn import own, run, within

pytestmark = [pytest.mark.lab, pytest.mark.root]
T = TypeVar("T")
FOLDER = "/run/netns"
NAME = own("nlt-made")
PATH = f"{FOLDER}/{NAME}"


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    subprocess.run(["ip", "netns", "delete", NAME], capture_output=True, check=False)


def with_links(work: "Coroutine[Any, Any, T]") -> T:
    return asyncio.run(work)


async def created(path: str = PATH, root: str = FOLDER) -> str:
    links = Links(owner="x")
    seen: list[str] = []

    async def record(identity: str) -> None:
        assert not await links.namespace(path, root), "it is recorded before it has a path"
        seen.append(identity)

    try:
        await links.create_namespace(path, root, record)
        assert await links.namespace(path, root) == seen[0]
    finally:
        links.close()
    return seen[0]


async def removed(identity: str, path: str = PATH, root: str = FOLDER) -> None:
    links = Links(owner="x")
    try:
        await links.remove_namespace(path, root, identity)
    finally:
        links.close()


def test_a_namespace_is_created_with_its_loopback_up_and_removed() -> None:
    here = Path("/proc/self/ns/net").readlink()
    identity = with_links(created())
    assert "LOOPBACK,UP" in run(*within(NAME, "ip", "link", "show", "lo"))
    assert NAME in run("ip", "netns", "list")
    with_links(removed(identity))
    assert not os.path.lexists(PATH)
    assert Path("/proc/self/ns/net").readlink() == here


def test_a_namespace_with_another_identity_stays() -> None:
    identity = with_links(created())
    run("ip", "netns", "delete", NAME)
    run("ip", "netns", "add", NAME)
    with_links(removed("another/1"))
    with_links(removed(identity.replace("/", "x/")))
    assert NAME in run("ip", "netns", "list")


def test_a_path_without_a_namespace_is_no_error() -> None:
    with_links(removed("boot/1"))
    assert not os.path.lexists(PATH)


def test_the_empty_file_that_is_left_of_a_namespace_is_used_again() -> None:
    Path(PATH).touch()
    with_links(created())
    assert "lo" in run(*within(NAME, "ip", "link", "show"))


def test_a_file_with_content_is_not_covered(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("of somebody")
    with pytest.raises(ProblemError, match="exists and is not a network namespace: remove it"):
        with_links(created(str(tmp_path / "file"), str(tmp_path)))
    assert (tmp_path / "file").read_text() == "of somebody"


def test_a_pipe_is_neither_opened_nor_covered(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ProblemError, match="exists and is not a network namespace: remove it"):
        with_links(created(str(tmp_path / "pipe"), str(tmp_path)))


def test_no_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(ProblemError, match="symbolic link"):
        with_links(created(str(tmp_path / "link"), str(tmp_path)))
    (tmp_path / "tenant").symlink_to("/run")
    with pytest.raises(ProblemError, match="symbolic link"):
        with_links(created(str(tmp_path / "tenant" / NAME), str(tmp_path)))
    assert not Path(f"/run/{NAME}").exists()


def test_the_folder_of_the_operator_is_created_and_that_of_a_tenant_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    identity = with_links(created(str(folder / "one"), str(folder)))
    with_links(removed(identity, str(folder / "one"), str(folder)))
    with pytest.raises(ProblemError, match="cannot be opened"):
        with_links(created(str(folder / "tenant" / "two"), str(folder)))
    assert list(folder.iterdir()) == []
