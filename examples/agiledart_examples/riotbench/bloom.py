"""Bloom filter of texts, the same on every node: the bits come from BLAKE2b, not from Python's salted hash."""

from dataclasses import dataclass, field
from hashlib import blake2b
from math import ceil, log

EXPECTED = 200_000
"""Texts for which the share of false claims is `FALSE_CLAIMS`. The benchmark takes 20 million, 24 MB in each snapshot."""

FALSE_CLAIMS = 0.01

_BITS = ceil(-EXPECTED * log(FALSE_CLAIMS) / log(2) ** 2)
_HASHES = round(_BITS / EXPECTED * log(2))


@dataclass
class BloomFilter:
    """Set of texts that may also claim to hold a text that it does not hold, never the reverse.

    Attributes:
        words: bits, 32 in each number.

    Source: [Bloom 1970]; m = -n ln p / (ln 2)² bits, k = m/n ln 2 hash functions.
    """

    words: list[int] = field(default_factory=lambda: [0] * ((_BITS + 31) // 32))

    def add(self, text: str) -> None:
        """Add a text."""
        for place in _places(text):
            self.words[place >> 5] |= 1 << (place & 31)

    def __contains__(self, text: str) -> bool:
        return all(self.words[place >> 5] >> (place & 31) & 1 for place in _places(text))


def _places(text: str) -> list[int]:
    """Return the bits of a text, by double hashing."""
    digest = blake2b(text.encode(), digest_size=16).digest()
    first, step = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big") | 1
    return [(first + i * step) % _BITS for i in range(_HASHES)]
