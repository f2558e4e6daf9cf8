"""The reference against rows worked by hand from the text, and its two methods against each other."""

from collections import Counter
from fractions import Fraction

import pytest

from agiledart_examples.taxi_trips import generate
from tests.oracle.debs2015 import NULL, Answers, Method, Row, amount, answer, cell, difference, fault, median, show
from tests.oracle.mutate import mutate, small_world
from tests.oracle.shrink import shrink

WEST, NORTH, EAST_STEP, SOUTH_STEP = -74.913585, 41.474937, 0.005986, 0.004491556
METHODS: tuple[Method, ...] = ("rescan", "steady")


def line(taxi: str, dropoff: str, start: int, end: int, fare: str = "6.00", tip: str = "0.00", pickup: str = "") -> str:
    """A trip between the centres of cells `start`.1 and `end`.1 of query 1 (2·start-1 in query 2); times: HH:MM:SS."""
    a, b = (f"{WEST + EAST_STEP * (x - 1):.6f},{NORTH:.6f}" for x in (start, end))
    pickup = pickup or dropoff
    return f"{taxi},L,2013-01-01 {pickup},2013-01-01 {dropoff},0,1.0,{a},{b},CSH,{fare},0.5,0.5,{tip},0,7.5"


def routes(answers: Answers) -> list[list[str]]:
    return [[f"{a}>{b}" for a, b in zip(row[2::2], row[3::2], strict=True) if a != NULL] for row in answers.routes]


def areas(answers: Answers) -> list[list[tuple[str, int, float, float]]]:
    """Rows as (cell east, empty taxis, median, profitability); the south of every cell here is 1."""
    return [
        [
            (str(c).removesuffix(".1"), int(str(n)), float(m), float(p))
            for c, n, m, p in zip(row[2::4], row[3::4], row[4::4], row[5::4], strict=True)
            if c != NULL
        ]
        for row in answers.areas
    ]


@pytest.mark.parametrize("method", METHODS)
class TestRoutes:
    def test_equal_frequency_puts_the_later_line_first_even_in_one_second(self, method: Method) -> None:
        got = answer([line("a", "10:00:00", 1, 2), line("b", "10:00:00", 3, 4)], method=method)
        assert routes(got) == [["1.1>2.1"], ["3.1>4.1", "1.1>2.1"]]

    def test_a_trip_that_leaves_the_list_unchanged_gives_no_row(self, method: Method) -> None:
        got = answer([line(t, "10:00:00", 1, 2) for t in "abc"], method=method)
        assert len(got.routes) == 1

    def test_a_trip_of_exactly_thirty_minutes_ago_has_left(self, method: Method) -> None:
        first = line("a", "10:00:00", 1, 2)
        assert routes(answer([first, line("b", "10:29:59", 3, 4)], method=method))[-1] == ["3.1>4.1", "1.1>2.1"]
        assert routes(answer([first, line("b", "10:30:00", 3, 4)], method=method))[-1] == ["3.1>4.1"]

    def test_an_outlier_does_not_move_the_window_and_a_late_line_is_ignored(self, method: Method) -> None:
        lines = [
            line("a", "10:00:00", 1, 2),
            line("b", "10:45:00", 1, 302),
            line("c", "10:20:00", 3, 4),
        ]
        got = answer(lines, method=method)
        assert (got.late, got.outliers["frequent-routes"], len(got.routes)) == (1, 1, 1)

    def test_expiry_is_visible_at_the_next_trip(self, method: Method) -> None:
        lines = [line("a", "10:00:00", 1, 2), line("b", "10:10:00", 3, 4), line("c", "10:35:00", 3, 4)]
        assert routes(answer(lines, method=method)) == [["1.1>2.1"], ["3.1>4.1", "1.1>2.1"], ["3.1>4.1"]]

    def test_only_ten_are_kept(self, method: Method) -> None:
        got = answer([line("a", "10:00:00", n, n) for n in range(1, 13)], method=method)
        assert routes(got)[-1] == [f"{n}.1>{n}.1" for n in range(12, 2, -1)]


