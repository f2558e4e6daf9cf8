"""Messages between instances of the virtual pipeline, rows and barriers, and their saved state.

Tags from 900: no real node ever sends one.
"""

import msgspec

from agiledart_kernel.machine import Message
from agiledart_recovery.wire.names import InstanceId
from agiledart_recovery.wire.register_value import Plan

Position = tuple[int, int]
END: Position = (1 << 60, 0)
START: Position = (-1, 0)


class PipelineRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A row: its position (time, source), its number at the source, its content, and the counts of stages."""

    at: Position
    number: int
    salt: int
    counts: tuple[int, ...] = ()


class Barrier(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Barrier of an epoch; nothing at or below `watermark` follows."""

    epoch: int
    watermark: Position
    after: Plan | None


class PipelineRows(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Rows in order; nothing at or below `watermark` follows."""

    rows: tuple[PipelineRow, ...]
    watermark: Position


class InputPosition(msgspec.Struct, frozen=True, array_like=True):
    """Position of one input of an instance."""

    source: InstanceId
    watermark: Position
    passed: int
    ended: bool


SentRows = tuple[tuple[InstanceId, tuple[PipelineRows, ...]], ...]
"""Bodies that wait for credit in the channels of one instance, by their targets."""


class InstanceState(msgspec.Struct, frozen=True, array_like=True):
    """State of an instance: a count for each of its groups, frontier, rows that wait; an old instance's inputs, too.

    Used as a snapshot; at the barrier of a change, for the hand-over. `others`: of a stage that joins, see `tables.joins`.
    `sent`: rows that the barrier of the snapshot overtook.
    """

    counts: dict[int, int]
    frontier: Position
    held: tuple[PipelineRow, ...]
    inlets: tuple[InputPosition, ...] = ()
    others: dict[int, int] = {}
    sent: SentRows = ()


class SourceState(msgspec.Struct, frozen=True, array_like=True):
    """Position of a source, and the rows that the barrier overtook there."""

    position: int = 0
    sent: SentRows = ()


_SOURCE_STATE: msgspec.msgpack.Decoder[SourceState] = msgspec.msgpack.Decoder(SourceState)


def source_state(position: bytes) -> SourceState:
    """Return the state of a source in its saved position; empty: the beginning."""
    return _SOURCE_STATE.decode(position) if position else SourceState()


class PipelineFrame(Message, frozen=True, gc=False, tag=900):
    """The n-th body that one instance sends to another in an attempt."""

    attempt: int
    source: InstanceId
    target: InstanceId
    number: int
    body: PipelineRows | Barrier


class FrameAck(Message, frozen=True, gc=False, tag=901):
    """Acknowledgement of all frames up to this number, and of so many frames whose rows are released."""

    attempt: int
    source: InstanceId
    target: InstanceId
    number: int
    released: int = 0
