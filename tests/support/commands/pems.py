"""Certificates of an authority of the test's own: of a user, as HopsFS gives them, and a server."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from mrflight.storage.certificates import CA_CHAIN, CLIENT_CERTIFICATE, CLIENT_KEY

_DAY = timedelta(days=1)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass(frozen=True)
class Authority:
    """One that signs, for a day."""

    key: ec.EllipticCurvePrivateKey = field(default_factory=_new_key)

    def signed(self, name: str, key: ec.EllipticCurvePrivateKey, host: str = "") -> bytes:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name("authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(x509.BasicConstraints(key is self.key, None), critical=True)
        )
        if host:
            address = x509.IPAddress(ipaddress.ip_address(host))
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)

    @property
    def certificate(self) -> bytes:
        return self.signed("authority", self.key)

    def write_pems(self, folder: Path, user: str) -> Path:
        """The three files of a user, in the folder, which is made."""
        folder.mkdir()
        key = _new_key()
        (folder / CA_CHAIN).write_bytes(self.certificate)
        (folder / CLIENT_CERTIFICATE).write_bytes(self.signed(user, key))
        (folder / CLIENT_KEY).write_bytes(_text(key))
        return folder

    def server_side(self, folder: Path, host: str, believes: Authority) -> ssl.SSLContext:
        """Return the context of a server that wants certificates issued by ``believes``."""
        folder.mkdir()
        key = _new_key()
        (folder / "certificate.pem").write_bytes(self.signed("node", key, host))
        (folder / "key.pem").write_bytes(_text(key))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
        context.load_verify_locations(cadata=believes.certificate.decode())
        context.verify_mode = ssl.CERT_REQUIRED
        return context


def _text(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
