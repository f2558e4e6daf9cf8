"""`agiledart pipeline demo` as a whole: Spark's models come back, a jam is learned, and the topology does not stop."""

import json

import pytest

from agiledart_cli.verbs.pipeline_demo import JAM_FACTOR, JAMMED, ROUTES
from tests.e2e.mesh import cli

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


def test_the_demo_learns_usual_durations_and_flags_slow_trips() -> None:
    ran = cli("pipeline", "demo", "--window", "10", "-o", "json", timeout=800)
    assert ran.returncode == 0, ran.stderr
    models = json.loads(ran.stdout)["models"]
    before, inside = models[0], models[-1]
    assert (before["in_jam"], inside["in_jam"]) == (False, True)
    for route, usual in ROUTES.items():
        assert before["routes"][route]["usual_seconds"] == pytest.approx(usual, rel=0.1)
        factor = JAM_FACTOR if route in JAMMED else 1.0
        assert inside["routes"][route]["usual_seconds"] == pytest.approx(usual * factor, rel=0.1)
    flagged = [sum(route["flagged"] for route in model["routes"].values()) for model in models]
    assert sum(flagged) > 20
    assert flagged[-1] > 0
