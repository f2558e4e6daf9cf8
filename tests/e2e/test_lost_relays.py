"""Rows between two sites behind routers while the relay that leads them is killed; two more relays are there."""

import csv
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_node.wire.commands import Nodes
from tests.e2e.mesh import Mesh, cli, wait_for
from tests.e2e.routers import Routers, Site, brought_up
from tests.e2e.test_sites_behind_routers import CODE, agent_at

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]

ROWS, ROWS_PER_SECOND = 10_000, 200
PAUSE_SECONDS = 5.0
"""Longest pause of the rows after the relay was killed."""


@pytest.fixture
def routers() -> Iterator[Routers]:
    yield from brought_up(3, Site(), Site())


@pytest.fixture
def ring(routers: Routers) -> Iterator[Mesh]:
    folder = Path(tempfile.mkdtemp(prefix="agiledart-relays-"))
    made = Mesh(folder)
    try:
        for name in ("o1", "o2", "o3", "s1.1", "s2.1"):
            made.add([agent_at(routers, name, folder)])
        yield made
    finally:
        made.close()
        shutil.rmtree(folder)


def relays_of(made: Mesh) -> set[str]:
    """Names of the relays that lead the application's rows."""
    shown = cli("explain", "route", "flow", "--agent", str(made.agent("s2-1").state_dir), "-o", "json")
    if shown.returncode:
        return set()
    relays: set[str] = set()

    def search(value: Any) -> None:
        if isinstance(value, dict):
            relays.update({str(value["relay"])} if value.get("relay") and "circuits" in value else set())
            value = list(value.values())
        if isinstance(value, list):
            for item in value:
                search(item)

    search(json.loads(shown.stdout))
    return relays


def test_rows_continue_when_their_relay_is_killed(ring: Mesh, tmp_path: Path) -> None:
    def has_two_relays(name: str) -> bool:
        rows = {row["name"]: row for row in ring.agent(name).ask(Nodes())["nodes"]}
        return all(len(rows[site]["held_by"]) == 2 for site in ("s1-1", "s2-1"))

    wait_for(lambda: has_two_relays("s1-1"), 30.0, "both sites have two reservations")
    (tmp_path / "flow.py").write_text(CODE)
    lines = [f"2024-01-01 {n // 3600:02d}:{n // 60 % 60:02d}:{n % 60:02d},{n}\n" for n in range(ROWS)]
    (tmp_path / "in.csv").write_text("at,value\n" + "".join(lines))
    ran = cli(
        "submit", "flow.py:flow", "--agent", str(ring.agent("s2-1").state_dir), "--delivery", "at-most-once",
        "--set", f"readings=csv:in.csv?speed={ROWS_PER_SECOND}@s1-1", "--set", "report=csv:out.csv@s2-1",
        "-o", "json", cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    hosts = set(json.loads(ran.stdout)["nodes"])
    out = tmp_path / "out.csv"

    def count() -> int:
        return out.read_bytes().count(b"\n") if out.exists() else 0

    wait_for(lambda: count() > 500, 60.0, "rows arrive")
    (relay,) = wait_for(lambda: relays_of(ring), 20.0, "the relay is known")
    if relay in hosts:
        pytest.skip(f"NOT RUN: {relay} relays and hosts a stage; this test is about relays that do not")
    ring.agent(relay).kill()
    killed_at = last_at = time.monotonic()
    seen, longest = count(), 0.0
    assert seen < ROWS - 1_000, "the relay was killed in mid-run"
    while seen < ROWS and time.monotonic() - killed_at < 90.0:
        now_seen = count()
        if now_seen > seen:
            longest, seen, last_at = max(longest, time.monotonic() - last_at), now_seen, time.monotonic()
        time.sleep(0.05)
    print(f"longest pause {longest:.1f} s, {seen} rows")
    wait_for(lambda: out.read_text().endswith("\n") and count() >= ROWS, 30.0, "all rows")
    with out.open() as file:
        values = [int(row[-1]) for row in csv.reader(file) if row[-1].isdigit()]
    assert values == [2 * n for n in range(ROWS)], "each row once, in order"
    assert longest <= PAUSE_SECONDS
    wait_for(lambda: has_two_relays("s1-1"), 20.0, "the lost reservations were replaced")
