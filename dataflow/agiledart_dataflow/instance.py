"""`Instance`: one parallel copy of a stage. Inbox → merge → operator → chain → outbox, as plain calls.

The executor, `agiledart run` and the simulator's inline host all drive the same class: they `offer` batches that came
in, call `work`, and deliver what it emits. It does no I/O itself; a sink's writer is handed in.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from agiledart_dataflow.batch import Batch
from agiledart_dataflow.connectors import SinkWriter
from agiledart_dataflow.merge import Merge
from agiledart_dataflow.outbox import Emit, Outbox
from agiledart_dataflow.position import START, Position, is_final, reached
from agiledart_dataflow.program import Program
from agiledart_dataflow.schema import generic
from agiledart_dataflow.statistics import InstanceStatistics, StepCounts
from agiledart_dataflow.user_errors import record_in, user_code_error
from agiledart_kernel.errors import AgileDartError, LocalProtocolError, OperationFailed

WORK_BUDGET = 4_096
"""Rows that one call of `work` treats at most: some milliseconds, so that a driver stays responsive."""

_CHUNK = 1_024
"""Rows that pass the operator in one go."""

Onlooker = Callable[[list[Any], list[Position]], None]
"""Shown the rows that leave a step with their positions, once for each batch. Must not raise and must not keep the lists."""


class Instance:
    """One parallel copy of a stage that is no source.

    Args:
        program: the compiled topology.
        stage, index: which instance.
        writer: of a sink's stage.

    Raises:
        UserCodeError: from `work`, when user code raised.
        OperationFailed: from `work`, when a sink could not be written; names the step.
        RemoteProtocolError: from `offer`, when a batch breaks the order; the sender is at fault.
    """

    def __init__(self, program: Program, stage: int, index: int, writer: SinkWriter | None = None) -> None:
        plan = program.plan
        self.stage = stage
        self.index = index
        self.inputs: tuple[tuple[int, int], ...] = plan.inputs(stage, index)
        self._program = program
        self._merge = Merge((channel, plan.edges[channel[0]].padding) for channel in self.inputs)
        self._operator = program.operator(stage)
        self._chain = program.chain(stage)
        self._outbox = Outbox(plan, stage, index, program.key_functions(stage))
        self._mark: Position = START
        self._writer = writer
        steps = program.steps(stage)
        self._counted = StepCounts()
        self._own_step = steps[0].name if steps[0].kind in ("sink", "union") else ""
        self._first_step = steps[0].name if self._own_step or self._operator is not None else ""
        self._onlookers: Mapping[str, Onlooker] = {}
        self._observer: Onlooker | None = None
        self._parts = [] if self._chain is None else [("", self._chain)]
        if (steps[0].kind == "sink") != (writer is not None):
            raise LocalProtocolError(
                f"stage {plan.stages[stage].name}: a sink needs a writer, and nothing else has one"
            )

    @property
    def queued_rows(self) -> int:
        """Rows that wait in the merge."""
        return self._merge.queued_rows

    @property
    def finished(self) -> bool:
        """True when END_OF_INPUT of all inputs has passed through."""
        return is_final(self._mark)

    @property
    def mark(self) -> Position:
        """The position up to which this instance is complete."""
        return self._mark

    def offer(self, edge: int, source: int, batch: Batch) -> None:
        """Put the next batch of a channel into the merge; no work is done yet."""
        self._merge.offer(edge, source, batch)

    def consumed(self, edge: int, source: int) -> int:
        """How many batches of a channel have been taken wholly out of the merge; drives acknowledgements."""
        return self._merge.consumed(edge, source)

    def work(self, emit: Emit, budget: int = WORK_BUDGET) -> bool:
        """Run what the merge releases, at most `budget` rows; True when released rows remain."""
        left = budget
        while left > 0:
            rows, positions, mark = self._merge.take(min(left, _CHUNK))
            if not rows and mark <= self._mark:
                return False
            left -= len(rows)
            self._pass(rows, positions, mark, emit)
        return self._merge.has_released

    def show(self, onlookers: Mapping[str, Onlooker]) -> None:
        """From now on show these what leaves the steps by whose names they stand; replaces the ones before.

        Without onlookers a stage's stateless steps are one loop; with them it is cut where somebody looks.
        """
        self._onlookers = onlookers
        if self._chain is not None:
            self._parts = self._chain.parts(onlookers) if onlookers else [("", self._chain)]

    def observe(self, observer: Onlooker) -> None:
        """From now on show it all that a sink has written."""
        self._observer = observer

    def _pass(self, rows: list[Any], positions: list[Position], mark: Position, emit: Emit) -> None:
        self._mark = mark
        if self._own_step:
            self._counted.rows_in += len(rows)
            self._counted.rows_out += len(rows)
        if self._writer is not None:
            if rows:
                try:
                    self._writer.write(rows)
                except OperationFailed as error:
                    raise OperationFailed(f"{self._own_step}: {error}") from None
                if self._observer is not None:
                    self._observer(rows, positions)
                if self._onlookers:
                    self._look(self._own_step, rows, positions)
            return
        if self._operator is not None:
            rows, positions = self._operate(rows, positions, mark)
        if self._onlookers:
            self._look(self._first_step, rows, positions)
        for last, part in self._parts:
            if rows:
                rows, positions = part.run(rows, positions)
                if self._onlookers:
                    self._look(last, rows, positions)
        self._outbox.send(rows, positions, mark, emit)

    def _look(self, step: str, rows: list[Any], positions: list[Position]) -> None:
        onlooker = self._onlookers.get(step)
        if onlooker is not None and rows:
            onlooker(rows, positions)

    def _operate(self, rows: list[Any], positions: list[Position], mark: Position) -> tuple[list[Any], list[Position]]:
        operator = self._operator
        assert operator is not None
        try:
            return operator.run(rows, positions, mark)
        except AgileDartError:
            raise
        except (Exception, SystemExit) as error:  # user code may raise anything; it leaves here named
            raise user_code_error(
                operator.name, operator.function, error, record_in(error.__traceback__, operator)
            ) from error

    def statistics(self) -> InstanceStatistics:
        """What it has counted so far."""
        steps: dict[str, StepCounts] = {}
        if self._own_step:
            steps[self._own_step] = msgspec.structs.replace(self._counted)
        if self._operator is not None:
            steps[self._operator.name] = msgspec.structs.replace(self._operator.counts)
        if self._chain is not None:
            steps |= {name: msgspec.structs.replace(counts) for name, counts in self._chain.counts.items()}
        return InstanceStatistics(
            stage=self.stage,
            index=self.index,
            steps=steps,
            latency=[] if self._writer is None else self._writer.latency.to_plain(),
            queued_rows=self.queued_rows,
            state_keys=0 if self._operator is None else self._operator.state_keys,
            event_time=reached(self._mark),
            finished=self.finished,
        )

    def snapshot(self) -> bytes:
        """State, queues and marks; between two calls of `work`."""
        state = None if self._operator is None else self._operator.snapshot()
        return _ENCODER.encode((self._merge.snapshot(), state, self._outbox.snapshot(), self._mark))

    def restore(self, snapshot: bytes) -> None:
        """Go back to a snapshot of an instance of the same stage, index and plan.

        Raises msgspec.MsgspecError for another's.
        """
        row = self._program.input_type(self.stage)
        state = self._program.state_type(self.stage)
        batch = generic(tuple, generic(list, row), list[Position], Position)
        channel = generic(tuple, int, int, Position, int, generic(list, batch), list[int])
        merge = generic(tuple, generic(list, channel), generic(list, row), list[Position], Position)
        kind = generic(tuple, merge, state, tuple[Position, list[int]], Position)
        merged, state, outbox, self._mark = msgspec.msgpack.Decoder(kind).decode(snapshot)
        self._merge.restore(merged)
        self._outbox.restore(outbox)
        if self._operator is not None:
            self._operator.restore(state)


_ENCODER = msgspec.msgpack.Encoder()
