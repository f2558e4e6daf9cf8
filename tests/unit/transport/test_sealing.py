"""Bytes sealed to a node's key open with that key, under its context, unaltered; and under nothing else."""

from hashlib import sha512

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
from hypothesis import given
from hypothesis import strategies as st

from agiledart_kernel.errors import Refused
from agiledart_transport.certificates import public_bytes
from agiledart_transport.sealing import OVERHEAD_BYTES, montgomery_key, seal, unseal

Key = ed25519.Ed25519PrivateKey
KEY = Key.from_private_bytes(b"k" * 32)


@given(st.binary(min_size=32, max_size=32))
def test_both_halves_of_a_key_are_converted_alike(seed: bytes) -> None:
    key = Key.from_private_bytes(seed)
    own = x25519.X25519PrivateKey.from_private_bytes(sha512(seed).digest()[:32])
    assert own.public_key().public_bytes_raw() == montgomery_key(public_bytes(key))


@given(st.binary(max_size=200), st.binary(max_size=40))
def test_a_sealed_text_opens_with_the_key_and_context(text: bytes, context: bytes) -> None:
    sealed = seal(public_bytes(KEY), context, text)
    assert len(sealed) == len(text) + OVERHEAD_BYTES
    assert unseal(KEY, context, sealed) == text
    for key, what, bytes_ in (
        (Key.generate(), context, sealed),
        (KEY, context + b"x", sealed),
        (KEY, context, sealed[:-1]),
        (KEY, context, bytes((sealed[0] ^ 1,)) + sealed[1:]),
        (KEY, context, sealed[:-1] + bytes((sealed[-1] ^ 1,))),
    ):
        with pytest.raises(Refused):
            unseal(key, what, bytes_)


@given(st.binary(max_size=100))
def test_malformed_bytes_are_refused(rubbish: bytes) -> None:
    with pytest.raises(Refused):
        unseal(KEY, b"", rubbish)


@pytest.mark.parametrize("key", [b"", b"k" * 31, bytes(32), b"\x01" + bytes(31)])
def test_nothing_is_sealed_to_an_invalid_key(key: bytes) -> None:
    with pytest.raises(Refused):
        seal(key, b"", b"text")
