"""The experiment `overload`, shorter: real agents, a slow step, every policy; memory bounded, every row accounted for."""

import pytest

from agiledart_experiments import overload
from agiledart_experiments.registry import find, run_experiment
from agiledart_experiments.report import Settings

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_every_row_is_accounted_for_under_any_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(overload.SECONDS, "small", 8)
    monkeypatch.setattr(
        overload, "SLOWER", 100
    )  # so slow that on a machine that reads slowly it is behind all the same
    report, document = run_experiment(find("overload"), Settings())
    assert [goal.what for goal in report.goals if not goal.met] == []
    ends = {row["policy"]: row for row in document["results"] if row["second"] is None}
    assert {row["lines"] for row in ends.values()} == {8 * overload.ROWS_A_SECOND}
    assert ends["spool"]["spooled_ever"] > 5_000
    assert ends["shed_oldest"]["shed_reasons"].keys() == {"oldest"}
    waited = max(row["waiting"] for row in document["results"])
    assert overload.WAITING_ROWS / 2 < waited <= overload.WAITING_ROWS + 1_000
