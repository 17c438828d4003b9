"""Finding out where the API is and who we are."""

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from netloom.errors import BadRequest, NotFound, Unreachable
from netloom.model.codec import encode_yaml
from netloom.store.kube.kubeconfig import in_cluster, load

BAD_DATA = {"server": "x", "certificate-authority-data": "?"}
NO_FILE = {"server": "x", "certificate-authority": "no"}


def config(**changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c1", "user": "u1", "namespace": "lab"}},
            {"name": "two", "context": {"cluster": "c2", "user": "u2"}},
            {"name": "nobody", "context": {"cluster": "c1"}},
        ],
        "clusters": [
            {"name": "c1", "cluster": {"server": "https://one:6443", "certificate-authority": "ca.crt"}},
            {
                "name": "c2",
                "cluster": {
                    "server": "https://two:6443",
                    "certificate-authority-data": base64.b64encode(b"INLINE CA").decode(),
                    "insecure-skip-tls-verify": True,
                    "tls-server-name": "inner",
                },
            },
        ],
        "users": [
            {"name": "u1", "user": {"token": "secret"}},
            {
                "name": "u2",
                "user": {"client-certificate": "c.pem", "client-key-data": base64.b64encode(b"KEY").decode()},
            },
        ],
        **changes,
    }


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def written(folder: Path, name: str = "config", **changes: Any) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ca.crt").write_bytes(b"A CA")
    (folder / "c.pem").write_bytes(b"A CERTIFICATE")
    path = folder / name
    path.write_text(encode_yaml(config(**changes)))
    return str(path)


def test_the_current_context_is_taken(tmp_path: Path) -> None:
    cluster = load(written(tmp_path / "sub"))
    assert (cluster.server, cluster.context, cluster.namespace) == ("https://one:6443", "one", "lab")
    assert (cluster.ca, cluster.token, cluster.insecure) == (b"A CA", "secret", False)
    assert cluster.headers() == {"Authorization": "Bearer secret"}


def test_another_context_can_be_chosen(tmp_path: Path) -> None:
    cluster = load(written(tmp_path), "two")
    assert (cluster.server, cluster.namespace, cluster.server_name) == ("https://two:6443", "default", "inner")
    assert (cluster.ca, cluster.insecure) == (b"INLINE CA", True)
    assert (cluster.certificate, cluster.key, cluster.headers()) == (b"A CERTIFICATE", b"KEY", {})


def test_a_context_may_have_no_user(tmp_path: Path) -> None:
    assert load(written(tmp_path), "nobody").headers() == {}


def test_a_token_file_is_read_anew_each_time(tmp_path: Path) -> None:
    path = written(tmp_path, users=[{"name": "u1", "user": {"tokenFile": "token"}}])
    (tmp_path / "token").write_text("first\n")
    cluster = load(path)
    assert cluster.headers() == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second\n")
    assert cluster.headers() == {"Authorization": "Bearer second"}


def test_no_secret_is_shown() -> None:
    from netloom.store.kube.kubeconfig import Cluster

    cluster = Cluster(server="https://x", token="hush", key=b"hush")
    assert "hush" not in f"{cluster!r} {cluster}"


def test_without_a_path_the_environment_and_then_the_home_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFound, match=r"there is no kubeconfig at .*/home/\.kube/config; specify one"):
        load()
    written(tmp_path / "home" / ".kube")
    assert load().server == "https://one:6443"
    listed = os.pathsep.join([str(tmp_path / "missing"), written(tmp_path / "x", **{"current-context": "two"})])
    monkeypatch.setenv("KUBECONFIG", listed)
    assert load().server == "https://two:6443"


def test_several_files_are_merged_and_the_first_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tmp_path / "a" / "first"
    first.parent.mkdir()
    first.write_text(
        encode_yaml({"current-context": "two", "users": [{"name": "u2", "user": {"token": "mine"}}], "contexts": None})
    )
    monkeypatch.setenv("KUBECONFIG", f"{first}{os.pathsep}{written(tmp_path / 'b')}")
    cluster = load()
    assert (cluster.context, cluster.server, cluster.token) == ("two", "https://two:6443", "mine")


@pytest.mark.parametrize(
    ("changes", "context", "error", "words"),
    [
        ({}, "three", NotFound, 'no context "three"; it has: one, two, nobody'),
        ({"current-context": ""}, None, NotFound, "no current-context"),
        ({"contexts": []}, None, NotFound, "it has: none"),
        ({"clusters": []}, None, NotFound, 'names the cluster "c1", which has no server'),
        ({"users": []}, None, NotFound, 'names the user "u1", which is not there'),
        ({"users": [{"name": "u1", "user": {"exec": {"command": "x"}}}]}, None, BadRequest, "exec.apiVersion is ''"),
        ({"users": [{"name": "u1", "user": {"username": "x"}}]}, None, BadRequest, "uses username, which is not"),
        ({"users": [{"name": "u1", "user": {"auth-provider": {"name": "x"}}}]}, None, BadRequest, "uses auth-provider"),
        ({"users": [{"name": "u1", "user": {"client-key": "x"}}]}, None, BadRequest, "only one of client-certificate"),
        ({"users": [{"name": "u1", "user": {"token": 7}}]}, None, BadRequest, "is not a kubeconfig: Expected `str`"),
        ({"clusters": [{"name": "c1", "cluster": BAD_DATA}]}, None, BadRequest, "not base64"),
        ({"clusters": [{"name": "c1", "cluster": NO_FILE}]}, None, NotFound, "/no is not there"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, changes: dict[str, Any], context: str | None, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        load(written(tmp_path, **changes), context)


def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="/missing is not there"):
        load(str(tmp_path / "missing"))
    with pytest.raises(Unreachable, match="cannot read"):
        load(str(tmp_path))
    for text in ("[1, 2]", "a: [", "", "a: 1\n---\nb: 2"):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(BadRequest, match="is not a kubeconfig"):
            load(str(tmp_path / "bad"))
    (tmp_path / "huge").write_bytes(b" " * (5 << 20))
    with pytest.raises(BadRequest, match="too large"):
        load(str(tmp_path / "huge"))


def test_in_a_pod_the_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound, match="not a Kubernetes pod"):
        in_cluster(tmp_path)
    (tmp_path / "ca.crt").write_bytes(b"POD CA")
    (tmp_path / "token").write_text("pod-token\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    cluster = in_cluster(tmp_path)
    assert (cluster.server, cluster.namespace, cluster.ca) == ("https://[fd00::1]:443", "default", b"POD CA")
    assert cluster.headers() == {"Authorization": "Bearer pod-token"}
    (tmp_path / "namespace").write_text("mine\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    assert (in_cluster(tmp_path).server, in_cluster(tmp_path).namespace) == ("https://10.0.0.1:6443", "mine")
    with pytest.raises(NotFound, match=r"serviceaccount/ca\.crt is not there"):
        load()
