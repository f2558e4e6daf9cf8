"""Generator of the loop that keeps running values: one call a batch, over rows or over lists of values.

Both forms have the same lines between reading a row's values and putting out its results, so both add the same numbers
in the same order. Every call that can raise stands before the first change of a key's state.
"""

from collections.abc import Callable, Sequence
from typing import Any

from agiledart_dataflow.aggregation.pane_values import KeptValues
from agiledart_dataflow.operators.loop_text import BoundNames

OverRows = Callable[[Any, Sequence[Any]], list[Any]]
"""run(self, rows) → rows; errors find the record by the names `self` and `row`."""

_ZERO = {"float": " + 0.0", "int": " + 0"}

OverLists = Callable[..., None]
"""run(keys, values of each kept value …, list to append to for each result …)."""


def state_names(values_kept: KeptValues) -> tuple[str, ...]:
    """Return the names of a key's state, in order: `n` rows, `s0` sum, `l0` least, `g0` greatest of value 0."""
    wanted = {name for part in values_kept.parts for name in _names_of(part.kind, part.value)}
    names = ["n", *(f"{letter}{number}" for number in range(len(values_kept.values)) for letter in "slg")]
    return tuple(name for name in names if name in wanted)


class RunningLoopText:
    """Lines of one step.

    Args:
        values_kept: values and results.
        kinds: kinds of the values: "int", "float", "time" or "span".
        saves: the loop must report each change to the store.

    Attributes:
        state: names of the state (`state_names`).
        results: an expression over these for each result.
    """

    def __init__(self, values_kept: KeptValues, kinds: Sequence[str], *, saves: bool) -> None:
        self._kinds = kinds
        self._saves = saves
        self.state = state_names(values_kept)
        self.results = tuple(_result_of(part.kind, part.value) for part in values_kept.parts)

    def over_rows(self, key: str, values: Sequence[str], built: str, names: BoundNames, *, guarded: bool) -> str:
        """Return the text of `make(get, save, Entry, ours, key_of, …names)`, which returns an `OverRows`.

        Args:
            key, values: expressions over `row`.
            built: the new row as an expression over `row` and the results.
            names: names that the expressions use.
            guarded: rows that raise go to `self.refuse(error, row, number)`.
        """
        lines = [f"k = {key}", *(f"v{number} = {value}" for number, value in enumerate(values)), *self._step(built)]
        head = " for row in rows:"
        if guarded:
            head = " for number, row in enumerate(rows):"
            refuse = ["except ours: raise", "except Exception as error: self.refuse(error, row, number); continue"]
            lines = ["try:", *(f" {line}" for line in lines), *refuse]
        body = [*lines, *self._kept, "push(made)"]
        parameters = ", ".join(("get", "save", "Entry", "ours", "key_of", *names.values))
        return _text(parameters, "self, rows", ["out = []; push = out.append", head[1:]], body, "return out")

    def over_lists(self) -> str:
        """Return the text of `make(get, save, Entry)`, which returns an `OverLists`."""
        values = [f"v{number}" for number in range(len(self._kinds))]
        outs = [f"out{number}" for number in range(len(self.results))]
        lists = ", ".join(("keys", *(f"{value}s" for value in values)))
        pushes = "; ".join(f"push{number} = {out}.append" for number, out in enumerate(outs))
        results = ", ".join(f"r{number}" for number in range(len(outs)))
        rows = f"for {', '.join(('k', *values))} in zip({lists}):" if values else "for k in keys:"
        push = "; ".join(f"push{number}(r{number})" for number in range(len(outs)))
        body = [*self._step(f"({', '.join(self.results)},)", f"{results},"), *self._kept, push]
        return _text("get, save, Entry", f"{lists}, {', '.join(outs)}", [pushes, rows], body, "")

    def _step(self, built: str, into: str = "made") -> list[str]:
        """Return the lines from a row's values to its results; they change nothing that is kept."""
        state = f"{', '.join(self.state)}," if len(self.state) == 1 else ", ".join(self.state)
        lines = ["e = get(k)"]
        fresh = []
        exact = {}
        for name in self.state:
            number = name[1:]
            is_float = name != "n" and self._kinds[int(number)] == "float"
            if name == "n" or name[0] == "s":
                fresh.append(f"{name} = {'0.0' if is_float else '0'}")
                continue
            # An int among floats becomes a float, -0.0 becomes 0.0, a bool among ints becomes an int: a kept value has
            # its type.
            exact[number] = f"w{number} = v{number}{_ZERO.get(self._kinds[int(number)], '')}"
            fresh.append(f"{name} = w{number}")
        lines += [*exact.values(), f"if e is None: {'; '.join(fresh)}", f"else: {state} = e.state"]
        for name in self.state:
            number = name[1:]
            if name == "n":
                lines.append("n += 1")
            elif name[0] == "s":
                lines.append(f"{name} += v{number}")
            else:
                no_number = f" or w{number} != w{number}" if self._kinds[int(number)] == "float" else ""
                sign = "<" if name[0] == "l" else ">"
                lines.append(f"if w{number} {sign} {name}{no_number}: {name} = w{number}")
        return [*lines, f"{into} = {built}"]

    @property
    def _kept(self) -> list[str]:
        """Return the lines that keep a key's new state."""
        state = f"({', '.join(self.state)},)"
        new = "if e is None: e = Entry(); " + ("" if self._saves else "save(k, e)")
        return [new.rstrip("; "), f"e.state = {state}", *(["save(k, e)"] if self._saves else [])]


def _names_of(kind: str, number: int) -> tuple[str, ...]:
    """Return the names of the state that a result needs."""
    if kind == "count":
        return ("n",)
    if kind == "mean":
        return ("n", f"s{number}")
    return ({"sum": "s", "least": "l", "greatest": "g"}[kind] + str(number),)


def _result_of(kind: str, number: int) -> str:
    names = _names_of(kind, number)
    return f"s{number} / n" if kind == "mean" else names[0]


def _text(parameters: str, arguments: str, before: list[str], body: list[str], after: str) -> str:
    return "\n".join(
        [
            f"def make({parameters}):",
            f" def run({arguments}):",
            *(f"  {line}" for line in before),
            *(f"   {line}" for line in body),
            *([f"  {after}"] if after else []),
            " return run",
        ]
    )
