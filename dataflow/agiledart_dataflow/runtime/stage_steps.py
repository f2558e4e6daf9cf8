"""`StageSteps`: the work of one instance on rows: operator or writer first, then the stateless steps, with taps between them."""

from collections.abc import Callable, Mapping
from typing import Any

from agiledart_dataflow.aggregation.make_operator import MakeStore
from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.batch import Held, Order, as_rows, listed
from agiledart_dataflow.data.position import Position, final_behind, is_final
from agiledart_dataflow.operators.base import BatchOperator, HasSides
from agiledart_dataflow.operators.segments import Run
from agiledart_dataflow.plan.connector_abilities import WriterAbilities
from agiledart_dataflow.plan.connectors import SinkWriter
from agiledart_dataflow.plan.step import Step
from agiledart_dataflow.runtime.outbox import Outbox
from agiledart_dataflow.runtime.program import Program
from agiledart_dataflow.runtime.step_errors import StepErrors
from agiledart_dataflow.runtime.unfit_results import OnUnfit, without_unfit
from agiledart_dataflow.user_code.user_errors import record_in, user_code_error
from agiledart_kernel.errors import AgileDartError, OperationFailed

RowTap = Callable[[list[Any], Order], None]
"""Tap: gets the rows that leave a step and what goes with them, once for each batch. Must not raise and must not keep the lists."""

Observer = Callable[[Held, Order], None]
"""The same for rows in either form; the observer may read few of them."""


