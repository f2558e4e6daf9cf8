"""Splitting of a run's key among its voters: a majority of shares has the key, fewer have nothing of it.

Source: Shamir, How to share a secret, 1979; over GF(2^8), for each byte of the key.

Departs: the coefficients are not drawn. They are hashes of the key and of the voters, so all hosts that deal to the same voters
deal the same shares, and shares from different hosts combine. They are as hard to guess as the key.
"""

from collections.abc import Iterable
from hashlib import sha256
from itertools import combinations, islice, product
from typing import Final

from agiledart_kernel.codec import encode
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.wire.key_share import KeyShare

MAX_TRIES: Final = 1_024
"""Sets of shares that are tried. Without a dealer or a voter that lies, the first one is right."""

_POLYNOMIAL: Final = 0x11B


def _product(left: int, right: int) -> int:
    result = 0
    while right:
        if right & 1:
            result ^= left
        left <<= 1
        if left & 0x100:
            left ^= _POLYNOMIAL
        right >>= 1
    return result


def _inverse(number: int) -> int:
    result = number
    for _ in range(6):  # number ** 254, because number ** 255 is 1
        result = _product(_product(result, result), number)
    return _product(result, result)


def key_digest(key: bytes) -> bytes:
    """Return the digest by which a key is recognised. It says nothing of the key, which has 256 bits."""
    return sha256(b"run key digest" + key).digest()


def deal_of(voters: Iterable[NodeId]) -> bytes:
    """Return the name of a deal to these voters, in their order."""
    return sha256(b"run key deal" + encode(tuple(voters))).digest()[:16]


def needed_of(voters: int) -> int:
    """Return how many shares have the key."""
    return voters // 2 + 1


def split_key(key: bytes, voters: tuple[NodeId, ...]) -> tuple[KeyShare, ...]:
    """Return a share of the key for each voter, in their order."""
    deal = deal_of(voters)
    coefficients = [
        sha256(b"run key share" + key + deal + bytes((power,))).digest() for power in range(1, needed_of(len(voters)))
    ]
    shares = []
    for index in range(1, len(voters) + 1):
        share, factor = key, 1
        for coefficient in coefficients:
            factor = _product(factor, index)
            share = bytes(byte ^ _product(factor, other) for byte, other in zip(share, coefficient, strict=False))
        shares.append(KeyShare(deal, index, share))
    return tuple(shares)


def _combined(shares: tuple[KeyShare, ...]) -> bytes:
    """Return the value at 0 of the polynomials through these shares."""
    key = bytes(len(shares[0].share))
    for mine in shares:
        factor = 1
        for other in shares:
            if other.index != mine.index:
                factor = _product(factor, _product(other.index, _inverse(other.index ^ mine.index)))
        key = bytes(byte ^ _product(factor, share) for byte, share in zip(key, mine.share, strict=True))
    return key


def combine_shares(shares: Iterable[KeyShare], voters: int, digest: bytes) -> bytes:
    """Return the key of which these are shares; empty when too few of them are right.

    A dealer or a voter that lies adds wrong shares, so sets of shares are tried until one has the key of this digest.

    Args:
        voters: how many of them the run has.
    """
    by_deal: dict[tuple[bytes, int], dict[int, dict[KeyShare, None]]] = {}
    for share in shares:
        by_deal.setdefault((share.deal, len(share.share)), {}).setdefault(share.index, {})[share] = None
    for by_index in by_deal.values():
        sets = (
            chosen
            for indices in combinations(sorted(by_index), needed_of(voters))
            for chosen in product(*(by_index[index] for index in indices))
        )
        for chosen in islice(sets, MAX_TRIES):
            if key_digest(key := _combined(chosen)) == digest:
                return key
    return b""
