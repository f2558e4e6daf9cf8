"""A join, broadcast state and a ranking behind them change while rows flow, on real agents, up to three stages in one barrier."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_node.wire.commands import ExplainScaling, Status
from tests.e2e.mesh import Mesh, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]

ROWS = 45_000
"""Of each side; two milliseconds apart, so that they come for a minute and a half."""

CODE = """
from datetime import timedelta
from typing import NamedTuple

from agiledart import BroadcastOperator, Context, Joined, Ranking, Sink, Source, Topology, sum_of


class Reading(NamedTuple):
    at: int
    key: int
    value: int


class Pair(NamedTuple):
    at: int
    key: int
    value: int


class Scaled(BroadcastOperator[int, Pair, list[int], Pair, Reading, dict[int, int]]):
    # Each pair times what was last said for all keys alike; and how many pairs of its key there were.

    def initial(self, key: int) -> list[int]:
        return [0]

    def initial_shared(self) -> dict[int, int]:
        return {}

    def on_broadcast(self, record: Reading, shared: dict[int, int]) -> None:
        shared[record.key] = record.value

    def on_record(self, key: int, record: Pair, state: list[int], context: Context[Pair]) -> None:
        state[0] += 1
        context.emit(Pair(record.at, key, record.value * (sum(context.shared.values()) + state[0])))


def pair_of(both: Joined[int, Reading, Reading]) -> Pair:
    return Pair(max(both.left.at, both.right.at), both.left.key, both.left.value + both.right.value)


def line_of(ranking: Ranking[Pair, int, int]) -> tuple[int, str]:
    return ranking.cause.at, " ".join(f"{entry.key}:{entry.value}" for entry in ranking.entries)


def build(
    left: Source[Reading], right: Source[Reading], rules: Source[Reading], out: Sink[tuple[int, str]], name: str = "joins"
) -> Topology:
    topology = Topology(name, delivery="exactly-once")

    def keyed(step: str, source: Source[Reading]):
        return topology.source(step, source, event_time=lambda row: row.at).key_by(lambda row: row.key)

    lefts, rights = keyed("left", left), keyed("right", right)
    told = topology.source("rules", rules, event_time=lambda row: row.at)
    pairs = lefts.interval_join("pairs", rights, earliest=timedelta(milliseconds=-20), latest=timedelta(milliseconds=20))
    pairs = pairs.map(pair_of, name="pair")
    scaled = pairs.key_by(lambda pair: pair.key).connect(told).stateful("scaled", Scaled())
    totals = scaled.key_by(lambda pair: pair.key % 5, returns=int).running("totals", sum_of(lambda pair: pair.value))
    totals.top("best", n=3).map(line_of, name="line").sink("out", out)
    return topology
"""


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(3) as made:
            yield made


def undisturbed(folder: Path) -> str:
    """Put code and inputs into a folder; return the output of one undisturbed process."""
    (folder / "joins.py").write_text(CODE)
    (folder / "left.csv").write_text("".join(f"{n * 2},{n % 23},{n * n % 101}\n" for n in range(ROWS)))
    (folder / "right.csv").write_text("".join(f"{n * 2 + 1},{n * 7 % 23},{n % 97}\n" for n in range(ROWS)))
    (folder / "rules.csv").write_text("".join(f"{n * 50},{n % 4},{n % 11}\n" for n in range(ROWS // 25)))
    settings = [f"{name}=csv:{name}.csv" for name in ("left", "right", "rules")] + ["out=csv:expected.csv"]
    told = cli("run", "joins.py:build", *(word for one in settings for word in ("--set", one)), cwd=folder)
    assert told.returncode == 0, told.stderr
    return (folder / "expected.csv").read_text()


def test_changed_joins_broadcast_state_and_rankings_give_the_same_result(ring: Mesh, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path)
    at = ("--agent", str(ring.agents[0].state_dir))

    def told(*words: str) -> str:
        answer = cli(*words, *at, cwd=tmp_path)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout + answer.stderr

    def status() -> dict[str, Any]:
        return dict(ring.agents[0].ask(Status("joins")))

    def stage_of(step: str) -> str:
        names: list[str] = list(status()["placement"])
        return next(name for name in names if step in name.split("+"))

    def lines() -> int:
        return (tmp_path / "out.csv").read_text().count("\n")

    sources = [f"{name}=csv:{tmp_path / name}.csv?speed=1@a1" for name in ("left", "right", "rules")]
    settings = [*sources, f"out=csv:{tmp_path / 'out.csv'}@a1"]
    limits = [f"{step}=1..3" for step in ("pairs", "scaled", "totals")]
    told(
        *("submit", "joins.py:build", *(word for one in settings for word in ("--set", one))),
        *(word for one in limits for word in ("--parallelism", one)),
    )
    wait_for(lambda: (status().get("epoch") or {}).get("committed", 0) >= 1, 60, "an epoch is committed")
    for step, number in (("pairs", 3), ("scaled", 2), ("totals", 2), ("pairs", 1), ("scaled", 3)):
        assert "done in" in told("scale", "joins", step, str(number))
    for step in ("best", "scaled"):
        stage = stage_of(step)
        to = next(name for name in ("a2", "a3") if name not in status()["placement"][stage][:1])
        told("move", "joins", f"{stage}.0", to)
    for step in ("pairs", "scaled", "totals"):  # three stages on one node leave it at one barrier
        told("move", "joins", stage_of(step), "a2")
    before = len(ring.agents[0].ask(ExplainScaling("joins"))["changes"])
    told("drain", "a2", "--stay")
    changes = ring.agents[0].ask(ExplainScaling("joins"))["changes"]
    assert len(changes) - before >= 3, "all of them"
    assert len({one["seconds"] for one in changes[before:]}) == 1, "in one barrier"
    told("drain", "a2", "--undo")
    for step in ("scaled", "totals"):
        told("scale", "joins", step, "1")
    over = wait_for(lambda: (body := status())["state"] in ("finished", "failed", "stopped") and body, 240, "it ends")
    assert (over["state"], over["reason"]) == ("finished", "")
    kept = ring.agents[0].ask(ExplainScaling("joins"))["changes"]
    assert {one["state"] for one in kept} == {"done"}, [one for one in kept if one["state"] != "done"]
    assert not any("restarted, attempt" in entry["text"] for entry in over["history"]), "in one life"
    assert lines() == expected.count("\n")
    assert (tmp_path / "out.csv").read_text() == expected
