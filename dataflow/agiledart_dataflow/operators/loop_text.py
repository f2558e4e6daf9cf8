"""Generator of the loop through which rows pass a chain of stateless steps.

Measured against an object or a callback per step, only one generated loop per stage stays within 10 % of a plain Python
loop, from batches of ten rows on. The loop calls functions, contains expressions as text, and has `try` only around
steps whose error policy needs it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.user_code.error_policy import ErrorPolicy


class BoundNames:
    """Names in generated text for values that it uses: constants and helper functions."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._known: dict[int, str] = {}

    def bind(self, value: Any) -> str:
        """Return the name under which the text finds this very object."""
        name = self._known.get(id(value))
        if name is None:
            name = self._known[id(value)] = f"k{len(self.values)}"
            self.values[name] = value
        return name


class Inline(Protocol):
    """Expression that can stand in the loop as text."""

    def python(self, row: str, names: BoundNames) -> str:
        """Return a Python expression over the variable `row`, in one line."""
        ...


RowKind = Literal["map", "filter", "optional", "many", "batch"]
"""Result of one row; `optional` is a `many` with at most one result."""


@dataclass(frozen=True)
class RowStep:
    """One stateless step.

    Args:
        kind: `optional` is a `flat_map` that returns a row or None, `many` one that returns several; `batch` is a step
            that takes columns only.
        function: row → what the kind says; None for a step that has only `inline` or `vector`.
        policy: reaction when it raises.
        inline: the same as text.
        vector: the same over columns, `VectorWhere` or `VectorBuild`.
        enters: type of the rows that enter it; needed where rows must become columns.
    """

    name: str
    kind: RowKind
    function: Callable[[Any], Any] | None = None
    policy: ErrorPolicy = "fail"
    inline: Inline | None = None
    vector: Any = None
    enters: Any = field(default=None, compare=False)

    @property
    def takes_rows(self) -> bool:
        """Report whether the step can stand in a loop over rows."""
        return self.kind != "batch" and (self.function is not None or self.inline is not None)


class LoopLine(NamedTuple):
    """Line of the text that can raise.

    Attributes:
        step: number of the step.
        record: variable that holds its record.
        many: number of the outermost step over whose results the line loops; None outside such loops.
    """

    step: int
    record: str = "x"
    many: int | None = None

    @property
    def origin(self) -> str:
        """Return the variable of the record that the outermost loop over several results works on; empty outside."""
        return "" if self.many is None else f"x{self.many}"

    @property
    def progress(self) -> tuple[str, ...]:
        """Return the variables that change only at the end of such a loop; all others may change with every result."""
        return () if self.many is None else (f"d{self.many}", f"e{self.many}")


@dataclass
class GeneratedLoop:
    """Generated text of a loop.

    Attributes:
        text: defines `make(**values)`, which returns `run(rows, order)`.
        lines: the lines of the text that can raise, by number.
        names: values that the text uses beside functions and counts.
    """

    text: str
    lines: Mapping[int, LoopLine]
    names: Mapping[str, Any]


