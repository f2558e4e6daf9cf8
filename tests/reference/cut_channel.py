"""Both ends of a real channel, and between them links that lose, double, swap and cut, as an adversary wants.

`do` takes one action; `settle` gives the ends one good link and waits until all has come. Invariants are asserted as
they happen, the rest by `check`.
"""

from collections import deque
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from agiledart_connectors.codecs.columns_import import ColumnsImport
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.batch_codec import BatchCodec
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.position import START
from agiledart_dataflow.runtime.channels import PUNCTUATION_WINDOW, ReceivingChannel, SendingChannel
from agiledart_executor.channels.data_links import ChannelSender, DataPort, LinkEnd, take_acknowledgement
from agiledart_executor.instances.running_instance import InputEnd
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.frames import DataHeader, FrameKind
from agiledart_kernel.limits import KEPT_BYTES, MAX_DATA_FRAME_BYTES, REORDER_FRAMES
from agiledart_kernel.node_id import NodeId

UPSTREAM = NodeId(1)
HUGE_BYTES = MAX_DATA_FRAME_BYTES - 1_000
PATIENCE = 20_000
"""Turns of a good link after which a channel that is not through counts as stuck."""

ACTIONS = ("rows", "rows", "rows", "columns", "mark", "barrier", "huge", "come", "come", "come", "come", "double", "lose",
           "told", "told", "untold", "take", "take", "take", "cut", "stall")  # fmt: skip


class Row(NamedTuple):
    """One number, and as much else as a test wants."""

    number: int
    text: str


class CutLink:
    """A link between the two ends; its frames arrive when the test says so."""

    def __init__(self, number: int) -> None:
        self.number, self.closed, self.writable, self.has_more = number, False, True, False
        self.peer = SimpleNamespace(agent_id=UPSTREAM)
        self.down: list[bytes] = []
        self.up: list[bytes] = []

    def send(self, kind: int, body: bytes) -> None:
        """Either end sends; nothing happens on a closed link."""
        if not self.closed:
            (self.down if kind == FrameKind.DATA else self.up).append(body)

    def close(self, reason: str) -> None:
        """The receiving end closes it."""
        self.closed = True


