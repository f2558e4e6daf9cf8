"""Credit by time: rows waiting at a receiver are a part of a second of its own rate, whatever it does with a row."""

from collections import deque
from collections.abc import Callable

import pytest

from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.runtime.channels import ReceivingChannel, SendingChannel
from agiledart_dataflow.runtime.receive_rate import UNSEEN_ROWS, WAIT_NS, ReceiveRate
from agiledart_dataflow.runtime.resending import Unacknowledged
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.limits import KEPT_BYTES, LARGE_FRAME_BYTES, MAX_DATA_FRAME_BYTES

STEP_NS = MILLISECOND


class Pair:
    """A sender that always has more, and a receiver that needs so long for a row; a moment is a millisecond.

    Args:
        way_ns: from one to the other, and back.
        has_room: does what the receiver makes find room? Else it waits.
    """

    def __init__(
        self, row_ns: int, window: int = 16, way_ns: int = 0, has_space: Callable[[], bool] = lambda: True
    ) -> None:
        self.sender, self.receiver, self.pace = (
            SendingChannel(window, paced=True),
            ReceivingChannel(window),
            ReceiveRate(),
        )
        self.row_ns, self.way_ns, self.has_space = row_ns, way_ns, has_space
        self.now, self.taken, self.done = int(SECOND), 0, 0
        self.wire: deque[tuple[int, int]] = deque()  # arrival, rows
        self.back: deque[tuple[int, int, int, int]] = deque()
        self.here: deque[int] = deque()
        self.left_ns = 0
        self.waiting = 0

    def feed(self, rows: int = 2_000) -> None:
        while self.sender.rows_waiting < rows:
            start = self.sender.rows_sent + self.sender.rows_waiting
            more = [f"row {n}" for n in range(start, start + rows)]
            self.sender.put(Batch(more, None, (start + rows, 0, 0, 0)))

    def turn(self) -> None:
        self.now += STEP_NS
        while self.back and self.back[0][0] <= self.now:
            self.sender.acknowledge(*self.back.popleft()[1:])
        first = self.sender.rows_sent
        while (frame := self.sender.next_frame()) is not None:
            self.receiver.accept(self.sender.last_number, first, len(frame.held))
            first = self.sender.rows_sent
            self.wire.append((self.now + self.way_ns, len(frame.held)))
            self.waiting += len(frame.held)
        while self.wire and self.wire[0][0] <= self.now:
            self.here.append(self.wire.popleft()[1])
        self.work()
        if self.receiver.acknowledgement_due:
            self.receiver.limit_rows_in_flight(self.pace.look(self.now))
            if due := self.receiver.due(self.taken):
                self.back.append((self.now + self.way_ns, *due, self.receiver.frame_rows))

    def work(self) -> None:
        budget, rows = int(STEP_NS), 0
        while budget > 0 and (self.left_ns or self.here) and self.has_space():
            if not self.left_ns:
                self.left_ns = self.here[0] * self.row_ns
            worked = min(budget, self.left_ns)
            budget, self.left_ns = budget - worked, self.left_ns - worked
            if not self.left_ns:
                rows += self.here.popleft()
                self.taken += 1
        self.waiting -= rows
        self.done += rows
        self.pace.record_taken(
            rows, self.now - (STEP_NS - budget), self.now, more_waits=bool(self.left_ns or self.here)
        )

    def go(self, seconds: float) -> None:
        for _ in range(int(seconds * SECOND / STEP_NS)):
            self.feed()
            self.turn()

    def go_slowly(self, seconds: float, rows_a_second: int) -> None:
        """With no more than so many rows."""
        for n in range(int(seconds * SECOND / STEP_NS)):
            if n % (1_000 // rows_a_second) == 0:
                self.sender.put(Batch(["row"], None, (n + 1, 0, 0, 0)))
            self.turn()

    @property
    def wait(self) -> float:
        """Seconds of work that wait on the way and before the receiver."""
        return self.waiting * self.row_ns / SECOND


@pytest.mark.parametrize("row_ns", [100 * MILLISECOND, 10 * MILLISECOND, MILLISECOND, MILLISECOND // 10])
def test_a_quarter_second_of_rows_is_buffered_and_the_receiver_is_never_idle(row_ns: int) -> None:
    pair = Pair(row_ns)
    waits = []
    for _ in range(400):
        pair.go(0.05)
        waits.append(pair.wait)
    assert max(waits[:20]) <= max(0.3, 17 * row_ns / SECOND), "sixteen rows before anything is known"
    assert max(waits[100:]) <= 0.3 + 2 * row_ns / SECOND
    done = pair.done
    pair.go(10)
    assert pair.done - done >= 0.97 * 10 * SECOND / row_ns - 1


@pytest.mark.parametrize("way_ns", [MILLISECOND, 20 * MILLISECOND, 100 * MILLISECOND])
def test_a_fast_receiver_soon_gets_whole_frames_over_any_path_length(way_ns: int) -> None:
    pair = Pair(1_000, way_ns=way_ns)
    pair.go(0.1 + 20 * 2 * way_ns / SECOND)
    assert pair.sender.rows_limit == 750
    assert pair.receiver._held_back == 0


def test_a_receiver_that_becomes_fast_again_gets_the_whole_window_again() -> None:
    pair = Pair(100 * MILLISECOND)
    pair.go(10)
    assert pair.receiver._held_back > 8
    pair.row_ns = 1_000
    pair.go(1)
    assert pair.sender.rows_limit == 750
    assert pair.receiver._held_back == 0


def test_after_a_slow_flow_a_burst_is_admitted_at_the_rate_of_throughput() -> None:
    pair = Pair(10 * MILLISECOND)
    pair.go_slowly(20, 25)
    waits = []
    for _ in range(200):
        pair.go(0.05)
        waits.append(pair.wait)
    assert max(waits) <= 0.35


def test_a_fast_receiver_before_a_slow_one_also_throttles_when_the_rate_rises() -> None:
    slow = Pair(10 * MILLISECOND)
    fast = Pair(1_000, has_space=lambda: not slow.sender.blocked)
    made = 0

    def turn() -> None:
        nonlocal made
        fast.turn()
        if fast.done > made:
            rows, made = fast.done - made, fast.done
            slow.sender.put(Batch(["row"] * rows, None, (made, 0, 0, 0)))
        slow.turn()

    for n in range(20_000):
        if n % 40 == 0:
            fast.sender.put(Batch(["row"], None, (n + 1, 0, 0, 0)))
        turn()
    most = 0
    for _ in range(10_000):
        fast.feed()
        turn()
        most = max(most, fast.waiting + slow.sender.rows_waiting + slow.waiting)
    assert most <= 125, "a good second of the slow one's work before it and before its sender, together"


def test_a_receiver_that_has_taken_much_is_not_slow_after_a_pause() -> None:
    pair = Pair(1_000)
    pair.go(1)
    pair.go_slowly(3, 10)
    assert pair.sender.rows_limit == 750


def test_rare_rows_arrive_in_small_groups() -> None:
    pace = ReceiveRate()
    now = int(SECOND)
    for _ in range(100):
        now += 10 * SECOND
        pace.record_taken(1, now - 1_000, now, more_waits=False)
        assert pace.look(now) == UNSEEN_ROWS


def test_active_channels_share_the_buffer() -> None:
    pace, now = ReceiveRate(), int(SECOND)
    for n in range(1, 100):
        now += 10 * MILLISECOND
        pace.record_taken(100, now - 10 * MILLISECOND, now, more_waits=True)
        alone = pace.look(now)
        shared = pace.shared(now, [100 * n, 40 * n, 7])
    assert alone == WAIT_NS // (MILLISECOND // 10)
    assert shared == alone // 2, "nothing has come over the third"


def test_everything_is_acknowledged_at_the_end_and_large_frames_at_once() -> None:
    pair = Pair(10 * MILLISECOND)
    pair.go(10)
    for _ in range(40_000):
        pair.turn()
    due = pair.receiver.due(pair.taken, all_of_it=True)
    if due is not None:
        pair.sender.acknowledge(*due)
    assert pair.sender.idle

    pair.receiver.acknowledge_next()
    pair.receiver.accept(pair.receiver.expected, pair.receiver.rows, 1)
    assert pair.receiver.due(pair.taken + 1) == (pair.taken + 1, 0)


@pytest.mark.parametrize("window", [1, 2, 16])
def test_the_window_is_between_two_frames_and_the_maximum(window: int) -> None:
    receiver = ReceivingChannel(window)
    for rows, frames, frame_rows in ((1, 2, 1), (5, 5, 1), (160, 16, 160 // window), (1 << 40, 16, 65_535)):
        receiver.limit_rows_in_flight(rows)
        assert window - receiver._held_back == min(window, frames)
        assert receiver.frame_rows == max(frame_rows, rows // window if rows < 160 else 1)


def test_a_receiver_of_older_software_grants_no_rate_and_frames_are_whole() -> None:
    sender = SendingChannel(paced=True)
    assert sender.rows_limit == 1
    sender.put(Batch(["row"] * 20, None, (20, 0, 0, 0)))
    while sender.next_frame() is not None:
        continue
    sender.acknowledge(8, 0)
    assert sender.rows_limit == 750


@pytest.mark.parametrize(
    "size", [LARGE_FRAME_BYTES - 1, LARGE_FRAME_BYTES, LARGE_FRAME_BYTES + 1, MAX_DATA_FRAME_BYTES]
)
def test_large_frames_acknowledged_late_leave_their_sender_space(size: int) -> None:
    """Unacknowledged rows are kept by the sender, which makes no frame when it keeps too much."""
    sender, receiver, kept = SendingChannel(), ReceivingChannel(), Unacknowledged()
    body, pace, now, taken, wire = bytes(size), ReceiveRate(), int(SECOND), 0, 0
    while sender.frames_sent < 200:
        before = sender.frames_sent
        sender.put(Batch(["row"], None, (before + 1, 0, 0, 0)))
        while kept.has_space and (frame := sender.next_frame()) is not None:
            kept.sends(sender.last_number, body)
            if size > LARGE_FRAME_BYTES:
                receiver.acknowledge_next()
            receiver.accept(sender.last_number, sender.rows_sent - len(frame.held), len(frame.held))
            wire += 1
            sender.put(Batch(["row"], None, (sender.frames_sent + 1, 0, 0, 0)))
        assert sender.frames_sent > before, f"{kept.kept_bytes:,} bytes of {sender.in_flight} frames are kept for ever"
        while wire:
            pace.record_taken(1, now, now + 300 * MILLISECOND, more_waits=True)
            wire, taken, now = wire - 1, taken + 1, now + 300 * MILLISECOND
            if receiver.acknowledgement_due:
                receiver.limit_rows_in_flight(pace.look(now))
                if due := receiver.due(taken):
                    kept.acknowledge(*due)
                    sender.acknowledge(*due, receiver.frame_rows)
    assert kept.kept_bytes <= KEPT_BYTES
