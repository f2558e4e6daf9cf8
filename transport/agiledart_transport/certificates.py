"""Identity of a node: one Ed25519 key, which vouches for the key of a short-lived TLS leaf.

The leaf carries libp2p's SignedKey extension: the node's public key and its signature over the leaf's own key. TLS
proves that the peer holds the leaf's key, so the peer speaks for the node's key. libp2p's leaves are self-signed, which
Python's `ssl` refuses from clients. Ours are signed by a CA whose key any node can derive from the network's public id
(decision 0002 and the notes it rests on). Source: libp2p TLS specification, "Peer authentication"; the admission spec,
sections 1 and 5.
"""

import warnings
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.utils import CryptographyDeprecationWarning

from agiledart_kernel.errors import Refused
from agiledart_kernel.grants import is_proper_key
from agiledart_transport.tls_contexts import TlsCredentials

# A stranger's odd certificate must not print a warning into our log: it is parsed and verified, or refused and counted.
warnings.filterwarnings("ignore", message="Parsed a ", category=CryptographyDeprecationWarning)

LEAF_DAYS: Final = 30
"""Validity of a TLS leaf. The node makes a new one at each start and in the leaf's last tenth."""

MAX_CERTIFICATE_BYTES: Final = 2_048
"""Largest certificate that is parsed. A leaf has about 450 bytes."""

_SIGNED_KEY: Final = x509.ObjectIdentifier("1.3.6.1.4.1.53594.1.1")
_CONTEXT: Final = b"libp2p-tls-handshake:"
_KEY_PREFIX: Final = b"\x08\x01\x12\x20"  # protobuf of libp2p: key type Ed25519, 32 bytes follow
_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

# ASN.1 of SignedKey for Ed25519 has one form only: SEQUENCE(104) { OCTET STRING(36) key, OCTET STRING(64) signature }.
_SEQUENCE: Final = b"\x30\x68\x04\x24"
_SIGNATURE: Final = b"\x04\x40"
_EXTENSION_BYTES: Final = 106


def public_bytes(key: ed25519.Ed25519PrivateKey) -> bytes:
    """Return the 32 bytes of a key's public half."""
    return key.public_key().public_bytes_raw()


def check_signature(key: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether `signature` is that of `key` over `message`. This is the function that `verify_chain` takes."""
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def peer_id_text(key: bytes) -> str:
    """Return a node's name for people and libp2p: base58 of the identity multihash of its public key, `12D3Koo…`."""
    number, text = int.from_bytes(b"\x24" + _KEY_PREFIX + key, "big"), ""
    while number:
        number, rest = divmod(number, 58)
        text = _ALPHABET[rest] + text
    return "1" + text  # the multihash begins with a zero byte


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


@lru_cache(maxsize=8)
def _network_ca(network: bytes) -> tuple[ed25519.Ed25519PrivateKey, x509.Certificate]:
    seed = HKDF(hashes.SHA256(), 32, None, b"agiledart-network-ca/1").derive(network)
    key = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
    builder = x509.CertificateBuilder(
        issuer_name=_name("agiledart-network"),
        subject_name=_name("agiledart-network"),
        public_key=key.public_key(),
        serial_number=1,
        not_valid_before=datetime(2020, 1, 1, tzinfo=UTC),
        not_valid_after=datetime(2120, 1, 1, tzinfo=UTC),
    )
    return key, builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).sign(key, None)


def make_credentials(
    key: ed25519.Ed25519PrivateKey, network: bytes, now_seconds: int, days: int = LEAF_DAYS
) -> TlsCredentials:
    """Return a fresh TLS leaf that proves `key`, with what a context needs to present it and to verify peers of this network."""
    ca_key, ca = _network_ca(network)
    leaf_key = ec.generate_private_key(ec.SECP256R1())
    spki = leaf_key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signed_key = _SEQUENCE + _KEY_PREFIX + public_bytes(key) + _SIGNATURE + key.sign(_CONTEXT + spki)
    now = datetime.fromtimestamp(now_seconds, UTC)
    builder = x509.CertificateBuilder(
        issuer_name=ca.subject,
        subject_name=_name("agiledart-node"),
        public_key=leaf_key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(days=1),
        not_valid_after=now + timedelta(days=days),
    )
    leaf = builder.add_extension(x509.UnrecognizedExtension(_SIGNED_KEY, signed_key), critical=False)
    pem = leaf.sign(ca_key, None).public_bytes(serialization.Encoding.PEM) + leaf_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return TlsCredentials(pem, ca.public_bytes(serialization.Encoding.PEM).decode(), now_seconds + days * 86_400)


def leaf_of(credentials: TlsCredentials) -> bytes:
    """Return the TLS leaf of credentials, DER, as the other end of a handshake gets it."""
    return x509.load_pem_x509_certificate(credentials.pem).public_bytes(serialization.Encoding.DER)


def verify_peer_certificate(der: bytes | None) -> bytes:
    """Return the Ed25519 public key that a TLS leaf speaks for. Raises `Refused("certificate")`, nothing else.

    TLS has already checked that the peer holds the leaf's key, and that the leaf is of our network's form and not
    expired.
    """
    if not der or len(der) > MAX_CERTIFICATE_BYTES:
        raise Refused("certificate", f"{len(der or b'')} bytes")
    try:
        certificate = x509.load_der_x509_certificate(der)
        extension = certificate.extensions.get_extension_for_oid(_SIGNED_KEY).value
        spki = certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    except Exception as error:  # noqa: BLE001  the library has a class for each oddity, and all mean the same
        raise Refused("certificate", str(error)[:100]) from None
    value = extension.value if isinstance(extension, x509.UnrecognizedExtension) else b""
    key, signature = value[8:40], value[42:]
    if (
        len(value) != _EXTENSION_BYTES
        or value[:8] != _SEQUENCE + _KEY_PREFIX
        or value[40:42] != _SIGNATURE
        or not is_proper_key(key)
        or not check_signature(key, signature, _CONTEXT + spki)
    ):
        raise Refused("certificate", "its key is not signed by the one it names")
    return key
