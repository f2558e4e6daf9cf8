"""The price of joining and of being idle, as exact counts: see `event_counts` for what to do when they change."""

from tests.simulation.event_counts import EXPECTED, counts


def test_no_node_sends_more_messages_than_before() -> None:
    assert counts() == EXPECTED, "run: python -m tests.simulation.event_counts, and say why"
