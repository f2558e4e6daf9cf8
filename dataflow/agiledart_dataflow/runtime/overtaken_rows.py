"""Rows that a barrier has overtaken: an instance has sent them, and its channels had no credit for them.

They are part of the sender's snapshot. In the attempt that begins there they leave again, before any other row. So the receiver
gets them behind the barrier, where they belong for it. So is the end of the input where it follows the barrier, also without rows.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.batch_codec import BatchCodec
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.runtime.outbox import SentCounts


class WaitingOutput(NamedTuple):
    """Batches that wait in one channel for credit, and the watermark behind them.

    Attributes:
        edge, target: the channel; `target` as channels name it.
    """

    edge: int
    target: int
    batches: list[Batch]
    watermark: Position


class OvertakenRows(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Rows that waited in one channel, in a snapshot.

    Args:
        edge, target: the channel.
        watermark: behind the rows.
        rows: their number.
        frames: batches of them in the form of data frames.
    """

    edge: int
    target: int
    watermark: Position
    rows: int
    frames: list[bytes]


class SentState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """State of an outbox in a snapshot: the last watermark, the next targets in turn, and the rows sent by channel.

    `overtaken` is left out where it is empty, so software before overtaking barriers reads such a snapshot.
    """

    watermark: Position
    next_targets: list[int]
    sent: list[tuple[int, int, int]]
    overtaken: list[OvertakenRows] = []

    @property
    def counts(self) -> SentCounts:
        """Return the state without the rows, as `Outbox.restore` takes it."""
        return self.watermark, self.next_targets, self.sent


def encoded_rows(outputs: Iterable[WaitingOutput], codec: Callable[[int], BatchCodec]) -> list[OvertakenRows]:
    """Encode the rows that wait in channels, for a snapshot. Raises the errors of `BatchCodec.encode`."""
    return [
        OvertakenRows(
            edge,
            target,
            watermark,
            sum(map(len, batches)),
            [body for batch in batches for _, body in codec(edge).encode_within(batch)],
        )
        for edge, target, batches, watermark in outputs
    ]


def decoded_rows(saved: Iterable[OvertakenRows], codec: Callable[[int], BatchCodec]) -> list[WaitingOutput]:
    """Decode the rows that waited in channels. Raises RemoteProtocolError for bytes that are no batch."""
    return [
        WaitingOutput(entry.edge, entry.target, list(map(codec(entry.edge).decode, entry.frames)), entry.watermark)
        for entry in saved
    ]
