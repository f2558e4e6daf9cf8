"""Open windows between their two forms: columns (`VectorPanes`) and the plain data of `OpenWindows`."""

from typing import TYPE_CHECKING, Any

from agiledart_dataflow.aggregation.vector_panes import Folded, OpenVectorWindow, RowPiece, Unfit, VectorPanes, fitting
from agiledart_dataflow.data.column import Column
from agiledart_dataflow.data.column_schema import column_field
from agiledart_dataflow.data.grouping import key_values
from agiledart_dataflow.data.lazy_module import late
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.state.open_windows import Windows

if TYPE_CHECKING:
    import numpy as np

    from agiledart_dataflow.data.column import Array
else:
    np = late("numpy")
    Array = Any


def plain(vectors: VectorPanes) -> Windows:
    """As `OpenWindows.windows` says it."""
    return [(end, _entries(vectors, vectors.open[end])) for end in sorted(vectors.open)]


def _entries(vectors: VectorPanes, window: OpenVectorWindow) -> list[tuple[Any, Position | None, Any]]:
    keys, numbers, count, counts = vectors.merged(window)
    listed_keys = key_values(keys, np.arange(count))
    kept = vectors.kept
    if not kept.values:
        return [(key, None, number) for key, number in zip(listed_keys, counts.tolist(), strict=True)]
    folded = window.folded
    before = 0 if folded is None else len(folded.counts)
    groups = numbers[before:].tolist()
    by_value = [_by_group(vectors.listed(window, value), groups, count) for value in range(len(kept.values))]
    compacts: list[Any] = [None] * count
    if folded is not None:
        for number, compact in zip(numbers[:before].tolist(), compacts_of(vectors, folded), strict=True):
            compacts[number] = compact
    states = zip(zip(*by_value, strict=True), compacts, strict=True)
    return [(key, None, state) for key, state in zip(listed_keys, states, strict=True)]


def _by_group(values: list[Any], groups: list[int], count: int) -> list[list[Any]]:
    """The values of each group, in their order."""
    found: list[list[Any]] = [[] for _ in range(count)]
    for group, value in zip(groups, values, strict=True):
        found[group].append(value)
    return found


def compacts_of(
    vectors: VectorPanes, folded: Folded, places: "Array | None" = None
) -> list[tuple[int, list[list[Any]], list[list[Any]]]]:
    """Of all keys, or those in some places, what is kept instead of their rows: count, parts of the sums, extremes, by value."""
    where: Any = slice(None) if places is None else places
    width = range(len(vectors.kept.values) if folded.sums else 0)
    counts = folded.counts[where].tolist()
    sums = [[part[where].tolist() for part in folded.sums[value]] for value in width]
    extremes = [_extremes(vectors, folded, value, where) for value in width]
    return [
        (
            count,
            [[part[place] for part in parts] for parts in sums],
            [[one[place] for one in ends] for ends in extremes],
        )
        for place, count in enumerate(counts)
    ]


def _extremes(vectors: VectorPanes, folded: Folded, value: int, where: Any) -> list[list[Any]]:
    """[all least, all greatest]; the one that nobody asked for is the other, as nobody will look."""
    found = [one for one in (folded.least[value], folded.greatest[value]) if one is not None]
    if not found:
        return []
    kind = vectors.kinds[value]
    return [Column(kind, one[where]).to_list() for one in (found[0], found[-1])]


def restored(vectors: VectorPanes, windows: Windows) -> None:
    """Fill the windows. Raises `Unfit` for what columns cannot hold."""
    for end, entries in windows:
        if entries:
            vectors.open[end] = _window(vectors, end, entries)


def _window(vectors: VectorPanes, end: int, entries: list[Any]) -> OpenVectorWindow:
    width = len(vectors.kept.values)
    window = OpenVectorWindow()
    if not width:
        counts = np.array([state for _, _, state in entries], np.int64)
        window.folded = Folded(_keys(vectors, [key for key, _, _ in entries]), counts, [], [], [])
        window.seen = len(entries)
        return window
    old = [(key, compact) for key, _, (_, compact) in entries if compact is not None]
    if any(compact is None for _, _, (_, compact) in entries[: len(old)]):
        raise Unfit  # keys that are compacted stand behind others: their order would be lost
    if old:
        window.folded = _folded(vectors, old)
        window.seen = len(old)
    repeated = [key for key, _, (columns, _) in entries for _ in columns[0]]
    if repeated:
        values = [
            vectors.array(number, [one for _, _, (columns, _) in entries for one in columns[number]])
            for number in range(width)
        ]
        window.put(RowPiece(end, window.seen, len(repeated), _keys(vectors, repeated), values))
    return window


def _keys(vectors: VectorPanes, keys: list[Any]) -> list[Column]:
    parts = vectors.key_types
    lists = [keys] if len(parts) == 1 else [list(one) for one in zip(*keys, strict=True)]
    return [fitting(column_field("key", kind), values) for kind, values in zip(parts, lists, strict=True)]


def _folded(vectors: VectorPanes, old: list[Any]) -> Folded:
    """Compacted keys as one entry each."""
    width = len(vectors.kept.values)
    sums: list[Any] = []
    least: list[Any] = []
    greatest: list[Any] = []
    for value in range(width):
        lists = [compact[1][value] for _, compact in old]
        longest = max(map(len, lists))
        sums.append([vectors.array(value, [one[i] if i < len(one) else 0 for one in lists]) for i in range(longest)])
        for number, into in ((0, least), (1, greatest)):
            ends = [compact[2][value] for _, compact in old]
            into.append(vectors.array(value, [one[number] for one in ends]) if ends[0] else None)
    counts = np.array([compact[0] for _, compact in old], np.int64)
    return Folded(_keys(vectors, [key for key, _ in old]), counts, sums, least, greatest)
