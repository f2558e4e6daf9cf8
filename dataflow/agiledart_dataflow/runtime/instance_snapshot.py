"""Snapshots of instances as bytes: inbox, state, outbox, watermark, and the counts of the steps."""

from collections.abc import Iterable, Sequence
from typing import Any, overload

import msgspec

from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.runtime.arrivals import arrivals_type
from agiledart_dataflow.runtime.generation_handover import SnapshotParts
from agiledart_dataflow.runtime.merge import merge_type, typed_rows
from agiledart_dataflow.runtime.overtaken_rows import SentState
from agiledart_dataflow.runtime.program import Program
from agiledart_dataflow.state.async_instance_snapshot import AsyncInstanceSnapshot, AsyncStateSnapshot
from agiledart_dataflow.state.dirty_keys import Increment, StateChanges
from agiledart_dataflow.state.key_groups import NO_STATE, OperatorState, StateSnapshot, snapshot_of
from agiledart_dataflow.state.snapshot_reader import Pieces, restore_groups

EncodedSnapshot = bytes | AsyncInstanceSnapshot
"""Snapshot of an instance at a barrier; of a large state a part may not be encoded yet."""

_ENCODER = msgspec.msgpack.Encoder()


@overload
def encoded_snapshot(parts: SnapshotParts) -> bytes: ...


@overload
def encoded_snapshot(
    parts: SnapshotParts, instead: StateSnapshot | Increment | AsyncStateSnapshot
) -> EncodedSnapshot: ...


def encoded_snapshot(
    parts: SnapshotParts, instead: StateSnapshot | Increment | AsyncStateSnapshot | None = None
) -> EncodedSnapshot:
    """Encode a snapshot. `instead`: takes the place of its state."""
    _, entered, state, counted, watermark, counts, overtaken = parts
    sent = (*counted, overtaken) if overtaken else counted
    encode = _ENCODER.encode
    if isinstance(instead, AsyncStateSnapshot):
        return AsyncInstanceSnapshot(5, encode(entered), instead, encode(sent) + encode(watermark) + encode(counts))
    encoded_state = instead or (state if isinstance(state, StateSnapshot) else snapshot_of(state))
    return encode((entered, encoded_state, sent, watermark, counts))


class StageSnapshots:
    """Decoder of the snapshots of a stage's instances.

    Args:
        program, stage: the topology and the stage.
        in_order: the inboxes of its instances merge by position.

    Raises msgspec.MsgspecError for the snapshot of another stage.
    """

    def __init__(self, program: Program, stage: int, *, in_order: bool) -> None:
        self._program, self._stage, self._in_order = program, stage, in_order

    def another_state(self) -> OperatorState:
        """Return an empty state of the stage's operator."""
        return self._program.operator(self._stage) or NO_STATE

    def parts_in(self, index: int, snapshot: bytes) -> SnapshotParts:
        """Decode a whole snapshot. `index`: of its instance, within its generation."""
        return self._decoded(index, snapshot, StateSnapshot)

    def increment_in(self, index: int, raw: bytes) -> tuple[SnapshotParts, Increment]:
        """Decode an increment; its state changes are separate from the other parts."""
        parts = self._decoded(index, raw, Increment)
        increment: Any = parts.state
        return parts._replace(state=NO_STATE), increment

    def chain_in(
        self,
        index: int,
        state: OperatorState,
        snapshot: bytes | Pieces,
        increments: Iterable[bytes | Pieces],
    ) -> tuple[SnapshotParts, bytes, Sequence[StateChanges]]:
        """Decode a chain and put the key groups of its whole snapshot into a state.

        Args:
            index: of the instance.
            state: takes the key groups, one after the other, so that at most one is in memory twice.
            snapshot: the whole one.
            increments: later changes, in the order of their barriers.

        Returns:
            The other parts and the state that belongs to no key, as of the last barrier, and the changes to apply in order.
        """
        last = self.parts_in(index, restore_groups(state, snapshot))
        assert isinstance(last.state, StateSnapshot)
        rest, changes = last.state.rest, []
        for raw in increments:
            last, increment = self.increment_in(index, raw if isinstance(raw, bytes) else b"".join(raw))
            rest = increment.rest
            changes.append(increment.changes)
        return last, rest, changes

    def _decoded(self, index: int, snapshot: bytes, state: Any) -> SnapshotParts:
        program, stage = self._program, self._stage
        joins = program.joins(stage)
        row = msgspec.Raw if joins else program.input_type(stage)
        order: Any = list[int] | None
        inbox = merge_type(row) if self._in_order else arrivals_type(row, order)
        kind = generic(tuple, inbox, state, SentState, Position, list[StepCounts])
        entered, decoded_state, sent, watermark, counts = msgspec.msgpack.Decoder(kind).decode(snapshot)
        if joins:
            edges = program.plan.incoming(stage)
            entered = typed_rows(entered, {edge.index: program.row_type(edge.index) for edge in edges})
        return SnapshotParts(index, entered, decoded_state, sent.counts, watermark, counts, sent.overtaken)