@pytest.mark.parametrize("method", METHODS)
class TestAreas:
    def test_median_over_empty_taxis(self, method: Method) -> None:
        lines = [
            line("a", "10:00:00", 1, 1, "4.00", "1.00"),
            line("b", "10:01:00", 1, 1, "8.00"),
            line("c", "10:02:00", 1, 2, "100.00"),
        ]
        assert areas(answer(lines, method=method)) == [
            [("1", 1, 5.0, 5.0)],
            [("1", 2, 6.5, 3.25)],
            [("1", 2, 8.0, 4.0)],
        ]

    def test_strict_needs_a_trip_and_zero_profit_does_not(self, method: Method) -> None:
        lines = [line("a", "10:00:00", 1, 2), line("b", "10:01:00", 2, 3)]
        assert areas(answer(lines, method=method)) == [[("3", 1, 6.0, 6.0)]]
        assert areas(answer(lines, method=method, zero_profit=True)) == [
            [("3", 1, 0.0, 0.0)],
            [("3", 1, 6.0, 6.0), ("5", 1, 0.0, 0.0)],
        ]

    def test_a_list_that_becomes_empty_is_a_row_of_nulls(self, method: Method) -> None:
        got = answer([line("a", "10:00:00", 1, 1), line("a", "10:01:00", 1, 2)], method=method)
        assert areas(got) == [[("1", 1, 6.0, 6.0)], []]
        assert got.areas[-1][2:] == (NULL,) * 40

    def test_profit_counts_for_less_than_fifteen_minutes(self, method: Method) -> None:
        first = line("a", "10:00:00", 1, 1)
        assert areas(answer([first, line("b", "10:14:59", 2, 1)], method=method))[-1] == [("1", 2, 6.0, 3.0)]
        assert areas(answer([first, line("b", "10:15:00", 2, 1)], method=method))[-1] == []

    def test_a_taxi_is_empty_for_less_than_thirty_minutes(self, method: Method) -> None:
        first = line("a", "10:00:00", 2, 1)
        assert areas(answer([first, line("b", "10:29:59", 1, 1)], method=method))[-1] == [("1", 2, 6.0, 3.0)]
        assert areas(answer([first, line("b", "10:30:00", 1, 1)], method=method))[-1] == [("1", 1, 6.0, 6.0)]

    def test_an_outlier_does_not_change_the_taxi(self, method: Method) -> None:
        lines = [line("a", "10:00:00", 1, 1), line("a", "10:01:00", 1, 301), line("b", "10:02:00", 1, 2)]
        got = answer(lines, method=method)
        assert got.outliers["profitable-areas"] == 1
        assert areas(got)[-1] == [("1", 1, 6.0, 6.0)]

    def test_ties_newest_information_first(self, method: Method) -> None:
        lines = [line("a", "10:00:00", 1, 1), line("b", "10:00:00", 2, 2)]
        assert [c for c, *_ in areas(answer(lines, method=method))[-1]] == ["3", "1"]
        # A trip that starts in an area renews it. It ends in an unwatched area, and the median stays as it was.
        lines.append(line("c", "10:00:00", 1, 9))
        assert [c for c, *_ in areas(answer(lines, method=method))[-1]] == ["1", "3"]

    def test_a_taxi_that_has_left_renews_and_one_that_expired_does_not(self, method: Method) -> None:
        stand = [line("x", "10:00:00", 20, 1), line("a", "10:20:00", 1, 1), line("b", "10:21:00", 2, 2)]
        # Both areas are worth 6 once x is gone from area 1; which stands first depends on the newest information.
        left = [*stand, line("x", "10:29:59", 20, 21)]
        assert [c for c, *_ in areas(answer(left, method=method))[-1]] == ["1", "3"]
        expired = [*stand, line("x", "10:30:00", 20, 21)]
        assert [c for c, *_ in areas(answer(expired, method=method))[-1]] == ["3", "1"]

    def test_areas_renewed_by_one_trip_are_ordered_by_cell_id(self, method: Method) -> None:
        for rich, poor in ((1, 2), (2, 1)):
            lines = [line("a", "10:00:00", rich, rich, "12.00"), line("b", "10:00:00", poor, poor)]
            lines.append(line("c", "10:00:00", poor, rich))  # now both are worth 6, and both have news of the same trip
            assert areas(answer(lines, method=method))[-1] == sorted(
                [(str(2 * rich - 1), 2, 12.0, 6.0), (str(2 * poor - 1), 1, 6.0, 6.0)]
            )

    def test_equal_sums_are_equal_whatever_their_binary_form(self, method: Method) -> None:
        lines = [
            line("a", "10:00:00", 1, 1, "10.10", "2.30"),
            line("b", "10:00:00", 2, 2, "12.40", "0.00"),
            line("a", "10:00:01", 1, 1, "12.40", "0.00"),
        ]
        got = areas(answer(lines, method=method))
        assert [c for c, *_ in got[-1]] == ["1", "3"]
        lines.append(line("a", "10:00:02", 1, 1, "12.30", "0.10"))
        assert len(areas(answer(lines, method=method))) == 3

    def test_losses_are_listed_below_profits(self, method: Method) -> None:
        lines = [line("a", "10:00:00", 1, 1, "-3.00"), line("b", "10:00:00", 2, 2, "0.00")]
        assert areas(answer(lines, method=method))[-1] == [("3", 1, 0.0, 0.0), ("1", 1, -3.0, -3.0)]


