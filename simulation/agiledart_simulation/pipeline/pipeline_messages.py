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


class InstanceState(msgspec.Struct, frozen=True, array_like=True):
    """State of an instance: a count for each of its groups, frontier, rows that wait; an old instance's inputs, too.

    Used as a snapshot; at the barrier of a change, for the hand-over. `others`: of a stage that joins, see `tables.joins`.
    """

    counts: dict[int, int]
    frontier: Position
    held: tuple[PipelineRow, ...]
    inlets: tuple[InputPosition, ...] = ()
    others: dict[int, int] = {}


class PipelineFrame(Message, frozen=True, gc=False, tag=900):
    """The n-th body that one instance sends to another in an attempt."""

    attempt: int
    source: InstanceId
    target: InstanceId
    number: int
    body: PipelineRows | Barrier


class FrameAck(Message, frozen=True, gc=False, tag=901):
    """Acknowledgement of all frames up to this number."""

    attempt: int
    source: InstanceId
    target: InstanceId
    number: int
