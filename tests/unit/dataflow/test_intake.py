"""Rows that wait at a source whose outputs are blocked: order, bounds, and an account of every row, whatever the policy."""

from collections import deque
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_dataflow.plan.overload import MAX_WAITING_BYTES, POLICIES, Overload, overload_of
from agiledart_dataflow.runtime import intake as intake_module
from agiledart_dataflow.runtime.intake import Intake
from agiledart_kernel.errors import ConfigurationError, LocalProtocolError, OperationFailed, UserCodeError


class Row(NamedTuple):
    """A row."""

    number: int
    text: str = ""


class ListStore:
    """A store in memory that takes so many chunks, or breaks on request."""

    def __init__(self, chunks: int = 10) -> None:
        self.chunks: deque[tuple[bytes, int]] = deque()
        self.limit = chunks
        self.broken = False

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.chunks)

    def has_space(self) -> bool:
        return len(self.chunks) < self.limit

    def append(self, chunk: bytes, rows: int) -> None:
        if self.broken:
            raise OperationFailed("the disk is full: buy one")
        self.chunks.append((chunk, rows))

    def next(self) -> bytes | None:
        return self.chunks.popleft()[0] if self.chunks else None

    def close(self) -> None:
        self.chunks.clear()


def intake(policy: str, rows: int = 100, store: ListStore | None = None, full: str = "block") -> Intake:
    """A waiting room."""
    return Intake("s", Row, Overload(policy, rows=rows, spool_full=full), store)


def timed(start: int, stop: int, text: str = "") -> list[tuple[int, Row]]:
    """Rows numbered so, a millisecond apart."""
    return [(number, Row(number, text)) for number in range(start, stop)]


def numbers(taken: list[tuple[int, Row]]) -> list[int]:
    """Their numbers, which are also their times."""
    assert all(time == row.number for time, row in taken)
    return [row.number for _, row in taken]


def test_the_oldest_rows_are_dropped_for_the_newest() -> None:
    waiting = intake("shed_oldest", rows=10)
    waiting.put(timed(0, 25))
    assert waiting.shed == {"oldest": 15}
    assert numbers(waiting.take(4)) == [15, 16, 17, 18]
    assert numbers(waiting.take(100)) == list(range(19, 25))
    assert waiting.is_empty


def test_a_sample_spans_the_whole_time_and_is_deterministic() -> None:
    kept = []
    for _ in range(2):
        waiting = intake("shed_sample", rows=100)
        for start in range(0, 1600, 40):
            waiting.put(timed(start, start + 40))
        kept.append(numbers(waiting.take(1000)))
        assert waiting.shed == {"sample": 1600 - len(kept[-1])}
    assert kept[0] == kept[1]
    assert 40 <= len(kept[0]) <= 100
    quarters = [sum(quarter * 400 <= number < quarter * 400 + 400 for number in kept[0]) for quarter in range(4)]
    assert min(quarters) >= 5, quarters


def test_the_sample_grows_again_when_there_is_space() -> None:
    waiting = intake("shed_sample", rows=8)
    waiting.put(timed(0, 1000))
    assert waiting.level >= 5
    while waiting.level:
        waiting.take(8)
    waiting.put(timed(1000, 1008))
    assert numbers(waiting.take(8)) == list(range(1000, 1008))


def test_a_spool_keeps_all_rows_in_order() -> None:
    waiting = intake("spool", rows=10, store=ListStore())
    waiting.put(timed(0, 8))
    waiting.put(timed(8, 20))
    waiting.put(timed(20, 25))
    assert (waiting.waiting, waiting.spooled, waiting.spooled_ever) == (10, 15, 15)
    assert numbers(waiting.take(6)) == list(range(6))
    waiting.put(timed(25, 30))  # there is room in memory again, but they must not overtake
    taken = []
    while not waiting.is_empty:
        taken += numbers(waiting.take(7))
    assert taken == list(range(6, 30))
    assert waiting.shed == {}


def test_a_full_spool_stops_reading_and_loses_nothing() -> None:
    waiting = intake("spool", rows=5, store=ListStore(2))
    for start in range(0, 30, 10):
        waiting.put(timed(start, start + 10))
    assert not waiting.has_space()
    waiting.put(timed(30, 40))
    taken = []
    while not waiting.is_empty:
        taken += numbers(waiting.take(8))
    assert taken == list(range(40))
    assert waiting.has_space()


def test_a_full_spool_sheds_when_configured() -> None:
    waiting = intake("spool", rows=5, store=ListStore(1), full="shed")
    for start in range(0, 40, 10):
        waiting.put(timed(start, start + 10))
    assert waiting.has_space()
    assert (waiting.waiting, waiting.spooled, waiting.shed) == (5, 5, {"spool_full": 30})


def test_a_broken_disk_is_reported_or_sheds_rows() -> None:
    store = ListStore()
    store.broken = True
    with pytest.raises(OperationFailed, match="s: the disk is full: buy one"):
        intake("spool", rows=5, store=store).put(timed(0, 10))
    waiting = intake("spool", rows=5, store=store, full="shed")
    waiting.put(timed(0, 10))
    assert waiting.shed == {"disk_full": 5}


