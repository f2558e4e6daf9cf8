"""Shapes of graphs that block when watermarks or credits are wrong: fan-out, one key for all, a silent source."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from agiledart import Topology, collect, hopping, never, session
from agiledart_dataflow.plan.connectors import Reading
from agiledart_kernel.randomness import RandomStream
from tests.conformance.operator_cases import ALL, key, ms, summary
from tests.conformance.test_operators import many_rows
from tests.reference import windows
from tests.reference.inline_host import InlineHost
from tests.reference.rows import Row, placed


def left_rows(seed: int, count: int, keys: Sequence[str] = "abcde") -> list[Row]:
    """Rows of the first source, in order."""
    random = RandomStream(seed, "flow")
    rows = [row._replace(side=0, key=random.choice(list(keys))) for row in many_rows(seed, count, 90)]
    return sorted(rows, key=lambda row: row.at)


def fanned_out(topology: Topology, rows: list[Row]) -> None:
    """One source to four steps of several instances and back together, twice through a join with itself."""
    stream = topology.source("rows", rows, rows=Row, event_time=lambda row: row.at)
    keyed = stream.key_by(key)
    parts = [
        keyed.window(session(ms(4))).count("sessions").map(str, name="a", returns=str),
        keyed.window(hopping(ms(9), ms(3))).aggregate("panes", ALL).map(str, name="b", returns=str),
        keyed.interval_join("self", keyed, earliest=-ms(2), latest=ms(2)).map(str, name="c", returns=str),
        keyed.pattern("p", lambda r: r.value < 0, never(lambda r: r.value > 1), within=ms(5)).map(
            str, name="d", returns=str
        ),
        stream.filter(lambda row: row.value > 5, name="nothing").map(str, name="e", returns=str),
    ]
    parts[0].union(*parts[1:], name="all").sink("out", collect)


@pytest.mark.parametrize("keys", ["abcde", "a"], ids=["five keys", "one key takes all"])
@pytest.mark.parametrize("seed", range(3))
def test_a_fan_out_with_one_credit_is_the_same_for_all(keys: str, seed: int) -> None:
    rows = left_rows(seed, 70, keys)
    results = []
    for parallelism in (1, 2, 4):
        topology = Topology("flow")
        fanned_out(topology, rows)
        results.append(InlineHost(topology, parallelism=parallelism, seed=seed, restarts=0.02).run()["out"])
    assert len(results[0]) > 70
    assert results[1] == results[0]
    assert results[2] == results[0]


class Silent:
    """A live reader to which nothing comes; it ends when the test says so."""

    stamps = False
    over = False

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        return Reading([], 0, {}, exhausted=self.over)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("how", [{"idle_timeout": timedelta(seconds=5)}, {"clock": "wall"}], ids=["idle", "wall clock"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_silent_source_blocks_no_other_source(how: dict[str, Any], parallelism: int) -> None:
    rows = left_rows(7, 120)
    topology = Topology("silent")
    talking = topology.source("talking", rows, rows=Row, event_time=lambda row: row.at)
    silent = topology.source("silent", [], rows=Row, event_time=lambda row: row.at, **how)
    both = talking.union(silent, name="both")
    both.key_by(key).window(session(ms(4))).aggregate("x", ALL).sink("out", collect)
    host = InlineHost(topology, parallelism=parallelism, seed=1)
    reader = Silent()
    host.read_from("silent", reader)
    host.turns(3_000)
    assert host.rows("out") == [], "no step has waited yet"
    host.wait(6_000_000_000)
    host.turns(3_000)
    expected = windows.sessions(placed(rows), 4, summary)
    done = host.rows("out")
    assert len(done) >= len(expected) - 5, "all but the windows that are open at the end of the rows"
    assert done == expected[: len(done)]
    reader.over = True
    assert host.run()["out"] == expected


def test_without_a_timeout_a_union_waits() -> None:
    topology = Topology("silent")
    rows = left_rows(7, 20)
    talking = topology.source("talking", rows, rows=Row, event_time=lambda row: row.at)
    silent = topology.source("silent", [], rows=Row, event_time=lambda row: row.at)
    talking.union(silent, name="both").sink("out", collect)
    host = InlineHost(topology, parallelism=1, seed=1)
    reader = Silent()
    host.read_from("silent", reader)
    host.turns(2_000)
    host.wait(60_000_000_000)
    host.turns(2_000)
    assert host.rows("out") == []
    reader.over = True
    assert host.run()["out"] == rows
