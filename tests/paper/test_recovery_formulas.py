"""Failure recovery, sections 2, 3, 9: the cost and benefit of m + k fragments. The figures are oracles R3 to R8."""

from itertools import combinations

import pytest

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.fragments.arithmetic import (
    fragment_bytes,
    loss_probability,
    stripe_providers,
    stripe_range,
    transfer_seconds,
)
from agiledart_recovery.fragments.placement import replacements, spread

CODES = [(1, 1), (2, 2), (3, 2), (4, 2), (6, 3), (10, 4)]
MEGABIT = 125_000


@pytest.mark.parametrize(("m", "k"), CODES)
def test_r3_each_provider_serves_exactly_m_stripes(m: int, k: int) -> None:
    """§3 "stripe j is served by the m cyclically consecutive providers …; each provider serves exactly m of its P stripes"."""
    providers = m + k - 1
    served = [stripe_providers(stripe, m, providers) for stripe in range(providers)]
    assert all(len(dict.fromkeys(each)) == m for each in served)
    assert [sum(provider in each for each in served) for provider in range(providers)] == [m] * providers


@pytest.mark.parametrize(("size", "count"), [(0, 5), (1, 5), (13, 5), (16_000_001, 7)])
def test_r3_stripes_cover_the_fragment_once(size: int, count: int) -> None:
    ranges = [stripe_range(stripe, count, size) for stripe in range(count)]
    ends = [0, *(offset + length for offset, length in ranges)]
    assert [offset for offset, _ in ranges] == ends[:-1]
    assert ends[-1] == size


@pytest.mark.parametrize(
    ("m", "factors"),
    [
        (2, (1, 0.6667, 0.5, 0.4)),
        (4, (1, 0.8, 0.6667, 0.5714)),
        (8, (1, 0.8889, 0.8, 0.7273)),
        (16, (1, 0.9412, 0.8889, 0.8421)),
    ],
)
def test_r4_the_factor_of_the_formula(m: int, factors: tuple[float, ...]) -> None:
    """§3 m·B/(m + k - 1) for k = 1 … 4, with B = 1 and one byte a second."""
    times = [transfer_seconds(m, 1, m + k - 1, 1, float("inf")) for k in (1, 2, 3, 4)]
    assert times == pytest.approx(factors, abs=5e-5)


@pytest.mark.parametrize(
    ("m", "times"), [(2, (10.24, 6.83, 5.12, 4.10)), (4, (5.12, 4.10, 3.41, 2.93)), (8, (2.56, 2.28, 2.05, 2.05))]
)
def test_r5_rebuild_time(m: int, times: tuple[float, ...]) -> None:
    """§9 R5: 256 MB, 100 Mbit/s up, 1 Gbit/s down."""
    fragment = 256e6 / m
    found = [transfer_seconds(m, fragment, m + k - 1, 100 * MEGABIT, 1_000 * MEGABIT) for k in (1, 2, 3, 4)]
    assert found == pytest.approx(times, abs=0.005)


def test_r5_one_source() -> None:
    assert transfer_seconds(1, 256e6, 1, 100 * MEGABIT, 1_000 * MEGABIT) == pytest.approx(20.48)


@pytest.mark.parametrize(
    ("n", "copies", "coded", "seconds"), [(4, 32, 200.0, 1.600), (8, 64, 133.3, 1.067), (16, 128, 114.3, 0.914)]
)
def test_r6_copies_beside_fragments(n: int, copies: int, coded: float, seconds: float) -> None:
    """Appendix C: n copies at 100 Mbit/s, against m = n - 2 and 2 parity fragments at 1 Gbit/s; 100 MB of state."""
    assert n * 100e6 / (100 * MEGABIT) == pytest.approx(copies)
    total = n * fragment_bytes(100_000_000, n - 2)
    assert total / 1e6 == pytest.approx(coded, abs=0.05)
    assert total / (1_000 * MEGABIT) == pytest.approx(seconds, abs=0.0005)


@pytest.mark.parametrize(
    ("m", "k", "gone", "loss"),
    [
        (4, 2, 0.01, 1.955e-5),
        (2, 2, 0.01, 3.970e-6),
        (8, 4, 0.01, 7.470e-8),
        (1, 1, 0.01, 1e-4),
        (1, 2, 0.01, 1e-6),
        (4, 2, 0.05, 2.230e-3),
        (2, 2, 0.05, 4.813e-4),
        (8, 4, 0.05, 1.839e-4),
    ],
)
def test_r7_chance_of_loss(m: int, k: int, gone: float, loss: float) -> None:
    assert loss_probability(m, k, gone) == pytest.approx(loss, rel=5e-4)


@pytest.mark.parametrize(("m", "k"), CODES)
def test_r8_any_k_replica_nodes_may_die(m: int, k: int) -> None:
    """§2 "any m of the n rebuild the state": whichever k hosts die, m of the replica nodes are left, and the owner's is
    none of them.
    """
    peers = [Peer(NodeId(number), 1, host=f"machine-{number}") for number in range(1, m + k + 3)]
    where = spread(peers[0], peers, 1 << 30, m, k)
    assert where.survives == k
    assert peers[0].node not in where.replica_nodes
    for dead in combinations(where.replica_nodes, k):
        assert sum(replica_node not in dead for replica_node in where.replica_nodes) == m
        # Where there are hosts left, what died is made again elsewhere.
        others = replacements(peers[0], where.replica_nodes, dead, peers)
        assert all(replica_node not in (*where.replica_nodes, peers[0].node) for replica_node in others.values())


def test_replica_nodes_are_on_distinct_physical_machines() -> None:
    """§2 "n distinct physical nodes …, none of them the owner's host"; fewer hosts reduce k first, then m."""
    peers = [Peer(NodeId(number), 1, host=f"machine-{number % 4}") for number in range(1, 13)]
    where = spread(peers[0], peers, 1 << 30, 4, 2)
    assert len(where.replica_nodes) == 3
    assert (where.m, where.survives, where.wanted) == (2, 1, 6)


def test_small_state_is_copied() -> None:
    """§1: small state is replicated, m = 1."""
    peers = [Peer(NodeId(number), 1) for number in range(1, 9)]
    assert spread(peers[0], peers, 1_000, 4, 2).m == 1


def test_time_falls_with_k_and_with_m_only_while_the_fragment_stays_the_same() -> None:
    """§3, erratum: B fixed: grows with m for k ≥ 2; the state fixed: falls with m."""
    fixed_fragment = [transfer_seconds(m, 1.0, m + 1, 1, 1e9) for m in (2, 4, 8, 16)]
    fixed_state = [transfer_seconds(m, 16.0 / m, m + 1, 1, 1e9) for m in (2, 4, 8, 16)]
    assert fixed_fragment == sorted(fixed_fragment)
    assert fixed_state == sorted(fixed_state, reverse=True)
