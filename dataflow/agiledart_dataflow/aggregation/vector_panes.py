"""Open windows as columns: the needed columns of their rows are kept as they came, and grouped once, when a window closes.

A window with many rows is folded earlier: one entry per key, with sums that are still exact. `FOLD_AT` rows and the
number of keys bound what a window keeps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING, Any, Final

from agiledart_dataflow.aggregation.exact_sums import grouped_integer_sums, grouped_parts, grouped_sums
from agiledart_dataflow.aggregation.named_aggregates import NamedWindow
from agiledart_dataflow.aggregation.pane_values import KeptValues
from agiledart_dataflow.data.column import Column, column_of, concatenated_columns
from agiledart_dataflow.data.column_schema import ColumnField, ColumnKind, column_field, schema_of
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.grouping import grouped
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.event_time.windows import Panes
from agiledart_dataflow.event_time.zone_days import DAY_MS
from agiledart_dataflow.state.dirty_keys import MAX_DIRTY_KEYS, DirtyRows
from agiledart_dataflow.state.open_windows import Anew

if TYPE_CHECKING:
    import numpy as np

    from agiledart_dataflow.data.column import Array
else:
    np = lazy_import("numpy")
    Array = Any

FOLD_AT: Final = 32_768
"""Rows of one window that are kept as they came."""

JOIN_PIECES: Final = 64
"""Pieces of a window that are joined into one, unless they are large: a close would take the time that each one costs at once."""

LARGE_PIECES: Final = 256 * JOIN_PIECES
"""Rows of so many pieces from which they stay as they are."""

_FOLDS_AGAIN: Final = 2
"""A window is folded again when it holds this many times more rows than the last fold left keys."""


class Unfit(Exception):
    """Error of values that arrays cannot hold: ints beyond 64 bits, times with a zone, values not of their field's type."""


@dataclass
class Folded:
    """Folded rows: one entry per key.

    Attributes:
        keys: the parts of the key.
        counts: rows of each key.
        sums: by value: arrays whose exact sum is each key's; ints: one array; [] when no sum is needed.
        least, greatest: by value, or None.
    """

    keys: list[Column]
    counts: "Array"
    sums: list[list["Array"]]
    least: list["Array | None"]
    greatest: list["Array | None"]


@dataclass(eq=False, slots=True)
class RowPiece:
    """Rows that came into a window at once.

    Attributes:
        end: end of the window.
        rank: number of rows that had come into it before.
        rows: number of these rows.
        keys, values: the parts of their keys, and their values.
    """

    end: int
    rank: int
    rows: int
    keys: list[Column]
    values: list["Array"]


@dataclass
class OpenVectorWindow:
    """One open window: pieces of its rows, and the part folded before.

    Attributes:
        rows: of the pieces.
        joined: number of pieces, the first ones, that are not joined with others.
        seen: rows that came in all, or slightly fewer.
    """

    pieces: list[RowPiece] = field(default_factory=list)
    rows: int = 0
    folded: Folded | None = None
    fold_at: int = FOLD_AT
    seen: int = 0
    joined: int = 0

    def put(self, piece: RowPiece) -> None:
        """Append a piece."""
        self.pieces.append(piece)
        self.rows += piece.rows
        self.seen += piece.rows
        if len(self.pieces) - self.joined >= JOIN_PIECES:
            self._join()

    def _join(self) -> None:
        """Join the last pieces. A snapshot, or the record of changes, may hold them: they stay as they are."""
        before, last = self.pieces[: self.joined], self.pieces[self.joined :]
        rows = sum(piece.rows for piece in last)
        if rows < LARGE_PIECES:
            keys = [concatenated_columns([piece.keys[part] for piece in last]) for part in range(len(last[0].keys))]
            values = [np.concatenate([piece.values[i] for piece in last]) for i in range(len(last[0].values))]
            self.pieces = [*before, RowPiece(last[0].end, last[0].rank, rows, keys, values)]
        self.joined = len(self.pieces)


