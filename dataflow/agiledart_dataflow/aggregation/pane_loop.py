"""Generator of the loop that puts rows into the panes of a window.

The loop remembers the panes of the present time while the time stays between two bounds. So the usual row costs its
key, its values and an append. Errors find the record by the names `row` and `self`. Where an error policy drops rows,
every call that can raise stands before the first change of a pane, so that such a row is in no window.
"""

from collections.abc import Callable, Sequence
from typing import Any

from agiledart_dataflow.operators.loop_text import BoundNames

Fill = Callable[[Any, list[Any], list[Any]], None]
"""fill(self, rows, order)."""


def fill_loop(
    *,
    value_count: int | None,
    single: bool,
    positions: bool,
    inline_key: Any,
    inline_values: list[Any],
    checks: Sequence[str] | None = None,
    tracks_keys: bool = False,
) -> Any:
    """Return the loop as (text, further names that it uses).

    Args:
        value_count: number of values kept of a row: 0 only counts, None calls the user's aggregator.
        single: each time lies in one window (tumbling).
        positions: a position goes with each row, else its event time.
        inline_key, inline_values: objects with `python`, or None where a function is called.
        checks: rows that raise go to `self.refuse`. For each value, an expression that also raises where no result
            could be made of it. None: an error ends the loop.
        tracks_keys: the loop reports a key before its first change since a barrier.
    """
    names = BoundNames()
    key = "key_of(row)" if inline_key is None else inline_key.python("row", names)
    put: list[str] = []
    for number, inline in enumerate(inline_values):
        put.append(f"v{number} = {f'value{number}(row)' if inline is None else inline.python('row', names)}")
    put.append(f"k = {key}")
    at = "p" if positions else "t"
    if checks is not None:
        put = _guarded([*put, "hash(k)", *checks], at)
    if tracks_keys:
        put.append("if k not in dirty_keys: touch(k)")
    if checks is not None and value_count is None:
        put += _guarded([_made(single=single, positions=positions)], at)
    nested = "" if single else " "
    loop = [] if single else ["for pane, firsts in panes:" if positions else "for pane in panes:"]
    first = "firsts[k] = p; " if positions else ""
    if value_count:
        appends = "; ".join(f"s.append(v{number})" for number in range(value_count))
        loop.append(f"{nested}if k in pane: s = pane[k]; {appends}")
        loop.append(f"{nested}else: {first}pane[k] = [{', '.join(f'v{number}' for number in range(value_count))}]")
    elif value_count == 0 and positions:
        loop.append(f"{nested}if k in pane: pane[k] += 1")
        loop.append(f"{nested}else: firsts[k] = p; pane[k] = 1")
    elif value_count == 0:
        loop.append(f"{nested}pane[k] += 1")
    else:
        if positions:
            loop.append(f"{nested}if k not in pane: firsts[k] = p")
        made = "add(pane[k] if k in pane else create(), row)" if checks is None else "made" if single else "next(made)"
        loop.append(f"{nested}pane[k] = {made}")
    current = ("pane, firsts" if positions else "pane") if single else "panes"
    values = "".join(f"value{number}, " for number in range(value_count or 0))
    parameters = f"key_of, add, create, {values}{''.join(f'{name}, ' for name in names.values)}"
    text = "\n".join(
        [
            f"def make({parameters}):",
            " def fill(self, rows, order):",
            f"  {current}, lo, hi = self.current",
            *(["  dirty_keys, touch = self.store.dirty_tracker.keys, self.store.touch"] if tracks_keys else []),
            f"  for row, {'p' if positions else 't'} in zip(rows, order):",
            *(["   t = p[0]"] if positions else []),
            "   if not lo <= t < hi:",
            f"    {current}, lo, hi = self.panes_at(t)",
            *(f"   {line}" for line in (*put, *loop)),
            f"  self.current = {current}, lo, hi",
            " return fill",
        ]
    )
    return text, names.values


def _made(*, single: bool, positions: bool) -> str:
    """Return the line by which a user's aggregator adds a row, before any pane has the result."""
    add = "add(pane[k] if k in pane else create(), row)"
    target = "pane, _" if positions else "pane"
    return f"made = {add}" if single else f"made = iter([{add} for {target} in panes])"


def _guarded(lines: list[str], at: str) -> list[str]:
    """Return lines that may raise, with their error handler."""
    return [
        "try:",
        *(f" {line}" for line in lines),
        f"except Exception as error: self.refuse(error, row, {at}); continue",
    ]
