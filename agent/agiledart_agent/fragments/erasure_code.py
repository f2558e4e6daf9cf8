"""Erasure code: from a snapshot to m + k fragments and back, sealed, cut, coded.

The only module that uses zfec; it is slow, so callers use a thread.

The code is Rizzo's systematic Reed-Solomon code over GF(2^8): the first m fragments are the sealed snapshot itself, and
any m rebuild it. The seal is AES-256-GCM under the run's key. Its nonce comes from the snapshot's hash, so a snapshot
is always sealed alike, and fragments that are made at different times fit together. Two snapshots share a nonce only if
96 bits of SHA-256 are equal. Source: [AgileDART] §IV-D; recovery specification §2, §11.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import combinations

from agiledart_kernel.errors import OperationFailed

KEY_BYTES = 32
_NONCE_BYTES = 12

MAX_TRIES = 1_024
"""Choices of m fragments that are tried when one of them may be forged: all of 10 + 4."""


def sealed(snapshot: bytes, digest: bytes, key: bytes) -> bytes:
    """Return a sealed snapshot, which replica nodes cannot read. Raises `OperationFailed` without a key."""
    from cryptography.exceptions import InvalidKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if len(key) != KEY_BYTES:
        raise OperationFailed("the run has no key, so its state cannot be sealed")
    try:
        return AESGCM(key).encrypt(digest[:_NONCE_BYTES], snapshot, digest)
    except (InvalidKey, OverflowError, ValueError) as error:
        raise OperationFailed(f"the state cannot be sealed: {error}") from None


def unsealed(data: bytes, digest: bytes, key: bytes) -> bytes | None:
    """Return the snapshot, or None when it has another hash."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        snapshot = AESGCM(key).decrypt(digest[:_NONCE_BYTES], data, digest)
    except (InvalidTag, ValueError):
        return None
    return snapshot if sha256(snapshot).digest() == digest else None


def cut(data: bytes, m: int, n: int) -> list[bytes]:
    """Return the n fragments of sealed data, which is padded with zeros to a multiple of m."""
    size = -(-len(data) // m)
    view = memoryview(data.ljust(size * m, b"\0"))
    raw = [bytes(view[start : start + size]) for start in range(0, size * m, size)]
    if n == m:
        return raw
    if m == 1:
        return raw * n
    import zfec

    return raw + list(zfec.Encoder(m, n).encode(raw, list(range(m, n))))


def joined(stripes: Sequence[Mapping[int, bytes]], m: int, n: int, length: int) -> Iterator[bytes]:
    """Yield candidates for the data: each choice of m fragments for all stripes, first the one with most raw fragments,
    and so least work.

    Args:
        stripes: index of a fragment → its bytes, at least m in each; with more than one stripe the first m are taken.
    """
    if len(stripes) > 1:
        yield _join([dict(sorted(stripe.items())[:m]) for stripe in stripes], m, n, length)
        return
    (stripe,) = stripes
    for tries, chosen in enumerate(combinations(sorted(stripe), m)):
        if tries >= MAX_TRIES:
            return
        yield _join([{index: stripe[index] for index in chosen}], m, n, length)


def _join(stripes: Sequence[Mapping[int, bytes]], m: int, n: int, length: int) -> bytes:
    raw = [_decoded(stripe, m, n) for stripe in stripes]
    # Stripes cut each fragment: raw fragment j is the j-th of each stripe, one after the other.
    return b"".join(stripe[number] for number in range(m) for stripe in raw)[:length]


def _decoded(stripe: Mapping[int, bytes], m: int, n: int) -> list[bytes]:
    indices = sorted(stripe)
    pieces = [stripe[index] for index in indices]
    if len({len(piece) for piece in pieces}) != 1:
        return [b""] * m  # the fragments do not belong together
    if m == 1 or indices == list(range(m)):
        return pieces
    import zfec

    return list(zfec.Decoder(m, n).decode(pieces, indices))
