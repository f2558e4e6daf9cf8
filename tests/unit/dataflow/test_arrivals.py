"""Inputs in order of arrival: nothing waits, but what lies behind a barrier that others have not given yet."""

from typing import Any, NamedTuple

import pytest

from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.position import START, final_watermark
from agiledart_dataflow.runtime.arrivals import Arrivals, SingleInputArrivals, inbox_for
from agiledart_kernel.errors import LocalProtocolError, RemoteProtocolError

LEFT, RIGHT = (0, 0), (1, 0)


class Row(NamedTuple):
    """A row."""

    at: int


def batch(*times: int, watermark: int | None = None) -> Batch:
    return Batch([Row(at) for at in times], list(times), (times[-1] if watermark is None else watermark, 1, 0, 9))


def barrier(number: int) -> Batch:
    return Batch([], None, START, number)


def everything(inbox: Arrivals, limit: int = 100) -> tuple[list[int], list[int]]:
    rows: list[int] = []
    times: list[int] = []
    while inbox.has_released:
        held, order, _ = inbox.take(limit)
        rows += [row.at for row in (held if isinstance(held, list) else held.rows())]
        times += order or []
    return rows, times


def test_batches_are_joined_up_to_a_limit_and_cut() -> None:
    inbox = inbox_for([LEFT])
    assert isinstance(inbox, SingleInputArrivals)
    for start in (0, 3, 6):
        inbox.offer(*LEFT, batch(start, start + 1, start + 2))
    assert inbox.queued_rows == 9
    sizes = []
    seen: list[int] = []
    while inbox.has_released:
        held, order, _ = inbox.take(4)
        assert isinstance(held, list)
        assert order == [row.at for row in held]
        sizes.append(len(held))
        seen += order
    assert (sizes, seen, inbox.queued_rows) == ([4, 4, 1], list(range(9)), 0)
    assert inbox.consumed(*LEFT) == 3


def test_the_frontier_is_the_least_watermark_taken_and_empty_promises_move_none() -> None:
    inbox = inbox_for([LEFT, RIGHT])
    inbox.offer(*LEFT, batch(5))
    assert inbox.take(9)[2] == START
    inbox.offer(*RIGHT, batch(3))
    assert inbox.take(9)[2] == (3, 1, 0, 9)
    inbox.offer(*RIGHT, Batch([Row(4)], [4], START))
    assert inbox.take(9)[2] == (3, 1, 0, 9)
    inbox.offer(*RIGHT, Batch([], None, final_watermark(4)))
    assert inbox.take(9)[2] == (5, 1, 0, 9)
    inbox.offer(*LEFT, Batch([], None, final_watermark(7)))
    assert inbox.take(9)[2] == final_watermark(7)


def test_a_barrier_holds_its_channel_back_until_the_others_have_it() -> None:
    inbox = inbox_for([LEFT, RIGHT])
    inbox.offer(*LEFT, batch(1))
    inbox.offer(*LEFT, barrier(1))
    inbox.offer(*LEFT, batch(2))
    inbox.offer(*RIGHT, batch(10))
    assert everything(inbox) == ([1, 10], [1, 10])
    assert inbox.barriers == []
    inbox.offer(*RIGHT, barrier(1))
    assert inbox.take(9)[0] == []
    assert inbox.barriers == [1]
    assert everything(inbox) == ([2], [2])
    assert (inbox.consumed(*LEFT), inbox.consumed(*RIGHT)) == (3, 2)


def test_an_ended_input_delays_no_barrier() -> None:
    inbox = inbox_for([LEFT, RIGHT])
    inbox.offer(*LEFT, barrier(1))
    inbox.offer(*LEFT, barrier(2))
    inbox.offer(*RIGHT, Batch([], None, final_watermark(0)))
    everything(inbox)
    assert inbox.barriers == [1, 2]


def test_a_barrier_out_of_order_or_on_an_unknown_channel_is_refused() -> None:
    inbox = inbox_for([LEFT, RIGHT])
    with pytest.raises(RemoteProtocolError, match="barrier 2 after barrier 0"):
        inbox.offer(*LEFT, barrier(2))
    with pytest.raises(LocalProtocolError):
        inbox.offer(7, 7, batch(1))


def test_columns_and_rows_are_not_joined() -> None:
    inbox = inbox_for([LEFT])
    rows: list[Any] = [Row(1), Row(2)]
    inbox.offer(*LEFT, Batch(Columns.from_rows(rows, Row), None, (1, 1, 0, 1)))
    inbox.offer(*LEFT, Batch(Columns.from_rows(rows, Row), None, (2, 1, 0, 2)))
    inbox.offer(*LEFT, Batch(rows, None, (3, 1, 0, 3)))
    first, second = inbox.take(100)[0], inbox.take(100)[0]
    assert isinstance(first, Columns)
    assert first.rows() == rows + rows
    assert second == rows


def test_a_snapshot_restores_waiting_rows() -> None:
    inbox = inbox_for([LEFT, RIGHT])
    inbox.offer(*LEFT, batch(1, 2, 3))
    inbox.take(1)
    inbox.offer(*LEFT, barrier(1))
    inbox.offer(*LEFT, batch(4))
    again = inbox_for([LEFT, RIGHT])
    again.restore(inbox.snapshot())
    assert again.queued_rows == inbox.queued_rows == 3
    for one in (inbox, again):
        one.offer(*RIGHT, barrier(1))
        assert everything(one) == ([2, 3, 4], [2, 3, 4])
        assert one.barriers == [1]
    assert again.received() == inbox.received()
