"""Arithmetic of m + k: time of a rebuild, storage, probability of loss, and which provider uploads which stripe. Pure functions.

m raw fragments and k parity fragments, n = m + k; any m of the n rebuild a snapshot. B is the size of one fragment.
"""

from math import comb

from agiledart_recovery.wire.register_value import InstanceSnapshot


def fragment_bytes(length: int, m: int) -> int:
    """Return B: bytes of one fragment, the snapshot padded with zeros to a multiple of m."""
    return -(-length // m)


def transfer_seconds(m: int, fragment: float, providers: int, upload: float, download: float) -> float:
    """Return the seconds to fetch m fragments' worth of data when all providers share the work: max(m·B/(P·u), m·B/d).

    Args:
        fragment: B, bytes of one fragment.
        providers: P, live replica nodes; m + k - 1 when the failed node's host had one.
        upload, download: bytes a second of one provider, and of the replacement.

    Source: [AgileDART] §IV-D: recovery time is determined by mB/(m + k - 1). Departs: the paper calls B what one provider
    uploads; the formula has a consistent reading only with B the fragment's size.
    """
    return max(m * fragment / (providers * upload), m * fragment / download)


def loss_probability(m: int, k: int, gone: float) -> float:
    """Return the probability that more than k of m + k replica nodes are gone, each with probability `gone`, independently."""
    n = m + k
    return sum(comb(n, lost) * gone**lost * (1 - gone) ** (n - lost) for lost in range(k + 1, n + 1))


def stripe_providers(stripe: int, m: int, providers: int) -> tuple[int, ...]:
    """Return the providers of a stripe: m cyclically consecutive ones, so each of the P serves exactly m of the P stripes."""
    return tuple((stripe + step) % providers for step in range(m))


def stripe_range(stripe: int, count: int, size: int) -> tuple[int, int]:
    """Return offset and length of one of `count` stripes of a fragment; the lengths differ by at most one byte."""
    start = stripe * size // count
    return start, (stripe + 1) * size // count - start


def is_safe(snapshot: InstanceSnapshot, m: int) -> bool:
    """Return whether a snapshot counts as saved: more than m fragments, or all of a small number, are acknowledged."""
    there = sum(1 for replica_node in snapshot.replica_nodes if replica_node)
    return there >= min(m + 1, len(snapshot.replica_nodes))
