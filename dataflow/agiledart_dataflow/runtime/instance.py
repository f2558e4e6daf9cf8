"""`Instance`: one parallel copy of a stage. Inbox → operator → stateless steps → outbox, as plain calls.

The executor, `agiledart run` and the simulator's inline host all drive the same class: they `offer` batches that came
in, call `work`, and deliver what it emits. It does no I/O itself; a sink's writer is handed in.

    open      batches at an input →        taken in order of positions, or of arrival where none are carried; the outbox fills
    open      outputs are blocked →        nothing is taken: pressure goes up through the channels
    open      a barrier at one input →     that input waits; the others go on
    open      the barrier at all inputs →  snapshot; the barrier leaves by every output, before anything that came behind it
    open      user code raised →           as `on_error` says: `UserCodeError` ends it, or the row is counted and put aside
    open      the end of all inputs →      draining: windows close, timers of event time fire, the end leaves by every output
    draining  nothing left →               finished
    any       restore(snapshot) →          open, as it was behind that barrier; before the first batch only
    open      a barrier with a change →    another plan holds behind it: other instances are sent to, and others send
    open      one that ends its term →     all that is released is worked off, the barrier leaves; it has stopped
    any       take_over(what was left) →   open, where the instances of the term before have stopped; before the first batch only
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import msgspec

from agiledart_dataflow.aggregation.make_operator import MakeStore
from agiledart_dataflow.counts.statistics import InstanceStatistics, StepCounts
from agiledart_dataflow.data.batch import Batch, Held, Order, as_rows, listed
from agiledart_dataflow.data.position import START, Position, final_behind, is_final, reached
from agiledart_dataflow.data.rows import Either
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.operators.loop_text import RowStep
from agiledart_dataflow.operators.segments import Run
from agiledart_dataflow.plan.connectors import SinkWriter
from agiledart_dataflow.plan.stage_plan import ERRORS, StagePlan
from agiledart_dataflow.runtime.arrivals import Arrivals, SingleInputArrivals, arrivals_type, inbox_for
from agiledart_dataflow.runtime.dead_letter_writer import CANNOT_TRAVEL, DeadLetterWriter
from agiledart_dataflow.runtime.error_reports import ErrorReports
from agiledart_dataflow.runtime.generation_handover import (
    ChangeFailed,
    GenerationHandover,
    SnapshotParts,
    has_ended_channels,
)
from agiledart_dataflow.runtime.increments import Increments
from agiledart_dataflow.runtime.merge import Merge, merge_type, typed_rows
from agiledart_dataflow.runtime.outbox import Emit, Outbox
from agiledart_dataflow.runtime.program import Program
from agiledart_dataflow.runtime.single_input_merge import SingleInputMerge, merge_for
from agiledart_dataflow.state.async_instance_snapshot import AsyncInstanceSnapshot, AsyncStateSnapshot
from agiledart_dataflow.state.dirty_keys import Increment
from agiledart_dataflow.state.key_groups import NO_STATE, OperatorState, StateSnapshot, snapshot_of
from agiledart_dataflow.state.snapshot_reader import Pieces, restore_groups
from agiledart_dataflow.user_code.user_errors import NO_RECORD, record_in, user_code_error
from agiledart_kernel.errors import AgileDartError, LocalProtocolError, OperationFailed

WORK_BUDGET = 4_096
"""Rows that one call of `work` treats at most: some milliseconds, so that a driver stays responsive."""

_CHUNK = 1_024
"""Rows that pass the operator in one go."""

RowTap = Callable[[list[Any], Order], None]
"""Shown the rows that leave a step and what goes with them, once for each batch. Must not raise and must not keep the lists."""

Observer = Callable[[Held, Order], None]
"""The same for rows in either form, of which it may look at few."""

EncodedSnapshot = bytes | AsyncInstanceSnapshot
"""What an instance says of itself at a barrier; of a large state not all may be encoded yet."""

BarrierReport = Callable[[int, Any, bytes], None]
"""Told of a barrier that has come through all inputs, with the instance's `EncodedSnapshot` at it and the change that it carries."""


