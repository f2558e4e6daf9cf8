"""Ranking of the n best keys, put out once per source record that changed it, when all its consequences are in.

Ties: the key with newer information stands first (`ties="newest"`), then the smaller key. Keys that cannot be compared
(Enums, None beside a text) stand in the order of the texts by which they are routed. A record's consequences (kind 1)
renew information, by whatever path they came; time (kind 0) renews nothing. Two changes of one source record are
equally new.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key
from typing import Any, ClassVar

from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.partitioning import canonical
from agiledart_dataflow.data.position import CAUSE_LENGTH, END, RECORD, Position, covering
from agiledart_dataflow.data.rows import Entry, Ranking
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.operators.base import OnOperatorError, Output
from agiledart_dataflow.state.dirty_keys import DirtyKeys, StateChanges
from agiledart_dataflow.state.indexed_state_snapshot import IndexedStateSnapshot, KeysSnapshot, all_of
from agiledart_dataflow.state.key_group_indexed_state import KeyGroupIndexedState
from agiledart_dataflow.state.key_groups import Division
from agiledart_dataflow.state.plain_codec import PlainCodec

_EMITTED = (END - 1,)
"""Path of an output: after all consequences of the source record, below the watermark that covers it."""


Ranked = tuple[Any, tuple[Any, int, Any]]
"""(value, (minus its rank, how new its information is, key)): immutable; a new one replaces it."""


class Top(KeyGroupIndexedState[list[Any]]):
    """Operator that keeps all keys in order of rank, on one instance: a ranking cannot be split by key group.

    Args:
        name: name of the step.
        rank: value → number, the greater the better.
        codec: of a key group's entries (`ranked_type`).
        rest: codec of the state that belongs to no key (`emitted_type`).
        n: number of places.
        newest_first: ties by age of information (else by key alone).
        keys_only: the ranking changes with its keys or their order, not with a value.
        on_change: put out a ranking also when time alone changed it; then it may have no cause.
        on_operator_error: called for changes at which `rank` raised; the key keeps its place. Without it the error goes
            to the caller.
    """

    division: ClassVar[Division] = "whole"

    def __init__(
        self,
        name: str,
        rank: Callable[[Any], Any],
        codec: PlainCodec,
        rest: PlainCodec,
        *,
        n: int,
        newest_first: bool,
        keys_only: bool = False,
        on_change: bool = False,
        on_operator_error: OnOperatorError | None = None,
    ) -> None:
        super().__init__(codec)
        self.name = name
        self.counts = StepCounts()
        self.function: Callable[..., Any] | None = rank
        self._rest_codec = rest
        self._n = n
        self._rank = rank
        self._newest_first = newest_first
        self._keys_only = keys_only
        self._on_change = on_change
        self._on_operator_error = on_operator_error
        self._values: dict[Any, Ranked] = {}
        self._order: list[tuple[Any, int, Any]] = []
        self._is_ordered = True
        self._renewals = 0
        self._emitted: list[Entry[Any, Any]] = []
        self._touched = False
        self._group: Position = ()
        self._cause: Any = None

    def run(self, rows: list[Any], positions: list[Position], watermark: Position) -> Output:
        self.rows_come()
        out: list[Any] = []
        at: list[Position] = []
        group, refused = self._group, 0
        for row, position in zip(rows, positions, strict=True):
            if position[:CAUSE_LENGTH] != group:
                if group:
                    self._emit_if_changed(out, at)
                self._group = group = position[:CAUSE_LENGTH]
                self._renewals += 1
            key, value, cause = row
            if cause is not None and self._cause is None:
                self._cause = cause
            try:
                self._update(key, value, renews=position[1] == RECORD)
            except Exception as error:
                if self._on_operator_error is None:
                    raise
                refused += 1
                self._on_operator_error(error, row, position)
        if group and covering(group) <= watermark:
            self._emit_if_changed(out, at)
            self._group = ()
        self.counts.rows_in += len(rows)
        self.counts.rows_out += len(out)
        self.counts.taken += len(rows) - refused
        self.bound(len(self._values))
        return out, at

    def _update(self, key: Any, value: Any, *, renews: bool) -> None:
        """Move a key to the place of its new value. Every call that can raise comes before the first change."""
        order = self._order
        minus = None if value is None else -self._rank(value)
        if minus != minus:
            raise ValueError(f"the rank of {key!r} is NaN, which has no place in an order")
        old = self._values.get(key)
        left = None if old is None else self._place(old[1])
        entry, place = None, 0
        if value is not None:
            newest = 0 if old is None else old[1][1]
            if self._newest_first and (renews or old is None):
                newest = -self._renewals if renews else 0
            entry = (minus, newest, key)
            place = self._place(entry)
        if self.dirty_tracker.is_tracking and key not in self.dirty_tracker.keys:
            self.touch(key)
        if left is not None:
            del order[left]
            place -= left < place
            self._touched = self._touched or left < self._n
        if entry is None:
            self._values.pop(key, None)
            return
        order.insert(place, entry)
        self._touched = self._touched or place < self._n
        self._values[key] = (value, entry)

    def _place(self, entry: tuple[Any, int, Any]) -> int:
        """Return the index at which an entry stands, or would stand."""
        try:
            return bisect_left(self._order, entry)
        except TypeError:
            # Keys of equal rank cannot be compared: use the slow order, which agrees with the fast one wherever both
            # work.
            return bisect_left(self._order, _in_full(entry), key=_in_full)

    def _emit_if_changed(self, out: list[Any], at: list[Position]) -> None:
        """Put out the ranking if it differs from the last one; call it when all consequences of the source record are in."""
        cause, self._cause = self._cause, None
        if not self._touched or (cause is None and not self._on_change):
            return
        self._touched = False
        entries = [Entry(key, self._values[key][0]) for _, _, key in self._order[: self._n]]
        if self._keys_only:
            changed = [entry.key for entry in entries] != [entry.key for entry in self._emitted]
        else:
            changed = entries != self._emitted
        if changed:
            self._emitted = entries
            out.append(Ranking(cause, entries))
            at.append(self._group + _EMITTED)

    @property
    def state_keys(self) -> int:
        return len(self._values)

    def snapshot_rest(self) -> bytes:
        """Encode the last ranking, and the effect of the present source record so far."""
        return self._rest_codec.encode(([], self._emitted, self._cause, self._renewals, self._touched, self._group))

    def restore_rest(self, data: bytes) -> None:
        keys, self._emitted, self._cause, self._renewals, self._touched, self._group = self._rest_codec.decode(data)
        if keys:  # format 1, in which there are no groups
            self._invalidate()
            self._values.clear()
            self._put(0, keys)
            self._index, self._moved = None, True

    def changes(self, keys: DirtyKeys) -> StateChanges:
        return StateChanges(all_of(self.begin_snapshot([keys])))

    def _begin_snapshot(self, lists: Sequence[DirtyKeys] | None, waste: Iterable[DirtyKeys]) -> IndexedStateSnapshot:
        return _RankingSnapshot(self._codec, self.group_of, lists, self._closed, waste, held=self._values)

    def apply(self, changes: StateChanges) -> None:
        decoded = [(group, self._codec.decode(data)) for group, data in changes.groups]
        self._invalidate()
        for group, entries in decoded:
            for key, *_ in entries:
                self._values.pop(key, None)
            self._put(group, [entry for entry in entries if entry[1] is not None])
        self._index, self._moved, self._is_ordered = None, True, False

    def _build_group_index(self) -> dict[int, list[Any]]:
        parts: dict[int, list[Any]] = {}
        for key in self._values:
            parts.setdefault(self.group_of[key], []).append(key)
        return parts

    def _entries(self, part: list[Any]) -> Iterable[Any]:
        for key in part:
            yield _plain(key, self._values[key])

    def _put(self, group: int, entries: list[Any]) -> list[Any]:
        for key, value, newest in entries:
            self._values[key] = (value, (-self._rank(value), newest, key))
        self._is_ordered = False
        return [key for key, *_ in entries]

    def _remove(self, part: list[Any]) -> None:
        for key in part:
            del self._values[key]
        self._is_ordered = False

    def _restore_arrival_order(self) -> None:
        if self._is_ordered:
            return
        entries = [entry for _, entry in self._values.values()]
        try:
            self._order = sorted(entries)
        except TypeError:  # as in `_place`
            self._order = sorted(entries, key=_in_full)
        self._is_ordered = True


class _RankingSnapshot(KeysSnapshot[Ranked]):
    """Snapshot of all keys; a key that is gone has no value."""

    def _describe(self, held: Ranked) -> Ranked:
        return held

    def _frozen(self, plain: Ranked) -> Ranked:
        return plain  # it never changes

    def _entry(self, key: Any, described: Ranked | None) -> Any:
        return (key, None, 0) if described is None else _plain(key, described)


def _plain(key: Any, held: Ranked) -> tuple[Any, Any, int]:
    value, (_, newest, _) = held
    return key, value, newest


def ranked_type(key: Any, value: Any) -> Any:
    """Return the type of a key group's entries, (key, value, how new), used to decode them; no value: the key is gone."""
    return generic(list, generic(tuple, key, value | None, int))


def emitted_type(key: Any, value: Any, cause: Any) -> Any:
    """Return the type of the state that belongs to no key. Its first field held all entries in format 1 and is empty today."""
    entries = generic(list, generic(Entry, key, value))
    return generic(tuple, ranked_type(key, value), entries, cause | None, int, bool, Position)


def _compared(left: Any, right: Any) -> int:
    """Compare two keys: below 0, 0 or above 0, by their own order, else by the order of their texts."""
    try:
        return -1 if left < right else int(left != right)
    except TypeError:
        left_text, right_text = canonical(left), canonical(right)
        return (left_text > right_text) - (left_text < right_text)


_ordered = cmp_to_key(_compared)


def _in_full(entry: tuple[Any, int, Any]) -> tuple[Any, int, Any]:
    """Return an entry that can be compared with every other."""
    return entry[0], entry[1], _ordered(entry[2])
