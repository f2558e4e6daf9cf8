"""`VectorChain`: stateless steps over `Columns`, one call of NumPy for each function of an expression."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.batch import Order
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.expressions.row_expression import RowBuilder, RowExpression
from agiledart_dataflow.operators.chain import OnError
from agiledart_dataflow.operators.loop_text import RowStep
from agiledart_kernel.errors import AgileDartError

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy_import("numpy")


class NeedsRows(Exception):
    """Error of a batch of columns (user code raised, a division by zero); nothing was counted, and the batch is unchanged."""


class VectorWhere:
    """Filter that keeps the rows for which a condition is True."""

    def __init__(self, condition: RowExpression) -> None:
        self._condition = condition

    def run(self, columns: Columns, order: Order) -> tuple[Columns, Order]:
        numbers = np.flatnonzero(self._condition.mask(columns))
        if len(numbers) == len(columns):
            return columns, order
        if type(order) is list:
            order = [order[number] for number in numbers.tolist()]
        elif order is not None:
            order = order[numbers]
        return columns.take(numbers), order


class VectorBuild:
    """Step that makes a new row of each row."""

    def __init__(self, builder: RowBuilder) -> None:
        self._builder = builder

    def run(self, columns: Columns, order: Order) -> tuple[Columns, Order]:
        return self._builder.columns(columns), order


class VectorChain:
    """Stateless steps over columns, with the same counts as `RowChain`.

    Args:
        steps: all of them with a `vector`.
        counts: counts by step.
        on_error: called for rows at which a step with another policy than `fail` raised.

    Raises:
        NeedsRows: from `run`, when a step that can also take rows raised.
        UserCodeError: from `run`, when a step that takes columns only raised.
    """

    __slots__ = ("_counts", "_function", "_on_error", "_runs", "_step", "_takes_rows")

    def __init__(
        self, steps: Sequence[RowStep], counts: Mapping[str, StepCounts], on_error: OnError | None = None
    ) -> None:
        self._runs: list[Callable[[Columns, Order], tuple[Columns, Order]]] = [step.vector.run for step in steps]
        self._counts = [counts[step.name] for step in steps]
        self._step = steps[0]  # a step that takes columns only stands alone in its chain
        self._function: Any = self._step.vector if self._step.kind == "batch" else None
        self._on_error = on_error
        self._takes_rows = all(step.takes_rows for step in steps)

    def run(self, columns: Columns, order: Order) -> tuple[Columns, Order]:
        """Return the rows that the steps make of these, and what goes with them."""
        sizes = [len(columns)]
        try:
            with np.errstate(all="ignore"):
                for run in self._runs:
                    columns, order = run(columns, order)
                    sizes.append(len(columns))
        except AgileDartError:
            raise
        except Exception as error:
            if self._takes_rows:
                raise NeedsRows from error
            raise
        for counts, before, after in zip(self._counts, sizes[:-1], sizes[1:], strict=True):
            counts.rows_in += before
            counts.rows_out += after
            counts.dropped += before - after if self._function is None else self._function.left_nothing
        if self._function is not None and self._function.refused:
            self._drop_refused(self._function.refused)
        return columns, order

    def _drop_refused(self, refused: Sequence[tuple[Any, Any, Exception]]) -> None:
        if self._step.policy == "skip":
            self._counts[0].skipped += len(refused)
        else:
            self._counts[0].dead_letters += len(refused)
        for row, at, error in refused:
            if self._on_error is not None:
                self._on_error(self._step, row, at, error)
