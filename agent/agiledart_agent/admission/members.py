"""The keys that this node knows to have come by a token, and when: they come in again without anybody being asked.

At most `MAX_REGISTERED`; the one that was met first is forgotten first, and asked about when it comes again.
"""

import struct
from collections.abc import Iterable
from typing import Final

from agiledart_kernel.limits import MAX_REGISTERED

_ROW: Final = struct.Struct(">32s32sQ")


class RegisteredKeys:
    """Keys by token."""

    def __init__(self) -> None:
        self._met: dict[tuple[bytes, bytes], int] = {}
        self._by_token: dict[bytes, dict[bytes, int]] = {}

    def __contains__(self, name: tuple[bytes, bytes]) -> bool:
        """Is this (token, key) known?"""
        return name in self._met

    def note(self, token: bytes, key: bytes, wall_seconds: int) -> bool:
        """Remember a key; false when it was known."""
        if (token, key) in self._met:
            return False
        if len(self._met) >= MAX_REGISTERED:
            self.forget(*next(iter(self._met)))
        self._met[token, key] = wall_seconds
        self._by_token.setdefault(token, {})[key] = wall_seconds
        return True

    def forget(self, token: bytes, key: bytes) -> None:
        """It was not counted after all."""
        if self._met.pop((token, key), None) is not None:
            del self._by_token[token][key]
            if not self._by_token[token]:
                del self._by_token[token]

    def when(self, token: bytes, key: bytes) -> int:
        """Wall seconds at which a known key came."""
        return self._met[token, key]

    def of(self, token: bytes) -> tuple[tuple[bytes, int], ...]:
        """(key, when) of all that came by a token."""
        return tuple(self._by_token.get(token, {}).items())

    @property
    def tokens(self) -> tuple[bytes, ...]:
        """By which somebody came."""
        return tuple(self._by_token)

    def rows(self) -> tuple[bytes, ...]:
        """As they lie on the disk."""
        return tuple(_ROW.pack(token, key, at) for (token, key), at in self._met.items())

    def read(self, rows: Iterable[bytes]) -> None:
        """Remember what lay on the disk; what is no row is left out."""
        for row in rows:
            if len(row) == _ROW.size:
                self.note(*_ROW.unpack(row))


ROW_BYTES: Final = _ROW.size
