"""Pictures of reports, when matplotlib is there."""

from pathlib import Path

import pytest

from agiledart_experiments.plotting import plot
from agiledart_experiments.registry import EXPERIMENTS, SHARE, Experiment
from agiledart_experiments.report import ExperimentReport, Row
from agiledart_kernel.errors import ConfigurationError, OperationFailed

pytest.importorskip("matplotlib")


def report_of(experiment: Experiment) -> ExperimentReport:
    """Two lines of three points each, the last figure missing; published values for all."""
    rows: list[Row] = []
    for line in ("first", "second")[: 2 if experiment.series else 1]:
        for number in (1, 2, 3):
            row: Row = {experiment.x: 10**number, **dict.fromkeys(experiment.series, line)}
            for place, name in enumerate(experiment.y):
                row[name] = number + place if number < 3 else None
                row[f"{name}_published"] = 2
            rows.append(row)
    return ExperimentReport({}, tuple(rows))


def drawn(experiment: Experiment, tmp_path: Path) -> str:
    file = tmp_path / f"{experiment.name}.svg"
    plot(experiment, report_of(experiment), str(file))
    return file.read_text()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_can_be_drawn(name: str, tmp_path: Path) -> None:
    experiment = EXPERIMENTS[name]
    picture = drawn(experiment, tmp_path)
    for words in (experiment.x, experiment.unit, f"{experiment.name}: ", *experiment.y):
        assert f"<!-- {words}" in picture, words
    assert f"<!-- {experiment.y[0]}, " in picture
    assert ", printed -->" in picture
    assert (f"{experiment.y[0]}, {', '.join(['second'] * len(experiment.series))} -->" in picture) == bool(
        experiment.series
    )


def test_the_same_published_values_are_drawn_once(tmp_path: Path) -> None:
    picture = drawn(EXPERIMENTS["schedulers"], tmp_path)
    assert picture.count(", printed -->") == 1


def test_every_axis_but_shares_begins_at_zero(tmp_path: Path) -> None:
    assert EXPERIMENTS["churn"].unit == SHARE
    assert "<!-- 0 -->" in drawn(EXPERIMENTS["schedulers"], tmp_path) or "<!-- 0.0 -->" in drawn(
        EXPERIMENTS["schedulers"], tmp_path
    )
    assert "<!-- 0.0 -->" not in drawn(EXPERIMENTS["churn"], tmp_path)


@pytest.mark.parametrize("file", ["picture.txt", "picture"])
def test_another_kind_of_file_is_refused(file: str, tmp_path: Path) -> None:
    experiment = EXPERIMENTS["churn"]
    with pytest.raises(ConfigurationError, match="must end in"):
        plot(experiment, report_of(experiment), str(tmp_path / file))


def test_a_missing_folder_gives_no_traceback(tmp_path: Path) -> None:
    experiment = EXPERIMENTS["churn"]
    with pytest.raises(OperationFailed, match="cannot be written"):
        plot(experiment, report_of(experiment), str(tmp_path / "nowhere" / "picture.png"))