@dataclass(frozen=True)
class DirectSink:
    """A sink for whoever writes into it directly.

    Attributes:
        step: its name, for errors.
        channel: (edge, upstream instance) by which its rows would come.
        write, count: take rows; note how many were taken.
    """

    step: str
    channel: tuple[int, int]
    write: Callable[[list[Any]], None]
    count: Callable[[int], None]


def _do_nothing() -> None:
    """To be told of it."""


class Instance:
    """One parallel copy of a stage that is no source.

    Args:
        program: the compiled topology.
        stage, index: which instance.
        writer: of a sink's stage.
        make_store: where steps with `keep="disk"` keep their state; without it in memory.

    Attributes:
        state: what its operator remembers, by key group; without what waits to enter it.
        programs: the topology with the plans that may hold behind barriers to come, by their names.
        on_save: told when it is about to save itself.
        on_stop: told when its term has come to where it ends, before it saves itself.
        final_snapshot: what it leaves behind; None as long as its term goes on.
        increments: where an element need not be whole; who keeps elements puts it in.
        change_passed: a barrier has brought another plan; whoever takes note of it takes it back.

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
        self.offer = self._inbox.offer
        """offer(edge, source, batch): put the next batch of a channel into the inbox; no work is done yet. Not for barriers."""
        self._passes = self._inbox.passes if isinstance(self._inbox, SingleInputArrivals | SingleInputMerge) else None
        self._operator = program.operator(stage, self._on_operator_error, make_store)
        self.state: OperatorState = NO_STATE if self._operator is None else self._operator
        self._run_batch = getattr(self._operator, "run_batch", None)
        self._sides: dict[str, tuple[list[Any], list[Any]]] = getattr(self._operator, "sides", {})
        self.reports = ErrorReports()
        self._letters = DeadLetterWriter(program.row_type)
        self._segments = program.segments(stage, self._on_step_error)
        self.on_barrier: BarrierReport | None = None
        self._outbox = Outbox(plan, stage, index, program.key_functions(stage))
        self._watermark: Position = START
        self._counts: dict[str, StepCounts] = {}  # of its steps, in the order in which rows pass them
        self._writer = writer
        steps = program.steps(stage)
        self._counted = StepCounts()
        self._is_broadcast = steps[0].traits.shares_second
        self._own_step = steps[0].name if steps[0].traits.is_bare else ""
        self._first_step = steps[0].name if self._own_step or self._operator is not None else ""
        if self._own_step:
            self._counts[self._own_step] = self._counted
        if self._operator is not None:
            self._counts[self._operator.name] = self._operator.counts
        if self._segments is not None:
            self._counts |= self._segments.counts
        self._taps: Mapping[str, RowTap] = {}
        self._observer: Observer | None = None
        self._parts = [] if self._segments is None else [("", self._segments)]
        self._list_run = self._list_path()
        self._fast = self._fast_path()
        self._write_columns = getattr(writer, "write_columns", None)
        if (steps[0].traits.stage == "sink") != (writer is not None):
            raise LocalProtocolError(
                f"stage {plan.stages[stage].name}: a sink needs a writer, and nothing else has one"
            )

    @property
    def queued_rows(self) -> int:
        """Rows that wait in the merge."""
        return self._inbox.queued_rows

    @property
    def has_released(self) -> bool:
        """Does something wait that may be taken?"""
        return self._inbox.has_released

    @property
    def finished(self) -> bool:
        """True when END_OF_INPUT of all inputs has passed through."""
        return is_final(self._watermark)

    @property
    def watermark(self) -> Position:
        """The position up to which this instance is complete."""
        return self._watermark

    def consumed(self, edge: int, source: int) -> int:
        """How many batches of a channel have been taken wholly out of the inbox; drives acknowledgements."""
        return self._inbox.consumed(edge, source)

    def work(self, emit: Emit, budget: int = WORK_BUDGET) -> bool:
        """Run what the inbox releases, at most `budget` rows; True when released rows remain."""
        inbox, fast = self._inbox, self._fast
        left = budget if self.final_snapshot is None else 0
        while left > 0:
            if inbox.barriers and not self._is_draining_before(inbox.barriers[0]):
                self._pass_barrier(inbox.barriers.pop(0), emit)
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

    def pass_through(self, edge: int, source: int, batch: Batch, emit: Emit) -> bool:
        """Take the rows of a batch at once, as `offer` and `work` would; False where they have to be offered: there are
        several inputs, something waits, the batch is more than rows or more than passes in one go.

        Raises what `work` raises.
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

    def direct(self) -> "DirectSink | None":
        """Of a sink of one input: how to write rows past its inbox. None where somebody looks, or more than rows comes in."""
        inbox, writer, counted = self._inbox, self._writer, self._counted
        if writer is None or not isinstance(inbox, SingleInputArrivals) or self._carries != "rows":
            return None
        if self._taps or self._observer is not None:
            return None

        def count(rows: int) -> None:
            inbox.count_bypassed(rows)
            counted.rows_in += rows
            counted.rows_out += rows

        return DirectSink(self._own_step, self.inputs[0], writer.write, count)

    def fused_with(self, sink: "DirectSink", batch_rows: int) -> Callable[[list[Any]], None] | None:
        """A loop for rows that would enter here: through the steps and into the sink, batch by batch, as `work` of both would.

        None where it would not be the same: something goes with the rows, somebody looks, more is done than one loop, the
        sink is not all that follows. Rows must not wait here meanwhile. Raises what `work` raises.
        """
        inbox, outbox = self._inbox, self._outbox
        if (
            self._fast is None
            or not isinstance(inbox, SingleInputArrivals)
            or (outbox.only, self.index) != sink.channel
        ):
            return None
        assert self._segments is not None  # else there is no fast way
        chain = self._segments.fused()
        if chain is None:
            return None

        def run(rows: list[Any]) -> None:
            try:
                written = chain.run_into(rows, batch_rows, sink.write)
            except OperationFailed as error:
                raise OperationFailed(f"{sink.step}: {error}") from None
            inbox.count_bypassed(len(rows))
            outbox.count_bypassed(written)
            sink.count(written)

        return run

    def show(self, taps: Mapping[str, RowTap]) -> None:
        """From now on show these what leaves the steps by whose names they stand; replaces the ones before.

        Without onlookers a stage's stateless steps are one loop; with them it is cut where somebody looks.
        """
        self._taps = taps
        if self._segments is not None:
            self._parts = self._segments.parts(taps) if taps else [("", self._segments)]
        self._list_run = self._list_path()
        self._fast = self._fast_path()

    def observe(self, observer: Observer) -> None:
        """From now on show it all that a sink has written."""
        self._observer = observer

    def _list_path(self) -> Run | None:
        """The stateless steps for rows in a list, where they are one generated loop into which nobody looks; else None."""
        return None if self._taps or self._segments is None else self._segments.over_lists()

    def _fast_path(self) -> Run | None:
        """What to do with rows in a list where a stage is nothing but such a loop; else None."""
        return None if self._operator is not None or self._own_step else self._list_run

    def _pass(self, held: Held, order: Order, watermark: Position, emit: Emit) -> None:
        self._watermark = watermark
        count = len(held)
        if self._own_step:
            self._counted.rows_in += count
            self._counted.rows_out += count
            if self._writer is not None and count:
                self._write(held, order)
        elif self._operator is not None:
            held, order = self._operate(held, order, watermark)
            if is_final(watermark) and len(held) and order is not None:
                watermark = final_behind(watermark, listed(order[-1:])[0])
        if self._taps:
            self._look(self._first_step, held, order)
        if self._list_run is not None and type(held) is list:
            if held:
                held, order = self._list_run(held, order)
        else:
            for last, part in self._parts:
                if len(held):
                    held, order = part.run(held, order)
                    if self._taps:
                        self._look(last, held, order)
        self._outbox.send(held, order, watermark, emit)

    def _write(self, held: Held, order: Order) -> None:
        assert self._writer is not None
        try:
            if self._write_columns is not None and type(held) is not list:
                self._write_columns(held)
            else:
                self._writer.write(held if type(held) is list else as_rows(held))
        except OperationFailed as error:
            raise OperationFailed(f"{self._own_step}: {error}") from None
        if self._observer is not None:
            self._observer(held, order)

    def _look(self, step: str, held: Held, order: Order) -> None:
        tap = self._taps.get(step)
        if tap is not None and len(held):
            tap(as_rows(held), listed(order))

    def _operate(self, held: Held, order: Order, watermark: Position) -> tuple[Held, Order]:
        operator = self._operator
        assert operator is not None
        out: tuple[Held, Order]
        try:
            if self._run_batch is not None:
                out = self._run_batch(held, order, watermark)
            else:
                if type(held) is not list:
                    held, order = as_rows(held), listed(order)
                out = operator.run(held, order, watermark)
        except AgileDartError:
            raise
        except (Exception, SystemExit) as error:  # user code may raise anything; it leaves here named
            raise user_code_error(
                operator.name, operator.function, error, record_in(error.__traceback__, operator)
            ) from error
        if self._sides:
            for tag, (rows, at) in self._sides.items():
                self._outbox.put_aside(f"{operator.name}/{tag}", rows, at)
            self._sides.clear()
        return out

    def _on_step_error(self, step: RowStep, row: Any, at: Any, error: Exception) -> None:
        """A step raised for a row, and its error policy goes on without it."""
        self._put_aside(step.name, step.function, step.policy, row, at, error, row)

    def _put_aside(
        self,
        step: str,
        function: Callable[..., Any] | None,
        policy: str,
        row: Any,
        at: Any,
        error: Exception,
        record: Any,
    ) -> None:
        edge = self._outbox.edge_of(side := f"{step}/{ERRORS}") if policy == "dead_letter" else None
        if edge is not None:
            letter = self._letters.letter(edge, step, function, record, error)
            if letter is not None:
                self._outbox.put_aside(side, [letter], [at])
            else:
                policy, counts = CANNOT_TRAVEL, self._counts[step]
                counts.skipped, counts.dead_letters = counts.skipped + 1, counts.dead_letters - 1
        self.reports.note(step, function, error, row, policy)

    def _on_operator_error(self, error: Exception, row: Any, at: Position) -> None:
        """The operator raised for a row, and its error policy goes on without it."""
        operator = self._operator
        assert operator is not None
        head = self._program.steps(self.stage)[0]
        policy = head.on_error
        if row is NO_RECORD:  # a timer or a result: nothing is lost but what it would have done
            self.reports.note(operator.name, operator.function, error, row, "skip")
            return
        if self._is_broadcast and at[-1]:  # told to every instance, so it has no place of its own to go to
            policy = "skip"
        if policy == "dead_letter":
            operator.counts.dead_letters += 1
        else:
            operator.counts.skipped += 1
        letter = (
            row
            if head.state is None or head.state.other_rows is None
            else Either(None, row)
            if at[-1]
            else Either(row, None)
        )
        self._put_aside(operator.name, operator.function, policy, row, at, error, letter)

    def offer_barrier(self, edge: int, source: int, batch: Batch) -> None:
        """Put a barrier into the inbox.

        Raises:
            ChangeFailed: it carries another change than the same barrier of another channel, or one of which nobody has told.
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
        new = [one for one in inputs if one[1] in followers and after.edges[one[0]].source == sender]
        self._inbox.offer_last(edge, source, batch, [(one, after.edges[one[0]].padding) for one in new])

    def expect_change(self, barrier: int) -> None:
        """A barrier that carries a change has been asked for: until a channel has brought it, rows that wait do not hold up who
        sends them. The barrier, for which others wait, may be behind them.
        """
        if isinstance(self._inbox, Merge):
            self._inbox.acknowledges_early_until = barrier

    def takes_in(self, edge: int, source: int) -> bool:
        """Does this channel enter here now? Not one of a term that has ended, or of which no barrier has told yet."""
        return self._inbox.takes_in(edge, source)

    def is_leaving(self, edge: int, source: int) -> bool:
        """Has the last barrier of this channel come, so that those of the next term go on for it?"""
        return self._inbox.is_leaving(edge, source)

    def forget(self, edge: int, source: int) -> bool:
        """Let a channel go whose last barrier has come; False while something of it waits here."""
        return self._inbox.forget(edge, source)

    @property
    def plan(self) -> StagePlan:
        """The one that it follows now."""
        return self._program.plan

    @property
    def is_caught_up(self) -> bool:
        """Does it stand where its siblings stand? After a roll-back not before all has come again that it had taken too early."""
        return self._inbox.is_caught_up

    def _to_multi_input(self) -> None:
        """Have an inbox that takes channels in and lets them go."""
        if isinstance(self._inbox, SingleInputArrivals | SingleInputMerge):
            self._inbox = self._inbox.to_multi_input()
            self.offer, self._passes = self._inbox.offer, None

    def _ends_at(self, barrier: int) -> bool:
        """Does the term of this instance end with a barrier?"""
        change = self._asked.get(barrier, b"")
        if not change:
            return False
        return (
            self.programs[change].plan.stages[self.stage].generation != self._program.plan.stages[self.stage].generation
        )

    def _is_draining_before(self, barrier: int) -> bool:
        """Is something left of what the last barrier of this term has released? All instances shall stop at one frontier."""
        return self._ends_at(barrier) and self._inbox.has_released

    def _pass_barrier(self, barrier: int, emit: Emit) -> None:
        """All inputs have given this barrier: what came before it is in the snapshot, and in what was sent."""
        ends = self._ends_at(barrier)
        change = self._asked.pop(barrier, b"")
        if ends:
            self._reach_end(barrier, emit)
            self.on_stop()
        self.on_save()
        if ends or self.on_barrier is not None:
            parts = self._parts_of_snapshot(barrier)
            if self.on_barrier is not None:
                self.on_barrier(barrier, self._encode_snapshot(barrier, parts, is_last=ends), change)
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
        """Come to where all instances of this term stop."""
        if not self.is_caught_up:
            raise ChangeFailed(
                f"barrier {barrier} carries a change, and an instance has not caught up since the roll-back"
            )
        if isinstance(self._inbox, Arrivals):
            self._inbox.reach_barrier()
        if self._inbox.frontier > self._watermark:
            self._pass([], None, self._inbox.frontier, emit)

    def statistics(self) -> InstanceStatistics:
        """What it has counted so far."""
        return InstanceStatistics(
            stage=self.stage,
            index=self.member,
            steps={name: msgspec.structs.replace(counts) for name, counts in self._counts.items()},
            latency=[] if self._writer is None else self._writer.latency.to_plain(),
            queued_rows=self.queued_rows,
            state_keys=0 if self._operator is None else self._operator.state_keys,
            event_time=reached(self._watermark),
            finished=self.finished,
            sent=self._outbox.sent(),
            received=self._inbox.received(),
        )

    @property
    def written(self) -> int:
        """Rows that a sink has written in this run, as far as it was not brought back behind them."""
        return self._counted.rows_out

    def snapshot(self, barrier: int = 0) -> bytes:
        """State, queues, marks and counts; between two calls of `work`. `barrier`: as of this one, which has just passed."""
        return _encoded(self._parts_of_snapshot(barrier))

    def onto(self, barrier: int) -> bytes:
        """The element on which that of a barrier rests; empty: it is whole."""
        return b"" if self.increments is None else self.increments.onto(barrier)

    def at_end(self, barrier: int) -> EncodedSnapshot:
        """What it was at the end of its input, which holds for this barrier and all later ones."""
        parts = self._parts_of_snapshot(barrier)
        return _encoded(parts) if self.increments is None else _encoded(parts, self.increments.at_end())

    def _encode_snapshot(self, barrier: int, parts: SnapshotParts, *, is_last: bool) -> EncodedSnapshot:
        """What a barrier's element says. `is_last`: it is what the instance hands over."""
        if self.increments is None:
            return _encoded(parts)
        return _encoded(parts, self.increments.at(barrier, is_last=is_last))

    def _parts_of_snapshot(self, barrier: int) -> SnapshotParts:
        counts = [msgspec.structs.replace(one) for one in self._counts.values()]
        entered = self._inbox.snapshot(barrier)
        return SnapshotParts(self.index, entered, self.state, self._outbox.snapshot(), self._watermark, counts)

    def restore(self, snapshot: bytes | Pieces, *increments: bytes | Pieces) -> None:
        """Go back to a snapshot of an instance of the same stage, index and plan. Nobody uses it any more when this raises.

        Args:
            snapshot: a whole one; of its pieces no more than a key group is held at once.
            increments: what changed behind it, in the order of their barriers; the last one is where it goes on.

        Raises msgspec.MsgspecError for another's, `StateFormatError` for one whose state the code cannot read.
        """
        last = self.snapshot_parts_in(self.index, restore_groups(self.state, snapshot))
        assert isinstance(last.state, StateSnapshot)
        rest, changes = last.state.rest, []
        for each in increments:
            last, increment = self.increment_parts_in(self.index, each if isinstance(each, bytes) else b"".join(each))
            rest = increment.rest
            changes.append(increment.changes)
        self._enter(last.entered)
        self._outbox.restore(last.sent)
        self._watermark = last.watermark
        self.state.restore_rest(rest)
        for one in changes:
            self.state.apply(one)
        for counts, then in zip(self._counts.values(), last.counts, strict=True):
            counts.become(then)

    def count_from(self, barrier: int) -> None:
        """Barriers go on behind this one: what was restored is another run's, or of an epoch before the committed one."""
        self._inbox.count_from(barrier)

    def increment_parts_in(self, index: int, raw: bytes) -> tuple[SnapshotParts, Increment]:
        """As `snapshot_parts_in`, of an element that says what has changed in the state: that is told beside what was left."""
        entered, increment, sent, watermark, counts = self._decoded(raw, Increment)
        return SnapshotParts(index, entered, NO_STATE, sent, watermark, counts), increment

    def another_state(self) -> OperatorState:
        """One of the same step, of which nothing is remembered yet."""
        return self._program.operator(self.stage) or NO_STATE

    def snapshot_parts_in(self, index: int, snapshot: bytes) -> SnapshotParts:
        """What an instance of this stage left behind that was saved at its last barrier. Raises as `restore`.

        Args:
            index: which one, within its term.
            snapshot: of it.
        """
        return SnapshotParts(index, *self._decoded(snapshot, StateSnapshot))

    def _decoded(self, snapshot: bytes, state: Any) -> tuple[Any, Any, Any, Position, list[StepCounts]]:
        joins = self._program.joins(self.stage)
        row = msgspec.Raw if joins else self._program.input_type(self.stage)
        order: Any = list[int] | None
        inbox = merge_type(row) if isinstance(self._inbox, Merge) else arrivals_type(row, order)
        outbox = tuple[Position, list[int], list[tuple[int, int, int]]]
        kind = generic(tuple, inbox, state, outbox, Position, list[StepCounts])
        entered, found, sent, watermark, counts = msgspec.msgpack.Decoder(kind).decode(snapshot)
        if joins:
            edges = self._program.plan.incoming(self.stage)
            entered = typed_rows(entered, {edge.index: self._program.row_type(edge.index) for edge in edges})
        return entered, found, sent, watermark, counts

    def take_over(self, left: Sequence[SnapshotParts]) -> None:
        """Begin where the instances of the term before have stopped: all those that `predecessors_of` names.

        Raises:
            ChangeFailed: they did not stop at one frontier.
            StateFormatError: the code cannot read their state.
        """
        joining = GenerationHandover(self._program, self.stage, self.index, left)
        self._enter(joining.merge() if isinstance(self._inbox, Merge) else joining.arrivals())
        joining.state_into(self.state)
        self._watermark, self._outbox.watermark = joining.watermark, joining.sent_watermark
        for one in joining.predecessors():
            self._outbox.inherit(one.sent[2])
            for counts, then in zip(self._counts.values(), one.counts, strict=True):
                counts.add(then)

    def _enter(self, entered: Any) -> None:
        if has_ended_channels(entered, self.inputs):
            self._to_multi_input()
        self._inbox.restore(entered)


@overload
def _encoded(parts: SnapshotParts) -> bytes: ...


@overload
def _encoded(parts: SnapshotParts, instead: StateSnapshot | Increment | AsyncStateSnapshot) -> EncodedSnapshot: ...


def _encoded(
    parts: SnapshotParts, instead: StateSnapshot | Increment | AsyncStateSnapshot | None = None
) -> EncodedSnapshot:
    _, entered, state, sent, watermark, counts = parts
    encode = _ENCODER.encode
    if isinstance(instead, AsyncStateSnapshot):
        return AsyncInstanceSnapshot(5, encode(entered), instead, encode(sent) + encode(watermark) + encode(counts))
    told = instead or (state if isinstance(state, StateSnapshot) else snapshot_of(state))
    return encode((entered, told, sent, watermark, counts))


_ENCODER = msgspec.msgpack.Encoder()
