"""Key groups of windows with named results, whose rows come as rows and as columns, go on elsewhere in whatever form they are."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import col
from agiledart_dataflow.aggregation import named_panes, panes, vector_panes
from agiledart_dataflow.aggregation.named_panes import NamedPanes
from agiledart_dataflow.data.batch import as_rows, listed
from agiledart_dataflow.data.partitioning import key_group
from agiledart_dataflow.data.position import final_watermark
from agiledart_dataflow.runtime.program import Program
from agiledart_dataflow.state.key_groups import snapshot_of
from agiledart_kernel.limits import KEY_GROUPS
from agiledart_kernel.randomness import RandomStream
from tests.properties.test_columnar_steps import Trip, fresh, opened
from tests.properties.test_window_forms import RESULTS, WINDOWS, program_of, tables


class Part(NamedTuple):
    """How many rows come at once, in which form, and whether all groups are requested then."""

    size: int
    in_columns: bool
    is_asked: bool


PARTS = st.lists(st.builds(Part, st.integers(1, 9), st.booleans(), st.booleans()), min_size=1, max_size=8)
KEYS = {"one": [col("zone")], "two": [col("zone"), col("vehicle")]}


@pytest.fixture(autouse=True, scope="module")
def short_lists() -> Iterator[None]:
    """State of windows is compacted and folded soon, and few rows are worth columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panes, "COMPACT_EVERY", 3)
        patch.setattr(panes, "LONG", 2)
        patch.setattr(named_panes, "_WORTH_COLUMNS", 4)
        patch.setattr(vector_panes, "FOLD_AT", 5)
        patch.setattr(vector_panes.OpenVectorWindow, "__init__", opened(5))
        yield


def window_of(program: Program) -> NamedPanes:
    """A new operator."""
    operator = program.operator(1)
    assert isinstance(operator, NamedPanes)
    assert operator.takes_columns
    return operator


def fed(operator: NamedPanes, rows: list[Trip], part: Part, watermark: int | None) -> list[tuple[int, str]]:
    """(time, row) of the output for these rows, and the watermark; None: the end of the input."""
    times = [row.at for row in rows]
    held: Any = fresh(rows) if part.in_columns and rows else rows
    order: Any = np.array(times, np.int64) if part.in_columns and rows else times
    out, at = operator.run_batch(held, order, final_watermark(None) if watermark is None else (watermark,))
    if part.is_asked:
        snapshot_of(operator)
    return [(time, repr(row)) for time, row in zip(listed(at) or [], as_rows(out), strict=True)]


def cut_up(rows: list[Trip], parts: list[Part]) -> list[tuple[list[Trip], Part, int | None]]:
    """The calls of an operator."""
    calls: list[tuple[list[Trip], Part, int | None]] = []
    place = 0
    while place < len(rows):
        part = parts[len(calls) % len(parts)]
        calls.append((rows[place : place + part.size], part, rows[min(len(rows), place + part.size) - 1].at))
        place += part.size
    return [*calls, ([], parts[0], None)]


@settings(deadline=None, max_examples=150)
@given(
    tables(st.floats(-5, 5)),
    PARTS,
    st.sampled_from(sorted(KEYS)),
    st.sampled_from(sorted(WINDOWS)),
    st.sampled_from(sorted(set(RESULTS) - {"guarded"})),
    st.integers(0, 20),
    st.integers(0, 1_000_000),
)
def test_groups_continue_elsewhere_in_either_form(
    rows: list[Trip], parts: list[Part], keys: str, window: str, results: str, share: int, seed: int
) -> None:
    random = RandomStream(seed, "groups")
    program = program_of(KEYS[keys], window, results, "fail")
    whole, before, again, *two = (window_of(program) for _ in range(5))
    calls = cut_up(rows, parts)
    cut = share * len(calls) // 20
    wanted = [line for call in calls for line in fed(whole, *call)]
    one_by_one = [line for call in calls[:cut] for line in fed(before, *call)]
    divided = list(one_by_one)
    owners = [random.index(2) for _ in range(KEY_GROUPS)]
    for group in sorted(before.groups(), key=lambda group: random.uniform()):
        for other in (again, two[owners[group]]):
            other.restore_group(group, before.snapshot_group(group))
    assert snapshot_of(again) == snapshot_of(before)
    key_of = program.steps(1)[0].key_functions[0]
    for number, (some, part, watermark) in enumerate(calls[cut:]):
        one_by_one += fed(again, some, part, watermark)
        for index, other in enumerate(two):
            own = [row for row in some if owners[key_group(key_of(row))] == index]
            divided += fed(other, own, part._replace(in_columns=(number + index) % 3 > 0), watermark)
        for group in [group for other in two for group in other.groups() if not random.index(3)]:
            origin, owners[group] = two[owners[group]], 1 - owners[group]
            two[owners[group]].restore_group(group, origin.snapshot_group(group))
            origin.drop_group(group)
    assert one_by_one == wanted
    assert sorted(divided) == sorted(wanted)
