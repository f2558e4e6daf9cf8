"""`map_batches`: a user's function that takes many rows at once, in the form that its parameter is annotated with.

Forms: `pyarrow.RecordBatch` (also without an annotation), `dict` (field → NumPy array, or list for texts and objects)
and `polars.DataFrame`. The function may return any of these forms. It returns as many rows as it took, in the same
order.

A function that resizes returns (rows, origins). The origin of a row is the number of the row of the batch from which it
was made. The new row takes that row's time and position. So results depend neither on batch limits nor on what travels
with the rows.

A function that raises does not tell which row is at fault. Under another policy than `fail` the step tries each half of
the batch alone, and so on, down to the rows at fault. All other rows come out as if those rows were absent.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

from agiledart_dataflow.data.batch import Order, joined_order, listed
from agiledart_dataflow.data.batch_forms import Form, columns_of, in_form
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.user_code.callables import name_of
from agiledart_dataflow.user_code.callsite import CallSite
from agiledart_dataflow.user_code.error_policy import ErrorPolicy
from agiledart_dataflow.user_code.user_errors import NO_RECORD, user_code_error
from agiledart_kernel.errors import AgileDartError

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy_import("numpy")


def form_of(function: Callable[[Any], Any], where: CallSite) -> Form:
    """Return the form that a function takes. Raises `TopologyError` for an annotation that names no form."""
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError):
        hints = {}
    hints.pop("return", None)
    hint = next(iter(hints.values()), None)
    origin = get_origin(hint) or hint
    module = origin.__module__.partition(".")[0] if isinstance(origin, type) else ""
    name = name_of(origin, "")
    if origin is None or (module == "pyarrow" and name == "RecordBatch"):
        return "arrow"
    if origin is dict or origin is Mapping or name == "Mapping":
        return "arrays"
    if module == "polars" and name == "DataFrame":
        return "polars"
    raise where.error(
        f"map_batches() hands over a pyarrow.RecordBatch, a dict of arrays or a polars.DataFrame, not a {hint!r}"
    )


class VectorFunction:
    """User's function as a step over columns.

    Args:
        name: name of the step.
        function: takes a batch in this form.
        row_type: type of the rows that the function returns.
        resizes: the function returns (rows, origins), with fewer or more rows than it took.
        policy: treatment of rows at which the function raises. A result of the wrong shape, or a write to
            the input, fails under every policy.

    Attributes:
        left_nothing: number of rows of the last batch from which no row was made.
        refused: rows of the last batch at which the function raised, under another policy than `fail`: (row, what goes
            with it, error).
    """

    def __init__(
        self,
        name: str,
        function: Callable[[Any], Any],
        form: Form,
        row_type: Any,
        *,
        resizes: bool = False,
        policy: ErrorPolicy = "fail",
    ) -> None:
        self.resizes = resizes
        self.left_nothing = 0
        self.refused: list[tuple[Any, Any, Exception]] = []
        self._lenient = policy != "fail"
        self._name = name
        self._function = function
        self._form: Form = form
        self._row_type = row_type

    def run(self, columns: Columns, order: Order) -> tuple[Columns, Order]:
        """Return the rows that the function makes of these. Raises `UserCodeError`."""
        self.left_nothing, self.refused = 0, []
        parts = list(self._parts(columns, order)) if len(columns) else []
        if not parts:
            return Columns.from_rows([], self._row_type), None if order is None else order[:0]
        return Columns.concatenate([part for part, _ in parts]), joined_order([at for _, at in parts])

    def _parts(self, columns: Columns, order: Order) -> Iterator[tuple[Columns, Order]]:
        """Yield the results for these rows (at least one row), in as few parts as the rows at fault allow."""
        try:
            made = self._function(in_form(columns, self._form))
        except (Exception, SystemExit) as error:  # user code may raise anything; it leaves here named
            if _writes(error):  # a mistake in the function, at every row
                error = ValueError(f"{error}: other steps read the same array; change a copy").with_traceback(
                    error.__traceback__
                )
            elif self._lenient and isinstance(error, Exception):
                yield from self._without_faults(columns, order, error)
                return
            raise user_code_error(self._name, self._function, error, NO_RECORD) from error
        yield self._checked_result(made, columns, order)

    def _without_faults(self, columns: Columns, order: Order, error: Exception) -> Iterator[tuple[Columns, Order]]:
        """Yield the results for each half of the rows at which the function raised `error`; refuse a row that stands alone."""
        count, half = len(columns), len(columns) // 2
        if count == 1:
            self.refused.append((columns.rows()[0], None if order is None else listed(order)[0], error))
            return
        for start, stop in ((0, half), (half, count)):
            yield from self._parts(columns.slice(start, stop), None if order is None else order[start:stop])

    def _checked_result(self, made: Any, columns: Columns, order: Order) -> tuple[Columns, Order]:
        """Return the function's result for these rows as columns of its row type. Raises `UserCodeError`."""
        try:
            if self.resizes:
                made, origins = _with_origins(made, len(columns), self._row_type)
                self.left_nothing += len(columns) - len(np.unique(origins))
                return made, order_of_origins(order, origins)
            made = columns_of(made, self._row_type, zones=True)
            if len(made) != len(columns):
                raise ValueError(
                    f"it took {len(columns)} rows and returned {len(made)}; to drop rows use .where after it, or"
                    " map_batches(…, resizes=True)"
                )
        except AgileDartError:
            raise
        except Exception as error:
            raise user_code_error(self._name, self._function, error, NO_RECORD) from error
        return made, order


def _writes(error: BaseException) -> bool:
    """Report whether this is NumPy's error for a write to a read-only array."""
    return isinstance(error, ValueError) and str(error).endswith("is read-only")


def _with_origins(made: Any, taken: int, row_type: Any) -> tuple[Columns, Any]:
    """Split the result of a resizing function into (rows, origins as an array). Raises TypeError or ValueError."""
    if not isinstance(made, tuple) or len(made) != 2:
        raise TypeError(
            f"it returned a {type(made).__name__}; with resizes=True it returns (rows, origins): for each row the number of the"
            " row of the batch from which it was made"
        )
    columns = columns_of(made[0], row_type, zones=True)
    origins = np.asarray(made[1])
    if not len(origins):
        origins = origins.astype(np.int64)
    if origins.ndim != 1 or origins.dtype.kind not in "iu":
        raise TypeError(f"origins are whole numbers in one dimension, not {origins.dtype} in {origins.ndim}")
    if len(origins) != len(columns):
        raise ValueError(f"it returned {len(columns)} rows and {len(origins)} origins")
    if len(origins) and not (
        int(origins[0]) >= 0 and int(origins[-1]) < taken and bool((origins[1:] >= origins[:-1]).all())
    ):
        raise ValueError(f"origins count up from 0 to {taken - 1} at most, so that rows stay in order")
    return columns, origins.astype(np.int64)


def order_of_origins(order: Order, origins: Any) -> Order:
    """Return what goes with rows made from other rows: their times, or positions extended by the number within one origin."""
    if order is None:
        return None
    if type(order) is not list:
        if order.ndim == 1:
            return order[origins]
        order = listed(order)
    numbers: list[int] = origins.tolist()
    if not order or type(order[0]) is not tuple:
        return [order[number] for number in numbers]
    made: list[Any] = []
    previous, number_in_origin = -1, 0
    for number in numbers:
        number_in_origin = number_in_origin + 1 if number == previous else 0
        previous = number
        made.append((*order[number], number_in_origin))
    return made
