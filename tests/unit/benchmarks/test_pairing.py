"""The statistics behind the comparison with other engines."""

from benchmarks.engines.data import lines, passing, tails
from benchmarks.engines.goals import RatioGoal
from benchmarks.engines.jobs import Latencies, RowSums, WindowSums, derive, keep, parse, same
from benchmarks.engines.pairing import best, ratios, shuffled, spread, won


def test_a_spread_is_the_median_and_the_quartiles() -> None:
    found = spread([5.0, 1.0, 4.0, 2.0, 3.0])
    assert found is not None
    assert (found.median, found.lower, found.upper, found.count) == (3.0, 2.0, 4.0, 5)
    assert found.shown(1) == "3.0 (2.0–4.0)"


def test_few_values_show_the_least_and_the_most() -> None:
    found = spread([7.0, 3.0])
    assert found is not None
    assert (found.median, found.lower, found.upper) == (5.0, 3.0, 7.0)
    assert spread([]) is None


def test_ratios_are_taken_within_rounds_that_both_have() -> None:
    assert ratios({0: 6.0, 1: 9.0, 2: 1.0}, {0: 3.0, 1: 3.0, 3: 5.0}) == [2.0, 3.0]


def test_the_median_of_ratios_is_not_the_ratio_of_medians() -> None:
    slow_minute = ratios({0: 2.0, 1: 20.0, 2: 4.0}, {0: 1.0, 1: 10.0, 2: 1.0})
    found = spread(slow_minute)
    assert found is not None
    assert found.median == 2.0


def test_the_best_of_several_is_taken_round_by_round() -> None:
    assert best([{0: 3.0, 1: 1.0}, {0: 2.0, 1: 5.0, 2: 4.0}]) == {0: 2.0, 1: 1.0, 2: 4.0}


def test_the_order_of_a_round_is_drawn_from_the_seed() -> None:
    names = list("abcdefgh")
    assert shuffled(names, 1, 0) == shuffled(names, 1, 0)
    assert sorted(shuffled(names, 1, 0)) == names
    assert len({tuple(shuffled(names, 1, number)) for number in range(6)}) > 1


def test_the_share_of_lower_values_is_counted() -> None:
    assert won([0.5, 1.0, 1.5, 0.9]) == 2


def test_a_goal_compares_with_the_best_of_the_references() -> None:
    goal = RatioGoal("j1", "", ("ours",), ("numpy", "polars"), "≤", 1.5)
    evaluated = goal.evaluated({"ours": {0: 3.0, 1: 3.0}, "numpy": {0: 1.0, 1: 4.0}, "polars": {0: 2.0, 1: 2.0}})
    assert evaluated is not None
    assert (evaluated.lower, evaluated.upper) == (1.5, 3.0)
    assert not goal.met(evaluated)
    assert goal.evaluated({"ours": {0: 3.0}}) is None


def test_results_agree_exactly_but_for_the_last_digits_of_sums() -> None:
    assert same({"count": 3, "ratios": 1.0 + 1e-12, "seconds": 9}, {"count": 3, "ratios": 1.0}) == ""
    assert "count" in same({"count": 4, "ratios": 1.0}, {"count": 3, "ratios": 1.0})
    assert "ratios" in same({"count": 3, "ratios": 1.001}, {"count": 3, "ratios": 1.0})
    assert "missing" in same({}, {"count": 3})


def test_the_tuples_are_deterministic_and_half_of_them_pass() -> None:
    first = list(lines(400))
    assert first == list(lines(400))
    rows = [parse(line) for line in first]
    assert 150 < sum(map(keep, rows)) < 250
    assert passing([fare for _, fare in tails(400)], 1_000) == sum(keep(rows[i % 400]) for i in range(1_000))


def test_rows_and_windows_are_summed() -> None:
    rows = [derive(trip) for trip in map(parse, lines(100)) if keep(trip)]
    sums = RowSums()
    sums.add(rows)
    assert sums.result()["cells"] == sum(row[13] for row in rows)
    windows = WindowSums()
    windows.add(7, 2, 30.0, 0.25)
    windows.add(3, 1, 20.0, 0.5)
    assert windows.result() == {"windows": 2, "count": 3, "keys": 17, "fares": 50.0, "means": 0.75}


def test_latencies_exclude_tuples_due_during_the_warm_up() -> None:
    seen = Latencies(1.0)
    for second in range(4):
        seen.add(second * 1_000_000_000, second * 1_000_000_000 + (second + 1) * 1_000_000)
    found = seen.result()
    assert (found["outputs"], found["samples"], found["p50"], found["p99"]) == (4, 3, 3.0, 4.0)