@pytest.mark.parametrize("zero_profit", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_both_methods_agree_when_everything_collides(seed: int, zero_profit: bool) -> None:
    lines = mutate(small_world(seed, 350), seed).lines
    steady = answer(lines, zero_profit=zero_profit)
    assert steady == answer(lines, zero_profit=zero_profit, method="rescan")
    assert len(steady.areas) > 50


@pytest.mark.slow
@pytest.mark.parametrize("zero_profit", [False, True])
def test_both_methods_agree_on_a_mutated_day(zero_profit: bool) -> None:
    lines = mutate(generate(5, 3_000), 5).lines
    assert answer(lines, zero_profit=zero_profit) == answer(lines, zero_profit=zero_profit, method="rescan")


def test_every_fault_is_injected_and_every_count_is_right() -> None:
    mutated = mutate(generate(3, 3_000), 3, rate=0.2)
    got = answer(mutated.lines)
    for reason in ("columns", "number", "time", "order", "encoding"):
        assert got.malformed[reason] == mutated.injected[f"malformed:{reason}"] > 20, reason
    assert got.late == mutated.injected["late"] > 20
    assert got.lines == len(mutated.lines)
    kinds = (
        "tie",
        "again",
        "same second",
        "same taxi",
        "outside",
        "border",
        "half cell",
        "split",
        "negative",
        "no time",
    )
    assert all(mutated.injected[kind] > 20 for kind in (*kinds, "crlf")), mutated.injected
    assert all(mutated.injected[f"gap:{seconds}"] for seconds in (899, 900, 901, 1_799, 1_800, 1_801, 90_000))
    assert got.outliers["frequent-routes"] != got.outliers["profitable-areas"]
    assert mutate(generate(3, 3_000), 3, rate=0.2) == mutated


@pytest.mark.parametrize(
    ("place", "coarse", "fine"),
    [
        ((WEST, NORTH), (1, 1), (1, 1)),
        ((WEST + EAST_STEP, NORTH - SOUTH_STEP), (2, 2), (3, 3)),
        ((WEST + 299 * EAST_STEP, NORTH - 299 * SOUTH_STEP), (300, 300), (599, 599)),
        ((WEST - 0.3 * EAST_STEP, NORTH), (1, 1), None),
        ((WEST + 299.3 * EAST_STEP, NORTH), (300, 1), (600, 1)),
        ((WEST + 299.6 * EAST_STEP, NORTH), None, (600, 1)),
        ((WEST + 299.8 * EAST_STEP, NORTH), None, None),
        ((0.0, 0.0), None, None),
        ((1e308, -1e308), None, None),
    ],
)
def test_cells_are_computed(
    place: tuple[float, float], coarse: tuple[int, int] | None, fine: tuple[int, int] | None
) -> None:
    assert (cell(place, 1), cell(place, 2)) == (coarse, fine)


@pytest.mark.parametrize(
    ("column", "text", "reason"),
    [
        (11, "", "number"),
        (11, "NaN", "number"),
        (6, "inf", "number"),
        (16, "1e999", "number"),
        (4, "1_0", "number"),
        (14, "-3.5", None),
        (11, "6e0", None),
        (2, "2013-02-29 00:00:00", "time"),
        (3, "2013-01-01T10:00:00", "time"),
        (3, "2013-01-01 24:00:00", "time"),
        (2, "2013-01-01 10:00:01", "order"),
        (2, "2012-02-29 00:00:00", None),
        (0, "", None),
    ],
)
def test_faults_of_a_line_are_counted(column: int, text: str, reason: str | None) -> None:
    fields = line("a", "10:00:00", 1, 2).split(",")
    fields[column] = text
    assert fault(fields) == reason


def test_amounts_and_medians_are_exact_and_bounded() -> None:
    assert amount("10.10") + amount("2.30") == amount("12.4")
    assert amount("1e-999999999") == 0
    assert median([Fraction(1), Fraction(2), Fraction(4), Fraction(8)]) == 3


def test_difference_names_the_first_wrong_line_and_column() -> None:
    rows: list[Row] = [("2013", "1.1", 2, Fraction(1, 3), NULL), ("2014", "1.1", 2, Fraction(2), NULL)]
    good = ["2013,1.1,2,0.333333,NULL,0.123", "2014,1.1,2,2.0,NULL,17"]
    assert difference(good, rows) is None
    assert show(rows[0]) == "2013,1.1,2,0.333333,NULL"
    for bad, part in [
        (good[:1], "first missing: 2014"),
        ([*good, "x"], "first extra: x"),
        ([good[0], "2014,1.1,3,2.0,NULL,17"], "line 2 of 2 (2 expected): column 3 is '3'"),
        ([good[0].replace("0.333333", "0.333335"), good[1]], "column 4 is '0.333335' instead of '0.333333'"),
        ([good[0].replace("0.333333", "3.3e-1"), good[1]], "column 4"),
        ([good[0].replace(",0.123", ""), good[1]], "5 columns instead of 6"),
        ([good[0].replace("0.123", "-1"), good[1]], "delay is '-1'"),
    ]:
        assert part in str(difference(bad, rows)), bad
    assert difference([], []) is None


def test_blank_lines_and_carriage_returns() -> None:
    got = answer([line("a", "10:00:00", 1, 1).encode() + b"\r\n", b"\r\n", b"\n", b"\xff\xfe,\n"])
    assert (got.lines, got.malformed, len(got.areas)) == (4, Counter(columns=2, encoding=1), 1)


def test_shrinking_keeps_only_the_necessary_lines() -> None:
    assert shrink(range(500), lambda lines: 17 in lines and 401 in lines) == [17, 401]
    with pytest.raises(ValueError, match="does not fail"):
        shrink([1], lambda _: False)
