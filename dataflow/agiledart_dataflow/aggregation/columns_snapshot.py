"""`ColumnsSnapshot`: windows over columns as of a moment, encoded bit by bit while rows go on.

Arrays are never written to and pieces only come behind each other, so what a window was is held by reference, and nobody has to be
told of anything: rows that come later are in other pieces, a window that is folded or closes leaves its own to whoever holds them.
For the same reason the pieces that came since a barrier say what has changed since: an increment holds nothing but their rows.

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
from agiledart_dataflow.data.lazy_module import late
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
    np = late("numpy")
    Array = Any

BLOCK_ROWS: Final = 16_384
"""Rows of a block, about: a group's share is a hundred of them, and to sort them takes a tenth of a millisecond."""


@dataclass(slots=True)
class _Block:
    """Rows of one window, or keys of what was folded of it.

    Attributes:
        first: how many rows came into the window before.
        keys: the parts of their keys.
        values: of rows.
        folded: of keys: what holds them, from `first` on.
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
    """What is to be encoded of one window."""

    end: int
    folded: Folded | None
    pieces: list[RowPiece]
    count: int  # of pieces, for others may come to them
    blocks: list[_Block] = field(default_factory=list)


class ColumnsSnapshot(AsyncSnapshotBase):
    """All of the windows, or the rows that came into them since.

    Args:
        vectors: the windows.
        codec: of a group's list of entries.
        group_of: key → group.
        lists: of what was noted; None: all.
        closed, waste: as of every `AsyncSnapshotBase`.
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
                end: _WindowToEncode(end, one.folded, one.pieces, len(one.pieces)) for end, one in _by_end(vectors)
            }
            self._count = vectors.state_keys()
        else:
            self._windows = {end: _WindowToEncode(end, None, [], 0) for end, _ in _by_end(vectors)}
            self._count = sum(map(dirty_count, lists))
            self.common = common_of(
                [end for end in self._windows if all(Anew(end) not in one for one in lists)], adds=True
            )

    def _all_steps(self) -> Iterator[None]:
        for dirty_keys in dirty_keys_in(self._lists or ()):
            for piece in dirty_keys:
                window = self._windows.get(piece.end) if isinstance(piece, RowPiece) else None
                if window is not None:
                    window.pieces.append(piece)
                    window.count += 1
            yield
        there = np.zeros(KEY_GROUPS, bool)
        for window in self._windows.values():
            for block in self._blocks(window):
                yield
                groups = np.empty(len(block), np.uint8)
                for start in range(0, len(block), STEP_INDEXED):
                    some = slice(start, start + STEP_INDEXED)
                    groups[some] = [self._group_of[key] for key in key_values(block.keys, some)]
                    yield
                block.order = np.argsort(groups, kind="stable").astype(np.int32)
                block.bounds = np.searchsorted(groups[block.order], np.arange(KEY_GROUPS + 1))
                there[groups] = True
                window.blocks.append(block)
            window.folded, window.pieces = None, []
        found = np.flatnonzero(there).tolist()
        self._ready.append(array_header(len(found)))
        for group in found:
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
        some: list[RowPiece] = []
        rows = 0
        for piece in islice(window.pieces, window.count):
            some.append(piece)
            rows += piece.rows
            if rows >= BLOCK_ROWS:
                yield _joined(some)
                some, rows = [], 0
        if some:
            yield _joined(some)

    def _window_steps(self, group: int, window: _WindowToEncode, part: GroupEncoder) -> Iterator[None]:
        """Encode what a window holds of a group."""
        found: dict[Any, list[Any]] = {}
        for block in window.blocks:
            start, stop = block.bounds[group], block.bounds[group + 1]
            if start == stop:
                continue
            for begin in range(start, stop, STEP_INDEXED):
                self._take(block, block.order[begin : min(stop, begin + STEP_INDEXED)].astype(np.int64), found)
                yield
            self._count -= int(stop - start)
        self._count += len(found)
        end, counts_only = window.end, not self._vectors.kept.values
        entries = iter(found.items())
        while some := list(islice(entries, self._step_keys())):
            items = [
                (key, end, (rank,), count if counts_only else (columns, compact))
                for key, (rank, count, columns, compact) in some
            ]
            size = part.put(0, len(items), self._codec.encode_items(items))
            self._mean = 1 + size // len(items)
            self.keys += len(items)
            self.size += size
            yield

    def _take(self, block: _Block, rows: "Array", found: dict[Any, list[Any]]) -> None:
        """Put rows of a block to the entries of their keys: key → [rank, rows, values, compacted values]."""
        keys = key_values(block.keys, rows)
        ranks = (rows + block.first).tolist()
        vectors, width = self._vectors, len(self._vectors.kept.values)
        if block.folded is not None:
            compacts = compacts_of(vectors, block.folded, rows + block.first)
            for key, rank, compact in zip(keys, ranks, compacts, strict=True):
                found[key] = [rank, compact[0], [[] for _ in range(width)], compact]
            return
        columns = [
            Column(kind, values[rows]).to_list() for kind, values in zip(vectors.kinds, block.values, strict=True)
        ]
        values_of = zip(*columns, strict=True) if width else iter([()] * len(keys))
        for key, rank, values in zip(keys, ranks, values_of, strict=True):
            entry = found.get(key)
            if entry is None:
                found[key] = [rank, 1, [[value] for value in values], None]
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