class CutChannel:
    """One channel.

    Args:
        window: data frames that may be under way.
        port: makes the receiving end; a broken one is a planted bug.
    """

    def __init__(self, window: int, port: type[DataPort] = DataPort) -> None:
        self.codec = BatchCodec(Row, "rows")
        self.link = CutLink(0)
        self.links = [self.link]
        header = DataHeader(1, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0)
        self.end = LinkEnd(ChannelSender(cast(Any, self.link), header, self.codec, "grow"), lazy_watermarks=False)
        self.end.channel = SendingChannel(window, max_rows=4)
        self.input = InputEnd(channel=ReceivingChannel(window))
        self.window = window
        self.waiting: deque[Batch] = deque()
        self.put = self.taken_rows = self.barriers = self.taken_batches = self.frames_taken = 0
        self.wanted: list[object] = []
        self.came: list[object] = []
        self.is_settling = False
        self.watermarks = self.most_early = self.most_kept = 0
        self.watermark = self.last_mark = START
        running = SimpleNamespace(name="shrink", inputs={(0, 0): self.input}, broken=False)
        host = SimpleNamespace(running={(1, 0): running}, receive=self._receive, fail=self._fail)
        imported = ColumnsImport(lambda: None)
        imported._began = imported._ended = True
        ends = (0, 1, 1, 1)
        self.port = port(
            1, 1, cast(Any, host), {0: self.codec}, lambda edge: ends, lambda *_: UPSTREAM, lambda _: "grow", imported
        )
        self._upstream = SimpleNamespace(
            running={(0, 0): SimpleNamespace(outputs={(0, 0): None})},
            acknowledged=lambda _, __, ___, frames, watermarks, ____=0: self._acknowledged(frames, watermarks),
        )

    # ---- the receiving end

    def _fail(self, _: Any, message: str) -> None:
        raise AssertionError(message)

    def _receive(self, _: Any, edge: int, source: int, number: int, first_row: int, batch: Batch, **_more: Any) -> None:
        self.input.channel.accept(number, first_row, len(batch), barrier=batch.barrier != 0)
        self.waiting.append(batch)
        self.input.rows_or_watermark.append(len(batch) > 0 or batch.barrier != 0)
        rows = [row.number for row in batch.rows]
        self.came.extend(rows)
        if batch.barrier:
            self.came.append(f"barrier {batch.barrier}")
        here = sum(isinstance(one, int) for one in self.came)
        assert batch.watermark[0] <= here, f"a mark says that {batch.watermark[0]} rows have come, {here} have"
        if batch.watermark != START:  # of a part of a batch: it promises nothing
            assert batch.watermark >= self.watermark, "marks do not go back"
            self.watermark = batch.watermark

    def take(self, count: int = 1) -> None:
        """The operator takes batches."""
        for _ in range(min(count, len(self.waiting))):
            batch = self.waiting.popleft()
            self.taken_batches += 1
            self.frames_taken += len(batch) > 0 or batch.barrier != 0
        is_end = self.came == self.wanted and not self.waiting and self.is_settling
        self.input.taken(self.taken_batches, finished=is_end)

    # ---- the sending end

    def _acknowledged(self, frames: int, watermarks: int) -> None:
        self.end.acknowledged(frames, watermarks)
        assert frames <= self.frames_taken, "a frame is acknowledged before it is taken"
        self.end.flush()

    def _put(self, batch: Batch) -> None:
        if self.end.channel.blocked:
            return
        if batch.barrier:
            self.wanted.append(f"barrier {batch.barrier}")
        self.last_mark = max(self.last_mark, batch.watermark)
        self.wanted.extend(row.number for row in batch.rows)
        self.put += len(batch)
        self.end.emit(0, 0, batch)
        self.end.flush()

    def _rows(self, count: int, size: int = 1) -> list[Row]:
        return [Row(self.put + n, "x" * size) for n in range(count)]

    def do(self, action: str, argument: int) -> None:
        """One thing happens."""
        if action in ("rows", "huge", "columns", "mark", "barrier"):
            self._produce(action, argument)
        elif action == "take":
            self.take(1 + argument % 4)
        elif action == "cut":
            self.cut()
        elif action == "stall":
            self.link.writable = not self.link.writable
            if self.link.writable:
                self.end.flush()
        else:
            self._carry(action, argument)
        self._check_bounds()

    def _carry(self, action: str, argument: int) -> None:
        """Something that is on a link comes, or not."""
        link = self.links[argument % len(self.links)]
        at = argument // 3
        if action in ("told", "untold") and link.up:
            body = link.up.pop(at % len(link.up))
            if action == "told":
                self._told(body)
        elif action in ("come", "double", "lose") and link.down:
            body = link.down[at % len(link.down)] if action == "double" else link.down.pop(at % len(link.down))
            if action != "lose":
                self._come(link, body)

    def _produce(self, action: str, argument: int) -> None:
        """The operator upstream puts something out."""
        if action == "mark":
            self.watermarks += 1
            self._put(Batch([], None, (self.put, self.watermarks)))
        elif action == "barrier":
            if not self.end.channel.blocked:
                self.barriers += 1
                self._put(Batch([], None, (self.put, self.watermarks), self.barriers))
        elif action == "columns":
            columns = Columns.from_rows(self._rows(1 + argument % 9), Row)
            self._put(Batch(columns, None, (self.put + len(columns), self.watermarks)))
        else:
            rows = self._rows(1 + argument % 7) if action == "rows" else self._rows(1 + argument % 2, HUGE_BYTES)
            self._put(Batch(rows, None, (self.put + len(rows), self.watermarks)))

    def _come(self, link: CutLink, body: bytes) -> None:
        if link.closed:
            return
        try:
            self.port.data(cast(Any, link), FrameKind.DATA, body)
        except RemoteProtocolError as error:
            if error.reason != "window":
                raise
            link.closed = True
        if link is self.link and link.closed:
            self.cut()

    def _told(self, body: bytes) -> None:
        take_acknowledgement(cast(Any, self._upstream), 1, 1, lambda _: (0, 1, 1, 1), FrameKind.ACK, body)

    def cut(self) -> None:
        """The sending end goes over to another link; frames on the old ones may still arrive, or not."""
        self.link = CutLink(len(self.links))
        self.links.append(self.link)
        self.end.sender.move(cast(Any, self.link))

    def _check_bounds(self) -> None:
        early = self.input.early
        self.most_early = max(self.most_early, len(early.frames))
        self.most_kept = max(self.most_kept, self.end.sender.kept.kept_bytes)
        assert len(early.frames) < REORDER_FRAMES
        assert sum(map(len, early.frames.values())) <= KEPT_BYTES
        channel, kept = self.end.channel, self.end.sender.kept
        assert channel.in_flight <= self.window + 2, "a huge batch is cut into at most two frames"
        assert kept.kept_bytes <= KEPT_BYTES + 2 * MAX_DATA_FRAME_BYTES
        assert len(kept._watermarks) <= PUNCTUATION_WINDOW

    def settle(self) -> None:
        """One good link from now on, and what the operator has taken at the end is acknowledged to the last frame."""
        self.is_settling = True
        self.cut()
        for _ in range(PATIENCE):
            link = self.link
            if link.down:
                self._come(link, link.down.pop(0))
            elif link.up:
                self._told(link.up.pop(0))
            elif self.end.channel.idle and not self.end.channel.has_more:
                return
            else:
                self.take(3)
                self.end.flush()
                assert self.waiting or link.up or link.down, "stuck: nothing is under way, and not all has come"
        raise AssertionError("stuck: it does not end")

    def check(self) -> None:
        """All that was put has come, in order and once, and both ends have counted the same."""
        assert self.came == self.wanted
        sent, came = self.end.channel, self.input.channel
        assert (sent.frames_sent, sent.watermarks_sent, sent.rows_sent) == (came.frames, came.watermarks, came.rows)
        assert came.rows == self.put
        assert self.watermark == self.last_mark
        assert self.end.sender.kept.kept_bytes == 0
        assert not self.input.early.frames
