"""Credit, joining and splitting of batches, punctuations: a channel loses nothing and is never stuck."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.position import START, covering, final_watermark, is_final
from agiledart_dataflow.runtime.channels import PUNCTUATION_WINDOW, ReceivingChannel, SendingChannel
from agiledart_kernel.errors import RemoteProtocolError


def batch(first: int, count: int, watermark: int | None = None) -> Batch:
    positions = [(n, 1, 0, n) for n in range(first, first + count)]
    last = first + count - 1 if watermark is None else watermark
    return Batch([f"row {n}" for n in range(first, first + count)], positions, (last, 1, 0, last))


def drain(channel: SendingChannel) -> list[Batch]:
    frames = []
    while (frame := channel.next_frame()) is not None:
        frames.append(frame)
    return frames


def test_sends_at_once_while_the_window_is_open() -> None:
    channel = SendingChannel(window=2)
    channel.put(batch(0, 1))
    assert [len(frame) for frame in drain(channel)] == [1]
    channel.put(batch(1, 1))
    assert [len(frame) for frame in drain(channel)] == [1]


def test_rows_collect_while_the_window_is_full_and_leave_as_one_frame() -> None:
    channel = SendingChannel(window=1)
    channel.put(batch(0, 1))
    drain(channel)
    for n in range(1, 6):
        channel.put(batch(n, 1))
        assert drain(channel) == []
    channel.acknowledge(1, 0)
    frames = drain(channel)
    assert [frame.rows for frame in frames] == [[f"row {n}" for n in range(1, 6)]]
    assert frames[0].watermark == (5, 1, 0, 5)


def test_a_long_batch_is_cut_and_each_piece_has_its_own_watermark() -> None:
    channel = SendingChannel(window=8, max_rows=3)
    channel.put(batch(0, 7, watermark=9))
    frames = drain(channel)
    assert [len(frame) for frame in frames] == [3, 3, 1]
    assert [frame.watermark for frame in frames] == [covering((2, 1, 0, 2)), covering((5, 1, 0, 5)), (9, 1, 0, 9)]


def test_a_punctuation_needs_no_credit_and_only_the_newest_waits() -> None:
    channel = SendingChannel(window=1)
    for n in range(PUNCTUATION_WINDOW + 3):
        channel.put(Batch([], [], (n, 1, 0, n)))
        drain(channel)
    assert channel.watermarks_sent == PUNCTUATION_WINDOW
    channel.acknowledge(0, PUNCTUATION_WINDOW)
    (frame,) = drain(channel)
    assert frame.watermark[0] == PUNCTUATION_WINDOW + 2


def test_a_watermark_never_overtakes_waiting_rows() -> None:
    channel = SendingChannel(window=1)
    channel.put(batch(0, 1))
    drain(channel)
    channel.put(batch(1, 1))
    channel.put(Batch([], [], (8, 1, 0, 8)))
    assert drain(channel) == []
    channel.acknowledge(1, 0)
    (frame,) = drain(channel)
    assert frame.rows == ["row 1"]
    assert frame.watermark == (8, 1, 0, 8)


def test_a_channel_is_blocked_until_there_is_space() -> None:
    channel = SendingChannel(window=1, max_rows=10, bound_rows=15)
    channel.put(batch(0, 40))
    assert channel.blocked
    drain(channel)
    assert channel.blocked
    channel.acknowledge(1, 0)
    drain(channel)
    channel.acknowledge(2, 0)
    drain(channel)
    assert not channel.blocked


def test_frames_get_smaller_when_rows_are_large() -> None:
    channel = SendingChannel()
    channel.learn_frame_size(10, 1_500_000)
    assert channel.rows_limit == 1
    channel.learn_frame_size(1000, 1000)
    assert channel.rows_limit == 750


def test_the_bytes_of_a_row_are_averaged_over_frames_of_any_layout() -> None:
    channel = SendingChannel()
    assert channel.row_bytes == 0
    channel.learn_frame_size(10, 1_000)
    assert channel.row_bytes == 100
    channel.learn_frame_size(1_000, 50_000, columns=True)
    assert channel.row_bytes == pytest.approx(85)
    channel.learn_frame_size(0, 40)
    assert channel.row_bytes == pytest.approx(85), "a watermark has no row"


def test_large_rows_block_earlier() -> None:
    channel = SendingChannel(window=1)
    channel.put(batch(0, 100))
    drain(channel)
    channel.put(batch(100, 100))
    assert not channel.blocked
    channel.learn_frame_size(1, 100_000)  # a row of 100 kB
    assert channel.blocked


def test_acknowledging_unsent_frames_is_the_peers_error() -> None:
    channel = SendingChannel()
    with pytest.raises(RemoteProtocolError, match="acknowledgement"):
        channel.acknowledge(1, 0)


def test_a_late_acknowledgement_revokes_nothing() -> None:
    channel = SendingChannel(window=4)
    for n in range(3):
        channel.put(batch(n, 1))
        drain(channel)
    channel.acknowledge(3, 0)
    channel.acknowledge(1, 0)
    assert channel.in_flight == 0


def test_the_receiver_detects_gaps_and_duplicates() -> None:
    channel = ReceivingChannel()
    channel.accept(0, 0, 5)
    channel.accept(1, 5, 0)
    for number, first_row in ((2, 0), (2, 9), (1, 5), (3, 5)):
        with pytest.raises(RemoteProtocolError, match="gap"):
            channel.accept(number, first_row, 1)
    channel.accept(2, 5, 1)


def test_acknowledges_in_halves_and_two_punctuations_at_once() -> None:
    channel = ReceivingChannel(window=8)
    for n in range(4):
        channel.accept(n, n, 1)
    assert channel.due(3) is None
    assert channel.due(4) == (4, 0)
    channel.accept(4, 4, 0)
    assert channel.due(4) is None
    channel.accept(5, 4, 0)
    assert channel.due(4) == (4, 2)
    channel.accept(6, 4, 1)
    assert channel.due(5) is None
    assert channel.due(5, all_of_it=True) == (5, 2)


@given(st.lists(st.tuples(st.sampled_from(["rows", "barrier", "mark", "due"]), st.integers(0, 9)), max_size=60))
def test_nothing_is_due_when_nothing_is_owed(steps: list[tuple[str, int]]) -> None:
    channel, taken = ReceivingChannel(window=4), 0
    for what, number in steps:
        if what == "due":
            taken = min(channel.frames, taken + number)
            owed, due = channel.acknowledgement_due, channel.due(taken)
            assert owed or due is None
        else:
            rows, is_barrier = number + 1 if what == "rows" else 0, what == "barrier"
            channel.accept(channel.frames + channel.watermarks, channel.rows, rows, barrier=is_barrier)


def test_a_lazy_watermark_waits_for_rows_the_end_or_a_release() -> None:
    channel = SendingChannel(window=1, lazy_watermarks=True)
    channel.put(Batch([], None, (1, 1, 0, 1)))
    assert channel.next_frame() is None
    channel.put(batch(2, 1))
    frame = channel.next_frame()
    assert frame is not None
    assert (len(frame), frame.watermark) == (1, (2, 1, 0, 2))
    channel.put(Batch([], None, (5, 1, 0, 5)))
    assert channel.next_frame() is None
    channel.release_watermark()
    frame = channel.next_frame()
    assert frame is not None
    assert (len(frame), frame.watermark) == (0, (5, 1, 0, 5))
    channel.put(Batch([], None, (6, 1, 0, 6)))
    assert channel.next_frame() is None
    channel.put(Batch([], None, final_watermark(6)))
    frame = channel.next_frame()
    assert frame is not None
    assert frame.watermark == final_watermark(6)
    channel.acknowledge(1, 2)
    assert channel.idle


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=60),
    st.integers(1, 5),
    st.integers(1, 9),
)
def test_everything_arrives_once_and_in_order(steps: list[tuple[int, int]], window: int, max_rows: int) -> None:
    """Whatever the sizes of batches and however late the receiver takes them."""
    sender, receiver = SendingChannel(window, max_rows), ReceivingChannel(window)
    wire: list[Batch] = []
    arrived: list[object] = []
    watermarks: list[tuple[int, ...]] = []
    taken = first = 0

    def turn() -> None:
        nonlocal taken
        start, number = sender.rows_sent, sender.last_number
        for frame in drain(sender):
            number += 1
            receiver.accept(number, start, len(frame.rows))
            start += len(frame.rows)
            wire.append(frame)
        assert number == sender.last_number
        assert sender.in_flight <= window
        if wire:
            frame = wire.pop(0)
            arrived.extend(frame.rows)
            watermarks.append(frame.watermark)
            taken += bool(frame.rows)
        if due := receiver.due(taken):
            sender.acknowledge(*due)

    for count, turns in steps:
        sender.put(batch(first, count) if count else Batch([], [], (first, 0, 0, 0)))
        first += count
        for _ in range(turns):
            turn()
    for _ in range(3 * len(steps) * 30 // max_rows + 3 * len(steps) + 10):
        turn()
    assert arrived == [f"row {n}" for n in range(first)]
    assert watermarks == sorted(watermarks)
    assert sender.rows_waiting == 0


def test_a_batch_that_no_instance_waits_for_bypasses_the_queue() -> None:
    channel = SendingChannel(window=2)
    assert channel.passes(batch(0, 2))
    assert (channel.frames_sent, channel.rows_sent, channel.has_more, channel.in_flight) == (1, 2, False, 1)
    channel.acknowledge(1, 0)
    assert channel.idle


@pytest.mark.parametrize(
    ("sent", "late"),
    [
        ([], Batch([], [], (5, 1, 0, 5))),  # no rows: a punctuation has a window of its own
        ([], batch(0, 4)),  # more than a frame may hold
        ([batch(0, 1), batch(1, 1)], batch(2, 1)),  # the window is full
        ([batch(5, 1)], batch(6, 1, watermark=4)),  # a watermark would go back
    ],
)
def test_a_batch_that_cannot_bypass_the_queue_changes_nothing(sent: list[Batch], late: Batch) -> None:
    channel = SendingChannel(window=2, max_rows=3)
    for one in sent:
        assert channel.passes(one)
    assert not channel.passes(late)
    assert (channel.frames_sent, channel.rows_sent, channel.has_more) == (len(sent), len(sent), False)


def test_nothing_overtakes_queued_rows() -> None:
    channel = SendingChannel(window=2)
    channel.put(batch(0, 1))
    assert channel.has_more
    assert not channel.passes(batch(1, 1))
    assert [frame.rows for frame in drain(channel)] == [["row 0"]]
    assert not channel.has_more


def test_rows_bypass_an_idle_channel_and_carry_its_watermark() -> None:
    channel = SendingChannel(2)
    assert channel.may_bypass((5, 1, 0, 0))
    assert channel.idle
    assert channel.next_frame() is None
    assert (channel.frames_sent, channel.rows_sent) == (0, 0)
    assert not channel.may_bypass((4, 1, 0, 0))  # an older watermark
    channel.put(Batch([1], [(6, 1, 0, 0)], (6, 1, 0, 0)))
    assert not channel.may_bypass((7, 1, 0, 0))  # waits
    assert channel.next_frame() is not None
    assert not channel.may_bypass((7, 1, 0, 0))  # is under way
    channel.acknowledge(1, 0)
    channel.put(Batch([], None, (6, 1, 0, 0), 1))
    assert not channel.may_bypass((7, 1, 0, 0))  # a barrier waits


def test_rows_that_could_not_bypass_leave_as_a_frame_with_their_watermark() -> None:
    channel = SendingChannel(2)
    assert channel.may_bypass((5, 1, 0, 0))
    channel.put(Batch([1], [(5, 1, 0, 0)], (5, 1, 0, 0)))
    frame = channel.next_frame()
    assert frame is not None
    assert (frame.held, frame.watermark) == ([1], (5, 1, 0, 0))
    assert channel.next_frame() is None


def test_a_waiting_lazy_watermark_bypasses_with_newer_rows() -> None:
    channel = SendingChannel(2, lazy_watermarks=True)
    channel.put(Batch([], None, (3, 1, 0, 0)))
    assert channel.next_frame() is None
    assert channel.may_bypass((5, 1, 0, 0))
    channel.release_watermark()
    assert channel.next_frame() is None


def next_of(channel: SendingChannel) -> Batch:
    frame = channel.next_frame()
    assert frame is not None
    return frame


def full_channel() -> SendingChannel:
    """A channel to a merge by position: one frame in flight, two rows that wait."""
    channel = SendingChannel(window=1, overtakes=True)
    for number in range(3):
        position = (number, 1, 0, number)
        channel.put(Batch([f"r{number}"], [position], covering(position)))
        channel.next_frame()
    return channel


def test_a_barrier_without_credit_overtakes_the_rows_that_wait() -> None:
    channel = full_channel()
    overtaken = channel.overtaken()
    assert overtaken is not None
    assert [batch.rows for batch in overtaken[0]] == [["r1"], ["r2"]]
    assert overtaken[1] == covering((2, 1, 0, 2))
    channel.put(Batch([], None, covering((2, 1, 0, 2)), 1))
    frame = channel.next_frame()
    assert frame is not None
    assert (frame.barrier, frame.overtakes, frame.watermark) == (1, True, START), "it promises nothing"
    assert channel.next_frame() is None, "rows still need credit"
    channel.acknowledge(0, 1)  # on receipt, as a watermark
    assert not channel.idle
    channel.acknowledge(1, 1)
    assert next_of(channel).rows == ["r1", "r2"]


def test_a_barrier_needs_no_credit_and_keeps_the_promise_where_nothing_waits() -> None:
    channel = SendingChannel(window=1, overtakes=True)
    channel.put(Batch(["r"], [(1, 1, 0, 0)], covering((1, 1, 0, 0))))
    channel.next_frame()
    assert channel.overtaken() is None
    channel.put(Batch([], None, covering((1, 1, 0, 0)), 1))
    assert next_of(channel).watermark == covering((1, 1, 0, 0))


def test_a_barrier_with_a_change_keeps_its_place_and_so_do_those_behind_it() -> None:
    channel = full_channel()
    channel.put(Batch([], None, covering((2, 1, 0, 2)), 1, change=b"plan"))
    assert channel.overtaken() is None
    channel.put(Batch([], None, covering((2, 1, 0, 2)), 2))
    assert channel.next_frame() is None
    channel.acknowledge(1, 0)
    assert next_of(channel).rows == ["r1", "r2"]


def test_overtaken_rows_leave_first_where_the_run_begins_again() -> None:
    overtaken = full_channel().overtaken()
    assert overtaken is not None
    again = SendingChannel(window=1, overtakes=True)
    again.resume(*overtaken)
    again.put(Batch(["new"], [(3, 1, 0, 3)], covering((3, 1, 0, 3))))
    assert next_of(again).rows == ["r1", "r2", "new"]


@pytest.mark.parametrize("overtakes", [True, False])
def test_the_end_of_the_input_follows_a_barrier_and_none_follows_the_end(overtakes: bool) -> None:
    channel = SendingChannel(window=1, overtakes=overtakes)
    end = final_watermark(1)
    for number, watermark in enumerate((covering((0, 1, 0, 0)), end)):
        channel.put(Batch([number], [(number, 1, 0, number)], watermark))
        channel.next_frame()
    channel.put(Batch([], None, START, 1))
    frames: list[Batch] = []
    while not channel.has_ended:
        frame = channel.next_frame()
        if frame is None:
            channel.acknowledge(channel.frames_sent, channel.watermarks_sent)
            continue
        frames.append(frame)
    barrier = next(number for number, frame in enumerate(frames) if frame.barrier)
    assert not any(is_final(frame.watermark) for frame in frames[: barrier + 1])
    channel.put(Batch([], None, START, 2))
    assert channel.next_frame() is None


def test_the_end_that_follows_a_barrier_in_line_comes_again() -> None:
    channel = SendingChannel(window=1)
    for number in range(2):
        channel.put(Batch([f"r{number}"], None, covering((number, 1, 0, number))))
        channel.next_frame()
    channel.put(Batch([], None, final_watermark(1)))
    overtaken = channel.overtaken()
    assert overtaken == ([], final_watermark(1)), "the rows leave before the barrier"
    again = SendingChannel(window=1)
    again.resume(*overtaken)
    assert next_of(again).watermark == final_watermark(1)
    assert again.has_ended


@pytest.mark.parametrize("overtakes", [False, True])
def test_a_channel_behind_its_end_carries_no_barrier(*, overtakes: bool) -> None:
    channel = SendingChannel(window=1, overtakes=overtakes)
    channel.resume_behind(final_watermark(1))
    assert channel.idle
    channel.put(Batch([], None, START, 7))
    assert channel.next_frame() is None
    assert (channel.has_ended, channel.idle) == (True, True)
