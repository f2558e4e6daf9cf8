"""`SourceSteps`: the steps that run at a source before its rows have event times (`graph.source_times`)."""

from collections.abc import Mapping
from typing import Any

from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.batch import as_rows
from agiledart_dataflow.data.rows import DeadLetter
from agiledart_dataflow.event_time.pacer import stamper
from agiledart_dataflow.operators.loop_text import RowStep
from agiledart_dataflow.plan.stage_plan import ERRORS
from agiledart_dataflow.runtime.dead_letter_writer import CANNOT_TRAVEL, DeadLetterWriter
from agiledart_dataflow.runtime.error_reports import ErrorReports
from agiledart_dataflow.runtime.malformed_records import MAX_LETTERS
from agiledart_dataflow.runtime.outbox import Outbox
from agiledart_dataflow.runtime.program import Program
from agiledart_dataflow.runtime.stage_steps import RowTap

_TOO_MANY = f"skipped, because {MAX_LETTERS:,} dead letters wait to be sent"


class SourceSteps:
    """Steps at one source, over the rows of a reading.

    Args:
        program, stage: the compiled topology, and the source's stage.
        outbox: has the edges of dead letters.
        stamps: the reader fills in `ReadTime` itself.

    Attributes:
        counts: of each step, by name.
        reports: texts for users.

    Raises:
        UserCodeError: from `run`, when a step's function raises under the policy `fail`.
    """

    def __init__(self, program: Program, stage: int, outbox: Outbox, *, stamps: bool) -> None:
        segments = program.segments(stage, self._on_error)
        assert segments is not None  # the caller asked for a stage with steps
        self.reports = ErrorReports()
        self.counts: dict[str, StepCounts] = segments.counts
        self._segments = segments
        self._source = program.steps(stage)[0].name
        self._stamp = None if stamps else stamper(program.steps(stage)[0].row_type)
        self._outbox = outbox
        self._writer = DeadLetterWriter(program.row_type)
        self._letters: list[tuple[str, DeadLetter[Any]]] = []
        self.show({})

    def show(self, taps: Mapping[str, RowTap]) -> None:
        """Set the taps on the source and on these steps; rows have no times yet."""
        self._taps = {name: tap for name, tap in taps.items() if name == self._source or name in self.counts}
        self._parts = self._segments.parts(self._taps) if self._taps else [("", self._segments)]

    def run(self, rows: list[Any], wall_ns: int) -> list[Any]:
        """Return the rows that the steps make of these."""
        if self._stamp is not None:
            stamp = self._stamp
            rows = [stamp(row, wall_ns) for row in rows]
        self._look(self._source, rows)
        for last, part in self._parts:
            if rows:
                held, _ = part.run(rows, None)
                rows = as_rows(held)
                self._look(last, rows)
        return rows

    def _look(self, step: str, rows: list[Any]) -> None:
        tap = self._taps.get(step)
        if tap is not None and rows:
            tap(rows, None)

    def take_letters(self) -> list[tuple[str, DeadLetter[Any]]]:
        """Return the dead letters that may leave now, each with its side output."""
        letters, self._letters = self._letters, []
        return letters

    def restore(self, counts: Mapping[str, StepCounts]) -> None:
        """Continue with the counts of a snapshot; letters of later rows come again."""
        self._letters = []
        for name, own in self.counts.items():
            own.become(counts.get(name) or StepCounts())

    def _on_error(self, step: RowStep, row: Any, at: Any, error: Exception) -> None:
        """Report a row at which a step raised, under a policy that goes on without it."""
        policy: str = step.policy
        side = f"{step.name}/{ERRORS}"
        edge = self._outbox.edge_of(side) if policy == "dead_letter" else None
        if edge is not None:
            letter = self._writer.letter(edge, step.name, step.function, row, error)
            if letter is not None and len(self._letters) < MAX_LETTERS:
                self._letters.append((side, letter))
            else:
                policy, counts = CANNOT_TRAVEL if letter is None else _TOO_MANY, self.counts[step.name]
                counts.skipped, counts.dead_letters = counts.skipped + 1, counts.dead_letters - 1
        self.reports.note(step.name, step.function, error, row, policy)