class _LoopWriter:
    """Collector of the lines of the loop's body."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, LoopLine]] = []
        self.tails: list[str] = []
        self.indent = "   "
        self.many: int | None = None

    def put(self, line: str, step: int, record: str = "x") -> None:
        self.lines.append((self.indent + line, LoopLine(step, record, self.many)))

    def end(self, step: int) -> None:
        """Write the ends of the loops over several results, the innermost first."""
        self.lines += [(tail, LoopLine(step, "x", self.many)) for tail in reversed(self.tails)]

    def guarded(self, line: str, step: int, policy: ErrorPolicy, at: str) -> None:
        """Write a line that runs user code; when it raises, the policy decides."""
        if policy == "fail":
            self.put(line, step)
            return
        self.put(f"try: {line}", step)
        self.put(f"except Exception as error: b{step} += 1; h{step}(x, {at}, error); continue", step)


def fused_loop_of(steps: Sequence[RowStep]) -> GeneratedLoop:
    """Return the loop for a chain of steps with the sink behind it, for rows that carry nothing.

    `run(rows, size, write)` takes the rows `size` at a time: it writes the results of one batch before it begins the
    next. It returns the number of rows written. Each step is the same text as in `loop_of`, but one head and one count
    serve many batches: at ten rows a batch these cost as much as the steps of one row.
    """
    names = BoundNames()
    writer = _LoopWriter()
    writer.indent = "    "
    last = len(steps) - 1
    for i, step in enumerate(steps):
        _put_step(writer, i, step, names, "rows", "None")
    writer.put("push(x)", last)
    writer.end(last)
    head = [
        _make_line(steps, names),
        " def run(rows, size, write):",
        f"  {_zeros(steps)}",
        "  for at in range(0, len(rows), size):",
        "   out = []; push = out.append",
        "   for x in rows[at : at + size]:",
    ]
    return _loop(head, writer, ["   if out: write(out)", *_counting(steps), "  return n", " return run"], names)


def loop_of(steps: Sequence[RowStep], carries: Carries) -> GeneratedLoop:
    """Return the loop for a chain of steps whose rows go with positions, times or nothing.

    `run` returns the rows and what goes with them. Its closure has `f0…` the functions, `c0…` the counts and `h0…` the
    handlers of steps that go on after an error.
    """
    names = BoundNames()
    moves = any(step.kind != "map" or step.policy != "fail" for step in steps)
    writer = _LoopWriter()
    at = "None" if carries == "rows" else "p"
    paired = carries != "rows" and (moves or any(step.policy != "fail" for step in steps))
    for i, step in enumerate(steps):
        _put_step(writer, i, step, names, carries, at)
    last = len(steps) - 1
    writer.put("push(x)" + ("; put(p)" if paired else ""), last)
    writer.end(last)
    head = [
        _make_line(steps, names),
        " def run(rows, order):",
        f"  out = []; at = {'[]' if paired else 'order'}; push = out.append" + ("; put = at.append" if paired else ""),
        f"  {_zeros(steps)}",
        "  for x, p in zip(rows, order):" if paired else "  for x in rows:",
    ]
    return _loop(head, writer, [*_counting(steps), "  return out, at", " return run"], names)


def _make_line(steps: Sequence[RowStep], names: BoundNames) -> str:
    parameters = [*(f"{letter}{i}" for letter in "fch" for i in range(len(steps))), *names.values]
    return f"def make({', '.join(parameters)}):"


def _zeros(steps: Sequence[RowStep]) -> str:
    """Return the line that sets the counts of dropped, expanded and bad rows to 0 in every step."""
    return f"{' = '.join(f'd{i} = e{i} = b{i}' for i in range(len(steps)))} = 0"


def _loop(head: list[str], writer: _LoopWriter, tail: list[str], names: BoundNames) -> GeneratedLoop:
    text = "\n".join([*head, *[text for text, _ in writer.lines], *tail])
    return GeneratedLoop(text, dict(enumerate((line for _, line in writer.lines), len(head) + 1)), names.values)


def _put_step(writer: _LoopWriter, i: int, step: RowStep, names: BoundNames, carries: Carries, at: str) -> None:
    call = f"f{i}(x)" if step.inline is None else step.inline.python("x", names)
    if step.kind == "map":
        writer.guarded(f"x = {call}", i, step.policy, at)
    elif step.kind == "filter":
        if step.policy == "fail":
            writer.put(f"if not {call if step.inline is None else f'({call})'}: d{i} += 1; continue", i)
        else:
            writer.guarded(f"y = {call}", i, step.policy, at)
            writer.put(f"if not y: d{i} += 1; continue", i)
    elif step.kind == "optional":
        writer.guarded(f"y = {call}", i, step.policy, at)
        writer.put(f"if y is None: d{i} += 1; continue", i)
        writer.put("x = y", i)
    else:
        _put_many(writer, i, step, carries, at)


def _put_many(writer: _LoopWriter, i: int, step: RowStep, carries: Carries, at: str) -> None:
    """Write a step that makes several rows of one: a loop of its own around all that follows."""
    rows = f"f{i}(x{i})"
    if step.policy != "fail":
        writer.guarded(f"y{i} = list(f{i}(x))", i, step.policy, at)
        rows = f"y{i}"
    keep = f"; p{i} = p" if carries == "positions" else ""
    writer.put(f"x{i} = x; n{i} = -1{keep}", i)
    writer.many = i if writer.many is None else writer.many
    writer.put(f"for n{i}, x in enumerate({rows}):", i, f"x{i}")
    writer.tails.append(f"{writer.indent}e{i} += n{i} + 1; d{i} += n{i} < 0")
    writer.indent += " "
    if carries == "positions":
        writer.put(f"p = p{i} + (n{i},)", i, f"x{i}")


def _counting(steps: Sequence[RowStep]) -> list[str]:
    """Return the lines that add to the steps' counts once per batch; `n` is the number of rows that enter a step."""
    lines = ["  n = len(rows)"]
    for i, step in enumerate(steps):
        lines.append(f"  c{i}.rows_in += n")
        if step.policy != "fail":
            lines.append(f"  c{i}.{'skipped' if step.policy == 'skip' else 'dead_letters'} += b{i}")
        if step.kind != "map":
            lines.append(f"  c{i}.dropped += d{i}")
        if step.kind == "many":
            lines.append(f"  n = e{i}")
        elif step.kind != "map" or step.policy != "fail":
            lines.append(f"  n -= d{i} + b{i}")
        lines.append(f"  c{i}.rows_out += n")
    return lines
