"""The merge of several inputs by position: its releases, refusals and counters."""

import pytest

from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.position import END, START, Position, covering, final_watermark
from agiledart_dataflow.runtime.merge import Merge
from agiledart_dataflow.runtime.single_input_merge import SingleInputMerge, merge_for
from agiledart_kernel.errors import LocalProtocolError, RemoteProtocolError

LEFT, RIGHT = (0, 0), (0, 1)


def at(time: int, number: int = 0) -> Position:
    """A record's position."""
    return (time, 1, 0, number)


def batch(*positions: Position, watermark: Position | None = None) -> Batch:
    """Rows named after their positions; the watermark covers the last one unless given."""
    return Batch([f"r{p[0]}.{p[3]}" for p in positions], list(positions), watermark or covering(positions[-1]))


def merge() -> Merge:
    """A merge of two channels without padding."""
    return Merge([(LEFT, ()), (RIGHT, ())])


def test_nothing_is_released_before_every_input_has_a_watermark() -> None:
    both = merge()
    both.offer(*LEFT, batch(at(1), at(2)))
    assert both.take(10) == ([], [], START)
    assert both.queued_rows == 2


def test_records_come_in_order_of_position_up_to_the_least_watermark() -> None:
    both = merge()
    both.offer(*LEFT, batch(at(1), at(4)))
    both.offer(*RIGHT, batch(at(2), at(3)))
    rows, positions, watermark = both.take(10)
    assert rows == ["r1.0", "r2.0", "r3.0"]
    assert positions == [at(1), at(2), at(3)]
    assert watermark == covering(at(3))
    assert both.queued_rows == 1


def test_a_punctuation_alone_releases_rows_waiting_on_other_inputs() -> None:
    both = merge()
    both.offer(*LEFT, batch(at(1)))
    both.offer(*RIGHT, Batch([], [], covering(at(5))))
    assert both.take(10)[0] == ["r1.0"]


def test_the_limit_cuts_and_watermarks_what_was_released() -> None:
    both = merge()
    both.offer(*LEFT, batch(at(1), at(2), at(3)))
    both.offer(*RIGHT, batch(watermark=final_watermark(None)))
    rows, _, watermark = both.take(2)
    assert (rows, watermark) == (["r1.0", "r2.0"], covering(at(2)))
    assert both.has_released
    rows, _, watermark = both.take(2)
    assert (rows, watermark) == (["r3.0"], covering(at(3)))
    assert not both.has_released


def test_batches_count_as_consumed_when_taken_completely_and_in_order() -> None:
    both = merge()
    both.offer(*LEFT, batch(at(1), at(9)))
    both.offer(*LEFT, Batch([], [], covering(at(10))))
    both.offer(*RIGHT, batch(at(5)))
    both.take(10)
    assert (both.consumed(*LEFT), both.consumed(*RIGHT)) == (0, 1)
    both.offer(*RIGHT, batch(at(11)))
    both.take(10)
    assert (both.consumed(*LEFT), both.consumed(*RIGHT)) == (2, 1)


def test_the_end_of_all_inputs_carries_the_greatest_time() -> None:
    both = merge()
    both.offer(*LEFT, batch(at(1), watermark=final_watermark(1)))
    both.offer(*RIGHT, Batch([], [], final_watermark(7)))
    assert both.take(10)[2] == (END, 7)


def test_a_union_pads_positions_so_that_equal_ones_stay_apart() -> None:
    both = Merge([((0, 0), (-1, 0)), ((1, 0), (1,))])
    both.offer(0, 0, batch(at(1)))
    both.offer(1, 0, Batch(["x", "y"], [(*at(1), 0), (*at(1), 1)], covering((*at(1), 1))))
    both.offer(0, 0, Batch([], [], covering(at(2))))
    rows, positions, _ = both.take(10)
    assert rows == ["r1.0", "x", "y"]
    assert positions == [(1, 1, 0, 0, -1, 0), (1, 1, 0, 0, 0, 1), (1, 1, 0, 0, 1, 1)]


