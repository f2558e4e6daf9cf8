"""`map_batches`: a user's function of many rows at once, in the form that its parameter is annotated with.

Forms: `pyarrow.RecordBatch` (also without an annotation), `dict` (field → NumPy array, or list for texts and objects) and
`polars.DataFrame`. What it returns may be any of them, too; it has as many rows as it took, in the same order. A function that
resizes returns beside its rows their origins: of each the number of the row of the batch from which it was made. That row's time
and position are the new row's; so results depend neither on where batches end nor on what travels with rows.

A function that raises does not say at which row. Under another policy than `fail` halves of the batch are tried by themselves, and
halves of those that raise again, down to the rows at fault: what a row becomes does not depend on its neighbours, so all others
come out as if those had not been there.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_origin, get_type_hints

from agiledart_dataflow.batch import Order, joined_order, listed
from agiledart_dataflow.callsite import CallSite
from agiledart_dataflow.column import NUMERIC, Column, arrow_numbers, column_of, numbers_of
from agiledart_dataflow.column_schema import ColumnField, schema_of
from agiledart_dataflow.columns import Columns
from agiledart_dataflow.error_policy import ErrorPolicy
from agiledart_dataflow.late import late
from agiledart_dataflow.user_errors import NO_RECORD, user_code_error
from agiledart_kernel.errors import AgileDartError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
else:
    np = late("numpy")
    pa = late("pyarrow")

Form = Literal["arrow", "arrays", "polars"]


def form_of(function: Callable[[Any], Any], where: CallSite) -> Form:
    """Which form a function takes. Raises `TopologyError` for an annotation that is none."""
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError):
        hints = {}
    hints.pop("return", None)
    hint = next(iter(hints.values()), None)
    origin = get_origin(hint) or hint
    module = getattr(origin, "__module__", "").partition(".")[0]
    name = getattr(origin, "__name__", "")
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
    """A user's function as a step over columns.

    Args:
        name: of the step.
        function: of a batch in this form.
        row_type: of the rows that it returns.
        resizes: it returns (rows, origins), fewer or more rows than it took.
        policy: what becomes of rows at which it raises. That it returns something else than it should fails in any case.

    Attributes:
        left_nothing: rows of the last batch from which no row was made.
        refused: rows of the last batch at which it raised, under another policy than `fail`: (row, what goes with it, error).
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
        """The rows that the function makes of these. Raises `UserCodeError`."""
        self.left_nothing, self.refused = 0, []
        parts = list(self._parts(columns, order)) if len(columns) else []
        if not parts:
            return Columns.from_rows([], self._row_type), None if order is None else order[:0]
        return Columns.concatenate([part for part, _ in parts]), joined_order([at for _, at in parts])

    def _parts(self, columns: Columns, order: Order) -> Iterator[tuple[Columns, Order]]:
        """What it makes of these rows, at least one, in as few parts as the rows at fault allow."""
        try:
            made = self._function(in_form(columns, self._form))
        except (Exception, SystemExit) as error:  # user code may raise anything; it leaves here named
            if not self._lenient or not isinstance(error, Exception):
                raise user_code_error(self._name, self._function, error, NO_RECORD) from error
            count, half = len(columns), len(columns) // 2
            if count == 1:
                self.refused.append((columns.rows()[0], None if order is None else listed(order)[0], error))
                return
            for start, stop in ((0, half), (half, count)):
                yield from self._parts(columns.slice(start, stop), None if order is None else order[start:stop])
            return
        yield self._judged(made, columns, order)

    def _judged(self, made: Any, columns: Columns, order: Order) -> tuple[Columns, Order]:
        """What it returned for these rows, as columns of its row type. Raises `UserCodeError`."""
        try:
            if self.resizes:
                made, origins = _with_origins(made, len(columns), self._row_type)
                self.left_nothing += len(columns) - len(np.unique(origins))
                return made, order_of_origins(order, origins)
            made = columns_of(made, self._row_type)
            if len(made) != len(columns):
                raise ValueError(
                    f"it took {len(columns)} rows and returned {len(made)}; to drop rows use .where behind it, or"
                    " map_batches(…, resizes=True)"
                )
        except AgileDartError:
            raise
        except Exception as error:
            raise user_code_error(self._name, self._function, error, NO_RECORD) from error
        return made, order


def _with_origins(made: Any, taken: int, row_type: Any) -> tuple[Columns, Any]:
    """(rows, origins as an array) that a resizing function returned. Raises TypeError or ValueError."""
    if not isinstance(made, tuple) or len(made) != 2:
        raise TypeError(
            f"it returned a {type(made).__name__}; with resizes=True it returns (rows, origins): for each row the number of the"
            " row of the batch from which it was made"
        )
    columns = columns_of(made[0], row_type)
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
    """What goes with rows that were made of rows: their times; their positions and the number among the rows of one origin."""
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
    before, among = -1, 0
    for number in numbers:
        among = among + 1 if number == before else 0
        before = number
        made.append((*order[number], among))
    return made


