"""Emulated links: uplinks of providers that share a receiver's downlink, piece by piece, in virtual time."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import shake_256

PIECE = 16_384
"""Bytes that a link carries at a time; the next piece may be another transfer's."""

MEGABIT = 125_000
"""Bytes a second."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes that one provider sends; those of a provider leave in the order in which they were asked for."""

    provider: int
    size: int


def arrivals(transfers: Sequence[Transfer], upload: float, download: float, delay: float) -> list[float]:
    """When the last byte of each transfer has come, in seconds after all were asked for.

    Args:
        upload, download: bytes a second of each provider, and of the receiver.
        delay: seconds of one way; the question takes one, too.

    The receiver takes pieces in the order in which they come to it; a piece is there when both links have carried it.
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
    """For each provider the pieces that leave it: (when the receiver's link has them, number of the transfer, bytes)."""
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
    """Bytes that cannot be compressed, the same for the same seed."""
    return shake_256(repr(seed).encode()).digest(size)
