import base64
import os
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from netloom.errors import AlreadyExists, BadRequest, Invalid, NotFound
from netloom.front.api.auth import tokens
from netloom.model import codec
from netloom.run import files
from netloom.run.access import certificates, credentials
from netloom.run.access.credentials import Directory, Revoked

NOW = datetime(2026, 5, 1, tzinfo=UTC)
URL = "https://127.0.0.1:8480"


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    made = Directory(tmp_path / "data")
    made.make()
    prepare(made)
    return made


def prepare(directory: Directory, now: datetime = NOW, hosts: tuple[str, ...] = ("127.0.0.1",)) -> bool:
    renewed = directory.prepare(hosts=hosts, now=now)
    directory.write_kubeconfig(URL)
    return renewed


def contents(directory: Directory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.path.iterdir() if path.is_file()}


def test_a_prepared_directory_is_private_and_whole(directory: Directory) -> None:
    assert set(contents(directory)) == {
        "ca.key",
        "ca.crt",
        "server.key",
        "server.crt",
        "tokens",
        "admin.token",
        "admin.kubeconfig",
    }
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in directory.path.iterdir())


def test_preparing_again_changes_nothing(directory: Directory) -> None:
    before = contents(directory)
    assert prepare(directory, NOW + timedelta(days=100)) is False
    assert contents(directory) == before


def test_whatever_is_missing_is_made_again_from_the_rest(directory: Directory) -> None:
    before = contents(directory)
    for name in before:
        (directory.path / name).unlink()
        prepare(directory)
        now = contents(directory)
        assert set(now) == set(before)
        who = tokens.parse(now["tokens"].decode())
        assert [identity.name for identity in who.values()] == ["admin"]
        token = now["admin.token"].decode().strip()
        assert tokens.line(token, "admin", ["netloom:admin"]) in now["tokens"].decode()
        assert token in now["admin.kubeconfig"].decode()
        assert certificates.is_valid(
            now["server.crt"], key=now["server.key"], ca=now["ca.crt"], now=NOW, margin=timedelta(days=30)
        )


def test_a_certificate_near_its_end_is_made_again_with_the_same_ca(directory: Directory) -> None:
    ca = directory.ca_certificate.read_bytes()
    assert prepare(directory, NOW + timedelta(days=340)) is True
    assert directory.ca_certificate.read_bytes() == ca


def test_a_ca_near_its_end_is_made_again_and_the_kubeconfig_follows(directory: Directory) -> None:
    ca = directory.ca_certificate.read_bytes()
    prepare(directory, NOW + timedelta(days=3300))
    assert directory.ca_certificate.read_bytes() != ca
    assert certificates.common_name(directory.ca_certificate.read_bytes()) == certificates.common_name(ca)
    found = codec.decode(directory.kubeconfig.read_bytes(), "application/yaml")
    data = found["clusters"][0]["cluster"]["certificate-authority-data"]
    assert data == credentials.base64_text(directory.ca_certificate.read_bytes())


def test_what_a_clock_that_was_ahead_made_is_made_again(directory: Directory) -> None:
    server, ca = directory.server_certificate.read_bytes(), directory.ca_certificate.read_bytes()
    earlier = NOW - timedelta(days=2)
    assert prepare(directory, earlier) is True
    assert directory.server_certificate.read_bytes() != server
    assert directory.ca_certificate.read_bytes() != ca
    assert prepare(directory, earlier) is False


def test_a_new_name_asks_for_a_new_certificate(directory: Directory) -> None:
    assert prepare(directory, hosts=("127.0.0.1", "api.example")) is True
    assert prepare(directory, hosts=("127.0.0.1", "api.example")) is False


def test_a_broken_key_is_not_replaced_but_named(directory: Directory) -> None:
    (directory.path / "ca.key").write_bytes(b"garbage")
    with pytest.raises(Invalid, match=r"ca\.key is not a private key"):
        prepare(directory)


def test_what_a_crash_left_half_written_is_swept_away(directory: Directory) -> None:
    (directory.path / ".tokens.1.abcd.tmp").write_bytes(b"half")
    prepare(directory)
    assert not list(directory.path.glob(".*.tmp"))


def test_a_token_is_issued_listed_and_revoked(directory: Directory) -> None:
    text = directory.issue_token("ci", ["netloom:editor:lab"], server=URL)
    config = codec.decode(text.encode(), "application/yaml")
    token = config["users"][0]["user"]["token"]
    assert token not in directory.tokens.read_text()
    assert [(known.name, known.roles) for known in directory.known()] == [
        ("admin", ("netloom:admin",)),
        ("ci", ("netloom:editor:lab",)),
    ]
    with pytest.raises(AlreadyExists):
        directory.issue_token("ci", ["netloom:viewer"], server=URL)
    assert directory.revoke("ci") == Revoked("ci", tokens=1)
    with pytest.raises(NotFound):
        directory.revoke("ci")


