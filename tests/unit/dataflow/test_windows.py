"""Windows: which ones hold a time, and lengths that cannot be meant."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart import TopologyError, hopping, sliding, tumbling
from agiledart_dataflow.event_time.windows import Panes

MS = timedelta(milliseconds=1)


@given(st.integers(1, 50), st.integers(1, 50), st.integers(-500, 500))
def test_window_ends_are_those_of_all_windows_that_hold_the_time(size: int, every: int, time: int) -> None:
    every = min(size, every)
    starts = [start for start in range(-600, 600) if start % every == 0 and start <= time < start + size]
    assert list(Panes(size, every).ends(time)) == [start + size for start in starts]


@pytest.mark.parametrize(
    "make",
    [
        lambda: sliding(timedelta(0)),
        lambda: sliding(-MS),
        lambda: tumbling(timedelta(microseconds=1_500)),
        lambda: hopping(MS, timedelta(0)),
        lambda: hopping(MS, 2 * MS),
    ],
)
def test_invalid_window_lengths_are_rejected(make: Callable[[], object]) -> None:
    with pytest.raises(TopologyError, match=r"window|hop"):
        make()


def test_a_tumbling_window_is_called_tumbling() -> None:
    with pytest.raises(TopologyError, match=r"  the size of a tumbling window must be .* above zero, not 0:00:00$"):
        tumbling(timedelta(0))
