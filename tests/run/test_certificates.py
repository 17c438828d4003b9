import ssl
from datetime import UTC, datetime, timedelta

import pytest

from netloom.run.access import certificates
from netloom.run.access.certificates import Pair

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MARGIN = timedelta(days=30)


@pytest.fixture(scope="module")
def ca() -> Pair:
    key = certificates.new_key()
    return Pair(certificates.make_ca(key, name="test-ca", now=NOW), key)


def test_a_fresh_certificate_is_good_until_it_nears_its_end(ca: Pair) -> None:
    key = certificates.new_key()
    made = certificates.make_server(ca, key, hosts=["127.0.0.1", "db.example"], now=NOW)

    def good(days: float, *hosts: str) -> bool:
        later = NOW + timedelta(days=days)
        return certificates.is_valid(made, key=key, ca=ca.certificate, hosts=hosts, now=later, margin=MARGIN)

    assert not good(-1)  # A clock that was ahead made it: nobody else takes it yet.
    assert good(0, "127.0.0.1", "db.example")
    assert good(334)
    assert not good(336)


def test_a_certificate_that_lacks_a_name_must_be_made_again(ca: Pair) -> None:
    key = certificates.new_key()
    made = certificates.make_server(ca, key, hosts=["127.0.0.1"], now=NOW)
    assert not certificates.is_valid(made, key=key, ca=ca.certificate, hosts=["10.0.0.1"], now=NOW, margin=MARGIN)


def test_a_certificate_of_another_key_or_another_ca_must_be_made_again(ca: Pair) -> None:
    key = certificates.new_key()
    made = certificates.make_server(ca, key, hosts=["localhost"], now=NOW)
    other = certificates.new_key()
    stranger = certificates.make_ca(other, name="test-ca", now=NOW)
    assert not certificates.is_valid(made, key=other, ca=ca.certificate, now=NOW, margin=MARGIN)
    assert not certificates.is_valid(made, key=key, ca=stranger, now=NOW, margin=MARGIN)


@pytest.mark.parametrize(
    "broken", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_must_be_made_again(ca: Pair, broken: bytes) -> None:
    assert not certificates.is_valid(broken, key=ca.key, ca=ca.certificate, now=NOW, margin=MARGIN)


def test_a_ca_made_again_with_its_key_still_vouches_for_what_it_signed(ca: Pair) -> None:
    key = certificates.new_key()
    made = certificates.make_server(ca, key, hosts=["localhost"], now=NOW)
    renewed = certificates.make_ca(ca.key, name="test-ca", now=NOW + timedelta(days=100))
    assert certificates.is_valid(made, key=key, ca=renewed, now=NOW, margin=MARGIN)


def test_openssl_accepts_server_and_client_certificates_of_the_ca() -> None:
    now = datetime.now(UTC)
    ca_key, server_key, client_key = (certificates.new_key() for _ in range(3))
    ca = Pair(certificates.make_ca(ca_key, name="test-ca", now=now), ca_key)
    server = certificates.make_server(ca, server_key, hosts=["127.0.0.1", "localhost"], now=now)
    client = certificates.make_client(ca, client_key, name="alice", groups=["netloom:viewer"], now=now)
    subject = handshake(ca.certificate, Pair(server, server_key), Pair(client, client_key))
    assert (("organizationName", "netloom:viewer"),) in subject
    assert (("commonName", "alice"),) in subject


def handshake(ca: bytes, server: Pair, client: Pair) -> tuple[object, ...]:
    """Shake hands in memory and return the client certificate's subject as the server saw it."""
    here, there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cadata=ca.decode())
    here.verify_mode = ssl.CERT_REQUIRED
    here.load_verify_locations(cadata=ca.decode())
    _load(here, server)
    _load(there, client)
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    answering = here.wrap_bio(a, b, server_side=True)
    asking = there.wrap_bio(b, a, server_hostname="127.0.0.1")
    for _ in range(6):
        for side in (asking, answering):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = answering.getpeercert()
    assert found is not None
    subject: tuple[object, ...] = found["subject"]  # type: ignore[assignment]
    return subject


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(pair.certificate + pair.key)
        file.flush()
        context.load_cert_chain(file.name)
