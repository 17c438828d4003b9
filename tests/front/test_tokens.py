"""Tokens and certificates."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import Invalid
from netloom.front.api.auth.identity import AnyOf, Certificate, Credentials, Identity
from netloom.front.api.auth.tokens import ClientCertificates, TokenFile, line, new_token, parse


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def bearer(token: str, scheme: str = "Bearer") -> Credentials:
    return Credentials([(b"authorization", f"{scheme} {token}".encode())])


def ask(authenticator: TokenFile | ClientCertificates | AnyOf, offered: Credentials) -> Identity | None:
    return asyncio.run(authenticator.authenticate(offered))


def test_a_token_of_the_file_says_who_has_it(tmp_path: Path) -> None:
    token = new_token()
    file = tmp_path / "tokens"
    file.write_text("# people\n\n" + line(token, "alice", ["netloom:admin", "netloom:viewer:a"]) + line("x", "bob", []))
    known = TokenFile(file)
    alice = ask(known, bearer(token))
    assert alice is not None
    assert (alice.name, alice.roles) == ("alice", ("netloom:admin", "netloom:viewer:a"))
    assert ask(known, bearer(token, "bearer")) == alice
    bob = ask(known, bearer("x"))
    assert bob is not None
    assert bob.roles == ()


@pytest.mark.parametrize(
    "header", [b"", b"Bearer", b"Bearer ", b"Bearer nonsense", b"Basic eDp5", b"\xff\xfe", b"Bearer \xff"]
)
def test_anything_else_proves_nothing(tmp_path: Path, header: bytes) -> None:
    file = tmp_path / "tokens"
    file.write_text(line("secret", "alice", []))
    assert ask(TokenFile(file), Credentials([(b"authorization", header)])) is None
    assert ask(TokenFile(file), Credentials()) is None


def test_the_file_does_not_hold_the_token(tmp_path: Path) -> None:
    assert "secret" not in line("secret", "alice", ["netloom:admin"])
    assert new_token() != new_token()


def test_a_changed_file_is_read_again_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    file, clock = tmp_path / "tokens", Clock()
    file.write_text(line("one", "alice", []))
    known = TokenFile(file, clock=clock)
    assert ask(known, bearer("one")) is not None
    file.write_text(line("three", "alice-too", []))
    assert ask(known, bearer("one")) is not None  # Looked at a moment ago.
    clock.now += 2
    assert ask(known, bearer("one")) is None
    file.write_text(line("two", "alice-again", []))
    assert ask(known, bearer("two")) is not None  # What nobody knew is looked for at once.
    assert ask(known, bearer("three")) is None
    file.write_text("what is this\n")
    clock.now += 2
    assert ask(known, bearer("two")) is not None
    os.unlink(file)
    clock.now += 2
    assert ask(known, bearer("two")) is not None


@pytest.mark.parametrize(
    "text", ["sha256:00 alice x", "md5:00 alice", "sha256:zz a b", "one", "sha256:" + "0" * 64 + " a b c"]
)
def test_a_line_that_is_wrong_is_named_by_its_number_only(text: str) -> None:
    with pytest.raises(Invalid, match="line 2") as caught:
        parse("# first\n" + text)
    assert "alice" not in str(caught.value)


@given(st.text())
def test_any_file_is_read_or_refused(text: str) -> None:
    try:
        parse(text)
    except Invalid:
        return


def test_a_certificate_names_its_bearer_and_their_roles() -> None:
    offered = Credentials(certificate=Certificate("n1", ("netloom:node:n1", "people")))
    who = ask(ClientCertificates(), offered)
    assert who == Identity("n1", ("people", "system:authenticated"), ("netloom:node:n1",))
    assert ask(ClientCertificates(), Credentials()) is None
    assert ask(ClientCertificates(), Credentials(certificate=Certificate(""))) is None


def test_whoever_knows_them_first_says_who_they_are(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(line("one", "alice", []))
    both = AnyOf(ClientCertificates(), TokenFile(file))
    certified = Credentials([(b"authorization", b"Bearer one")], Certificate("bob"))
    found = [ask(both, offered) for offered in (certified, bearer("one"), bearer("two"))]
    assert [who.name if who else None for who in found] == ["bob", "alice", None]


def test_a_broken_file_is_tried_again_until_it_is_good_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, clock = tmp_path / "tokens", Clock()
    good, better = line("one", "alice", []), line("two", "carol", [])
    file.write_text(good)
    known = TokenFile(file, clock=clock)
    assert ask(known, bearer("one")) is not None
    file.write_text("x" * len(better))
    broken = os.stat(file)
    for _ in range(5):
        clock.now += 2
        assert ask(known, bearer("one")) is not None
        assert ask(known, bearer("unknown")) is None
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    # Completed in place within one tick of the file system's clock: nothing but the contents tells the two apart.
    file.write_text(better)
    os.utime(file, ns=(broken.st_atime_ns, broken.st_mtime_ns))
    clock.now += 2
    assert ask(known, bearer("two")) is not None
    assert ask(known, bearer("one")) is None


def test_a_broken_file_is_not_parsed_at_the_pace_of_who_has_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, clock = tmp_path / "tokens", Clock()
    file.write_text("x" * 100)
    reads: list[Path] = []
    read = Path.read_text

    def counted(path: Path, *rest: str, **more: str) -> str:
        reads.append(path)
        return read(path, *rest, **more)

    monkeypatch.setattr(Path, "read_text", counted)
    known = TokenFile(file, clock=clock)
    for _ in range(100):
        assert ask(known, bearer("guess")) is None
    assert len(reads) == 1


def test_a_revoked_certificate_proves_nothing_nor_does_one_that_has_ended(tmp_path: Path) -> None:
    file, clock = tmp_path / "revoked", Clock()
    known = ClientCertificates(file, clock=clock, time_of_day=lambda: 1000.0)
    one, two = (Credentials(certificate=Certificate(name, (), name.encode())) for name in ("one", "two"))
    assert [ask(known, each) is None for each in (one, two)] == [False, False]
    file.write_text(line("one", "one", []))
    clock.now += 2
    assert [ask(known, each) is None for each in (one, two)] == [True, False]
    file.write_text("broken")
    clock.now += 2
    assert [ask(known, each) is None for each in (one, two)] == [True, False]
    assert ask(ClientCertificates(file), two) is None  # What never could be read may name anybody.
    ended = Credentials(certificate=Certificate("two", (), b"two", expires=999.0))
    assert ask(known, ended) is None