class StageSteps:
    """Steps of one instance, in the order in which rows pass them.

    Args:
        program, stage: the compiled topology, and the stage.
        outbox: takes dead letters and side outputs.
        writer: of a sink's stage.
        make_store: makes the stores of steps with `keep="disk"`; without it state is in memory.

    Attributes:
        operator: of a stage that has one.
        run_batch: its method for a whole batch in either form, where it has one.
        counts: of each step, by name.
        counted: of a source's or sink's own step.
        own_step: its name; empty: the stage has an operator or stateless steps only.
        fast: all the work on rows in a list, where a stage is only one generated loop without a tap; else None.

    Raises:
        UserCodeError: from `run`, when user code raised.
        OperationFailed: from `run`, when a sink could not be written; names the step.
    """

    def __init__(
        self, program: Program, stage: int, outbox: Outbox, writer: SinkWriter | None, make_store: MakeStore | None
    ) -> None:
        self._outbox, self._writer = outbox, writer
        self.counts: dict[str, StepCounts] = {}
        self.errors = StepErrors(program, stage, outbox, self.counts)
        self.operator = self.errors.operator = program.operator(stage, self.errors.on_operator_error, make_store)
        operator: object = self.operator
        self.run_batch = operator.run_batch if isinstance(operator, BatchOperator) else None
        self._sides: dict[str, tuple[list[Any], list[Any]]] = operator.sides if isinstance(operator, HasSides) else {}
        self._segments = program.segments(stage, self.errors.on_step_error)
        head = program.steps(stage)[0]
        self.counted = StepCounts()
        self.own_step = head.name if head.traits.is_bare else ""
        last = program.steps(stage)[-1]
        self._unfit_after_operator: OnUnfit | None = None
        self._unfit_after_steps: OnUnfit | None = None
        if self.operator is not None and head.skips_failed_rows:
            self._unfit_after_operator = self._on_unfit(program, head)
        if self._segments is not None and last.skips_failed_rows and last.traits.counting != "sieves":
            self._unfit_after_steps = self._on_unfit(program, last)
        self._first_step = head.name if self.own_step or self.operator is not None else ""
        if self.own_step:
            self.counts[self.own_step] = self.counted
        if self.operator is not None:
            self.counts[self.operator.name] = self.operator.counts
        if self._segments is not None:
            self.counts |= self._segments.counts
        abilities = WriterAbilities.of(writer)
        self._rejecting, columns = abilities.rejecting, abilities.columns
        self._write_columns = None if columns is None else columns.write_columns
        self._observer: Observer | None = None
        self.taps: Mapping[str, RowTap] = {}
        self.show({})

    @property
    def is_watched(self) -> bool:
        """Report whether a tap or an observer sees the rows."""
        return bool(self.taps) or self._observer is not None

    def show(self, taps: Mapping[str, RowTap]) -> None:
        """Set the taps on steps, by their names; they replace the ones before.

        Without taps a stage's stateless steps are one loop; with them it is cut at each tap.
        """
        self.taps = taps
        if self._segments is None:
            self._parts = []
        else:
            self._parts = self._segments.parts(taps) if taps else [("", self._segments)]
        self._list_run: Run | None = None if taps or self._segments is None else self._segments.over_lists()
        is_checked = self._unfit_after_steps is not None
        self.fast = None if self.operator is not None or self.own_step or is_checked else self._list_run

    def observe(self, observer: Observer) -> None:
        """Give all rows that a sink writes to this observer from now on."""
        self._observer = observer

    def fused_into(self, batch_rows: int, write: Callable[[list[Any]], None]) -> Callable[[list[Any]], int] | None:
        """Return a loop that takes entering rows through the steps into a writer and returns the rows written.

        None where one loop does not do all the work.
        """
        if self.fast is None:
            return None
        assert self._segments is not None  # else there is no fast path
        chain = self._segments.fused()
        return None if chain is None else lambda rows: chain.run_into(rows, batch_rows, write)

    def run(self, held: Held, order: Order, watermark: Position) -> tuple[Held, Order, Position]:
        """Return the rows that leave the last step, what goes with them, and the watermark behind them."""
        count = len(held)
        if self.own_step:
            self.counted.rows_in += count
            self.counted.rows_out += count
            if self._writer is not None and count:
                self._write(held, order)
        elif self.operator is not None:
            held, order = self._operate(held, order, watermark)
            if self._unfit_after_operator is not None and type(held) is list and held:
                held, order = without_unfit(held, order, self._unfit_after_operator)
            # The final watermark tells every instance downstream how far the results of the end of input came.
            if is_final(watermark) and len(held) and order is not None:
                watermark = final_behind(watermark, listed(order[-1:])[0])
        if self.taps:
            self._look(self._first_step, held, order)
        if self._list_run is not None and type(held) is list:
            if held:
                held, order = self._list_run(held, order)
        else:
            for last, part in self._parts:
                if len(held):
                    held, order = part.run(held, order)
                    if self.taps:
                        self._look(last, held, order)
        if self._unfit_after_steps is not None and type(held) is list and held:
            held, order = without_unfit(held, order, self._unfit_after_steps)
        return held, order, watermark

    def _on_unfit(self, program: Program, step: Step) -> OnUnfit:
        specified, function = program.specification.steps[step.index], step.function
        return lambda error: self.errors.on_unfit_result(specified, function, error)

    def note_rejected(self) -> None:
        """Count the rows that the sink has rejected meanwhile, perhaps in a thread of its own, as not written."""
        if self._rejecting is not None and (rows := self._rejecting.take_rejected()):
            self.counted.rows_out -= rows
            self.counted.rejected += rows

    def _write(self, held: Held, order: Order) -> None:
        assert self._writer is not None
        try:
            if self._write_columns is not None and type(held) is not list:
                self._write_columns(held)
            else:
                self._writer.write(held if type(held) is list else as_rows(held))
        except OperationFailed as error:
            raise OperationFailed(f"{self.own_step}: {error}") from None
        if self._observer is not None:
            self._observer(held, order)

    def _look(self, step: str, held: Held, order: Order) -> None:
        tap = self.taps.get(step)
        if tap is not None and len(held):
            tap(as_rows(held), listed(order))

    def _operate(self, held: Held, order: Order, watermark: Position) -> tuple[Held, Order]:
        operator = self.operator
        assert operator is not None
        out: tuple[Held, Order]
        try:
            if self.run_batch is not None:
                out = self.run_batch(held, order, watermark)
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
