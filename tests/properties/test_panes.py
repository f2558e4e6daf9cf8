"""Windows over values that are kept: against slow, obviously right arithmetic, in every mode, cut and compacted anywhere."""

from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from math import inf, isnan, nan
from typing import Any, NamedTuple
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import Aggregator, all_of, count_of, hopping, max_of, mean_of, min_of, sum_of
from agiledart_dataflow.aggregation.panes import PaneWindow
from agiledart_dataflow.data.position import covering, final_watermark
from agiledart_dataflow.data.rows import Pane
from agiledart_dataflow.state.key_groups import restore_state, snapshot_of
from agiledart_dataflow.state.open_windows import window_entry_type
from agiledart_dataflow.state.plain_codec import PlainCodec


class Row(NamedTuple):
    """A row."""

    at: int
    key: int
    whole: int
    real: float


class Listed(Aggregator[Row, list[float], list[float]]):
    """A user's own aggregate: the values themselves, in order."""

    def create(self) -> list[float]:
        return []

    def add(self, state: list[float], row: Row) -> list[float]:
        return [*state, row.real]

    def result(self, state: list[float]) -> list[float]:
        return state


CODEC = PlainCodec("panes", lambda: window_entry_type(int, Any))
REALS = st.floats(-1e6, 1e6) | st.sampled_from([0.1, -0.0, 0.0, 1e308, -1e308, 5e-324, inf, -inf, nan])
ROWS = st.lists(
    st.builds(Row, st.integers(0, 30), st.integers(0, 2), st.integers(-(2**70), 2**70), REALS), max_size=40
).map(lambda rows: sorted(rows, key=lambda row: row.at))
BUILT_IN = all_of(
    count_of(),
    sum_of(lambda row: row.real),
    all_of(mean_of(lambda row: row.real)),
    sum_of(lambda row: row.whole),
    min_of(lambda row: row.real),
    max_of(lambda row: row.whole),
)


def total(values: list[float]) -> float:
    """The exact sum, rounded once."""
    if any(map(isnan, values)) or (inf in values and -inf in values):
        return nan
    if inf in values or -inf in values:
        return inf if inf in values else -inf
    exact = sum(map(Fraction, values), Fraction(0))
    try:
        return float(exact)
    except OverflowError:
        return inf if exact > 0 else -inf


def expected(rows: list[Row], size: int, every: int, value: Callable[[list[Row]], Any]) -> list[Pane[int, Any]]:
    """Panes by end, then in the order in which their keys came."""
    ends = sorted({end for row in rows for end in range(every * (row.at // every) + size, row.at, -every)})
    found = []
    for end in ends:
        inside = [row for row in rows if end - size <= row.at < end]
        keys = dict.fromkeys(row.key for row in inside)
        found += [Pane(key, end - size, end, value([row for row in inside if row.key == key])) for key in keys]
    return found


def built_in(rows: list[Row]) -> Any:
    reals, wholes = [row.real for row in rows], [row.whole for row in rows]
    least = nan if any(map(isnan, reals)) else min(reals) + 0.0
    return len(rows), total(reals), (total(reals) / len(rows),), sum(wholes), least, max(wholes)


@given(ROWS, st.integers(1, 9), st.integers(1, 9), st.booleans(), st.booleans(), st.integers(1, 9), st.booleans())
@settings(max_examples=80, deadline=None)
def test_panes_agree_with_slow_arithmetic(
    rows: list[Row], size: int, every: int, positions: bool, own: bool, cut: int, compacts: bool
) -> None:
    every = min(size, every)
    window = hopping(timedelta(milliseconds=size), timedelta(milliseconds=every))
    aggregator: Any = Listed() if own else BUILT_IN
    made = PaneWindow("panes", lambda row: row.key, window, aggregator, CODEC, positions=positions)
    out: list[Any] = []
    at: list[Any] = []
    for start in range(0, len(rows), cut):
        part = rows[start : start + cut]
        where = [(row.at, 1, 0, start + n) for n, row in enumerate(part)]
        got = made.run(part, where if positions else [row.at for row in part], covering(where[-1]))
        out += got[0]
        at += got[1]
        if compacts:
            with mock.patch("agiledart_dataflow.aggregation.panes.LONG", 1):
                made._compact()  # at any time it must change nothing
        before = snapshot_of(made)
        made = PaneWindow("panes", lambda row: row.key, window, aggregator, CODEC, positions=positions)
        restore_state(made, before)
    got = made.run([], [], final_watermark(rows[-1].at if rows else None))
    out += got[0]
    at += got[1]
    assert repr(out) == repr(
        expected(rows, size, every, (lambda part: [row.real for row in part]) if own else built_in)
    )
    if positions:
        assert at == sorted(set(at))
    else:
        assert at == [pane.end_ms for pane in out]
