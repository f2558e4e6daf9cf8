"""A stage gets a new generation in mid-stream, and the results do not change: every operator, any change, any schedule."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agiledart import Topology, col, count, null, tumbling
from agiledart_dataflow.runtime.ledger import audit
from agiledart_kernel.errors import AgileDartError
from agiledart_kernel.randomness import RandomStream
from tests.conformance.operator_cases import CASES, Case, key, ms
from tests.conformance.test_operators import ROWS, many_rows, topology_of, used
from tests.properties.change_mutants import MUTANTS
from tests.reference.changing_host import MOST, ChangingHost
from tests.reference.rows import Row, placed

SEEDS = st.integers(0, 1_000_000)


def hosted(
    topology: Topology, rows: Sequence[Row], seed: int, *, fixed: int = 0, keyed_only: bool = False, **options: Any
) -> ChangingHost:
    """A host of a topology that reads these rows; its stages have limits, or always so many instances."""
    sides = (0, 1) if len(topology.specification().sources) > 1 else (0,)
    limits: dict[str, Any] = {}
    for step in topology.specification().steps:
        if step.traits.stage == "operator" and not step.traits.runs_once and (step.keyed or not keyed_only):
            limits[step.name] = fixed or (1, MOST)
    lines = [[row for row in rows if row.side == side] for side in sides]
    return ChangingHost(topology, lines, parallelism=limits, seed=seed, **options)


def changing(case: Case, rows: Sequence[Row], seed: int, **options: Any) -> ChangingHost:
    """A host for a case."""
    return hosted(topology_of(case, rows), rows, seed, **options)


def by_time(rows: Sequence[Row]) -> list[Row]:
    """As sources read them."""
    return sorted(rows, key=lambda row: row.at)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@given(rows=ROWS.map(by_time), seed=SEEDS, fixed=st.sampled_from((0, 0, 2)), window=st.integers(1, 3))
@settings(max_examples=8, deadline=None)
def test_changes_do_not_alter_results(case: Case, rows: list[Row], seed: int, fixed: int, window: int) -> None:
    host = changing(case, rows, seed, fixed=fixed, window=window)
    assert host.run()["out"] == case.reference(placed(used(case, rows)))
    assert audit(host.program.specification, host.statistics(), host.program.plan) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@example(rows=by_time(many_rows(319, 40, 7)), seed=22_853, lives=1)
@given(rows=ROWS.map(by_time), seed=SEEDS, lives=st.integers(1, 2))
@settings(max_examples=4, deadline=None)
def test_rollbacks_beside_changes_do_not_alter_results(case: Case, rows: list[Row], seed: int, lives: int) -> None:
    host = changing(case, rows, seed, lives=lives)
    assert host.run()["out"] == case.reference(placed(used(case, rows)))


@pytest.mark.parametrize("case", [case for case in CASES if case.two], ids=lambda case: case.name)
@example(rows=by_time(many_rows(0, 20, 5)), seed=123_190, lives=1, changes=1)  # an input had ended before the barrier
@given(rows=ROWS.map(by_time), seed=SEEDS, lives=st.integers(0, 2), changes=st.integers(0, 2))
@settings(max_examples=12, deadline=None)
def test_epochs_and_changes_go_on_while_one_source_is_silent(
    case: Case, rows: list[Row], seed: int, lives: int, changes: int
) -> None:
    host = changing(case, rows, seed, lives=lives, changes=changes, silent_epochs=6)
    assert host.run()["out"] == case.reference(placed(used(case, rows)))
    assert host.committed.epoch >= 6
    assert audit(host.program.specification, host.statistics(), host.program.plan) == []


def in_order_of_arrival(rows: Sequence[Row]) -> Topology:
    """Nothing in its results shows an order, so no positions are carried: barriers hold channels back."""
    topology = Topology("arrivals")
    left, right = (
        topology.source(name, [row for row in rows if row.side == side], rows=Row, event_time=lambda row: row.at)
        for side, name in enumerate(("left", "right"))
    )
    both = left.map(lambda row: row, "same", returns=Row).union(right, name="both")
    both.key_by(col("key")).running("numbers", rows=count()).sink("seen", null())
    both.key_by(key).window(tumbling(ms(6))).count("counts").sink("panes", null())
    return topology


def arrivals(seed: int, **options: Any) -> tuple[ChangingHost, list[Row], bool]:
    """Return a host for rows in order of arrival, the rows, and whether only keyed stages have several instances."""
    random = RandomStream(seed, "rows")
    drawn = by_time(many_rows(random.index(1_000), random.choice((10, 40, 60)), random.choice((5, 20, 60))))
    rows = [row._replace(value=number) for number, row in enumerate(drawn)]
    keyed_only = bool(random.index(2))
    return hosted(in_order_of_arrival(rows), rows, seed, keyed_only=keyed_only, **options), rows, keyed_only


def check_arrivals(seed: int, **options: Any) -> ChangingHost:
    """Each row once, each sender's rows of a key in order, the state of each key without a gap."""
    host, rows, keyed_only = arrivals(seed, **options)
    seen, panes = host.observed("seen"), host.observed("panes")
    host.run()
    assert Counter(Row(*one[:-1]) for one in seen) == Counter(rows)
    counts: dict[str, list[int]] = defaultdict(list)
    last: dict[tuple[str, int], int] = {}
    for *cells, number in seen:
        row = Row(*cells)
        name = row.key
        counts[name].append(number)
        if keyed_only:  # else a sender's batches take turns among several instances
            assert last.get((name, row.side), -1) < row.value, "rows of one sender change their order"
        last[name, row.side] = row.value
    assert all(found == list(range(1, len(found) + 1)) for found in counts.values())
    windows = Counter((row.key, row.at // 6 * 6) for row in rows)
    assert {(pane.key, pane.start_ms): pane.value for pane in panes} == windows
    assert len(panes) == len(windows)
    assert audit(host.program.specification, host.statistics(), host.program.plan) == []
    return host


@given(seed=SEEDS, window=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_changes_do_not_alter_results_in_order_of_arrival(seed: int, window: int) -> None:
    check_arrivals(seed, window=window)


@example(seed=140)  # a barrier had left before the end of an input
@given(seed=SEEDS)
@settings(max_examples=15, deadline=None)
def test_rollbacks_lose_no_row_and_no_end_in_order_of_arrival(seed: int) -> None:
    host, _, _ = arrivals(seed, lives=2, changes=0, silent_epochs=6)
    host.run()
    assert audit(host.program.specification, host.statistics(), host.program.plan) == []


def test_order_of_arrival_is_among_the_cases() -> None:
    carried = [edge.carries for edge in hosted(in_order_of_arrival([]), [], 1).program.plan.edges]
    assert "positions" not in carried


MUTANT_CASES = [
    case
    for case in CASES
    if case.name in ("tumbling, usual", "sliding", "named timers", "running count of two streams", "window join, left")
]


def one_run(number: int, lives: int) -> ChangingHost:
    """One of the runs in which planted faults are looked for."""
    if number % 6 == 5 and not lives:
        return check_arrivals(number)
    case, random = MUTANT_CASES[number % len(MUTANT_CASES)], RandomStream(number, "mutants")
    rows = by_time(many_rows(random.index(1_000), random.choice((20, 60)), random.choice((5, 20, 60))))
    host = changing(case, rows, number, fixed=random.choice((0, 0, 2)), lives=lives, window=random.choice((1, 3)))
    assert host.run()["out"] == case.reference(placed(used(case, rows)))
    assert lives or audit(host.program.specification, host.statistics(), host.program.plan) == []
    return host


def test_runs_without_a_fault_cover_the_intended_events() -> None:
    hosts = [one_run(number, 0) for number in range(60)]
    assert sum(host.done for host in hosts) > 20
    assert sum(host.moved for host in hosts) > sum(host.done for host in hosts), "no two stages in one barrier"
    assert sum(host.queued for host in hosts) > 0
    assert sum(host.overtaken for host in hosts) > 0
    assert sum(one_run(number, 2).done for number in range(20)) > 0


@pytest.mark.parametrize("name", MUTANTS)
def test_planted_faults_are_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, needs_lives = MUTANTS[name]
    plant(monkeypatch)
    for number in range(600):
        try:
            one_run(number, 5 if needs_lives else 0)
        except (AssertionError, AgileDartError, LookupError, TypeError, ValueError):
            return
    pytest.fail(f"{name}: nothing showed in 600 runs")
