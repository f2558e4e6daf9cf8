"""Measurements of `pull-the-plug`: the next result after a file was cut back, and a ledger line by line."""

from pathlib import Path

import pytest

from agiledart_experiments.recovery.plug_ledger import ledger
from agiledart_experiments.recovery.sink_watch import next_beyond
from agiledart_experiments.registry import find, run_experiment
from agiledart_experiments.report import Settings
from agiledart_kernel.errors import ConfigurationError


def test_the_next_result_is_beyond_the_output_before_the_cut() -> None:
    sizes = [(0.0, 10), (1.0, 20), (2.1, 25), (3.0, 12), (3.1, 20), (3.2, 25), (3.3, 26), (4.0, 40)]
    assert next_beyond(sizes, 2.0) == pytest.approx(1.3), (
        "25 was there already; rows under way at the fault do not count"
    )


def test_a_second_attempt_counts_from_the_highest_position() -> None:
    sizes = [(0.0, 10), (2.1, 25), (3.0, 12), (3.1, 30), (3.2, 12), (3.3, 30), (3.4, 31)]
    assert next_beyond(sizes, 2.0) == pytest.approx(1.4)


def test_without_a_cut_the_next_result_is_beyond_the_output_at_recovery() -> None:
    sizes = [(0.0, 10), (2.5, 30), (3.5, 30), (3.6, 31)]
    assert next_beyond(sizes, 2.0, 3.0) == pytest.approx(1.6)
    assert next_beyond(sizes[:3], 2.0, 3.0) is None
    assert next_beyond([*sizes, (3.7, 20), (3.8, 35)], 2.0, 3.0) == pytest.approx(1.8), "a cut that came counts"


@pytest.mark.parametrize("sizes", [[], [(0.0, 10), (2.5, 30)], [(0.0, 10), (2.5, 5), (2.6, 10)]])
def test_without_a_cut_or_growth_there_is_no_next_result_yet(sizes: list[tuple[float, int]]) -> None:
    assert next_beyond(sizes, 2.0) is None


def test_the_ledger_counts_lost_and_duplicate_rows(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("0,1,5\n1,2,7\n2,1,1\n")
    exact = "0,1,5\n1,2,7\n2,1,6\n"
    for wrote, lost, twice, disorder in (
        (exact, 0, 0, 0),
        ("0,1,5\n2,1,6\n", 1, 1, 1),
        ("0,1,5\n0,1,5\n1,2,7\n", 1, 1, 1),
        ("1,2,7\n0,1,5\n2,1,6\n", 0, 0, 1),
        ("0,1,5\n1,2,7\n2,1,9\n", 1, 1, 1),
    ):
        (tmp_path / "out.csv").write_text(wrote)
        found = ledger(tmp_path)
        assert (found["lost"], found["twice"], found["out_of_order"]) == (lost, twice, disorder), wrote


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        (Settings(replica_nodes=2, code="3+3"), r"has 1\+2, 2\+2, 4\+2"),
        (Settings(again=True), "need --replica-nodes"),
        (Settings(code="4+2"), "need --replica-nodes"),
        (Settings(replica_nodes=5, code="2+2"), r"2\+2 has 4"),
    ],
)
def test_losses_that_cannot_be_survived_are_reported_before_the_start(wanted: Settings, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        run_experiment(find("pull-the-plug"), wanted)


def test_fragments_are_on_no_other_node() -> None:
    with pytest.raises(ConfigurationError, match="churn kills no replica nodes"):
        run_experiment(find("churn"), Settings(replica_nodes=1))
