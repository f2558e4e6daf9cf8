"""`agiledart demo --pull-the-plug`: an agent is killed, the next result comes, and the demo says so."""

import json
from pathlib import Path

import pytest

from tests.e2e.mesh import cli

pytestmark = [pytest.mark.e2e, pytest.mark.soak]


def test_the_demo_continues_without_the_killed_agent(tmp_path: Path) -> None:
    told = cli("demo", "--pull-the-plug", "--agents", "4", "--duration", "25", "-o", "json", cwd=tmp_path, timeout=280)
    assert told.returncode == 0, told.stderr
    body = json.loads(told.stdout)
    assert body["plug"]["seconds_to_next_result"] > 0
    assert any("restarted, attempt" in text for text in body["plug"]["history"])
    assert body["state"] == {"frequent-routes": "stopped", "profitable-areas": "stopped"}
    assert f"kill -9 {body['plug']['killed']}" in told.stderr
