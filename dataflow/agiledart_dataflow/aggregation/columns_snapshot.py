"""`ColumnsSnapshot`: windows over columns as of a moment, encoded bit by bit while further rows are processed.

Arrays are never written to, and pieces are only appended. So references preserve a window as it was, without
notification: later rows are in other pieces, and a window that is folded or closed leaves its pieces to the snapshot.
For the same reason the pieces that came since a barrier are the changes since then: an increment holds their rows only.

    joined   pieces become blocks, so that small batches do not cost a call for each group
    parted   the rows of a block are sorted by group
    encoded  group by group, one entry for each key of a window

Source: recovery specification §11.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from agiledart_dataflow.aggregation.vector_panes import Folded, OpenVectorWindow, RowPiece, VectorPanes
from agiledart_dataflow.aggregation.vector_snapshots import compacts_of
from agiledart_dataflow.data.column import Column, concatenated_columns
from agiledart_dataflow.data.grouping import key_values
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.state.async_snapshot import AsyncSnapshotBase, GroupEncoder
from agiledart_dataflow.state.dirty_keys import DirtyKeys, dirty_count
from agiledart_dataflow.state.indexed_state_snapshot import STEP_INDEXED, dirty_keys_in
from agiledart_dataflow.state.open_windows import Anew, common_of
from agiledart_dataflow.state.plain_codec import PlainCodec, array_header
from agiledart_kernel.limits import KEY_GROUPS

if TYPE_CHECKING:
    import numpy as np

    from agiledart_dataflow.data.column import Array
else:
    np = lazy_import("numpy")
    Array = Any

BLOCK_ROWS: Final = 16_384
"""Approximate rows of a block: a group's share is about a hundred of them, and to sort them takes a tenth of a millisecond."""


@dataclass(slots=True)
class _Block:
    """Rows of one window, or keys of its folded part.

    Attributes:
        first: number of rows that came into the window before.
        keys: the parts of their keys.
        values: values of the rows.
        folded: for keys: the object that holds them, from `first` on.
        order, bounds: rows sorted by group, and where each group begins.
    """

    first: int
    keys: list[Column]
    values: list["Array"]
    folded: Folded | None = None
    order: Any = None
    bounds: Any = None

    def __len__(self) -> int:
        return len(self.keys[0])


@dataclass(slots=True)
class _WindowToEncode:
    """Parts of one window that are to be encoded."""

    end: int
    folded: Folded | None
    pieces: list[RowPiece]
    count: int  # of pieces: the window may append others
    blocks: list[_Block] = field(default_factory=list)


