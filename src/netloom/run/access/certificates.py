"""The certificates that `netloom serve` makes: a CA, the server's own, and one for each client that asks for one.

Only this module imports cryptography. Every function takes and returns PEM bytes, so other modules do not depend on the
library; credentials.py decides where the files are and when they are renewed. Keys are ECDSA P-256: small, fast to make
on a first start, and supported by every client. `now` is an argument, so renewal is tested without waiting.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from netloom.errors import Invalid

CA_DAYS = 3650
LEAF_DAYS = 365
_SKEW = timedelta(minutes=5)
"""Certificates are valid from a little before they are made, for clients whose clock is behind."""


class Pair(Struct, frozen=True):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


def new_key() -> bytes:
    """Return a fresh P-256 private key as PEM (PKCS #8)."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_key(key: bytes) -> bytes:
    """Return the public part of a private key as PEM."""
    public = _private(key).public_key()
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def make_ca(key: bytes, *, name: str, now: datetime) -> bytes:
    """Return a self-signed CA certificate for `key`."""
    private = _private(key)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _builder(subject, private.public_key(), now=now, days=CA_DAYS).issuer_name(subject)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
    return builder.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def make_server(ca: Pair, key: bytes, *, hosts: Iterable[str], now: datetime) -> bytes:
    """Return a certificate for a server that clients reach under any of `hosts` (names and addresses)."""
    names = sorted(set(hosts))
    return _leaf(ca, key, _subject("netloom"), [ExtendedKeyUsageOID.SERVER_AUTH], names=names, now=now)


def make_peer(ca: Pair, key: bytes, *, name: str, hosts: Iterable[str], now: datetime) -> bytes:
    """Return a certificate for a server that also connects to its peers, as a member of a cluster does."""
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return _leaf(ca, key, _subject(name), usages, names=sorted(set(hosts)), now=now)


def make_client(ca: Pair, key: bytes, *, name: str, groups: Sequence[str], now: datetime) -> bytes:
    """Return a client certificate: `name` is its common name, `groups` its organizations."""
    return _leaf(ca, key, _subject(name, groups), [ExtendedKeyUsageOID.CLIENT_AUTH], names=[], now=now)


def make_request(key: bytes, *, name: str) -> bytes:
    """Return a request (PKCS #10, PEM) for a certificate of `key` with a common name."""
    request = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    return request.sign(_private(key), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def sign_request(ca: Pair, request: bytes, *, name: str, now: datetime) -> bytes:
    """Return a client certificate for the key in a request; `Invalid` unless the request is proved and for `name`."""
    try:
        found = x509.load_pem_x509_csr(request)
        proved, public = found.is_signature_valid, found.public_key()
        names = [str(one.value) for one in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Invalid(f"the request is not a readable PKCS #10 request: {error}") from None
    if not proved:
        raise Invalid("the signature of the request is wrong")
    if names != [name]:
        raise Invalid(f"the common name is {', '.join(names) or 'missing'}, and must be {name}")
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
        raise Invalid("the key is not ECDSA P-256")
    return _issue(ca, public, _subject(name), [ExtendedKeyUsageOID.CLIENT_AUTH], names=[], now=now)


def is_valid(
    certificate: bytes, *, key: bytes, ca: bytes, hosts: Iterable[str] = (), now: datetime, margin: timedelta
) -> bool:
    """Whether a certificate is usable and need not be renewed.

    It is readable, belongs to `key`, is signed by `ca`, names all of `hosts`, is already valid (the clock that made it
    may have been ahead), and does not expire within `margin`.
    """
    try:
        leaf, authority, private = _certificate(certificate), _certificate(ca), _private(key)
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    if leaf.public_key() != private.public_key():
        return False
    if leaf.not_valid_before_utc > now or leaf.not_valid_after_utc - now <= margin:
        return False
    return set(hosts) <= set(_names(leaf))


def fingerprint(certificate: bytes) -> bytes:
    """Return the SHA-256 of a certificate (PEM), as `openssl x509 -fingerprint -sha256` prints it."""
    return _certificate(certificate).fingerprint(hashes.SHA256())


def common_name(certificate: bytes) -> str:
    """Return the common name of a certificate, or "" if it cannot be read."""
    try:
        found = _certificate(certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except ValueError:
        return ""
    return str(found[0].value) if found else ""


@lru_cache(maxsize=1024)  # A proxy presents the same certificate with each request.
def issued(encoded: bytes, bundle: bytes) -> bool:
    """Whether a certificate (DER) is directly issued by one of the CAs in a bundle (PEM)."""
    try:
        leaf = x509.load_der_x509_certificate(encoded)
        authorities = x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return False
    return any(_is_issuer(authority, leaf) for authority in authorities)


def _is_issuer(authority: x509.Certificate, leaf: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def is_key(data: bytes) -> bool:
    """Whether `data` is a usable private key."""
    try:
        _private(data)
    except (ValueError, TypeError):
        return False
    return True


def _leaf(
    ca: Pair,
    key: bytes,
    subject: x509.Name,
    usages: Sequence[x509.ObjectIdentifier],
    *,
    names: Sequence[str],
    now: datetime,
) -> bytes:
    return _issue(ca, _private(key).public_key(), subject, usages, names=names, now=now)


def _issue(
    ca: Pair,
    public: ec.EllipticCurvePublicKey,
    subject: x509.Name,
    usages: Sequence[x509.ObjectIdentifier],
    *,
    names: Sequence[str],
    now: datetime,
) -> bytes:
    authority, signer = _certificate(ca.certificate), _private(ca.key)
    builder = _builder(subject, public, now=now, days=LEAF_DAYS).issuer_name(authority.subject)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _builder(
    subject: x509.Name, public: ec.EllipticCurvePublicKey, *, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - _SKEW)
        .not_valid_after(now.astimezone(UTC) + timedelta(days=days))
    )


def _subject(name: str, groups: Sequence[str] = ()) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


def _certificate(data: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(data)


def _private(data: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(data, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("not an elliptic-curve key")
    return key
