"""Keys that this node knows to be registered as uses of a token. It admits them again without a question to the ring.

At most `MAX_REGISTERED`. The key that was met first is forgotten first, and the ring is asked about it when it returns.
"""

import struct
from collections.abc import Iterable
from typing import Final

from agiledart_kernel.limits import MAX_REGISTERED

_ROW: Final = struct.Struct(">32s32sQ")


class RegisteredKeys:
    """Registered keys by token."""

    def __init__(self) -> None:
        self._met: dict[tuple[bytes, bytes], int] = {}
        self._by_token: dict[bytes, dict[bytes, int]] = {}

    def __contains__(self, name: tuple[bytes, bytes]) -> bool:
        """Return whether this (token, key) is known."""
        return name in self._met

    def note(self, token: bytes, key: bytes, wall_seconds: int) -> bool:
        """Remember a key. Return False when it was known."""
        if (token, key) in self._met:
            return False
        if len(self._met) >= MAX_REGISTERED:
            self.forget(*next(iter(self._met)))
        self._met[token, key] = wall_seconds
        self._by_token.setdefault(token, {})[key] = wall_seconds
        return True

    def forget(self, token: bytes, key: bytes) -> None:
        """Forget a key that was not registered after all."""
        if self._met.pop((token, key), None) is not None:
            del self._by_token[token][key]
            if not self._by_token[token]:
                del self._by_token[token]

    def when(self, token: bytes, key: bytes) -> int:
        """Return the wall time, in seconds, at which a known key was registered."""
        return self._met[token, key]

    def of(self, token: bytes) -> tuple[tuple[bytes, int], ...]:
        """Return (key, wall seconds) of all keys that used a token."""
        return tuple(self._by_token.get(token, {}).items())

    @property
    def tokens(self) -> tuple[bytes, ...]:
        """Tokens of which this node knows a use."""
        return tuple(self._by_token)

    def rows(self) -> tuple[bytes, ...]:
        """Return the keys in their form on disk."""
        return tuple(_ROW.pack(token, key, at) for (token, key), at in self._met.items())

    def read(self, rows: Iterable[bytes]) -> None:
        """Remember keys from the disk. A row of another length is left out."""
        for row in rows:
            if len(row) == _ROW.size:
                self.note(*_ROW.unpack(row))


ROW_BYTES: Final = _ROW.size
