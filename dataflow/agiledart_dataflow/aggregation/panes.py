"""Hopping and tumbling windows: each key's rows of [start, end), put out once, when the watermark passes the end.

A pane closes at (end, 0, source, number, path) of its first row: unique for each key, and the same on whatever instance
holds the key. It leaves when the watermark passes that position, so it never lies above a watermark that leaves with
it. Where only event times travel, the panes of one window leave in the order in which their keys first came, which is
the same order. END_OF_INPUT closes all panes. The source has sorted rows within `max_out_of_order`.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import islice, repeat
from operator import add, iadd, lt
from sys import maxsize
from typing import Any, Final

from agiledart_dataflow.aggregation.aggregators import Aggregator
from agiledart_dataflow.aggregation.pane_closing import closing
from agiledart_dataflow.aggregation.pane_loop import Fill, fill_loop
from agiledart_dataflow.aggregation.pane_values import LONG, Compact, fitness, kept_values, results
from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.batch import Order
from agiledart_dataflow.data.inline_text import InlineText
from agiledart_dataflow.data.position import EXPIRY, Position
from agiledart_dataflow.data.rows import Pane
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.event_time.windows import Panes
from agiledart_dataflow.operators.base import OnOperatorError, StoreBackedState
from agiledart_dataflow.state.dirty_keys import DirtyKeys
from agiledart_dataflow.state.open_windows import OpenWindows
from agiledart_dataflow.state.plain_codec import PlainCodec
from agiledart_dataflow.user_code.user_errors import NO_RECORD

COMPACT_EVERY: Final = 512
"""Rows after which long lists of values are compacted.