@pytest.mark.parametrize("policy", ["shed_oldest", "shed_sample"])
def test_large_rows_are_bounded_by_bytes(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "MAX_WAITING_BYTES", 100_000)
    waiting = intake(policy, rows=10_000)
    for start in range(0, 1000, 100):
        waiting.put(timed(start, start + 100, "x" * 1000))
        assert waiting.waiting <= 100_000 // 1000
    assert MAX_WAITING_BYTES >= 1 << 20


@pytest.mark.parametrize("policy", ["shed_oldest", "spool"])
def test_small_rows_are_not_taken_for_large_ones_that_have_left(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "MAX_WAITING_BYTES", 100_000)
    waiting = intake(policy, 10_000, ListStore() if policy == "spool" else None)
    for start in range(100):
        waiting.put(timed(start, start + 1, "x" * 20_000 if start == 99 else ""))
    assert numbers(waiting.take(100)) == list(range(100))
    for start in range(100, 120):
        waiting.put(timed(start, start + 1))
    assert (waiting.waiting, waiting.spooled, waiting.shed) == (20, 0, {})


@pytest.mark.parametrize(("policy", "left"), [("shed_oldest", [8, 9, 10, 11]), ("spool", list(range(12)))])
def test_a_few_large_rows_are_weighed_too(policy: str, left: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "MAX_WAITING_BYTES", 100_000)
    waiting = intake(policy, 10_000, ListStore() if policy == "spool" else None)
    for start in range(12):
        waiting.put(timed(start, start + 1, "x" * 20_000))
        assert waiting.waiting <= 4
    taken = []
    while not waiting.is_empty:
        taken += numbers(waiting.take(4))
    assert taken == left


def test_rows_that_leave_at_once_are_not_weighed() -> None:
    waiting = intake("shed_oldest")
    odd: Any = Row(0, object())  # type: ignore[arg-type]  # cannot be encoded
    for _ in range(3):
        waiting.put([(0, odd)])
        assert waiting.take(10) == [(0, odd)]
    waiting.put([(0, odd)])
    with pytest.raises(UserCodeError, match="s: its rows cannot be stored"):
        waiting.put([(0, odd)])


def test_large_rows_go_to_disk_in_small_chunks() -> None:
    store = ListStore(1000)
    waiting = intake("spool", rows=1, store=store)
    waiting.put(timed(0, 41, "x" * 30_000))
    assert max(len(chunk) for chunk, _ in store.chunks) <= intake_module.CHUNK_BYTES
    assert numbers(waiting.take(1)) == [0]
    assert len(store.chunks) > 1


def test_unspoolable_rows_are_named() -> None:
    waiting = intake("spool", rows=1, store=ListStore())
    with pytest.raises(UserCodeError, match="s: its rows cannot be stored"):
        waiting.put([(0, Row(0)), (1, Row(1, object()))])  # type: ignore[arg-type]  # what a careless user does


def test_a_spool_needs_a_store_and_nothing_else_does() -> None:
    with pytest.raises(LocalProtocolError):
        intake("spool")
    with pytest.raises(LocalProtocolError):
        intake("shed_oldest", store=ListStore())
    with pytest.raises(LocalProtocolError):
        intake("block")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"overload": "drop"}, "overload=drop: use one of block, spool, shed_oldest, shed_sample"),
        ({"overload_rows": "0"}, "overload_rows=0: allowed are 1 to"),
        ({"overload_rows": "many"}, "overload_rows=many is not a whole number"),
        ({"spool_bytes": "5"}, "spool_bytes=5: allowed are"),
        ({"spool_full": "panic"}, "spool_full=panic: use block or shed"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        overload_of(tuple(options.items()))


def test_options_survive_encoding() -> None:
    chosen = Overload("spool", rows=5, spool_bytes=1 << 20, spool_full="shed")
    assert overload_of(chosen.options()) == chosen
    assert Overload().options() == ()
    assert overload_of(()) is None
    assert overload_of((("header", "1"),)) is None


moves = st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=60)


@settings(max_examples=100, deadline=None)
@given(moves, st.sampled_from([policy for policy in POLICIES if policy != "block"]), st.integers(1, 30), st.booleans())
def test_every_row_leaves_in_order_or_is_accounted_for(
    script: list[tuple[bool, int]], policy: str, rows: int, shed_when_full: bool
) -> None:
    full = "shed" if shed_when_full else "block"
    waiting = intake(policy, rows, ListStore(3) if policy == "spool" else None, full)
    came = 0
    left: list[int] = []
    for puts, count in script:
        if puts and waiting.has_space():
            waiting.put(timed(came, came + count))
            came += count
        elif not puts:
            left += numbers(waiting.take(count))
        assert came == len(left) + waiting.waiting + waiting.spooled + sum(waiting.shed.values())
        assert waiting.waiting <= rows + 40
    while not waiting.is_empty:
        left += numbers(waiting.take(10))
    assert left == sorted(set(left))
    assert came == len(left) + sum(waiting.shed.values())
    if policy == "spool" and not shed_when_full:
        assert not waiting.shed
