"""`RunningValues`: operator of `.running("name", total=…)`: each row with its key's values so far, this row included.

Rows of a key count in their order of arrival, which is that of their positions where there are several inputs. Sums of
floats are added up in that order. Rows and columns give the same result to the last bit. A row keeps its position, as
one row comes out for each row that goes in.
"""

from collections.abc import Callable
from typing import Any, get_origin

from agiledart_dataflow.aggregation.named_running import NamedRunning
from agiledart_dataflow.aggregation.running_loop import RunningLoopText
from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.batch import Held, Order, as_rows, listed, part_of
from agiledart_dataflow.data.column_schema import schema_of
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.data.schema import is_named_tuple
from agiledart_dataflow.expressions.row_expression import KeyExpression
from agiledart_dataflow.operators.base import OnOperatorError, StoreBackedState
from agiledart_dataflow.operators.loop_text import BoundNames
from agiledart_dataflow.operators.segments import FEW_ROWS
from agiledart_dataflow.state.dirty_keys import DirtyKeys
from agiledart_dataflow.state.entries import KeyEntry
from agiledart_dataflow.state.store import KeyedStore
from agiledart_kernel.errors import AgileDartError


class RunningValues(StoreBackedState[KeyedStore]):
    """Operator that adds the running values of its key to each row.

    Args:
        name: name of the step.
        key_of: row → key; a `KeyExpression` can also take columns.
        named: values and results.
        store: holds the state of each key.
        on_operator_error: called for rows that raised; without it the error goes to the caller.
    """

    def __init__(
        self,
        name: str,
        key_of: Callable[[Any], Any],
        named: NamedRunning,
        store: KeyedStore,
        on_operator_error: OnOperatorError | None = None,
    ) -> None:
        self.name = name
        self.function: Callable[..., Any] | None = key_of
        self.counts = StepCounts()
        self.store = store
        self._key = key_of if isinstance(key_of, KeyExpression) else None
        self._named = named
        self._on_operator_error = on_operator_error
        self._refused: list[tuple[Exception, Any, int]] = []
        self._key_of = key_of
        self._make_loops()

    def _make_loops(self) -> None:
        store = self.store
        text = RunningLoopText(self._named.values_kept, self._named.kinds, saves=store.saves)
        self._over_rows = self._made_rows(text, self._key_of)
        self._over_lists = self._compiled(text.over_lists())(store.get, store.save, KeyEntry)

    def take_dirty_keys(self) -> DirtyKeys | None:
        """Return the dirty keys. From the first call on the loops look keys up through the tracking store."""
        before = self.store.get
        keys = self.store.take_dirty_keys()
        if self.store.get != before:
            self._make_loops()
        return keys

    def _made_rows(self, text: RunningLoopText, key_of: Callable[[Any], Any]) -> Any:
        names = BoundNames()
        named = self._named
        key = "key_of(row)" if self._key is None else self._key.python("row", names)
        values = [value.python("row", names) for value in named.values]
        whole = is_named_tuple(get_origin(named.enters) or named.enters)
        fields = "*row" if whole else ", ".join(field.python("row", names) for field in named.fields)
        built = f"{names.bind(tuple.__new__)}({names.bind(named.row_type)}, ({', '.join((fields, *text.results))},))"
        lines = text.over_rows(key, values, built, names, guarded=self._on_operator_error is not None)
        return self._compiled(lines)(
            self.store.get, self.store.save, KeyEntry, AgileDartError, key_of, *names.values.values()
        )

    def _compiled(self, text: str) -> Any:
        made: dict[str, Any] = {}
        exec(compile(text, f"<stage {self.name}>", "exec"), made)  # our own text: users' code is called, not pasted
        return made["make"]

    def run(self, rows: list[Any], order: Order, watermark: Position) -> tuple[list[Any], Order]:
        """Take rows and return rows, like every operator."""
        held, order = self.run_batch(rows, order, watermark)
        return as_rows(held), listed(order)

    def run_batch(self, held: Held, order: Order, watermark: Position) -> tuple[Held, Order]:
        """Take rows in either form; they leave in the form in which they came."""
        count = len(held)
        if not count:
            return [], None
        made: Held | None = None
        if type(held) is list:
            made = self._over_rows(self, held)
        elif self._key is not None and count >= FEW_ROWS:
            made = self._run_columns(held)
        if made is None:
            made = self._over_rows(self, as_rows(held))
        left = len(made)
        counts = self.counts
        counts.rows_in += count
        counts.taken += left
        counts.rows_out += left
        if self._refused:
            order = self._report_refused(order)
        if type(made) is list and type(order) is not list:
            order = listed(order)
        return made, order

    def _run_columns(self, columns: Any) -> "Held | None":
        """Return the results for columns; None when a value is not of its type, which the loop over rows reports better."""
        assert self._key is not None
        named = self._named
        try:
            parts = [key.to_list() for key in self._key.columns(columns)]
            values = [value.column(columns).to_list() for value in named.values]
        except AgileDartError:
            raise
        except Exception:  # noqa: BLE001  an expression may raise anything; the row at fault is found row by row
            return None
        keys = parts[0] if len(parts) == 1 else zip(*parts, strict=True)
        outs: list[list[Any]] = [[] for _ in named.values_kept.parts]
        try:
            self._over_lists(keys, *values, *outs)
        except AgileDartError:
            raise
        except Exception:  # noqa: BLE001  as above; the rows before that row are done
            done = len(outs[-1])
            rest = self._over_rows(self, as_rows(part_of(columns, done, len(columns))))
            self._refused = [(error, row, done + number) for error, row, number in self._refused]
            return [*as_rows(self._joined(part_of(columns, 0, done), outs)), *rest]
        return self._joined(columns, outs)

    def _joined(self, columns: Any, results: list[list[Any]]) -> Held:
        """Return the columns with the results beside them."""
        from agiledart_dataflow.data.column import column_of  # NumPy is loaded only where it is used

        schema = schema_of(self._named.row_type)
        made: dict[str, Any] = {field.name: field.name for field in columns.schema.fields}
        for field, values in zip(schema.fields[len(made) :], results, strict=True):
            made[field.name] = column_of(field, values)
        joined: Held = columns.replaced(self._named.row_type, made)
        return joined

    def refuse(self, error: Exception, row: Any, number: int) -> None:
        """Go on without a row; the loop calls it."""
        self._refused.append((error, row, number))

    def _report_refused(self, order: Order) -> Order:
        """Report the refused rows; return what goes with the others."""
        assert self._on_operator_error is not None  # the loop refuses only then
        refused, self._refused = self._refused, []
        order = listed(order)
        for error, row, number in refused:
            self._on_operator_error(error, row, None if order is None else order[number])
        if order is None:
            return None
        refused_numbers = {number for _, _, number in refused}
        return [at for number, at in enumerate(order) if number not in refused_numbers]
