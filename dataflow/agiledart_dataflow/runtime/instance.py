"""`Instance`: one parallel copy of a stage. Inbox → operator → stateless steps → outbox, as plain calls.

The executor, `agiledart run` and the simulator's inline host all drive the same class: they `offer` received batches, call
`work`, and deliver the batches that it emits. It does no I/O itself; the caller gives it a sink's writer.

    open      batches at an input →        taken in order of positions, or of arrival where rows carry none; the outbox fills
    open      outputs are blocked →        no rows are taken: pressure travels upstream through the channels
    open      a barrier at one input →     that input waits; the others go on
    open      the barrier at all inputs →  snapshot; the barrier leaves by every output, before any later row
    open      that, outputs blocked →      the same; the barrier overtakes the rows that wait there, and they are in the snapshot
    open      user code raised →           as `on_error` says: `UserCodeError` ends it, or the row is counted and put aside
    open      the end of all inputs →      draining: windows close, timers of event time fire, the end leaves by every output
    draining  no rows left →               finished
    any       restore(snapshot) →          open, as it was behind that barrier; before the first batch only
    open      a barrier with a change →    another plan holds behind it: it has other targets and other senders
    open      the end of its generation →  all released rows are processed, the barrier leaves; it has stopped
    any       take_over(snapshots) →       open, where the previous generation's instances stopped; before the first batch only
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from agiledart_dataflow.aggregation.make_operator import MakeStore
from agiledart_dataflow.counts.statistics import InstanceStatistics
from agiledart_dataflow.data.batch import Batch, Held, Order
from agiledart_dataflow.data.position import START, Position, is_final, reached
from agiledart_dataflow.plan.connectors import SinkWriter
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_dataflow.runtime.arrivals import Arrivals, SingleInputArrivals, inbox_for
from agiledart_dataflow.runtime.direct_sink import DirectSink, direct_sink, loop_into
from agiledart_dataflow.runtime.generation_handover import (
    ChangeFailed,
    GenerationHandover,
    SnapshotParts,
    has_ended_channels,
)
from agiledart_dataflow.runtime.increments import Increments
from agiledart_dataflow.runtime.instance_snapshot import EncodedSnapshot, StageSnapshots, encoded_snapshot
from agiledart_dataflow.runtime.merge import AwaitedChannel, Merge
from agiledart_dataflow.runtime.outbox import Emit, Outbox
from agiledart_dataflow.runtime.overtaken_rows import (
    OvertakenRows,
    WaitingOutput,
    decoded_rows,
    encoded_rows,
)
from agiledart_dataflow.runtime.program import Program
from agiledart_dataflow.runtime.single_input_merge import SingleInputMerge, merge_for
from agiledart_dataflow.runtime.stage_steps import Observer, RowTap, StageSteps
from agiledart_dataflow.state.key_groups import NO_STATE, OperatorState
from agiledart_dataflow.state.snapshot_reader import Pieces
from agiledart_kernel.errors import LocalProtocolError

WORK_BUDGET = 4_096
"""Rows that one call of `work` treats at most: some milliseconds, so that a driver stays responsive."""

_CHUNK = 1_024
"""Rows that pass the operator in one go."""

BarrierReport = Callable[[int, Any, bytes], None]
"""Handler of a barrier that has come through all inputs: (number, the instance's `EncodedSnapshot`, the change it carries)."""


def _do_nothing() -> None:
    """Ignore the event."""


class Instance:
    """One parallel copy of a stage that is not a source.

    Args:
        program: the compiled topology.
        stage, index: the stage, and the instance within it.
        writer: of a sink's stage.
        make_store: makes the stores of steps with `keep="disk"`; without it state is in memory.

    Attributes:
        steps: its work on rows.
        snapshots: codec of the snapshots of its stage.
        state: its operator's state, by key group; without the rows waiting in the inbox.
        programs: the topology with the plans that may hold behind barriers to come, by their names.
        on_save: called before it saves itself.
        waiting_output: returns what waits in its channels; a barrier may overtake it.
        on_stop: called when its generation has reached its end, before it saves itself.
        final_snapshot: its state at the end of its generation; None while that goes on.
        increments: decides whether a snapshot is full or an increment; set by an executor that stores snapshots.
        change_passed: a barrier has brought another plan; the reader resets it.

    Raises:
        UserCodeError: from `work`, when user code raised.
        OperationFailed: from `work`, when a sink could not be written; names the step.
        RemoteProtocolError: from `offer`, when a batch breaks the order; the sender is at fault.
    """

    increments: Increments | None = None

    def __init__(
        self,
        program: Program,
        stage: int,
        index: int,
        writer: SinkWriter | None = None,
        make_store: MakeStore | None = None,
    ) -> None:
        plan = program.plan
        self.stage, self.index = stage, index
        self.member = plan.members(stage)[index]
        self.programs: Mapping[bytes, Program] = {}
        self.final_snapshot: SnapshotParts | None = None
        self.on_stop = self.on_save = _do_nothing
        self.waiting_output: Callable[[], list[WaitingOutput]] = list
        self._unsent: list[OvertakenRows] = []  # rows that the barrier overtook from which it was restored
        self.change_passed = False
        self._asked: dict[int, bytes] = {}  # barrier that has come through an input → the change that it carries
        self.inputs: tuple[tuple[int, int], ...] = plan.inputs(stage, index)
        self._program = program
        self._carries = plan.carries(stage)
        self._inbox: Merge | Arrivals = (
            merge_for([(channel, plan.edges[channel[0]].padding) for channel in self.inputs])
            if self._carries == "positions"
            else inbox_for(self.inputs)
        )
        self.snapshots = StageSnapshots(program, stage, in_order=self._carries == "positions")
        self.offer = self._inbox.offer
        """offer(edge, source, batch): put the next batch of a channel into the inbox; no work is done yet. Not for barriers."""
        self._passes = self._inbox.passes if isinstance(self._inbox, SingleInputArrivals | SingleInputMerge) else None
        self._outbox = Outbox(plan, stage, index, program.key_functions(stage))
        self.steps = StageSteps(program, stage, self._outbox, writer, make_store)
        self.state: OperatorState = NO_STATE if self.steps.operator is None else self.steps.operator
        self.reports = self.steps.errors.reports
        self.on_barrier: BarrierReport | None = None
        self._watermark: Position = START
        self._counts = self.steps.counts
        self._writer = writer
        self._fast = self.steps.fast
        if (program.steps(stage)[0].traits.stage == "sink") != (writer is not None):
            raise LocalProtocolError(
                f"stage {plan.stages[stage].name}: a sink needs a writer, and nothing else has one"
            )

    @property
    def queued_rows(self) -> int:
        """Return the number of rows that wait in the inbox."""
        return self._inbox.queued_rows

    @property
    def has_released(self) -> bool:
        """Report whether waiting rows may be taken."""
        return self._inbox.has_released

    def awaited_input(self) -> AwaitedChannel | None:
        """Return the channel for which rows wait in a merge by position; None while none waits for one."""
        return self._inbox.awaited_input() if isinstance(self._inbox, Merge) else None

    @property
    def finished(self) -> bool:
        """Report whether END_OF_INPUT of all inputs has passed through."""
        return is_final(self._watermark)

    @property
    def watermark(self) -> Position:
        """Return the position up to which this instance is complete."""
        return self._watermark

    def consumed(self, edge: int, source: int) -> int:
        """Return the number of a channel's batches taken in full out of the inbox; it drives acknowledgements."""
        return self._inbox.consumed(edge, source)

    def work(self, emit: Emit, budget: int = WORK_BUDGET) -> bool:
        """Run the rows that the inbox releases, at most `budget`; return True when released rows remain."""
        inbox, fast = self._inbox, self._fast
        # An instance whose generation has ended takes no more rows: its state belongs to its successors.
        left = budget if self.final_snapshot is None else 0
        while left > 0:
            if inbox.barriers and not self._is_draining_before(inbox.barriers[0]):
                self.pass_barrier(inbox.barriers.pop(0), emit)
                if self.final_snapshot is not None:
                    break
            held, order, watermark = inbox.take(left if left < _CHUNK else _CHUNK)
            count = len(held)
            if fast is not None and count and type(held) is list:
                self._watermark = watermark
                held, order = fast(held, order)
                self._outbox.send(held, order, watermark, emit)
            elif count or watermark > self._watermark:
                self._pass(held, order, watermark, emit)
            if not inbox.has_released and not inbox.barriers:
                return False
            left -= count or 1
        return self.final_snapshot is None

    def pass_barriers(self, emit: Emit) -> None:
        """Pass the barriers that all inputs have given, while no output has space for rows; they overtake what waits there.

        A barrier with a change stays in line: the instances of a generation stop with all released rows processed.
        """
        barriers = self._inbox.barriers
        while barriers and not self._asked.get(barriers[0]) and self.final_snapshot is None:
            self.pass_barrier(barriers.pop(0), emit)

    @property
    def has_ended_inputs(self) -> bool:
        """Report whether no input can bring a barrier any more, so that the instance begins barriers itself."""
        return self._inbox.has_ended and not self._inbox.barriers and self.final_snapshot is None

    def take_unsent(self) -> list[WaitingOutput]:
        """Return, once, the rows that the barrier overtook from which it was restored. Its channels send them first."""
        unsent, self._unsent = self._unsent, []
        return decoded_rows(unsent, self._program.codec)

    @property
    def sent_end(self) -> Position | None:
        """Return the end that its outputs were given; None: rows may follow."""
        return self._outbox.end

    def pass_through(self, edge: int, source: int, batch: Batch, emit: Emit) -> bool:
        """Take the rows of a batch at once, as `offer` and `work` would; return False where they have to be offered.

        They have to be offered when there are several inputs, rows wait, or the batch is more than rows or too large for one go.
        Raises the errors of `work`.
        """
        held, order, watermark = batch.held, batch.order, batch.watermark
        count = len(held)
        if not 0 < count <= _CHUNK or self._passes is None or not self._passes(edge, source, batch):
            return False
        if self._fast is not None and type(held) is list:
            self._watermark = watermark
            held, order = self._fast(held, order)
            self._outbox.send(held, order, watermark, emit)
        else:
            self._pass(held, order, watermark, emit)
        return True

    def direct(self) -> DirectSink | None:
        """Return for a sink of one input a direct way past its inbox; None where it is tapped, or more than rows comes in."""
        inbox, writer = self._inbox, self._writer
        if writer is None or not isinstance(inbox, SingleInputArrivals) or self._carries != "rows":
            return None
        return None if self.steps.is_watched else direct_sink(self.steps, self.inputs[0], inbox, writer)

    def fused_with(self, sink: DirectSink, batch_rows: int) -> Callable[[list[Any]], None] | None:
        """Return a loop for entering rows: through the steps and into the sink, batch by batch, as `work` of both would.

        None where the result would differ: positions go with the rows, a tap is set, one loop does not do all the work, or the
        sink is not the only output. Rows must not wait here meanwhile. Raises the errors of `work`.
        """
        inbox, outbox = self._inbox, self._outbox
        if not isinstance(inbox, SingleInputArrivals) or (outbox.only, self.index) != sink.channel:
            return None
        write_rows = self.steps.fused_into(batch_rows, sink.write)
        return None if write_rows is None else loop_into(write_rows, sink, inbox, outbox)

    def show(self, taps: Mapping[str, RowTap]) -> None:
        """Set the taps on steps, by their names; they replace the ones before."""
        self.steps.show(taps)
        self._fast = self.steps.fast

    def observe(self, observer: Observer) -> None:
        """Give all rows that a sink writes to this observer from now on."""
        self.steps.observe(observer)

    def _pass(self, held: Held, order: Order, watermark: Position, emit: Emit) -> None:
        self._watermark = watermark
        held, order, watermark = self.steps.run(held, order, watermark)
        self._outbox.send(held, order, watermark, emit)

    def offer_barrier(self, edge: int, source: int, batch: Batch) -> None:
        """Put a barrier into the inbox.

        Raises:
            ChangeFailed: it carries another change than the same barrier of another channel, or an unknown one.
            RemoteProtocolError, LocalProtocolError: as `offer`.
        """
        change = batch.change
        if self._asked.setdefault(batch.barrier, change) != change:
            raise ChangeFailed(f"barrier {batch.barrier} came with two requests")
        if change:
            if change not in self.programs:
                raise ChangeFailed(f"barrier {batch.barrier} carries a plan that is not known here")
            self.expect_change(batch.barrier)
        if not change or self._ends_at(batch.barrier):
            self.offer(edge, source, batch)
            return
        before, after = self._program.plan, self.programs[change].plan
        sender = before.edges[edge].source
        if before.stages[sender].generation == after.stages[sender].generation:
            self.offer(edge, source, batch)
            return
        self._to_multi_input()
        followers = after.followers(edge, source)
        inputs = after.inputs(self.stage, self.index)
        new = [channel for channel in inputs if channel[1] in followers and after.edges[channel[0]].source == sender]
        self._inbox.offer_last(edge, source, batch, [(channel, after.edges[channel[0]].padding) for channel in new])

    def expect_change(self, barrier: int) -> None:
        """Expect a barrier with a change: until a channel has brought it, waiting rows do not hold up their senders.

        The barrier, for which others wait, may be behind those rows.
        """
        if isinstance(self._inbox, Merge):
            self._inbox.acknowledges_early_until = barrier

    def takes_in(self, edge: int, source: int) -> bool:
        """Report whether this channel enters here now: not when its generation has ended or is not announced yet."""
        return self._inbox.takes_in(edge, source)

    def is_leaving(self, edge: int, source: int) -> bool:
        """Report whether the channel's last barrier has come, so that the next generation's channels continue it."""
        return self._inbox.is_leaving(edge, source)

    def forget(self, edge: int, source: int) -> bool:
        """Drop a channel whose last barrier has come; return False while its rows wait here."""
        return self._inbox.forget(edge, source)

    @property
    def plan(self) -> StagePlan:
        """Return the plan that it follows now."""
        return self._program.plan

    @property
    def is_caught_up(self) -> bool:
        """Report whether its stage may take a new generation: it stands where its siblings stand, and a barrier can reach it.

        After a roll-back, all rows that it had taken too early have come again.
        """
        return self._inbox.is_caught_up and not self._inbox.has_ended

    def _to_multi_input(self) -> None:
        """Replace the inbox by one that can add and drop channels."""
        if isinstance(self._inbox, SingleInputArrivals | SingleInputMerge):
            self._inbox = self._inbox.to_multi_input()
            self.offer, self._passes = self._inbox.offer, None

    def _ends_at(self, barrier: int) -> bool:
        """Report whether the generation of this instance ends with a barrier."""
        if not (change := self._asked.get(barrier, b"")):
            return False
        plan, stage = self._program.plan, self.stage
        return self.programs[change].plan.stages[stage].generation != plan.stages[stage].generation

    def _is_draining_before(self, barrier: int) -> bool:
        """Report whether rows released by the generation's last barrier remain. All instances must stop at one frontier."""
        return self._ends_at(barrier) and self._inbox.has_released

    def pass_barrier(self, barrier: int, emit: Emit) -> None:
        """Save the state at a barrier that all inputs have given, or with which none can come any more; send it on.

        Earlier rows are in the snapshot, and in the output sent.
        """
        ends = self._ends_at(barrier)
        change = self._asked.pop(barrier, b"")
        # All instances of a generation leave their state at one frontier, so time advances before the snapshot.
        if ends:
            self._reach_end(barrier, emit)
            self.on_stop()
        self._outbox.send_sides(emit)
        self.on_save()
        if ends or self.on_barrier is not None:
            parts = self._parts_of_snapshot(barrier, [] if change else self.waiting_output())
            if self.on_barrier is not None:
                self.on_barrier(barrier, self._encode_snapshot(barrier, parts, is_last=ends), change)
        # The barrier leaves by the old plan, so that the present targets get it; the new plan holds for later rows.
        self._outbox.send_barrier(barrier, emit, change)
        if ends:
            self.final_snapshot = parts
        elif change:
            if isinstance(self._inbox, Merge):
                self._inbox.acknowledges_early_until = 0
            self._program, self.change_passed = self.programs[change], True
            self._outbox.retarget(self._program.plan)
            self.inputs = self._program.plan.inputs(self.stage, self.index)

    def _reach_end(self, barrier: int, emit: Emit) -> None:
        """Advance to the frontier at which all instances of this generation stop."""
        if not self._inbox.is_caught_up:
            raise ChangeFailed(
                f"barrier {barrier} carries a change, and an instance has not caught up since the roll-back"
            )
        if isinstance(self._inbox, Arrivals):
            self._inbox.reach_barrier()
        if self._inbox.frontier > self._watermark:
            self._pass([], None, self._inbox.frontier, emit)

    def statistics(self) -> InstanceStatistics:
        """Return the counts so far."""
        self.steps.note_rejected()
        return InstanceStatistics(
            stage=self.stage,
            index=self.member,
            steps={name: msgspec.structs.replace(counts) for name, counts in self._counts.items()},
            latency=[] if self._writer is None else self._writer.latency.to_plain(),
            queued_rows=self.queued_rows,
            state_keys=0 if self.steps.operator is None else self.steps.operator.state_keys,
            event_time=reached(self._watermark),
            finished=self.finished,
            sent=self._outbox.sent(),
            received=self._inbox.received(),
        )

    @property
    def written(self) -> int:
        """Return the rows that a sink was given in this run, without those of rolled-back epochs."""
        return self.steps.counted.rows_in

    def snapshot(self, barrier: int = 0) -> bytes:
        """Encode state, queues, watermarks and counts between two calls of `work`; as of a barrier that has just passed."""
        return encoded_snapshot(self._parts_of_snapshot(barrier))

    def onto(self, barrier: int) -> bytes:
        """Return the base of this barrier's snapshot; empty: the snapshot is full."""
        return b"" if self.increments is None else self.increments.onto(barrier)

    def at_end(self, barrier: int) -> EncodedSnapshot:
        """Return the final snapshot at the end of its input, valid for this barrier and all later ones."""
        parts = self._parts_of_snapshot(barrier)
        return encoded_snapshot(parts) if self.increments is None else encoded_snapshot(parts, self.increments.at_end())

    def _encode_snapshot(self, barrier: int, parts: SnapshotParts, *, is_last: bool) -> EncodedSnapshot:
        """Return a barrier's snapshot. `is_last`: the instance hands it over."""
        if self.increments is None:
            return encoded_snapshot(parts)
        return encoded_snapshot(parts, self.increments.at(barrier, is_last=is_last))

    def _parts_of_snapshot(self, barrier: int, overtaken: Sequence[WaitingOutput] = ()) -> SnapshotParts:
        self.steps.note_rejected()
        counts = [msgspec.structs.replace(counts_of_step) for counts_of_step in self._counts.values()]
        entered = self._inbox.snapshot(barrier)
        sent, rows = self._outbox.snapshot(), encoded_rows(overtaken, self._program.codec)
        return SnapshotParts(self.index, entered, self.state, sent, self._watermark, counts, rows)

    def restore(self, snapshot: bytes | Pieces, *increments: bytes | Pieces) -> None:
        """Restore a snapshot of an instance of the same stage, index and plan. When it raises, the instance is unusable.

        Args:
            snapshot: a full one; at most one key group of its pieces is in memory at once.
            increments: later changes, in the order of their barriers; the instance goes on at the last one.

        Raises msgspec.MsgspecError for another instance's snapshot, `StateFormatError` for one whose state the code cannot read.
        """
        last, rest, changes = self.snapshots.chain_in(self.index, self.state, snapshot, increments)
        self.resume(last)
        self.state.restore_rest(rest)
        for state_changes in changes:
            self.state.apply(state_changes)

    def resume(self, last: SnapshotParts) -> None:
        """Continue at the barrier of a snapshot. The state is restored apart: here before or after, by a standby long before."""
        self._enter(last.entered)
        self._outbox.restore(last.sent)
        self._unsent = list(last.overtaken)
        self._watermark = last.watermark
        for counts, then in zip(self._counts.values(), last.counts, strict=True):
            counts.become(then)

    def count_from(self, barrier: int) -> None:
        """Continue with the barrier after this one: the restored snapshot is another run's, or older than the committed one."""
        self._inbox.count_from(barrier)

    def take_over(self, left: Sequence[SnapshotParts]) -> None:
        """Begin where the previous generation's instances stopped: all those that `predecessors_of` names.

        Raises:
            ChangeFailed: they did not stop at one frontier.
            StateFormatError: the code cannot read their state.
        """
        joining = GenerationHandover(self._program, self.stage, self.index, left)
        self._enter(joining.merge() if isinstance(self._inbox, Merge) else joining.arrivals())
        joining.state_into(self.state)
        self._watermark, self._outbox.watermark = joining.watermark, joining.sent_watermark
        for predecessor in joining.predecessors():
            self._outbox.inherit(predecessor.sent[2])
            for counts, then in zip(self._counts.values(), predecessor.counts, strict=True):
                counts.add(then)

    def _enter(self, entered: Any) -> None:
        if has_ended_channels(entered, self.inputs):
            self._to_multi_input()
        self._inbox.restore(entered)