def in_form(columns: Columns, form: Form) -> Any:
    """Columns as the form that a function takes; numbers are views where nothing is missing."""
    if form == "arrays":
        return {field.name: _array(columns.named(field.name)) for field in columns.schema.fields}
    batch = record_batch(columns)
    if form == "arrow":
        return batch
    import polars as pl

    return pl.from_arrow(batch)


def _array(column: Column) -> Any:
    if column.kind not in NUMERIC:
        listed = column.to_list()
        array = np.empty(len(listed), dtype=object)
        array[:] = listed
        return array
    if column.valid is not None:
        return np.array(column.to_list(), dtype=object)
    if column.kind in ("time", "span"):
        return column.values.view("datetime64[us]" if column.kind == "time" else "timedelta64[us]")
    return column.values


def record_batch(columns: Columns) -> Any:
    """Columns as a pyarrow.RecordBatch."""
    arrays = []
    for field in columns.schema.fields:
        column = columns.named(field.name)
        if column.kind in ("text", "bytes"):
            arrays.append(column.arrow())
        elif column.kind == "object":
            arrays.append(pa.array(column.to_list()))
        else:
            array = arrow_numbers(column.values, column.valid)
            arrays.append(array.view(_ARROW_TIMES[column.kind]()) if column.kind in _ARROW_TIMES else array)
    return pa.record_batch(arrays, names=[field.name for field in columns.schema.fields])


_ARROW_TIMES: dict[str, Callable[[], Any]] = {"time": lambda: pa.timestamp("us"), "span": lambda: pa.duration("us")}
_ARROW_TYPES: dict[str, Callable[[], Any]] = {
    "int": lambda: pa.int64(), "float": lambda: pa.float64(), "bool": lambda: pa.bool_(), "text": lambda: pa.string(),
    "bytes": lambda: pa.binary(), **_ARROW_TIMES,
}  # fmt: skip


def columns_of(made: Any, row_type: Any) -> Columns:
    """What a function returned, as columns of a row type. Raises TypeError or ValueError, naming the field."""
    schema = schema_of(row_type)
    if isinstance(made, Columns):
        return made
    if isinstance(made, Mapping):
        names, length = list(made), max((len(one) for one in made.values()), default=0)
        parts = [_from_array(field, _taken(made, field, names)) for field in schema.fields]
    else:
        if hasattr(made, "to_arrow"):
            made = made.to_arrow()
        if not hasattr(made, "schema") or not hasattr(made, "num_rows"):
            raise TypeError(f"it returned a {type(made).__name__}, not a RecordBatch, a dict of arrays or a DataFrame")
        names, length = list(made.schema.names), made.num_rows
        parts = [from_arrow(field, _taken(made, field, names)) for field in schema.fields]
    for field, part in zip(schema.fields, parts, strict=True):
        if len(part) != length:
            raise ValueError(f"the field {field.name} has {len(part)} values, others {length}")
    return Columns(schema, parts, length)


def _taken(made: Any, field: ColumnField, names: list[str]) -> Any:
    if field.name not in names:
        raise ValueError(f"the field {field.name} is missing in what it returned; there are {', '.join(names)}")
    return made[field.name]


def _from_array(field: ColumnField, values: Any) -> Column:
    wanted = {"int": np.int64, "float": np.float64, "bool": np.bool_}.get(field.kind)
    array = np.asarray(values) if field.kind in NUMERIC else None
    if array is not None and array.dtype == wanted:
        return Column(field.kind, array)
    if array is not None and field.kind == "float" and array.dtype.kind in "iuf":
        return Column("float", array.astype(np.float64))
    if array is not None and field.kind == "int" and array.dtype.kind in "iu" and array.dtype != np.uint64:
        return Column("int", array.astype(np.int64))
    if array is not None and array.dtype.kind in "mM" and not np.isnat(array).any():
        return Column(
            field.kind, array.astype("datetime64[us]" if field.kind == "time" else "timedelta64[us]").view(np.int64)
        )
    return column_of(field, values.tolist() if hasattr(values, "tolist") else list(values))


def from_arrow(field: ColumnField, array: Any) -> Column:
    """A pyarrow array as the column of a field; converted where nothing is lost. Raises TypeError or ValueError."""
    if hasattr(array, "combine_chunks"):
        array = array.combine_chunks()
    if hasattr(array, "chunks"):
        array = pa.concat_arrays(array.chunks)
    if field.kind == "object":
        return Column("object", array.to_pylist())
    try:
        array = array.cast(_ARROW_TYPES[field.kind]())
    except pa.ArrowException as error:
        raise TypeError(f"the field {field.name} is {field.type!r}: {error}") from None
    if array.null_count and not field.optional:
        raise TypeError(f"the field {field.name} is {field.type!r} and cannot be None")
    if field.kind in ("text", "bytes"):
        return Column(field.kind, array)
    valid = None
    if array.null_count:
        valid = numbers_of(array.is_valid())
    if field.kind in _ARROW_TIMES:
        array = array.view(pa.int64())
    if valid is not None:
        array = array.fill_null(False if field.kind == "bool" else 0)
    return Column(field.kind, numbers_of(array), valid)
