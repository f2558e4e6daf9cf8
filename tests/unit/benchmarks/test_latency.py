"""Rounds of J3: an engine that fails once is tried again, one that fails twice is left out."""

from typing import Any

import pytest
from benchmarks.engines import latency
from benchmarks.engines.latency import LatencyEngine, LatencyRounds
from benchmarks.engines.running import RunError


@pytest.mark.parametrize(("failures", "runs", "left_out"), [(0, 2, False), (1, 2, False), (2, 0, True)])
def test_an_engine_gets_a_second_try(failures: int, runs: int, left_out: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    def once(*_: Any, **__: Any) -> dict[str, Any]:
        nonlocal tries
        tries += 1
        if tries <= failures:
            raise RunError("the port is taken")
        return {"p50": 0.5}

    monkeypatch.setattr(latency, "once", once)
    said: list[str] = []
    rounds = LatencyRounds(1_000, 1.0, [LatencyEngine("one", "", lambda port, warm: [])], 1, said.append)
    rounds.round(0)
    rounds.round(1)
    assert len(rounds.figures.runs) == runs
    assert ("one" in rounds.figures.wrong) is left_out
    assert sum("the port is taken" in line for line in said) == failures
