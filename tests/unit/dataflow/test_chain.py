"""The generated loop: its effect on rows, positions and counts, and the step that an error names."""

from collections.abc import Iterator
from typing import Any

import pytest

from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.operators.chain import RowChain
from agiledart_dataflow.operators.loop_text import BoundNames, RowStep
from agiledart_dataflow.user_code.error_policy import ErrorPolicy
from agiledart_kernel.errors import UserCodeError


def positions(count: int) -> list[Position]:
    """Positions of so many records."""
    return [(i, 1, 0, i) for i in range(count)]


def repeat(number: int) -> Iterator[int]:
    """0 … number-1."""
    yield from range(number)


CHAIN = [
    RowStep("plus", "map", lambda x: x + 1),
    RowStep("even", "filter", lambda x: x % 2 == 0),
    RowStep("small", "optional", lambda x: x if x < 6 else None),
    RowStep("repeat", "many", repeat),
    RowStep("minus", "map", lambda x: -x),
    RowStep("again", "many", lambda x: [x] * -x),
]


def test_the_loop_gives_the_same_result_as_the_steps() -> None:
    rows, at = RowChain(CHAIN).run(list(range(9)), positions(9))
    expected = []
    for i in range(9):
        if (x := i + 1) % 2 == 0 and x < 6:
            for n in range(x):
                expected += [(-n, (i, 1, 0, i, n, k)) for k in range(n)]
    assert list(zip(rows, at, strict=True)) == expected
    assert at == sorted(at)


def test_every_row_in_is_out_or_dropped() -> None:
    chain = RowChain(CHAIN)
    chain.run(list(range(9)), positions(9))
    chain.run([], [])
    assert chain.counts == {
        "plus": StepCounts(9, 9, 0),
        "even": StepCounts(9, 4, 5),
        "small": StepCounts(4, 2, 2),
        "repeat": StepCounts(2, 6, 0),
        "minus": StepCounts(6, 6, 0),
        "again": StepCounts(6, 7, 2),
    }


def test_maps_alone_keep_the_positions_as_they_are() -> None:
    at = positions(3)
    assert RowChain(CHAIN[:1]).run([1, 2, 3], at) == ([2, 3, 4], at)


def bad_map(x: int) -> int:
    """Fails for 3."""
    return 1 // (x - 3)


def bad_many(x: int) -> Iterator[int]:
    """Fails after the first result of 3."""
    yield x
    yield 1 // (x - 3)


class Unprintable:
    """A record whose repr raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("steps", "rows", "words"),
    [
        (
            [RowStep("ok", "map", lambda x: x), RowStep("bad", "map", bad_map)],
            [1, 3],
            ["in bad", "ZeroDivision", "record 3"],
        ),
        ([RowStep("bad", "filter", bad_map)], [3], ["in bad", "record 3"]),
        ([RowStep("bad", "optional", bad_map)], [3], ["in bad", "record 3"]),
        ([RowStep("bad", "many", bad_many)], [2, 3], ["in bad", "ZeroDivision", "record 3"]),
        ([RowStep("none", "many", lambda x: None)], [5], ["in none", "TypeError", "record 5"]),
        ([RowStep("key", "map", lambda x: dict[str, int]()["fare"])], [5], ["in key", "KeyError: 'fare'"]),
        ([RowStep("odd", "map", lambda x: x.y)], [Unprintable()], ["in odd", "Unprintable whose repr raises"]),
        ([RowStep("long", "map", lambda x: 1 // 0)], ["x" * 10_000], ["in long", "xxx…"]),
    ],
)
def test_an_error_names_step_line_and_record(steps: list[RowStep], rows: list[object], words: list[str]) -> None:
    with pytest.raises(UserCodeError) as error:
        RowChain(steps).run(rows, positions(len(rows)))
    text = str(error.value)
    assert text.startswith("test_chain.py:")
    assert all(word in text for word in words), text
    assert len(text) < 1_000
    assert error.value.__cause__ is not None


def test_the_error_line_is_that_of_the_users_function() -> None:
    with pytest.raises(UserCodeError, match=rf"^test_chain\.py:{bad_map.__code__.co_firstlineno + 2} in bad"):
        RowChain([RowStep("bad", "map", bad_map)]).run([3], positions(1))


def test_without_positions_nothing_else_is_carried_with_rows() -> None:
    rows, at = RowChain(CHAIN, carries="rows").run(list(range(9)), None)
    assert at is None
    assert rows == RowChain(CHAIN).run(list(range(9)), positions(9))[0]


def test_event_times_are_carried_to_the_rows_a_row_becomes() -> None:
    rows, at = RowChain(CHAIN, carries="times").run(list(range(9)), [10 * n for n in range(9)])
    with_positions = RowChain(CHAIN).run(list(range(9)), positions(9))
    assert rows == with_positions[0]
    assert at == [10 * position[0] for position in with_positions[1]]


@pytest.mark.parametrize("carries", ["rows", "times", "positions"])
@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_an_error_policy_drops_rows_and_reports_which(policy: ErrorPolicy, carries: Carries) -> None:
    told: list[tuple[str, object, object, str]] = []
    steps: list[RowStep] = [
        RowStep("inverse", "map", lambda x: 12 // x, policy=policy),
        RowStep("not-six", "filter", lambda x: 1 // (x - 6) != 5, policy=policy),
        RowStep("some", "optional", lambda x: None if x == 4 else [1, 2][x % 2] * x, policy=policy),
        RowStep("many", "many", lambda x: iter([x, 1 // (x - 3)]), policy=policy),
    ]
    chain = RowChain(
        steps,
        carries=carries,
        on_error=lambda step, row, at, error: told.append((step.name, row, at, type(error).__name__)),
    )
    given: dict[str, Any] = {"rows": None, "times": list(range(5)), "positions": positions(5)}
    rows, at = chain.run([0, 1, 2, 3, 12], given[carries])
    # 0 raises in inverse; 12 goes through; 6 raises in not-six; 4 is None; 1 goes through
    assert rows == [12, 0, 2, -1]
    where: Any = {"rows": [None, None], "times": [0, 2], "positions": [(0, 1, 0, 0), (2, 1, 0, 2)]}[carries]
    assert told == [("inverse", 0, where[0], "ZeroDivisionError"), ("not-six", 6, where[1], "ZeroDivisionError")]
    field = "skipped" if policy == "skip" else "dead_letters"
    assert [getattr(chain.counts[name], field) for name in ("inverse", "not-six", "some", "many")] == [1, 1, 0, 0]
    for step, counts in chain.counts.items():
        let_go = counts.dropped + counts.skipped + counts.dead_letters
        assert step == "many" or counts.rows_in == counts.rows_out + let_go
    if carries != "rows":
        assert len(at) == len(rows)


def test_an_expression_is_inlined_in_the_loop() -> None:
    class Plus:
        def __init__(self, number: object) -> None:
            self.number = number

        def python(self, row: str, names: BoundNames) -> str:
            return f"{row} + {names.bind(self.number)}"

    class Above(Plus):
        def python(self, row: str, names: BoundNames) -> str:
            return f"{row} > {names.bind(self.number)}"

    steps = [RowStep("plus", "map", inline=Plus(10)), RowStep("above", "filter", inline=Above(11))]
    assert RowChain(steps, carries="rows").run([0, 1, 2, 3], None) == ([12, 13], None)
    with pytest.raises(UserCodeError, match="in plus: TypeError"):
        RowChain(steps, carries="rows").run([None], None)