class VectorPanes:
    """Open windows of one instance.

    Args:
        window: tumbling or hopping.
        named: keys and results; with `key`.
        values_kept: the values that are kept, and the results made of them.

    Attributes:
        open: by the end of the window.
        key_types: types of the parts of the key.
    """

    def __init__(self, window: Panes, named: NamedWindow, values_kept: KeptValues) -> None:
        assert named.key is not None
        self._window = window
        self._key = named.key
        self._named = named
        self._row_type = named.row_type
        self.values_kept = values_kept
        self.open: dict[int, OpenVectorWindow] = {}
        self._came: DirtyRows | None = None  # None: changes are not tracked, or are unknown
        self._most = 0  # limit of dirty rows
        self.key_types = [part.type.annotation for part in named.key.parts]
        self._fields = [column_field("value", value.type.type) for value in values_kept.values]  # type: ignore[attr-defined]  # RowExpressions

    def add(self, columns: Columns, times: "Array") -> None:
        """Put rows into their windows. Raises `Unfit`, and the errors of expressions; then nothing was added."""
        keys = self._key.columns(columns)
        values = [value.column(columns) for value in self.values_kept.values]  # type: ignore[attr-defined]  # RowExpressions
        if any(value.kind == "object" or value.valid is not None for value in values):
            raise Unfit
        arrays = [value.values for value in values]
        first, last = int(times.min()), int(times.max())
        if last < self._window.bounds(first)[1]:
            self._put(first, keys, arrays, len(times))
            return
        slots = _slots(self._window, times)
        if not bool((slots[1:] >= slots[:-1]).all()):
            order = np.argsort(slots, kind="stable")
            slots, keys, arrays = slots[order], [key.take(order) for key in keys], [array[order] for array in arrays]
            times = times[order]
        cuts = [0, *(np.flatnonzero(slots[1:] != slots[:-1]) + 1).tolist(), len(slots)]
        for start, stop in pairwise(cuts):
            part = slice(start, stop)
            self._put(
                int(times[start]), [key.take(part) for key in keys], [array[part] for array in arrays], stop - start
            )

    def _put(self, time_ms: int, keys: list[Column], values: list["Array"], rows: int) -> None:
        for end in self._window.ends(time_ms):
            window = self.open.get(end)
            if window is None:
                window = self.open[end] = OpenVectorWindow()
                if self._came is not None:
                    self._came[Anew(end)] = None
            piece = RowPiece(end, window.seen, rows, keys, values)
            window.put(piece)
            if self._came is not None:
                self._note(self._came, piece)
            if window.rows >= window.fold_at:
                self._fold(window)

    def _note(self, came: DirtyRows, piece: RowPiece) -> None:
        """Track a piece. When there are more rows than an increment is worth, stop tracking: the changes are unknown."""
        came[piece] = None
        came.rows += piece.rows
        if came.rows > self._most:
            self._most = MAX_DIRTY_KEYS + 2 * self.state_keys()
            if came.rows > self._most:
                self._came = None

    def take_dirty_keys(self) -> DirtyRows | None:
        """Return the dirty rows since the last call (`KeyGroups.take_dirty_keys`); the pieces themselves record the changes."""
        came, self._came = self._came, DirtyRows()
        return came

    def closed(self, until: int) -> tuple[Columns | None, "Array | None"]:
        """Close the windows that end by `until`: return their results and the time of each, or None when there are none."""
        ends = sorted(end for end in self.open if end <= until)
        if not ends:
            return None, None
        parts = [self._result(end, self.open.pop(end)) for end in ends]
        times = np.repeat(np.array(ends, np.int64), [len(part) for part in parts])
        return Columns.concatenate(parts), times

    def merged(self, window: OpenVectorWindow) -> tuple[list[Column], "Array", int, "Array"]:
        """Return (keys of the groups, number of each entry's group, number of groups, rows of each group).

        Entries are the folded ones, then the rows.
        """
        pieces = [piece.keys for piece in window.pieces]
        if window.folded is not None:
            pieces.insert(0, window.folded.keys)
        keys = [concatenated_columns([piece[i] for piece in pieces]) for i in range(len(self._key.parts))]
        numbers, firsts = grouped(keys, len(keys[0]))
        count = len(firsts)
        if window.folded is None:
            counts = np.bincount(numbers, minlength=count)
        else:
            before = len(window.folded.counts)
            counts = np.bincount(numbers[before:], minlength=count)
            counts[numbers[:before]] += window.folded.counts
        return [key.take(firsts) for key in keys], numbers, count, counts

    def _entries(self, window: OpenVectorWindow, value: int, numbers: "Array") -> tuple["Array", "Array"]:
        """Return (values, numbers of their groups) whose sums by group are the sums of a window."""
        raw = _joined([piece.values[value] for piece in window.pieces], numbers.dtype)
        if window.folded is None:
            return raw, numbers
        before = len(window.folded.counts)
        parts = window.folded.sums[value]
        return np.concatenate([*parts, raw]), np.concatenate([*[numbers[:before]] * len(parts), numbers[before:]])

    def _extremes(self, window: OpenVectorWindow, value: int, numbers: "Array", count: int, *, least: bool) -> "Array":
        raw = _joined([piece.values[value] for piece in window.pieces], numbers.dtype)
        if window.folded is not None:
            folded = window.folded.least[value] if least else window.folded.greatest[value]
            raw = np.concatenate([folded, raw])
        if raw.dtype == np.float64:
            extreme_values = np.full(count, np.inf if least else -np.inf)
        else:
            limits = np.iinfo(np.int64)
            extreme_values = np.full(count, limits.max if least else limits.min)
        (np.minimum if least else np.maximum).at(extreme_values, numbers, raw)
        return extreme_values + 0.0 if raw.dtype == np.float64 else extreme_values

    def _result(self, end: int, window: OpenVectorWindow) -> Columns:
        schema = schema_of(self._row_type)
        keys, numbers, count, counts = self.merged(window)
        start = self._window.start_of(end)
        made = [*keys, Column("int", np.full(count, start)), Column("int", np.full(count, end))]
        texts = self._named.texts(start, end)
        made += [column_of(schema.fields[len(made) + number], [text] * count) for number, text in enumerate(texts)]
        sums: dict[int, Any] = {}
        for part in self.values_kept.parts:
            into = schema.fields[len(made)]
            if part.kind == "count":
                made.append(Column("int", counts.astype(np.int64)))
                continue
            if part.kind in ("least", "greatest"):
                extremes = self._extremes(window, part.value, numbers, count, least=part.kind == "least")
                made.append(Column(into.kind, extremes))
                continue
            if part.value not in sums:
                entries, groups = self._entries(window, part.value, numbers)
                summed = grouped_sums if entries.dtype == np.float64 else grouped_integer_sums
                sums[part.value] = summed(entries, groups, count)
            total = sums[part.value]
            if isinstance(total, list):  # beyond 64 bits
                whole = (
                    total
                    if part.kind == "sum"
                    else [float(group_total) / n for group_total, n in zip(total, counts.tolist(), strict=True)]
                )
                made.append(column_of(into, whole))
            else:
                made.append(Column(into.kind, total if part.kind == "sum" else total.astype(np.float64) / counts))
        return Columns(schema, made, count)

    def _fold(self, window: OpenVectorWindow) -> None:
        """Merge each key's rows into one entry, unless arrays cannot hold a sum exactly (then the rows stay)."""
        keys, numbers, count, counts = self.merged(window)
        kinds = [
            {part.kind for part in self.values_kept.parts if part.value == i and part.kind != "count"}
            for i in self._numbers
        ]
        sums: list[list[Any]] = []
        for value, wanted in enumerate(kinds):
            parts: list[Any] = []
            if wanted & {"sum", "mean"}:
                entries, groups = self._entries(window, value, numbers)
                if entries.dtype == np.float64:
                    parts, is_exact = grouped_parts(entries, groups, count)
                else:
                    total = grouped_integer_sums(entries, groups, count)
                    parts, is_exact = [total], not isinstance(total, list)
                if not is_exact:
                    window.fold_at *= 2
                    return
            sums.append(parts)
        least, greatest = (
            [
                self._extremes(window, value, numbers, count, least=kind == "least") if kind in wanted else None
                for value, wanted in enumerate(kinds)
            ]
            for kind in ("least", "greatest")
        )
        window.folded = Folded(keys, counts, sums, least, greatest)
        window.pieces, window.rows, window.joined = [], 0, 0
        window.fold_at = max(FOLD_AT, _FOLDS_AGAIN * count)

    @property
    def _numbers(self) -> range:
        return range(len(self.values_kept.values))

    def state_keys(self) -> int:
        """Return the keys of all open windows; each row that is not grouped yet counts as one."""
        return sum(
            window.rows + (0 if window.folded is None else len(window.folded.counts)) for window in self.open.values()
        )

    @property
    def kinds(self) -> list[ColumnKind]:
        """Return the kinds of the values."""
        return [value_field.kind for value_field in self._fields]

    def array(self, value: int, values: list[Any]) -> "Array":
        """Return values as an array. Raises `Unfit` for those that it cannot hold."""
        column = fitting(self._fields[value], values)
        if column.kind == "object":
            raise Unfit
        array: Array = column.values
        return array

    def listed(self, window: OpenVectorWindow, value: int) -> list[Any]:
        """Return the values of the rows that are kept as they came."""
        return [
            number
            for piece in window.pieces
            for number in Column(self._fields[value].kind, piece.values[value]).to_list()
        ]


def _slots(window: Panes, times: "Array") -> "Array":
    """Return a number for each time, equal for times that the same windows hold, in order of the times."""
    if type(window) is Panes:
        slots: Array = (times - window.origin_ms) // gcd(window.size_ms, window.every_ms)
        return slots
    limits: list[int] = []
    for day in np.unique(times // DAY_MS).tolist():  # each day's own limits: the days between two rows may be many
        first, following = window.bounds(day * DAY_MS)
        limits.append(first)
        while following < (day + 1) * DAY_MS:
            limits.append(following)
            following = window.bounds(following)[1]
    return np.searchsorted(np.unique(np.array(limits, np.int64)), times, side="right")


def fitting(field: ColumnField, values: list[Any]) -> Column:
    """Return the column of values that were kept as rows. Raises `Unfit` where a value is not of the field's type."""
    try:
        return column_of(field, values)
    except TypeError as error:
        raise Unfit from error


def _joined(arrays: Sequence["Array"], dtype: Any) -> "Array":
    if not arrays:
        return np.empty(0, dtype)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
