"""Applications of three agents give what one process gives: RIoTBench's ETL, and a file of YAML."""

import json
from pathlib import Path
from typing import Any

import pytest

from agiledart import collect, plugin
from agiledart.testing import run_local
from agiledart_examples.riotbench import etl_city
from tests.e2e.mesh import cli, mesh

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOMS = """
name: rooms
sources:
  readings:
    from: csv:readings.csv@a2
    columns: {at: int, room: text, celsius: float}
    event_time: at
steps:
  - where: celsius > 0
  - window: {tumbling: 10s}
    key: room
    aggregate: {n: COUNT(*), mean: AVG(celsius)}
sinks:
  out: {to: "csv:rooms-out.csv@a3"}
"""


def test_applications_on_three_agents(tmp_path: Path) -> None:
    pytest.importorskip("sqlglot", reason="no sqlglot here: pip install 'agiledart[query]'")
    (tmp_path / "rooms.yaml").write_text(ROOMS)
    readings = [(1000 * i, f"room{i % 3}", i % 7 - 1.0) for i in range(300)]
    (tmp_path / "readings.csv").write_text("".join(f"{at},{room},{celsius}\n" for at, room, celsius in readings))
    expected: dict[tuple[str, int], list[float]] = {}
    for at, room, celsius in readings:
        if celsius > 0:
            expected.setdefault((room, at // 10_000 * 10_000), []).append(celsius)
    etl: Any = run_local(etl_city(plugin("example", stream="city", count=400), "", collect))
    with mesh(3) as made:
        agent = str(made.agents[0].state_dir)
        ran = cli("submit", "rooms.yaml", "--parallelism", "3", "--agent", agent, "--wait", "-o", "json", cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout)["state"] == "finished"
        lines = [line.split(",") for line in (tmp_path / "rooms-out.csv").read_text().splitlines()]
        found = {(room, int(start)): (int(n), float(mean)) for room, start, _, n, mean in lines}
        assert found == {key: (len(values), sum(values) / len(values)) for key, values in expected.items()}
        words = [
            *("submit", "agiledart_examples.riotbench:etl_city", "--parallelism", "3", "--agent", agent, "--wait"),
            *("--set", "messages=example:?stream=city&count=400@a2", "--set", f"table=csv:{tmp_path / 'table.csv'}@a3"),
        ]
        ran = cli(*words)
        assert ran.returncode == 0, ran.stderr
    table = [line.split(",") for line in (tmp_path / "table.csv").read_text().splitlines()]
    assert [(int(row[0]), row[2], float(row[3])) for row in table] == [
        (row.message, row.id, row.temperature) for row in etl
    ]
