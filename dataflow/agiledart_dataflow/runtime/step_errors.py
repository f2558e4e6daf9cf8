"""`StepErrors`: rows at which user code raised, under a policy that goes on without them."""

from collections.abc import Callable, Mapping
from typing import Any

from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.data.rows import Either
from agiledart_dataflow.operators.base import Operator
from agiledart_dataflow.operators.loop_text import RowStep
from agiledart_dataflow.plan.specification import StepSpecification
from agiledart_dataflow.plan.stage_plan import ERRORS
from agiledart_dataflow.runtime.dead_letter_writer import CANNOT_TRAVEL, DeadLetterWriter
from agiledart_dataflow.runtime.error_reports import ErrorReports
from agiledart_dataflow.runtime.outbox import Outbox
from agiledart_dataflow.runtime.program import Program
from agiledart_dataflow.user_code.user_errors import NO_RECORD


class StepErrors:
    """Counts, reports and puts aside the rows of one instance that an error policy drops.

    Args:
        program, stage: the steps and their policies.
        outbox: takes dead letters.
        counts: of the steps, by name; filled by the owner.

    Attributes:
        reports: texts for users.
        operator: the stage's operator, once it is made.
    """

    def __init__(self, program: Program, stage: int, outbox: Outbox, counts: Mapping[str, StepCounts]) -> None:
        self.reports = ErrorReports()
        self.operator: Operator | None = None
        self._head = program.steps(stage)[0]
        self._outbox, self._counts = outbox, counts
        self._letters = DeadLetterWriter(program.row_type)

    def on_step_error(self, step: RowStep, row: Any, at: Any, error: Exception) -> None:
        """Report a row at which a step raised, under a policy that goes on without it."""
        self._put_aside(step.name, step.function, step.policy, row, at, error, row)

    def on_operator_error(self, error: Exception, row: Any, at: Position) -> None:
        """Report a row at which the operator raised, under a policy that goes on without it."""
        operator, head = self.operator, self._head
        assert operator is not None
        policy = head.on_error
        if row is NO_RECORD:  # a timer or a result: only its effect is lost
            self.reports.note(operator.name, operator.function, error, row, "skip")
            return
        if head.traits.shares_second and at[-1]:  # every instance gets it, so its letter would come from each of them
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

    def on_unfit_result(self, step: StepSpecification, function: Callable[..., Any] | None, error: Exception) -> None:
        """Count and report a row that left a step and cannot travel, under a policy that goes on without it."""
        counts = self._counts[step.name]
        counts.rows_out -= 1
        if step.traits.counting == "each":  # its row gave this one, which is not put out
            counts.taken -= 1
        if step.traits.counting == "each" or step.makes_one_at_most:
            counts.skipped += 1
        else:
            counts.failed += 1
        self.reports.note(step.name, function, error, NO_RECORD, "skip")

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
