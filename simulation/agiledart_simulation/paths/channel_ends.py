"""Both ends of a channel, as executors have them, and a slow operator behind it.

The sending end makes rows, watermarks and barriers in a known order, so everything that reaches the operator can be checked at
once.
"""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast

from agiledart_connectors.codecs.columns_import import PROCESS_IMPORT
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.batch_codec import BatchCodec
from agiledart_dataflow.data.position import START
from agiledart_dataflow.runtime.channels import ReceivingChannel, SendingChannel
from agiledart_executor.channels.data_links import ChannelSender, DataPort, LinkEnd, take_acknowledgement
from agiledart_executor.instances.running_instance import InputEnd
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.frames import DataHeader, FrameKind
from agiledart_simulation.paths.spliced_circuit import UPSTREAM, Face

ROW_BYTES: Final = 400
_ENDS: Final = (0, 1, 1, 1)


class ChannelRow(NamedTuple):
    """A row that travels."""

    number: int
    text: str


class ChannelEnds:
    """One channel from one executor to another.

    Args:
        window: frames that may be in transit.
        first: the link that it begins with.
        complain: receives violations.
    """

    def __init__(self, window: int, first: Face, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self._codec = BatchCodec(ChannelRow, "rows")
        header = DataHeader(1, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0)
        self.end = LinkEnd(ChannelSender(cast(Any, first), header, self._codec, "grow"), lazy_watermarks=False)
        self.end.channel = SendingChannel(window, max_rows=4)
        self.input = InputEnd(channel=ReceivingChannel(window))
        self.waiting: deque[Batch] = deque()
        self.put = self.came = self.taken = self._frames_taken = 0
        self._barriers: deque[tuple[int, int]] = deque()  # (after so many rows, number), not received yet
        self._epoch = self._watermarks = 0
        self._watermark: tuple[int, ...] = START
        running = SimpleNamespace(name="shrink", inputs={(0, 0): self.input}, broken=False)
        host = SimpleNamespace(
            running={(1, 0): running}, receive=self._receive, fail=lambda _, message: complain(f"P1: {message}")
        )
        self._port = DataPort(
            1, 1, cast(Any, host), {0: self._codec}, lambda edge: _ENDS, lambda *_: UPSTREAM, lambda _: "grow",
            PROCESS_IMPORT,
        )  # fmt: skip
        self._upstream = SimpleNamespace(
            running={(0, 0): SimpleNamespace(outputs={(0, 0): None})},
            acknowledged=lambda _, __, ___, frames, watermarks, ____=0: self._acknowledged(frames, watermarks),
        )

    # ---- the sending end

    def produce(self, rows: int, *, barrier: bool = False) -> None:
        """Let the upstream operator emit rows, or only a watermark, unless the channel is blocked."""
        if self.end.channel.blocked:
            return
        self._watermarks += 1
        if barrier:
            self._epoch += 1
            self._barriers.append((self.put, self._epoch))
            batch = Batch([], None, (self.put, self._watermarks), self._epoch)
        else:
            made = [ChannelRow(self.put + number, "x" * ROW_BYTES) for number in range(rows)]
            self.put += rows
            batch = Batch(made, None, (self.put, self._watermarks))
        self.end.emit(0, 0, batch)
        self.end.flush()

    def move(self, face: Face) -> None:
        """Continue over another link."""
        self.end.sender.move(cast(Any, face))

    def receive_ack(self, body: bytes) -> None:
        """Process an acknowledgement."""
        try:
            take_acknowledgement(cast(Any, self._upstream), 1, 1, lambda _: _ENDS, FrameKind.ACK, body)
        except RemoteProtocolError as error:
            self._complain(f"P6: {error}")

    def _acknowledged(self, frames: int, watermarks: int) -> None:
        if frames > self._frames_taken:
            self._complain(f"P6: {frames} frames are acknowledged, the operator has taken {self._frames_taken}")
        self.end.acknowledged(frames, watermarks)
        self.end.flush()

    @property
    def is_idle(self) -> bool:
        """Return whether all frames have been received and acknowledged."""
        return self.end.channel.idle and not self.end.channel.has_more

    # ---- the receiving end

    def receive_frame(self, face: Face, body: bytes) -> None:
        """Process a frame."""
        try:
            self._port.data(cast(Any, face), FrameKind.DATA, body)
        except RemoteProtocolError as error:
            if error.reason != "window":
                self._complain(f"P1: {error}")
            face.close(error.reason)

    def _receive(self, _: Any, edge: int, source: int, number: int, first_row: int, batch: Batch, **_more: Any) -> None:
        self.input.channel.accept(number, first_row, len(batch), barrier=batch.barrier != 0)
        self.input.rows_or_watermark.append(len(batch) > 0 or batch.barrier != 0)
        self.waiting.append(batch)
        for row in batch.rows:
            if row.number != self.came:
                self._complain(f"P1: row {row.number} came where {self.came} was expected")
            self.came = row.number + 1
        if batch.barrier:
            expected = self._barriers.popleft() if self._barriers else (-1, -1)
            if (self.came, batch.barrier) != expected:
                self._complain(f"P2: barrier {batch.barrier} came after {self.came} rows, not {expected}")
        if batch.watermark[0] > self.came:
            self._complain(f"P2: a watermark says that {batch.watermark[0]} rows have come, {self.came} have")
        if batch.watermark != START:
            if batch.watermark < self._watermark:
                self._complain(f"P2: a watermark goes back from {self._watermark} to {batch.watermark}")
            self._watermark = max(self._watermark, batch.watermark)

    def work(self, *, is_last: bool) -> None:
        """Let the operator take one batch; at the end all that it has taken is acknowledged, to the last frame."""
        if self.waiting:
            batch = self.waiting.popleft()
            self.taken += 1
            self._frames_taken += len(batch) > 0 or batch.barrier != 0
        self.input.taken(self.taken, finished=is_last and not self.waiting)
