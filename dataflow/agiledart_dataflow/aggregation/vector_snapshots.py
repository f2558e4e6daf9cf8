"""Conversion of open windows between two forms: columns (`VectorPanes`) and the plain data of `OpenWindows`."""

from typing import TYPE_CHECKING, Any

from agiledart_dataflow.aggregation.pane_values import Compact
from agiledart_dataflow.aggregation.vector_panes import Folded, OpenVectorWindow, RowPiece, VectorPanes, fitting
from agiledart_dataflow.data.column import Column
from agiledart_dataflow.data.column_schema import column_field
from agiledart_dataflow.data.grouping import key_values
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.state.open_windows import Windows

if TYPE_CHECKING:
    import numpy as np

    from agiledart_dataflow.data.column import Array
else:
    np = lazy_import("numpy")
    Array = Any


def plain(vectors: VectorPanes) -> Windows:
    """Return the windows in the form of `OpenWindows.windows`."""
    return [(end, _entries(vectors, vectors.open[end])) for end in sorted(vectors.open)]


def _entries(vectors: VectorPanes, window: OpenVectorWindow) -> list[tuple[Any, Position | None, Any]]:
    keys, numbers, count, counts = vectors.merged(window)
    listed_keys = key_values(keys, np.arange(count))
    values_kept = vectors.values_kept
    if not values_kept.values:
        return [(key, None, number) for key, number in zip(listed_keys, counts.tolist(), strict=True)]
    folded = window.folded
    before = 0 if folded is None else len(folded.counts)
    groups = numbers[before:].tolist()
    by_value = [_by_group(vectors.listed(window, value), groups, count) for value in range(len(values_kept.values))]
    compacts: list[Any] = [None] * count
    if folded is not None:
        for number, compact in zip(numbers[:before].tolist(), compacts_of(vectors, folded), strict=True):
            compacts[number] = compact
    states = zip(zip(*by_value, strict=True), compacts, strict=True)
    return [(key, None, state) for key, state in zip(listed_keys, states, strict=True)]


def _by_group(values: list[Any], groups: list[int], count: int) -> list[list[Any]]:
    """Return the values of each group, in their order."""
    values_by_group: list[list[Any]] = [[] for _ in range(count)]
    for group, value in zip(groups, values, strict=True):
        values_by_group[group].append(value)
    return values_by_group


def compacts_of(
    vectors: VectorPanes, folded: Folded, places: "Array | None" = None
) -> list[tuple[int, list[list[Any]], list[list[Any]]]]:
    """Return the summaries of folded keys, all or those at `places`: count, parts of the sums, extremes, by value."""
    where: Any = slice(None) if places is None else places
    width = range(len(vectors.values_kept.values) if folded.sums else 0)
    counts = folded.counts[where].tolist()
    sums = [[part[where].tolist() for part in folded.sums[value]] for value in width]
    extremes = [_extremes(vectors, folded, value, where) for value in width]
    return [
        (
            count,
            [[part[place] for part in parts] for parts in sums],
            [[extreme_values[place] for extreme_values in ends] for ends in extremes],
        )
        for place, count in enumerate(counts)
    ]


def _extremes(vectors: VectorPanes, folded: Folded, value: int, where: Any) -> list[list[Any]]:
    """Return [all least, all greatest]; an extreme that no result needs is replaced by the other."""
    present = [
        extreme_values for extreme_values in (folded.least[value], folded.greatest[value]) if extreme_values is not None
    ]
    if not present:
        return []
    kind = vectors.kinds[value]
    return [Column(kind, extreme_values[where]).to_list() for extreme_values in (present[0], present[-1])]


def restored(vectors: VectorPanes, windows: Windows) -> None:
    """Fill the windows. Raises `Unfit` for values that columns cannot hold."""
    for end, entries in windows:
        if entries:
            vectors.open[end] = _window(vectors, end, entries)


def _window(vectors: VectorPanes, end: int, entries: list[Any]) -> OpenVectorWindow:
    width = len(vectors.values_kept.values)
    window = OpenVectorWindow()
    if not width:
        counts = np.array([state for _, _, state in entries], np.int64)
        window.folded = Folded(_keys(vectors, [key for key, _, _ in entries]), counts, [], [], [])
        window.seen = len(entries)
        return window
    entries = _compact_first(vectors, entries)
    old = [(key, compact) for key, _, (_, compact) in entries if compact is not None]
    if old:
        window.folded = _folded(vectors, old)
        window.seen = len(old)
    repeated = [key for key, _, (columns, _) in entries for _ in columns[0]]
    if repeated:
        values = [
            vectors.array(number, [value for _, _, (columns, _) in entries for value in columns[number]])
            for number in range(width)
        ]
        window.put(RowPiece(end, window.seen, len(repeated), _keys(vectors, repeated), values))
    return window


def _compact_first(vectors: VectorPanes, entries: list[Any]) -> list[Any]:
    """Return entries of which none stands uncompacted before a compacted one: folded keys come first, and keys keep their order."""
    last = max((place for place, (_, _, (_, compact)) in enumerate(entries) if compact is not None), default=-1)
    width = len(vectors.values_kept.values)
    made = list(entries)
    for place, (key, first, (columns, compact)) in enumerate(entries[:last]):
        if compact is None:
            summary = Compact(width)
            summary.take([value for values in zip(*columns, strict=True) for value in values], vectors.values_kept)
            made[place] = key, first, ([[] for _ in columns], summary.plain)
    return made


def _keys(vectors: VectorPanes, keys: list[Any]) -> list[Column]:
    parts = vectors.key_types
    lists = [keys] if len(parts) == 1 else [list(key_parts) for key_parts in zip(*keys, strict=True)]
    return [fitting(column_field("key", kind), values) for kind, values in zip(parts, lists, strict=True)]


def _folded(vectors: VectorPanes, old: list[Any]) -> Folded:
    """Return compacted keys as one entry each."""
    width = len(vectors.values_kept.values)
    sums: list[Any] = []
    least: list[Any] = []
    greatest: list[Any] = []
    for value in range(width):
        lists = [compact[1][value] for _, compact in old]
        longest = max(map(len, lists))
        sums.append(
            [
                vectors.array(value, [key_values_of[i] if i < len(key_values_of) else 0 for key_values_of in lists])
                for i in range(longest)
            ]
        )
        for number, into in ((0, least), (1, greatest)):
            ends = [compact[2][value] for _, compact in old]
            into.append(vectors.array(value, [key_values_of[number] for key_values_of in ends]) if ends[0] else None)
    counts = np.array([compact[0] for _, compact in old], np.int64)
    return Folded(_keys(vectors, [key for key, _ in old]), counts, sums, least, greatest)
