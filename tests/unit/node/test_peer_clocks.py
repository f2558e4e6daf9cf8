"""Whose clock is wrong: measured by questions and answers, combined by the median."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_kernel.clocks import SLOWEST_MS, describe_difference, difference_ms
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.peer_clocks import MAX_CLOCKS, MAX_SKEW_MS, PeerClocks

NOW = 1_800_000_000_000
HOUR = 3_600_000


def peer(number: int) -> Peer:
    return Peer(NodeId(number << 120), 1, f"a{number}")


def clocks(*off: int) -> PeerClocks:
    """As a1 knows them; the others' clocks differ from its own by these milliseconds."""
    made = PeerClocks(peer(1))
    for number, difference in enumerate(off, start=2):
        made.add_measurement(peer(number), NOW, NOW + 10 + difference, NOW + 20)
    return made


@given(st.integers(-(10**9), 10**9), st.integers(0, 2_000), st.integers(0, 2_000))
def test_a_clock_measurement_errs_by_half_the_round_trip_at_most(ahead: int, there: int, back: int) -> None:
    found = difference_ms(NOW, NOW + there + ahead, NOW + there + back)
    assert found is not None
    assert abs(found - ahead) <= (there + back) / 2 + 1


@pytest.mark.parametrize(
    ("asked", "theirs", "heard"),
    [
        pytest.param(0, NOW, NOW, id="asked by an older version"),
        pytest.param(NOW, 0, NOW, id="answered by an older version"),
        pytest.param(NOW, NOW, NOW + SLOWEST_MS + 1, id="too slow"),
        pytest.param(NOW, NOW, NOW - 1, id="the own clock was set back meanwhile"),
    ],
)
def test_unusable_clock_samples_measure_nothing(asked: int, theirs: int, heard: int) -> None:
    assert difference_ms(asked, theirs, heard) is None


def test_clock_differences_are_formatted_in_words() -> None:
    assert describe_difference(-HOUR) == "3,600 s behind"
    assert describe_difference(600_000) == "600 s ahead"


def test_one_of_four_is_wrong_and_is_named() -> None:
    found = clocks(0, -HOUR, 40)
    assert list(found.skewed_clocks()) == ["clock of a3 is 3,600 s behind"]
    assert found.is_skewed(peer(3).node)
    assert not found.is_skewed(peer(1).node)
    assert found.skew_ms(peer(4).node) == 40


def test_a_node_with_a_wrong_clock_does_not_blame_the_others() -> None:
    found = clocks(-HOUR, -HOUR + 30, -HOUR - 5)
    assert list(found.skewed_clocks()) == ["clock of a1 is 3,600 s ahead"]
    assert found.is_skewed(peer(1).node)


def test_a_far_off_clock_is_corrected_to_the_majority() -> None:
    """Commands are signed and verified by it. A clock that is a little off is not pushed on by others."""
    assert clocks(-HOUR, -HOUR, -HOUR).common_ms(NOW) == NOW + 10 - 10 - HOUR
    assert clocks(-60_000, -60_000, -60_000).common_ms(NOW) == NOW
    assert clocks(-HOUR, -HOUR, -HOUR).common_ms(0) == 0


def test_of_two_clocks_the_own_one_counts() -> None:
    assert list(clocks(HOUR).skewed_clocks()) == ["clock of a2 is 3,600 s ahead"]


def test_small_clock_differences_are_not_reported() -> None:
    found = clocks(-9_000, 9_000, 0)
    assert not list(found.skewed_clocks())
    assert not clocks(0, MAX_SKEW_MS).is_skewed(peer(3).node)
    assert clocks(0, MAX_SKEW_MS + 1).is_skewed(peer(3).node)


def test_lost_peers_and_adjusted_clocks_are_forgotten() -> None:
    found = clocks(0, HOUR)
    found.forget(peer(3).node)
    assert not list(found.skewed_clocks())
    found = clocks(-HOUR, -HOUR)
    found.forget_all()
    assert not list(found.skewed_clocks())
    assert found.skew_ms(peer(2).node) is None


def test_clock_samples_are_limited_to_fewer_than_a_thousand() -> None:
    found = clocks(*[0] * (2 * MAX_CLOCKS))
    assert sum(found.skew_ms(peer(number).node) is not None for number in range(2, 2 * MAX_CLOCKS + 2)) <= MAX_CLOCKS


@given(st.lists(st.integers(-(2**53), 2**53), max_size=9))
def test_the_majority_of_clocks_wins_whatever_peers_report(off: list[int]) -> None:
    """At least half of the clocks, this one's included, are on each side of what counts as right."""
    found = clocks(*off)
    seen = [found.skew_ms(peer(number).node) for number in range(1, len(off) + 2)]
    known = [value for value in seen if value is not None]
    assert 2 * sum(value >= 0 for value in known) >= len(known)
    assert 2 * sum(value <= 0 for value in known) >= len(known)
