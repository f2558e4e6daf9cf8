"""`Segments`: the stateless steps of a stage, cut into runs that take rows and runs that take columns.

Rows that come as a list stay a list as long as the steps can take rows; expressions then stand in the generated loop.
Columns stay columns as long as the steps can take columns, unless there are too few rows to be worth a call of NumPy.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.batch import Held, Order, as_columns, as_rows, listed
from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.operators.chain import OnError, RowChain
from agiledart_dataflow.operators.loop_text import RowStep

FEW_ROWS: Final = 100
"""Below this number of rows a loop over rows costs less than calls of NumPy (measured: 30 to 100)."""

Run = Callable[[Held, Order], tuple[Held, Order]]


class Segments:
    """Stateless steps over rows in either form.

    Args:
        steps: in the order in which rows pass them.
        carries: data that goes with the rows.
        on_error: as for `RowChain`.
        counts: counts by step; those of another `Segments`, when both count the same steps.
    """

    __slots__ = ("_carries", "_on_error", "_paths", "_steps", "counts")

    def __init__(
        self,
        steps: Sequence[RowStep],
        carries: Carries = "positions",
        on_error: OnError | None = None,
        counts: Mapping[str, StepCounts] | None = None,
    ) -> None:
        self._steps = tuple(steps)
        self._carries: Carries = carries
        self._on_error = on_error
        self.counts = {step.name: StepCounts() if counts is None else counts[step.name] for step in steps}
        self._paths: dict[bool, list[Run]] = {}  # by "begins with columns"

    def run(self, held: Held, order: Order) -> tuple[Held, Order]:
        """Return the rows that the steps make of these, and what goes with them. Raises `UserCodeError`."""
        in_columns = type(held) is not list and (len(held) >= FEW_ROWS or not self._steps[0].takes_rows)
        for run in self._path(in_columns):
            held, order = run(held, order)
        return held, order

    def over_lists(self) -> Run | None:
        """Return a cheaper `run` for batches that are lists, when one loop does all steps; else None."""
        if not all(step.takes_rows for step in self._steps):
            return None
        return RowChain(self._steps, self.counts, self._carries, self._on_error).run  # type: ignore[return-value]  # of lists

    def fused(self) -> RowChain | None:
        """Return a chain to `run_into` for batches that are lists, when one loop does all steps and rows carry nothing;
        else None.
        """
        if self._carries != "rows" or not all(step.takes_rows for step in self._steps):
            return None
        return RowChain(self._steps, self.counts, self._carries, self._on_error, fused=True)

    def parts(self, ends: Container[str]) -> list[tuple[str, "Segments"]]:
        """Cut the same steps after each one named in `ends`: (last step, part) in order, with the counts of this object.

        Between two parts the caller may read the rows; nothing else changes.
        """
        parts: list[tuple[str, Segments]] = []
        steps: list[RowStep] = []
        for step in self._steps:
            steps.append(step)
            if step.name in ends or step is self._steps[-1]:
                parts.append((step.name, Segments(steps, self._carries, self._on_error, self.counts)))
                steps = []
        return parts

    def _path(self, in_columns: bool) -> list[Run]:
        path = self._paths.get(in_columns)
        if path is None:
            path = self._paths[in_columns] = [self._made(*part) for part in _cut(self._steps, in_columns)]
        return path

    def _made(self, in_columns: bool, steps: Sequence[RowStep]) -> Run:
        by_row = None
        if all(step.takes_rows for step in steps):
            by_row = RowChain(steps, self.counts, self._carries, self._on_error)
        if not in_columns:
            assert by_row is not None
            return _row_run(by_row)
        from agiledart_dataflow.operators.vector_chain import (  # NumPy is loaded only where it is used
            NeedsRows,
            VectorChain,
        )

        return _column_run(VectorChain(steps, self.counts, self._on_error), by_row, NeedsRows, steps[0].enters)


def _cut(steps: Sequence[RowStep], in_columns: bool) -> list[tuple[bool, Sequence[RowStep]]]:
    """Cut steps into runs that take the same form, as few as possible: (takes columns, steps).

    A step that takes columns only stands alone, so that all other steps of a run can also take rows.
    """
    parts: list[tuple[bool, Sequence[RowStep]]] = []
    start = 0
    while start < len(steps):
        stop = start
        if steps[start].kind == "batch":
            in_columns, stop = True, start + 1
        while stop < len(steps) and steps[start].kind != "batch" and _goes_on(steps[stop], in_columns):
            stop += 1
        if stop > start:
            parts.append((in_columns, steps[start:stop]))
        start, in_columns = stop, in_columns if steps[start].kind == "batch" and stop > start else not in_columns
    return parts


def _goes_on(step: RowStep, in_columns: bool) -> bool:
    return step.vector is not None and step.kind != "batch" if in_columns else step.takes_rows


def _row_run(chain: RowChain) -> Run:
    run = chain.run

    def over_rows(held: Held, order: Order) -> tuple[Held, Order]:
        return run(held, order) if type(held) is list else run(as_rows(held), listed(order))

    return over_rows


def _column_run(vector: Any, by_row: RowChain | None, needs_rows: type[Exception], row_type: Any) -> Run:
    """Return a run over columns; when it meets an error or an overflow, it runs the same batch as rows."""

    def over_columns(held: Held, order: Order) -> tuple[Held, Order]:
        out: tuple[Held, Order]
        try:
            out = vector.run(as_columns(held, row_type), order)
        except needs_rows:
            assert by_row is not None
            return by_row.run(as_rows(held), listed(order))
        return out

    return over_columns