class ColumnsSnapshot(AsyncSnapshotBase):
    """Snapshot of all windows, or of the rows that came into them since a barrier.

    Args:
        vectors: the windows.
        codec: of a group's list of entries.
        group_of: key → group.
        lists: the dirty keys; None: all.
        closed, waste: as for every `AsyncSnapshotBase`.
    """

    _arrays = 1

    def __init__(
        self,
        vectors: VectorPanes,
        codec: PlainCodec,
        group_of: Mapping[Any, int],
        lists: Sequence[DirtyKeys] | None,
        closed: Callable[[], None],
        waste: Iterable[DirtyKeys],
    ) -> None:
        super().__init__(closed, waste)
        self._vectors, self._codec, self._group_of, self._lists = vectors, codec, group_of, lists
        if lists is None:
            self._windows = {
                end: _WindowToEncode(end, window.folded, window.pieces, len(window.pieces))
                for end, window in _by_end(vectors)
            }
            self._count = vectors.state_keys()
        else:
            self._windows = {end: _WindowToEncode(end, None, [], 0) for end, _ in _by_end(vectors)}
            self._count = sum(map(dirty_count, lists))
            self.common = common_of(
                [end for end in self._windows if all(Anew(end) not in window for window in lists)], adds=True
            )

    def _all_steps(self) -> Iterator[None]:
        for dirty_keys in dirty_keys_in(self._lists or ()):
            for piece in dirty_keys:
                window = self._windows.get(piece.end) if isinstance(piece, RowPiece) else None
                if window is not None:
                    window.pieces.append(piece)
                    window.count += 1
            yield
        present_groups = np.zeros(KEY_GROUPS, bool)
        for window in self._windows.values():
            for block in self._blocks(window):
                yield
                groups = np.empty(len(block), np.uint8)
                for start in range(0, len(block), STEP_INDEXED):
                    rows_slice = slice(start, start + STEP_INDEXED)
                    groups[rows_slice] = [self._group_of[key] for key in key_values(block.keys, rows_slice)]
                    yield
                block.order = np.argsort(groups, kind="stable").astype(np.int32)
                block.bounds = np.searchsorted(groups[block.order], np.arange(KEY_GROUPS + 1))
                present_groups[groups] = True
                window.blocks.append(block)
            window.folded, window.pieces = None, []
        groups_present = np.flatnonzero(present_groups).tolist()
        self._ready.append(array_header(len(groups_present)))
        for group in groups_present:
            part = self._part(group)
            for window in self._windows.values():
                yield from self._window_steps(group, window, part)
            del self._parts[group]
            self._ready += part.pieces(group)
            yield

    def _blocks(self, window: _WindowToEncode) -> Iterator[_Block]:
        folded = window.folded
        if folded is not None:
            for start in range(0, len(folded.counts), BLOCK_ROWS):
                keys = [key.take(slice(start, start + BLOCK_ROWS)) for key in folded.keys]
                yield _Block(start, keys, [], folded)
        pieces: list[RowPiece] = []
        rows = 0
        for piece in islice(window.pieces, window.count):
            pieces.append(piece)
            rows += piece.rows
            if rows >= BLOCK_ROWS:
                yield _joined(pieces)
                pieces, rows = [], 0
        if pieces:
            yield _joined(pieces)

    def _window_steps(self, group: int, window: _WindowToEncode, part: GroupEncoder) -> Iterator[None]:
        """Encode the entries of one group of a window."""
        entries_by_key: dict[Any, list[Any]] = {}
        for block in window.blocks:
            start, stop = block.bounds[group], block.bounds[group + 1]
            if start == stop:
                continue
            for begin in range(start, stop, STEP_INDEXED):
                self._take(block, block.order[begin : min(stop, begin + STEP_INDEXED)].astype(np.int64), entries_by_key)
                yield
            self._count -= int(stop - start)
        self._count += len(entries_by_key)
        end, counts_only = window.end, not self._vectors.values_kept.values
        items_left = iter(entries_by_key.items())
        while chunk := list(islice(items_left, self._step_keys())):
            items = [
                (key, end, (rank,), count if counts_only else (columns, compact))
                for key, (rank, count, columns, compact) in chunk
            ]
            size = part.put(0, len(items), self._codec.encode_items(items))
            self._mean = 1 + size // len(items)
            self.keys += len(items)
            self.size += size
            yield

    def _take(self, block: _Block, rows: "Array", entries_by_key: dict[Any, list[Any]]) -> None:
        """Add the rows of a block to the entries of their keys: key → [rank, rows, values, compacted values]."""
        keys = key_values(block.keys, rows)
        ranks = (rows + block.first).tolist()
        vectors, width = self._vectors, len(self._vectors.values_kept.values)
        if block.folded is not None:
            compacts = compacts_of(vectors, block.folded, rows + block.first)
            for key, rank, compact in zip(keys, ranks, compacts, strict=True):
                entries_by_key[key] = [rank, compact[0], [[] for _ in range(width)], compact]
            return
        columns = [
            Column(kind, values[rows]).to_list() for kind, values in zip(vectors.kinds, block.values, strict=True)
        ]
        values_of = zip(*columns, strict=True) if width else iter([()] * len(keys))
        for key, rank, values in zip(keys, ranks, values_of, strict=True):
            entry = entries_by_key.get(key)
            if entry is None:
                entries_by_key[key] = [rank, 1, [[value] for value in values], None]
                continue
            entry[1] += 1
            for column, value in zip(entry[2], values, strict=True):
                column.append(value)


def _by_end(vectors: VectorPanes) -> list[tuple[int, OpenVectorWindow]]:
    return sorted(vectors.open.items())


def _joined(pieces: list[RowPiece]) -> _Block:
    first = pieces[0]
    if len(pieces) == 1:
        return _Block(first.rank, first.keys, first.values)
    keys = [concatenated_columns([piece.keys[i] for piece in pieces]) for i in range(len(first.keys))]
    values = [np.concatenate([piece.values[i] for piece in pieces]) for i in range(len(first.values))]
    return _Block(first.rank, keys, values)
