"""Emulation of links in virtual time: the uplinks of providers share a receiver's downlink, piece by piece."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import shake_256

PIECE = 16_384
"""Bytes that a link carries at a time; the next piece may belong to another transfer."""

MEGABIT = 125_000
"""Bytes a second of one Mbit/s."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Transfer of `size` bytes by one provider; a provider sends its transfers in the order of their requests."""

    provider: int
    size: int


def arrivals(transfers: Sequence[Transfer], upload: float, download: float, delay: float) -> list[float]:
    """Return when the last byte of each transfer arrives, in seconds after the receiver requested all of them.

    Args:
        transfers: the transfers in the order of their requests.
        upload, download: bytes a second of each provider, and of the receiver.
        delay: one-way delay in seconds; the request takes one delay, too.

    The receiver takes pieces in the order of their arrival; a piece is complete when both links have carried it.
    """
    done = [2 * delay] * len(transfers)
    free: dict[int, float] = {}
    taken = 0.0
    for came, number, size in heapq.merge(*_uplinks(transfers, upload, free)):
        taken = max(taken, came) + size / download
        done[number] = taken + 2 * delay
    return done


def _uplinks(
    transfers: Sequence[Transfer], upload: float, free: dict[int, float]
) -> Iterable[list[tuple[float, int, int]]]:
    """Return the pieces of each provider: (second at which the receiver's link gets it, number of the transfer, bytes)."""
    pieces: dict[int, list[tuple[float, int, int]]] = {}
    for number, transfer in enumerate(transfers):
        mine, now = pieces.setdefault(transfer.provider, []), free.get(transfer.provider, 0.0)
        for start in range(0, transfer.size, PIECE):
            size = min(PIECE, transfer.size - start)
            now += size / upload
            mine.append((now, number, size))
        free[transfer.provider] = now
    return pieces.values()


def noise(size: int, *seed: object) -> bytes:
    """Return `size` incompressible bytes, the same for the same seed."""
    return shake_256(repr(seed).encode()).digest(size)
