"""`RowChain`: a chain of row steps as one generated loop; one call per batch, whatever the number of steps.

Positions travel in a parallel list. `map`, `filter` and a `flat_map` with at most one result keep a position. Other
`flat_map`s append the number of the result. Times stay unchanged.
"""

from collections.abc import Callable, Mapping, Sequence
from traceback import walk_tb
from typing import Any

from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.batch import Order
from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.operators.loop_text import RowStep, fused_loop_of, loop_of
from agiledart_dataflow.user_code.user_errors import user_code_error
from agiledart_kernel.errors import UserCodeError

OnError = Callable[[RowStep, Any, Any, Exception], None]
"""Handler of a row that an error policy dropped: (step, row, what goes with it, error)."""


class RowChain:
    """Stateless steps over a list of rows, with counts of what each step took, gave and dropped.

    Args:
        steps: in the order in which rows pass them.
        counts: counts by step; another chain's, when both count the same steps.
        carries: data that goes with the rows.
        on_error: called for rows at which steps with another policy than `fail` raised.
        fused: the caller uses `run_into`, else `run`.

    Raises:
        UserCodeError: when a step's function raises.
    """

    __slots__ = ("_filename", "_lines", "_run", "_steps", "counts")

    def __init__(
        self,
        steps: Sequence[RowStep],
        counts: Mapping[str, StepCounts] | None = None,
        carries: Carries = "positions",
        on_error: OnError | None = None,
        *,
        fused: bool = False,
    ) -> None:
        self._steps = tuple(steps)
        self.counts = {step.name: StepCounts() if counts is None else counts[step.name] for step in steps}
        self._filename = f"<stage {'+'.join(step.name for step in steps)}>"
        loop = fused_loop_of(self._steps) if fused else loop_of(self._steps, carries)
        self._lines = loop.lines
        # The loop's globals hold these names, so that a reader of a running thread's frame can find step and record.
        made: dict[str, Any] = {"lines": loop.lines, "steps": tuple(step.name for step in steps)}
        exec(compile(loop.text, self._filename, "exec"), made)  # our own text: users' code is called, not pasted
        self._run = made["make"](
            *[step.function for step in steps],
            *self.counts.values(),
            *[_handler(step, on_error) for step in steps],
            *loop.names.values(),
        )

    def run(self, rows: list[Any], order: Order) -> tuple[list[Any], Order]:
        """Return the rows that the steps make of these, and what goes with them."""
        try:
            out: tuple[list[Any], Order] = self._run(rows, order)
        except UserCodeError:
            raise
        except (Exception, SystemExit) as error:  # user code may raise anything; it leaves here named
            raise self._blamed(error) from error
        return out

    def run_into(self, rows: list[Any], batch_rows: int, write: Callable[[list[Any]], None]) -> int:
        """Take rows through the steps, `batch_rows` at a time; write the results of each batch and return how many were written.

        Errors of `write` pass through unchanged.
        """
        try:
            written: int = self._run(rows, batch_rows, write)
        except UserCodeError:
            raise
        except (Exception, SystemExit) as error:  # as above
            if self._is_of_a_step(error):
                raise self._blamed(error) from error
            raise
        return written

    def _is_of_a_step(self, error: BaseException) -> bool:
        """Report whether a step raised the error, rather than `write`."""
        return any(
            frame.f_code.co_filename == self._filename and line in self._lines
            for frame, line in walk_tb(error.__traceback__)
        )

    def _blamed(self, error: BaseException) -> UserCodeError:
        """Return the error with its step and record: the line of the generated loop gives the step, its variables the record."""
        traceback = error.__traceback__
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self._filename:
                line = self._lines[traceback.tb_lineno]
                step = self._steps[line.step]
                return user_code_error(step.name, step.function, error, traceback.tb_frame.f_locals.get(line.record))
            traceback = traceback.tb_next
        return user_code_error(self._filename, None, error, None)


def _handler(step: RowStep, on_error: OnError | None) -> Callable[[Any, Any, Exception], None]:
    def handle(row: Any, at: Any, error: Exception) -> None:
        if on_error is not None:
            on_error(step, row, at, error)

    return handle
