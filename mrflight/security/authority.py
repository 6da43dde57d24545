"""A small certificate authority: for a trial, and for the servers of one job on several nodes.

A certificate says who somebody is, and never what that caller may do: Flight tells a server the
first subject alternative name of its client, and nothing else of the certificate.

To import this takes ``mrflight[tls]``, and 50 ms; so functions import it where they use it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from mrflight.errors import JobFileError
from mrflight.security.names import check_host_name, check_name

try:
    from cryptography import x509
except ImportError as error:
    raise JobFileError(
        "certificates need cryptography, which is not installed: pip install 'mrflight[tls]'"
    ) from error

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_MAX_COMMON_NAME = 64
"""RFC 5280, ub-common-name; the subject alternative name has the whole name."""

_BACKDATED = timedelta(minutes=5)
"""A new certificate is valid also where the clock is behind by this much."""


class Issued(msgspec.Struct, frozen=True):
    """A certificate and its private key, as PEM."""

    certificate_pem: bytes
    key_pem: bytes

    def __repr__(self) -> str:
        """Hide the key, as tracebacks and logs may show this."""
        return f"{type(self).__name__}(...)"


class Authority(Issued, frozen=True):
    """The certificate of an authority, and the key with which it signs."""


def new_authority(name: str, days: float) -> Authority:
    """Return an authority that is valid for ``days``, with a new key of ECDSA P-256.

    It signs certificates of servers and clients, and no further authorities. Raises JobFileError if
    ``name`` is no name.
    """
    check_name(name)
    key = ec.generate_private_key(ec.SECP256R1())
    until = datetime.now(UTC) + timedelta(days=days)
    builder = _builder(name, key, until).issuer_name(_subject(name))
    for extension in (x509.BasicConstraints(ca=True, path_length=0), _usage(signs=True)):
        builder = builder.add_extension(extension, critical=True)
    return Authority(*_pem(builder, signer=key, key=key))


def issue(authority: Issued, name: str, hosts: Sequence[str] = (), *, days: float) -> Issued:
    """Return a certificate that serves both servers and clients, with a new key of ECDSA P-256.

    ``name`` is who it is: the first subject alternative name, which a server is told when a client
    calls. ``hosts`` are the host names and IP addresses at which clients reach it, if it is a
    server. It ends after ``days``, or with its authority if that is earlier. Raises JobFileError if
    a name or a host is none, or the authority cannot be used.
    """
    own, signer = _loaded(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(datetime.now(UTC) + timedelta(days=days), own.not_valid_after_utc)
    builder = _builder(name, key, until).issuer_name(own.subject)
    for extension in (x509.BasicConstraints(ca=False, path_length=None), _usage(signs=False)):
        builder = builder.add_extension(extension, critical=True)
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    for described in (
        x509.ExtendedKeyUsage(both),
        x509.SubjectAlternativeName(list(_alternative_names(name, hosts))),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
    ):
        builder = builder.add_extension(described, critical=False)
    return Issued(*_pem(builder, signer=signer, key=key))


def expires(certificate_pem: bytes) -> datetime:
    """Return when a certificate ends, in UTC; of a chain, when the first of its certificates does.

    Raises JobFileError if there is no certificate.
    """
    try:
        chain = x509.load_pem_x509_certificates(certificate_pem)
    except ValueError as error:
        raise JobFileError(f"there is no certificate in PEM: {error}") from error
    return min(certificate.not_valid_after_utc for certificate in chain)


def _loaded(authority: Issued) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the certificate and the key of an authority that can sign now."""
    try:
        certificate = x509.load_pem_x509_certificate(authority.certificate_pem)
        key = load_pem_private_key(authority.key_pem, password=None)
    except (TypeError, ValueError) as error:
        raise JobFileError(f"the authority's files cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or (
        key.public_key() != certificate.public_key()
    ):
        raise JobFileError("the authority's key is not that of its certificate")
    if certificate.not_valid_after_utc <= datetime.now(UTC):
        raise JobFileError(
            f"the authority's certificate ended on {certificate.not_valid_after_utc:%Y-%m-%d}; "
            "make a new authority"
        )
    return certificate, key


def _builder(
    name: str, key: ec.EllipticCurvePrivateKey, until: datetime
) -> x509.CertificateBuilder:
    check_name(name)
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - _BACKDATED)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_MAX_COMMON_NAME])])


def _usage(*, signs: bool) -> x509.KeyUsage:
    """Return what the key may be used for: to sign certificates, or the handshakes of TLS."""
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_names(name: str, hosts: Sequence[str]) -> Iterator[x509.GeneralName]:
    """Yield the name of the caller, and then the hosts."""
    yield x509.DNSName(name)
    for host in hosts:
        try:
            yield x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            check_host_name(host)
            if host != name:
                yield x509.DNSName(host)


def _pem(
    builder: x509.CertificateBuilder,
    *,
    signer: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePrivateKey,
) -> tuple[bytes, bytes]:
    certificate = builder.sign(signer, hashes.SHA256())
    return (
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
