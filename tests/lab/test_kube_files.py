"""What a lab writes for Kubernetes' programs, and how it finds them: without starting any."""

import io
import json
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import Invalid, NotFound
from netloom.lab import checks
from netloom.lab.daemons.programs import programs
from netloom.lab.kube import binaries, ending, images, settings
from netloom.lab.kube.places import Places, pod_cidrs
from netloom.lab.layout import Layout
from netloom.lab.state import State

TEXT = st.text(max_size=8)
VALUES = st.one_of(TEXT, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.lists(TEXT, max_size=3))
KEYS = st.text("aB0_-", min_size=1, max_size=3)
NAMES = st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1, max_size=8)


@given(
    st.recursive(
        st.dictionaries(KEYS, VALUES, max_size=3),
        lambda inner: st.dictionaries(KEYS, VALUES | st.dictionaries(NAMES, inner, max_size=2), max_size=3),
        max_leaves=4,
    )
)
def test_what_is_written_as_toml_is_read_as_it_was(document: dict[str, object]) -> None:
    assert tomllib.loads(settings.toml(document)) == document


def test_containerd_and_kubelet_use_only_folders_of_their_node(tmp_path: Path) -> None:
    places = _places(tmp_path)
    own = (str(places.layout.node("n1")), str(places.layout.short))
    text = json.dumps([settings.containerd(places, "n1", snapshotter="overlayfs"), settings.kubelet(places, "n1")])
    paths = [part for part in text.split('"') if part.startswith(("/", "unix:///"))]
    allowed = (*own, *(f"unix://{one}" for one in own), str(places.pki), "/netloom-lab-")
    assert paths
    assert [path for path in paths if not path.startswith(allowed)] == []


def test_every_process_is_started_after_what_it_needs(tmp_path: Path) -> None:
    found = {program.name: program for program in programs(_places(tmp_path).layout)}
    assert {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns", "controller"} < set(found)
    assert "serve" not in found
    for program in found.values():
        assert set(program.needs) <= set(found), program.name
    for name in ("controller", "agent-n1", "kubelet-n1", "kube-scheduler", "coredns"):
        assert "kube-apiserver" in found[name].needs
    assert found["kubelet-n1"].place == "n1"
    assert found["etcd"].place == "kube"


def test_missing_programs_are_named_with_how_to_build_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETLOOM_KUBE_BIN", str(tmp_path))
    _programs(tmp_path / "v1.36.3", ("kubectl", "kube-apiserver"))
    with pytest.raises(
        NotFound, match=r"tools/kube/build 1\.36\.3 kube-controller-manager kube-scheduler kubelet coredns`"
    ):
        binaries.folder("1.36.3")
    _programs(tmp_path / "v1.36.3", binaries.BUILT)
    assert binaries.folder("1.36.3") == tmp_path / "v1.36.3"


@pytest.mark.parametrize("version", ["", "1", "1.36", "../1.36.3", "1.36.x"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(Invalid, match="not a version of Kubernetes"):
        binaries.folder(version)


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _programs(tmp_path, ("etcd", "runc", "busybox", "findmnt", "mount", "nft"))
    monkeypatch.setattr(binaries, "PLUGINS", (str(tmp_path / "plugins"),))
    with pytest.raises(NotFound, match=r"containerd, ctr, .* apt-get install containerd containernetworking-plugins$"):
        binaries.installed()


def test_too_many_nodes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = (*binaries.BUILT, *binaries.INSTALLED, "loopback")
    _programs(tmp_path / f"v{binaries.NEWEST}", names)
    monkeypatch.setenv("NETLOOM_KUBE_BIN", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / f"v{binaries.NEWEST}"))
    monkeypatch.setattr(binaries, "PLUGINS", (str(tmp_path / f"v{binaries.NEWEST}"),))
    checks.kubernetes(binaries.NEWEST, 100, ovn=1)
    with pytest.raises(Invalid, match="at most 100"):
        checks.kubernetes(binaries.NEWEST, 101, ovn=1)
    with pytest.raises(Invalid, match="needs OVN"):
        checks.kubernetes(binaries.NEWEST, 2, ovn=0)


def test_an_image_archive_has_one_layer_for_all_images_and_is_the_same_each_time() -> None:
    wanted = {"a.example/one:1": {"Cmd": ["/one"]}, "a.example/two:1": {"Cmd": ["/two"]}}
    made = images.archive(b"a layer", wanted)
    assert made == images.archive(b"a layer", wanted)
    with tarfile.open(fileobj=io.BytesIO(made)) as tar:
        contents = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        manifest = json.load(contents["manifest.json"])  # type: ignore[arg-type]  # a file
        assert [one["RepoTags"] for one in manifest] == [["a.example/one:1"], ["a.example/two:1"]]
        assert len({layer for one in manifest for layer in one["Layers"]}) == 1
        configurations = [json.load(contents[one["Config"]])["config"] for one in manifest]  # type: ignore[arg-type]
        assert [one["Cmd"] for one in configurations] == [["/one"], ["/two"]]


def test_a_program_that_needs_a_loader_is_told_from_one_that_does_not() -> None:
    assert images.is_dynamic(Path(sys.executable).read_bytes())
    assert images.is_dynamic(b"#!/bin/sh\n")
    assert images.is_dynamic(b"")
    static = b"\x7fELF\x02\x01" + bytes(58)
    assert not images.is_dynamic(static)


@given(st.binary(max_size=200))
def test_any_file_is_looked_at_without_an_error(contents: bytes) -> None:
    images.is_dynamic(b"\x7fELF" + contents)


def test_only_mounts_of_the_lab_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = tmp_path / "a lab"
    lab.mkdir()
    name = str(lab).replace(" ", r"\040")
    points = [
        "/run/netloom/kubelets/0123-n1",
        "/run/netloom/kubelets/0123-n1/pods/x",
        "/run/netloom/kubelets/0123-n11",
        "/run/netloom/kubelets/4567-n1",
        f"{name}/nodes/n1/containerd/state/x",
        f"{name}/nodes/n1/mine",
        f"{name}2/containerd",
    ]
    listed = tmp_path / "mountinfo"
    listed.write_text("".join(f"36 35 98:0 / {point} rw - ext4 /dev/root rw\n" for point in points))
    monkeypatch.setattr(ending, "MOUNTS", listed)
    containers = f"{lab}/nodes/n1/containerd/state/x"
    assert ending.mounts("0123", lab / "nodes" / "n1", "n1") == [containers, points[1], points[0]]
    assert ending.mounts("0123", lab) == [containers, points[2], points[1], points[0]]


def test_each_node_has_a_block_of_each_family() -> None:
    assert pod_cidrs("n1") == ("10.244.1.0/24", "fd00:10:244:1::/64")
    assert pod_cidrs("n100") == ("10.244.100.0/24", "fd00:10:244:64::/64")


def _places(folder: Path) -> Places:
    return Places(Layout(folder / "lab", State(nodes=2, port=20001, kube=binaries.NEWEST)))


def _programs(folder: Path, names: tuple[str, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch(mode=0o755)