def revoked(directory: Directory) -> set[str]:
    return {digest.hex() for digest in tokens.parse(directory.revoked.read_text())}


def test_certificates_are_revoked_one_by_one_or_all_of_a_name(directory: Directory) -> None:
    def made() -> bytes:
        text = directory.issue_certificate("n1", ["netloom:node:n1"], server=URL, now=NOW)
        user = codec.decode(text.encode(), "application/yaml")["users"][0]["user"]
        return certificates.fingerprint(base64.b64decode(user["client-certificate-data"]))

    one, two, three = made().hex(), made().hex(), made().hex()
    directory.issue_token("n1", ["netloom:node:n1"], server=URL)
    listed = [known for known in directory.known() if known.name == "n1"]
    assert [(known.certificate, known.revoked) for known in listed] == [(False, False), *[(True, False)] * 3]
    assert directory.revoke_one(one[:12]) == Revoked("n1", certificates=1)
    assert revoked(directory) == {one}
    with pytest.raises(NotFound):
        directory.revoke_one(one)
    spelled = "SHA256:" + ":".join(two.upper()[at : at + 2] for at in range(0, 64, 2))
    assert directory.revoke_one(spelled) == Revoked("n1", certificates=1)
    assert directory.revoke("n1") == Revoked("n1", tokens=1, certificates=1)
    assert revoked(directory) == {one, two, three}
    assert [known.revoked for known in directory.known() if known.name == "n1"] == [True, True, True]


def test_a_certificate_without_a_record_is_revoked_by_its_whole_fingerprint(directory: Directory) -> None:
    with pytest.raises(NotFound):
        directory.revoke_one("ab" * 8)
    directory.revoke_one("ab" * 32)
    assert revoked(directory) == {"ab" * 32}
    for wrong in ("", "abc", "x" * 64, "ab" * 33):
        with pytest.raises(BadRequest):
            directory.revoke_one(wrong)


def test_a_file_that_is_reserved_is_private_and_goes_if_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with files.reserved(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.unlink()
    with pytest.raises(ValueError, match="no"), files.reserved(path):
        raise ValueError("no")
    assert not path.exists()
    path.write_text("old")
    with pytest.raises(AlreadyExists), files.reserved(path):
        pass
    with pytest.raises(ValueError, match="no"), files.reserved(path, overwrite=True):
        raise ValueError("no")
    assert path.read_text() == "old"
    with pytest.raises(Invalid), files.reserved(tmp_path / "nowhere" / "x"):
        pass


def test_a_revoked_administrator_gets_a_new_token_at_the_next_start(directory: Directory) -> None:
    before = (directory.path / "admin.token").read_text()
    directory.revoke("admin")
    assert directory.known() == []
    prepare(directory)
    assert (directory.path / "admin.token").read_text() != before
    assert [known.name for known in directory.known()] == ["admin"]


def test_the_server_is_found_where_it_last_started(directory: Directory, tmp_path: Path) -> None:
    assert directory.server_url() == URL
    with pytest.raises(NotFound, match="run `netloom serve"):
        Directory(tmp_path / "nothing").server_url()


def test_tokens_issued_at_the_same_time_are_all_kept(directory: Directory) -> None:
    def issue(name: str) -> None:
        Directory(directory.path).issue_token(name, ["netloom:viewer"], server=URL)

    together = [threading.Thread(target=issue, args=(f"p{n}",)) for n in range(8)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert {known.name for known in directory.known()} == {"admin", *(f"p{n}" for n in range(8))}


@pytest.mark.parametrize(
    ("text", "namespace", "written"),
    [
        ("admin", "", "netloom:admin"),
        ("viewer", "team-a", "netloom:viewer:team-a"),
        ("node:n1", "", "netloom:node:n1"),
    ],
)
def test_roles_are_written_as_the_server_reads_them(text: str, namespace: str, written: str) -> None:
    assert credentials.role(text, namespace=namespace) == written


@pytest.mark.parametrize(
    ("text", "namespace"),
    [("root", ""), ("node", ""), ("node:", ""), ("node:A B", ""), ("admin:x", ""), ("viewer", "A!"), ("node:n1", "a")],
)
def test_what_is_no_role_is_refused(text: str, namespace: str) -> None:
    with pytest.raises(BadRequest):
        credentials.role(text, namespace=namespace)


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "-x", "x" * 64])
def test_names_that_would_break_a_line_are_refused(name: str) -> None:
    with pytest.raises(BadRequest):
        credentials.checked_name(name)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x"
    files.write_whole(path, b"one")
    files.write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["x"]
