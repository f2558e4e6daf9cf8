"""Certificates of a test's own, for servers on 127.0.0.1 and for clients."""

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates of a test."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        made = self._signed(self._name, self._key.public_key(), is_authority=True)
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> tuple[Path, Path]:
        """(certificate, key) for 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._signed(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key.public_key(), is_authority=False
        )
        cert, secret = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return cert, secret

    def _signed(self, subject: x509.Name, key: Any, *, is_authority: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if is_authority:
            usage = dict.fromkeys(
                (
                    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
                    *("key_agreement", "encipher_only", "decipher_only"),
                ),
                False,
            )
            builder = builder.add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True)
        return builder.sign(self._key, hashes.SHA256())
