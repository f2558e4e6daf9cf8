"""Every operator of the table against its slow reference: any parallelism, any schedule, any disorder within tolerance."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agiledart import Topology, collect
from agiledart.testing import run_local
from agiledart_dataflow.state.entries import EntryCodec
from agiledart_dataflow.state.store import KeyedStore
from agiledart_executor.state.sqlite_store import SqliteStore
from agiledart_kernel.randomness import RandomStream
from tests.conformance.operator_cases import CASES, Case, ms
from tests.reference.inline_host import InlineHost
from tests.reference.rows import Row, placed

KEYS = ["a", "b", "ä", ""]


def many_rows(seed: int, count: int, span: int) -> list[Row]:
    """Rows that meet: Hypothesis alone seldom draws long lists."""
    random = RandomStream(seed, "rows")
    weights = (0.1, 0.2, 0.3, 1e16, -1e16, 1e-9)
    return [
        Row(random.index(span), random.choice(KEYS[:2]), random.index(7) - 3, random.choice(weights), random.index(2))
        for _ in range(count)
    ]


FEW_ROWS = st.lists(
    st.builds(
        Row,
        at=st.integers(0, 40),
        key=st.sampled_from(KEYS),
        value=st.integers(-3, 3),
        weight=st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 1e-9]),
        side=st.integers(0, 1),
    ),
    max_size=40,
)
ROWS = st.one_of(FEW_ROWS, st.builds(many_rows, st.integers(0, 1_000_000), st.integers(20, 40), st.integers(5, 60)))
SCHEDULES = st.one_of(st.none(), st.integers(0, 1_000_000))
PARALLELISM = st.integers(1, 4)


def topology_of(case: Case, rows: Sequence[Row], max_out_of_order: int = 0) -> Topology:
    """The case's topology over these rows, each source reading its own in their order."""
    topology = Topology("conformance")
    streams = [
        topology.source(
            name,
            [row for row in rows if row.side == side],
            rows=Row,
            event_time=lambda row: row.at,
            max_out_of_order=ms(max_out_of_order),
        )
        for side, name in enumerate(("left", "right") if case.two else ("left",))
    ]
    built = case.build(streams[0], streams[-1])
    built.sink("out", collect)
    return topology


def used(case: Case, rows: Sequence[Row]) -> list[Row]:
    """The rows that the case's sources read."""
    return [row for row in rows if case.two or not row.side]


def collected(result: Any) -> list[Any]:
    """Rows that reached the sink `out`."""
    return result["out"] if isinstance(result, dict) else result  # type: ignore[no-any-return]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@given(rows=ROWS, parallelism=PARALLELISM, seed=SCHEDULES)
@settings(max_examples=25, deadline=None)
def test_an_operator_equals_its_reference(case: Case, rows: list[Row], parallelism: int, seed: int | None) -> None:
    rows = sorted(rows, key=lambda row: row.at)
    result = run_local(topology_of(case, rows), parallelism=parallelism, schedule_seed=seed)
    assert collected(result) == case.reference(placed(used(case, rows)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@given(rows=ROWS, noise=st.lists(st.integers(0, 6), min_size=40, max_size=40), seed=SCHEDULES)
@settings(max_examples=10, deadline=None)
def test_disorder_within_the_tolerance_changes_nothing(
    case: Case, rows: list[Row], noise: list[int], seed: int | None
) -> None:
    shuffled = [row for _, row in sorted(zip(noise, rows, strict=False), key=lambda pair: pair[0] + pair[1].at)]
    result = run_local(topology_of(case, shuffled, max_out_of_order=6), parallelism=2, schedule_seed=seed)
    assert collected(result) == case.reference(placed(used(case, shuffled)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@given(rows=ROWS, parallelism=PARALLELISM, seed=st.integers(0, 1_000_000))
@settings(max_examples=12, deadline=None)
def test_one_credit_and_restored_instances_change_nothing(
    case: Case, rows: list[Row], parallelism: int, seed: int
) -> None:
    rows = sorted(rows, key=lambda row: row.at)
    host = InlineHost(topology_of(case, rows), parallelism=parallelism, seed=seed, restarts=0.3)
    assert host.run()["out"] == case.reference(placed(used(case, rows)))


KEYED = [case for case in CASES if any(step.state is not None for step in topology_of(case, []).steps)]


@pytest.mark.parametrize("case", KEYED, ids=lambda case: case.name)
@given(rows=ROWS, parallelism=PARALLELISM, seed=st.integers(0, 1_000_000))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_state_on_disk_changes_nothing(
    case: Case, rows: list[Row], parallelism: int, seed: int, tmp_path: Path
) -> None:
    rows = sorted(rows, key=lambda row: row.at)

    made: list[KeyedStore] = []

    def make_store(step: str, codec: EntryCodec) -> KeyedStore:
        made.append(SqliteStore(step, codec, tmp_path, cached_keys=1))
        return made[-1]

    topology = topology_of(case, rows)
    for step in topology.steps:
        if step.state is not None:
            step.state.keep = "disk"
    host = InlineHost(topology, parallelism=parallelism, seed=seed, restarts=0.1, make_store=make_store)
    assert host.run()["out"] == case.reference(placed(used(case, rows)))
    assert made, "nothing was kept on disk"
    for store in made:
        store.close()


def test_absences_that_end_together_are_ordered_by_their_first_rows() -> None:
    case = next(case for case in CASES if case.name == "absence")
    rows = [Row(at=4, key=key, value=-1, weight=0.5, side=0) for key in ("a", "b", "a")]
    result = run_local(topology_of(case, rows))
    assert [match.key for match in collected(result)] == ["a", "b", "a"]
