"""Bytes that only one node can open: sealed to the Ed25519 key that identifies it.

An ephemeral X25519 key is combined with the node's, in its Montgomery form. HKDF-SHA256 derives a key from the shared
secret and both public halves, and ChaCha20-Poly1305 seals with it, once. Source: RFC 7748 section 4.1 (the map between
the two forms of the curve), RFC 5869, RFC 8439; the construction is that of libsodium's sealed boxes with other parts.
"""

from hashlib import sha512
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from agiledart_kernel.errors import Refused
from agiledart_kernel.grants import is_proper_key

PREFIX: Final = b"agiledart-secret/1\0"
KEY_BYTES: Final = 32
OVERHEAD_BYTES: Final = KEY_BYTES + 16
"""Bytes that sealing adds: the ephemeral key and the tag."""

_P: Final = 2**255 - 19
_NONCE: Final = bytes(12)
"""Constant nonce: each key seals one text."""


def seal(public_key: bytes, context: bytes, text: bytes) -> bytes:
    """Return `text` sealed for the holder of an Ed25519 key alone.

    Args:
        context: what the text is for; it opens under the same context only.

    Raises:
        Refused: `public_key` is not a valid key.
    """
    if not is_proper_key(public_key):
        raise Refused("form", "not a public key of a node")
    theirs = montgomery_key(public_key)
    ephemeral = x25519.X25519PrivateKey.generate()
    ours = ephemeral.public_key().public_bytes_raw()
    shared = ephemeral.exchange(x25519.X25519PublicKey.from_public_bytes(theirs))
    return ours + _cipher(shared, ours, theirs).encrypt(_NONCE, text, PREFIX + context)


def unseal(key: ed25519.Ed25519PrivateKey, context: bytes, sealed: bytes) -> bytes:
    """Return the text of sealed bytes. Raises `Refused` when they are for another node or context, or were altered."""
    # RFC 8032: the secret with which the key signs
    secret = bytearray(sha512(key.private_bytes_raw()).digest()[:KEY_BYTES])
    own = x25519.X25519PrivateKey.from_private_bytes(bytes(secret))
    try:
        theirs, text = sealed[:KEY_BYTES], sealed[KEY_BYTES:]
        shared = own.exchange(x25519.X25519PublicKey.from_public_bytes(theirs))
        return _cipher(shared, theirs, own.public_key().public_bytes_raw()).decrypt(_NONCE, text, PREFIX + context)
    except (InvalidTag, ValueError):
        raise Refused("sealed", "the text was sealed for another node, application or name, or was altered") from None


def montgomery_key(public_key: bytes) -> bytes:
    """Return an Ed25519 public key in the form of X25519: u = (1 + y) / (1 - y)."""
    y = int.from_bytes(public_key, "little") & ((1 << 255) - 1)
    return ((1 + y) * pow(1 - y, -1, _P) % _P).to_bytes(KEY_BYTES, "little")


def _cipher(shared: bytes, ephemeral: bytes, theirs: bytes) -> ChaCha20Poly1305:
    derived = HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=PREFIX + ephemeral + theirs).derive(shared)
    return ChaCha20Poly1305(derived)
