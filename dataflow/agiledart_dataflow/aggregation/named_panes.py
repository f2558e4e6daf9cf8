"""Windows with named results, over rows and over columns: the same results in the same order for both forms of input.

Rows go into `PaneWindow`. From the first batch of columns on, open windows move into `VectorPanes`, and further rows
are collected until they are worth columns. When all that came between two closes were rows, open windows move back: a few
rows cost less as rows, and a burst that came as columns is over. Values that arrays cannot hold move everything back for good.
Snapshots have one form.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from agiledart_dataflow.aggregation.named_aggregates import NamedWindow
from agiledart_dataflow.aggregation.pane_values import kept_values
from agiledart_dataflow.aggregation.panes import PaneWindow
from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.batch import Held, Order, as_rows, listed
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.event_time.windows import Panes
from agiledart_dataflow.operators.base import OnOperatorError
from agiledart_dataflow.state.async_snapshot import AsyncSnapshot
from agiledart_dataflow.state.dirty_keys import DirtyKeys, StateChanges
from agiledart_dataflow.state.indexed_state_snapshot import all_of
from agiledart_dataflow.state.key_groups import Division, WithoutRest
from agiledart_dataflow.state.open_windows import WindowEntry, Windows, window_entries
from agiledart_dataflow.state.plain_codec import PlainCodec
from agiledart_dataflow.user_code.user_errors import NO_RECORD

if TYPE_CHECKING:
    import numpy as np

    from agiledart_dataflow.aggregation.vector_panes import VectorPanes
else:
    np = lazy_import("numpy")

_WORTH_COLUMNS: Final = 1_024
"""Rows that are collected before they become columns; a close takes fewer."""


class NamedPanes(WithoutRest):
    """Operator of `.aggregate("name", result=…)`.

    Args:
        name: name of the step.
        key_of: row → key.
        row_type: type of the rows that enter.
        window: tumbling or hopping.
        named: keys, values and results.
        codec: as for a `PaneWindow`.
        positions: rows come with positions (then it works on rows), else with event times.
        on_operator_error: called for rows at which user code raised, and for failed results; without it the error goes
            to the caller.
    """

    division: ClassVar[Division] = "by group"

    def __init__(
        self,
        name: str,
        key_of: Callable[[Any], Any],
        row_type: Any,
        window: Panes,
        named: NamedWindow,
        codec: PlainCodec,
        *,
        positions: bool,
        on_operator_error: OnOperatorError | None = None,
    ) -> None:
        self.name = name
        self.function: Callable[..., Any] | None = key_of
        self.counts = StepCounts()
        self.takes_columns = not positions and named.key is not None
        self._key_of = key_of
        self._row_type = row_type
        self._window = window
        self._named = named
        self._on_operator_error = on_operator_error
        refuse = None if on_operator_error is None else self._refuse
        self._codec = codec
        self._rows = PaneWindow(
            name, key_of, window, named.aggregator, codec, positions=positions, on_operator_error=refuse
        )
        self.inner = self._rows
        self._vectors: VectorPanes | None = None
        self._columns_came = False  # since the last close
        self._waiting: list[Any] = []
        self._waiting_times: list[int] = []
        self._open: AsyncSnapshot | None = None  # snapshot of columns
        self._group_index: dict[int, list[WindowEntry]] | None = None  # of windows in columns, until rows come

    def run(self, rows: list[Any], order: Order, watermark: Position) -> tuple[list[Any], Order]:
        """Take rows and return rows, like every operator."""
        held, order = self.run_batch(rows, order, watermark)
        return as_rows(held), listed(order)

    def run_batch(self, held: Held, order: Order, watermark: Position) -> tuple[Held, Order]:
        """Take rows in either form; put out the results of the windows that ended at the watermark, in the present form."""
        self._group_index = None
        self.counts.rows_in += len(held)
        self.counts.taken += len(held)
        if self._vectors is None and type(held) is not list and self.takes_columns:
            self._promote()
        if self._vectors is not None:
            out, at = self._run_vectors(held, order, watermark)
        else:
            out, at = self._run_rows(as_rows(held), listed(order), watermark)
        self.counts.rows_out += len(out)
        return out, at

    def _run_rows(self, rows: list[Any], order: Order, watermark: Position) -> tuple[list[Any], Order]:
        panes, at = self._rows.run(rows, order, watermark)
        return list(map(self._named.flat, panes)) if panes else panes, at

    def _run_vectors(self, held: Held, order: Order, watermark: Position) -> tuple[Held, Order]:
        vectors = self._vectors
        assert vectors is not None
        if type(held) is list:
            self._waiting += held
            self._waiting_times += order or ()
            if len(self._waiting) >= _WORTH_COLUMNS and not self._add_waiting():
                return self._run_rows([], [], watermark)
        elif len(held):
            self._columns_came = True
            if not self._add_waiting():
                return self._run_rows(as_rows(held), listed(order), watermark)
            if not self._add(held, order):
                return self._run_rows([], [], watermark)
        if self._waiting and self._closes(watermark[0]) and not self._add_waiting():
            return self._run_rows([], [], watermark)
        columns, times = vectors.closed(watermark[0])
        if columns is None:
            return [], []
        if not self._columns_came:
            self._return_to_rows()
        self._columns_came = False
        return columns, times

    def _closes(self, until: int) -> bool:
        """Report whether a window that the waiting rows may belong to has ended."""
        vectors = self._vectors
        assert vectors is not None
        return min(*vectors.open, self._window.ends(min(self._waiting_times))[0], until + 1) <= until

    def _add_waiting(self) -> bool:
        """Put the waiting rows into the windows; return False when everything went back to rows."""
        if not self._waiting:
            return True
        rows, times = self._waiting, self._waiting_times
        self._waiting, self._waiting_times = [], []
        return self._add(Columns.from_rows(rows, self._row_type), times)

    def _add(self, held: Held, order: Order) -> bool:
        from agiledart_dataflow.aggregation.vector_panes import Unfit  # NumPy is loaded only where it is used

        vectors = self._vectors
        assert vectors is not None
        columns: Any = held
        times = np.asarray(order, dtype=np.int64)
        try:
            if self._on_operator_error is None:
                vectors.add(columns, times)
            else:
                self._add_fit(columns, times)
        except (Unfit, ArithmeticError, TypeError, ValueError):
            self._leave_columns()
            self.takes_columns = False
            self._rows.run(as_rows(held), listed(order), (-(2**63),))
            return False
        return True

    def _add_fit(self, columns: Columns, times: Any) -> None:
        """Put rows into their windows, without those that raise. Raises the errors of `VectorPanes.add`."""
        vectors = self._vectors
        assert vectors is not None
        try:
            vectors.add(columns, times)
        except (ArithmeticError, TypeError, ValueError):
            fit_numbers: list[int] = []
            refused: list[tuple[Exception, Any, int]] = []
            for number, row in enumerate(as_rows(columns)):
                try:
                    hash(self._key_of(row))
                    for value in vectors.values_kept.values:
                        value(row)
                    fit_numbers.append(number)
                except Exception as error:  # noqa: BLE001  user code may raise anything; the step's policy decides
                    refused.append((error, row, int(times[number])))
            if fit_numbers:
                numbers = np.array(fit_numbers, dtype=np.int64)
                vectors.add(columns.take(numbers), times[numbers])
            for refusal in refused:
                self._refuse(*refusal)

    def _refuse(self, error: Exception, row: Any, at: Any) -> None:
        """Go on without a row for which user code raised, or without a result."""
        assert self._on_operator_error is not None  # the loop calls it only with a handler
        if row is NO_RECORD:
            self.counts.failed += 1
        else:
            self.counts.taken -= 1
        self._on_operator_error(error, row, at)

    def _promote(self) -> None:
        """Move the open windows from rows into columns."""
        from agiledart_dataflow.aggregation.vector_panes import Unfit, VectorPanes  # as above
        from agiledart_dataflow.aggregation.vector_snapshots import restored

        values_kept = kept_values(self._named.aggregator)
        assert values_kept is not None  # all named results are built in
        vectors = VectorPanes(self._window, self._named, values_kept)
        try:
            restored(vectors, self._rows.store.windows())
        except Unfit:
            self.takes_columns = False
            return
        self._vectors = vectors
        self._rows.store.replace([])

    def _windows(self) -> Windows:
        from agiledart_dataflow.aggregation.vector_snapshots import plain  # as above

        assert self._vectors is not None
        return plain(self._vectors)

    def _leave_columns(self) -> None:
        """Move the open windows from columns into rows."""
        self._rows.store.replace(self._windows())
        self._vectors = self._group_index = None

    @property
    def state_keys(self) -> int:
        vectors = self._vectors
        return self._rows.state_keys if vectors is None else vectors.state_keys() + len(self._waiting)

    def groups(self) -> list[int]:
        entries_by_group = self._by_group()
        return self._rows.groups() if entries_by_group is None else sorted(entries_by_group)

    def snapshot_group(self, group: int) -> bytes:
        """Encode a group as `PaneWindow` does, whatever the present form of the rows."""
        entries_by_group = self._by_group()
        return (
            self._rows.snapshot_group(group)
            if entries_by_group is None
            else self._codec.encode(entries_by_group.get(group, []))
        )

    def restore_group(self, group: int, data: bytes) -> None:
        self._return_to_rows()
        self._rows.restore_group(group, data)

    def drop_group(self, group: int) -> None:
        self._return_to_rows()
        self._rows.drop_group(group)

    def take_dirty_keys(self) -> DirtyKeys | None:
        """Return the dirty keys; a window that moved between rows and columns counts as new."""
        if self._open is not None:
            self._open.drop()
        if self._vectors is not None and self._add_waiting():
            return self._vectors.take_dirty_keys()
        return self._rows.take_dirty_keys()

    def changes(self, keys: DirtyKeys) -> StateChanges:
        opened = self.begin_snapshot([keys])
        return StateChanges(all_of(opened), opened.common)

    def begin_snapshot(self, lists: Sequence[DirtyKeys] | None, waste: Iterable[DirtyKeys] = ()) -> AsyncSnapshot:
        """Begin a snapshot in the present form."""
        if self._vectors is None:
            return self._rows.store.begin_snapshot(lists, waste)
        from agiledart_dataflow.aggregation.columns_snapshot import ColumnsSnapshot  # as above

        group_of = self._rows.store.group_of
        opened = ColumnsSnapshot(self._vectors, self._codec, group_of, lists, self._closed, waste)
        self._open = opened
        return opened

    def _closed(self) -> None:
        self._open = None

    def apply(self, changes: StateChanges) -> None:
        self._return_to_rows()
        self._rows.apply(changes)

    def _return_to_rows(self) -> None:
        """Move all open windows to rows; the next batch of columns moves them back."""
        if self._vectors is not None and self._add_waiting():
            self._leave_columns()

    def _by_group(self) -> dict[int, list[WindowEntry]] | None:
        """Return the entries of each group, for windows in columns; None while rows hold them."""
        if self._vectors is None or not self._add_waiting():
            return None
        if self._group_index is None:
            self._group_index = {}
            group_of = self._rows.store.group_of
            for entry in window_entries(self._windows()):
                self._group_index.setdefault(group_of[entry[0]], []).append(entry)
        return self._group_index
