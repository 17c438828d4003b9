import base64
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from netloom.errors import Invalid
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


def test_a_request_gives_a_certificate_of_its_key_for_the_name_that_is_proved(ca: Pair) -> None:
    key = certificates.new_key()
    made = certificates.sign_request(ca, certificates.make_request(key, name="n1"), name="n1", now=NOW)
    assert certificates.is_valid(made, key=key, ca=ca.certificate, now=NOW, margin=MARGIN)
    assert certificates.common_name(made) == "n1"
    with pytest.raises(Invalid, match="the common name is n2, and must be n1"):
        certificates.sign_request(ca, certificates.make_request(key, name="n2"), name="n1", now=NOW)


@pytest.mark.parametrize(
    "request_", [b"", b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"]
)
def test_what_is_no_request_is_refused(ca: Pair, request_: bytes) -> None:
    with pytest.raises(Invalid, match="not a readable"):
        certificates.sign_request(ca, request_, name="n1", now=NOW)


def test_a_request_that_somebody_changed_is_refused(ca: Pair) -> None:
    request = x509.load_pem_x509_csr(certificates.make_request(certificates.new_key(), name="n1"))
    encoded = bytearray(request.public_bytes(Encoding.DER))
    encoded[-1] ^= 1  # Of the signature.
    lines = (
        "-----BEGIN CERTIFICATE REQUEST-----",
        base64.b64encode(encoded).decode(),
        "-----END CERTIFICATE REQUEST-----",
    )
    text = "\n".join(lines)
    with pytest.raises(Invalid, match="signature of the request is wrong"):
        certificates.sign_request(ca, text.encode(), name="n1", now=NOW)


def test_a_request_with_another_kind_of_key_is_refused(ca: Pair) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "n1")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    with pytest.raises(Invalid, match="not ECDSA P-256"):
        certificates.sign_request(ca, request.public_bytes(Encoding.PEM), name="n1", now=NOW)