@pytest.mark.parametrize(
    "wrong",
    [
        batch(at(5)),
        batch(at(4)),
        batch(at(7), at(6)),
        batch(at(7), at(7)),
        Batch(["x"], [at(8)], at(7)),
        Batch([], [], at(4)),
    ],
    ids=["at-the-mark", "below-the-mark", "falling", "equal", "above-its-own-mark", "mark-falls"],
)
def test_rows_that_break_a_watermark_are_refused(wrong: Batch) -> None:
    both = merge()
    both.offer(*LEFT, batch(at(5), watermark=at(5)))
    with pytest.raises(RemoteProtocolError, match="position"):
        both.offer(*LEFT, wrong)
    assert both.queued_rows == 1


def test_an_unknown_channel_is_an_internal_error() -> None:
    with pytest.raises(LocalProtocolError):
        merge().offer(7, 7, batch(at(1)))


def test_rows_offered_during_a_release_are_kept() -> None:
    """A limit that ends exactly at the last released row must not end the work: no other event would call again."""
    one = Merge([(LEFT, ())])
    one.offer(*LEFT, batch(at(1), at(2), at(3), at(4)))
    one.take(2)
    one.offer(*LEFT, batch(at(5)))
    assert one.take(2)[0] == ["r3.0", "r4.0"]
    assert one.has_released
    assert one.take(2)[0] == ["r5.0"]
    assert not one.has_released


def test_rows_before_a_changes_barrier_count_as_taken_and_later_ones_do_not() -> None:
    both = merge()
    both.acknowledges_early_until = 1
    both.offer(*LEFT, batch(at(1), at(2)))
    both.offer(*LEFT, batch(at(3)))
    assert (both.consumed(*LEFT), both.take(10)[0]) == (2, []), "its sender may send on, up to the barrier"
    both.offer(*LEFT, Batch([], [], covering(at(3)), 1))
    both.offer(*LEFT, batch(at(4)))
    assert both.consumed(*LEFT) == 0, (
        "of the other input nothing is known, and nothing behind the barrier has been taken"
    )
    both.offer(*RIGHT, batch(at(5)))
    assert len(both.take(10)[0]) == 4
    assert both.consumed(*LEFT) == 4


class Compared(tuple[int, ...]):
    """A position that counts how often it is compared."""

    __slots__ = ()
    times = 0

    def __lt__(self, other: tuple[int, ...]) -> bool:
        Compared.times += 1
        return tuple.__lt__(self, other)


@pytest.mark.parametrize("ascends", [True, False])
def test_rows_of_an_instance_in_the_same_process_are_not_checked_one_by_one(ascends: bool) -> None:
    def given(first: int) -> Batch:
        positions: list[Position] = [Compared(at(1, number)) for number in range(first, first + 100)]
        return Batch(list(range(100)), positions, at(1, first + 99), ascends=ascends)

    one = merge_for([((0, 0), ())])
    assert isinstance(one, SingleInputMerge)
    for take in (Merge([((0, 0), ())]).offer, one.offer, one.passes):
        Compared.times = 0
        if take == one.passes:
            one.take(1_000)
        take(0, 0, given(100 if take == one.passes else 0))
        assert (Compared.times >= 99) is not ascends


def test_the_awaited_input_is_the_one_with_the_least_watermark_while_rows_wait() -> None:
    both = merge()
    assert both.awaited_input() is None
    both.offer(*RIGHT, Batch([], [], covering(at(2))))
    both.offer(*LEFT, batch(at(1), at(3)))
    assert both.awaited_input() is None, "a row may be taken"
    both.take(10)
    assert both.awaited_input() == (RIGHT, covering(at(2)), [LEFT])
    both.offer(*RIGHT, batch(at(9)))
    both.take(10)
    assert both.awaited_input() == (LEFT, covering(at(3)), [RIGHT])