A result waits for what is left to compute when its window closes: at most so many rows, and `LONG` for each key.
"""

_ROWS_FOR_KEY: Final = 4
"""Rows for each open key before all keys are looked at again: a look at a key then costs a row little."""


class PaneWindow(StoreBackedState[OpenWindows]):
    """Operator that keeps the values of each (window, key) and puts out a `Pane` when the window closes.

    Args:
        name: name of the step.
        key_of: row → key.
        window: tumbling or hopping.
        aggregator: built in (its values are kept) or the user's own (its methods are called).
        codec: of a key group's entries (`open_windows.WindowEntry`).
        positions: rows come with positions, else with event times; so do the panes.
        on_operator_error: called for rows at which user code raised, and for failed panes; without it the error goes to
            the caller.
    """

    def __init__(
        self,
        name: str,
        key_of: Callable[[Any], Any],
        window: Panes,
        aggregator: Aggregator[Any, Any, Any],
        codec: PlainCodec,
        *,
        positions: bool = True,
        on_operator_error: OnOperatorError | None = None,
    ) -> None:
        self.name = name
        self.counts = StepCounts()
        self.function: Callable[..., Any] | None = key_of
        self._window = window
        self._aggregator = aggregator
        self._positions = positions
        self._on_operator_error = on_operator_error
        self._kept = kept_values(aggregator)
        self._counts_only = self._kept is not None and not self._kept.values
        self._single = window.size_ms == window.every_ms
        self._hops = window.size_ms > window.every_ms
        self.store = OpenWindows(
            codec,
            positions=positions,
            new_pane=self._new_pane,
            to_plain=self._plain,
            from_plain=self._restored,
            joined=add if self._counts_only else iadd,
        )
        self._panes, self._firsts, self._before = self.store.panes, self.store.firsts, self.store.before
        self._uncompacted, self._compact_at = 0, COMPACT_EVERY
        self._tracks_keys = False
        self.current: tuple[Any, ...] = ()
        self._forget_current()
        self._key_of = key_of
        self._fill = self._made(key_of)
        self._closing = closing(self._kept) if self._kept is not None and self._kept.values else None

    def _made(self, key_of: Callable[[Any], Any]) -> Fill:
        values = () if self._kept is None else self._kept.values
        text, names = fill_loop(
            value_count=None if self._kept is None else len(values),
            single=self._single,
            positions=self._positions,
            inline_key=key_of if isinstance(key_of, InlineText) else None,
            inline_values=[value if isinstance(value, InlineText) else None for value in values],
            checks=None if self._on_operator_error is None else () if self._kept is None else fitness(self._kept),
            tracks_keys=self._tracks_keys,
        )
        made: dict[str, Any] = {}
        exec(compile(text, f"<stage {self.name}>", "exec"), made)  # our own text: users' code is called, not pasted
        fill: Fill = made["make"](key_of, self._aggregator.add, self._aggregator.create, *values, *names.values())
        return fill

    def take_dirty_keys(self) -> DirtyKeys | None:
        """Return the dirty keys. From the first call on the loop tracks keys; windows open before are reported whole."""
        if not self._tracks_keys:
            self._tracks_keys = True
            self._fill = self._made(self._key_of)
        return self.store.take_dirty_keys()

    def run(self, rows: list[Any], order: Order, watermark: Position) -> tuple[list[Any], Order]:
        """Take rows; put out the panes of the windows that have ended at the watermark."""
        if self.store.rows_come():
            self._forget_current()
        count = len(rows)
        if count:
            self.counts.rows_in += count
            self.counts.taken += count
            self._fill(self, rows, order)
            self._uncompacted += count
            if self._uncompacted >= self._compact_at:
                self._compact()
        out: list[Any] = []
        at: list[Any] = []
        until = watermark[0]
        if self._panes and min(self._panes) <= until:
            for end in sorted(end for end in self._panes if end <= until):
                if self._positions and end == until and watermark[1] == EXPIRY:
                    self._close_up_to(watermark, out, at)
                else:
                    self._close(end, out, at)
            self._forget_current()
            self.store.bound(len(self.store))
            self.counts.rows_out += len(out)
        return out, at

    def refuse(self, error: Exception, row: Any, at: Any) -> None:
        """Go on without a row for which user code raised."""
        assert self._on_operator_error is not None  # the loop calls it only with a handler
        self.counts.taken -= 1
        self._on_operator_error(error, row, at)

    def panes_at(self, time_ms: int) -> tuple[Any, ...]:
        """Return the panes that hold a time (in the loop's form), and the bounds between which they stay the same."""
        lo, hi = self._window.bounds(time_ms)
        open_panes: list[Any] = []
        for end in self._window.ends(time_ms):
            pane = self.store.open(end)
            open_panes.append((pane, self._firsts[end]) if self._positions else pane)
        if not self._single:
            return open_panes, lo, hi
        return (*open_panes[0], lo, hi) if self._positions else (open_panes[0], lo, hi)

    def _new_pane(self) -> dict[Any, Any]:
        return defaultdict(int) if self._counts_only else {}

    def _forget_current(self) -> None:
        nothing: tuple[Any, ...] = ({}, {}) if self._positions and self._single else ({},)
        self.current = (*nothing, 0, 0)

    def _close(self, end: int, out: list[Any], at: list[Any]) -> None:
        pane, firsts = self._panes.pop(end), self._firsts.pop(end)
        before = self._before.pop(end, {})
        start = self._window.start_of(end)
        new = tuple.__new__  # a Pane of four values, made without the call of its own __new__
        if self._on_operator_error is not None:
            self._close_carefully(end, pane, firsts, self._value_of(before), (out, at))
            return
        if not self._positions and self._closing is not None and not before:  # the usual case
            values = map(self._closing, pane.values())
            out += map(new, repeat(Pane), zip(pane, repeat(start), repeat(end), values, strict=False))
            at += [end] * len(pane)
            return
        value_of = self._value_of(before)
        if not self._positions:
            out += [new(Pane, (key, start, end, value_of(key, state))) for key, state in pane.items()]
            at += [end] * len(pane)
            return
        places, keys = self._placed(end, firsts)
        out += [new(Pane, (key, start, end, value_of(key, pane[key]))) for key in keys]
        at += places

    def _placed(self, end: int, firsts: dict[Any, Position]) -> tuple[list[Position], list[Any]]:
        """Return the places of the panes of one window in order, and their keys: each place follows the first row of its pane.

        A row that several windows hold is the first of several panes. The end of the window tells these apart, even
        behind a step that gives them other times and other keys.
        """
        head, keys = (end, EXPIRY), list(firsts)
        places = [head + first[2:] for first in firsts.values()]
        if self._hops:
            places = [(*place, end) for place in places]
        if not all(map(lt, places, islice(places, 1, None))):  # rows of several sources
            order = sorted(range(len(places)), key=places.__getitem__)
            places, keys = [places[i] for i in order], [keys[i] for i in order]
        return places, keys

    def _close_up_to(self, watermark: Position, out: list[Any], at: list[Any]) -> None:
        """Close the panes that a watermark covers of the window that ends at its time.

        Such a watermark stands between panes of an upstream window that closed at the same time. All rows of this
        window have come, but its other panes lie above the watermark. A merge downstream must not receive them before
        it.
        """
        end = watermark[0]
        pane, firsts, before = self._panes[end], self._firsts[end], self._before.get(end, {})
        later = {key: firsts[key] for place, key in zip(*self._placed(end, firsts), strict=True) if place > watermark}
        if len(later) < len(firsts):
            self._firsts[end] = {key: first for key, first in firsts.items() if key not in later}
            self._close(end, out, at)  # looks into `pane` for those that are left
            if not later:
                return
            rest = self._panes[end] = self._new_pane()
            rest.update((key, pane[key]) for key in later)
            self._firsts[end] = later
            self.store.anew(end, later)
            if earlier := {key: before[key] for key in later if key in before}:
                self._before[end] = earlier

    def _close_carefully(
        self, end: int, pane: Any, firsts: Any, value_of: Callable[[Any, Any], Any], put: tuple[list[Any], list[Any]]
    ) -> None:
        """Put out the panes of a window whose values can be made; count and report the others."""
        start = self._window.start_of(end)
        entries: list[tuple[Any, Any]] = [(end, key) for key in pane]
        if self._positions:
            entries = list(zip(*self._placed(end, firsts), strict=True))
        for at, key in entries:
            try:
                made = Pane(key, start, end, value_of(key, pane[key]))
            except Exception as error:  # noqa: BLE001  user code may raise anything; the step's policy decides
                assert self._on_operator_error is not None  # only then is this method used
                self.counts.failed += 1
                self._on_operator_error(error, NO_RECORD, at)
                continue
            put[0].append(made)
            put[1].append(at)

    def _value_of(self, before: dict[Any, Compact]) -> Callable[[Any, Any], Any]:
        """Return a function: (key, kept values) → the pane's value."""
        values_kept = self._kept
        if values_kept is None:
            result = self._aggregator.result
            return lambda key, state: result(state)
        built = values_kept.built
        if self._counts_only:
            places = len(values_kept.parts)
            return lambda key, count: built((count,) * places)
        close = self._closing
        assert close is not None  # exists whenever values are kept
        if not before:
            return lambda key, flat: close(flat)
        return lambda key, flat: built(results(flat, before[key], values_kept)) if key in before else close(flat)

    def _compact(self) -> None:
        """Shorten long lists. Where values cannot be added or compared, leave them all: the close of their window says so."""
        self._uncompacted, self._compact_at = 0, max(COMPACT_EVERY, _ROWS_FOR_KEY * len(self.store))
        values_kept = self._kept
        if values_kept is None or self._counts_only:
            return
        store, dirty_tracker = self.store, self.store.dirty_tracker
        for end, pane in self._panes.items():
            before = self._before.setdefault(end, {})
            for key, flat in pane.items():
                if len(flat) >= LONG * len(values_kept.values):
                    if dirty_tracker.is_tracking and key not in dirty_tracker.keys:
                        store.touch(key)
                    compact = before.get(key) or Compact(len(values_kept.values))
                    try:
                        compact.take(flat, values_kept)
                    except Exception:  # noqa: BLE001  values of users may raise anything
                        self._compact_at = maxsize
                        return
                    before[key] = compact
                    flat.clear()

    def _plain(self, state: Any, compact: Compact | None) -> Any:
        if self._kept is None:
            return self._aggregator.to_plain(state)
        if self._counts_only:
            return state
        width = len(self._kept.values)
        columns = [state[number::width] for number in range(width)]
        return columns, None if compact is None else compact.plain

    def _restored(self, plain: Any) -> tuple[Any, Compact | None]:
        if self._kept is None:
            return self._aggregator.from_plain(plain), None
        if self._counts_only:
            return plain, None
        columns, compact = plain
        flat = [value for values in zip(*columns, strict=True) for value in values]
        if compact is None:
            return flat, None
        made = Compact(len(self._kept.values))
        made.count, made.sums, made.extremes = compact[0], compact[1], list(compact[2])
        return flat, made


def kept_state_type(values: Sequence[Any]) -> Any:
    """Return the type of the values that a window keeps for built-in aggregates; counts alone are ints."""
    if not values:
        return int
    columns = generic(tuple, *[generic(list, kind) for kind in values])
    compact = generic(tuple, int, list[list[Any]], columns)
    return generic(tuple, columns, compact | None)
