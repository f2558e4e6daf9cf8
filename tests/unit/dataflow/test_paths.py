"""Which ways rows may take: options, clear refusals, and the edges that they reach."""

from typing import NamedTuple

import pytest

from agiledart import Topology, collect
from agiledart_dataflow.plan.paths import describe_paths, named, paths_from, read, written
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_kernel.errors import TopologyError


class Row(NamedTuple):
    number: int


def topology(paths: object = "auto", behind: object = None) -> Topology:
    made = Topology("ways", paths=paths)  # type: ignore[arg-type]
    rows = made.source("rows", [Row(1)])
    if behind is not None:
        rows = rows.paths(behind)  # type: ignore[arg-type]
    rows.key_by(lambda row: row.number).running_count("counts").sink("report", collect)
    return made


def ways(made: Topology) -> list[tuple[str, ...]]:
    return [edge.paths for edge in plan_stages(made.specification()).edges]


def test_all_edges_follow_the_topology_and_an_edge_may_override_it() -> None:
    assert ways(topology()) == [("auto",), ("auto",)]
    assert ways(topology("warm")) == [("warm",), ("warm",)]
    assert ways(topology("warm", ["a2", "a3"])) == [("a2", "a3"), ("warm",)]
    assert ways(topology("warm", "auto")) == [("auto",), ("warm",)]


def test_a_topology_without_path_options_is_unchanged() -> None:
    assert topology().specification().digest() == topology("auto").specification().digest()
    assert topology("warm").specification().digest() != topology().specification().digest()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("wram", 'did you mean "warm"'),
        ("", "or a list of nodes"),
        ("a2", 'as \\["a2"\\]'),
        ([], "names 0 nodes"),
        (["a", "b", "c", "d"], "name 1 to 3"),
        (["a2", "a2"], "name each node once"),
        (["auto"], "without brackets"),
        ([7], "a text"),
        ([""], "a text"),
    ],
)
def test_path_mistakes_are_reported_with_their_line(value: object, says: str) -> None:
    with pytest.raises(TopologyError, match=says) as told:
        topology(value)
    assert "test_paths.py" in str(told.value)


@pytest.mark.parametrize("value", ["auto", "warm", "direct", ["a2"], ["a2", "a3", "a4"]])
def test_path_options_survive_encoding(value: str | list[str]) -> None:
    paths = paths_from(value)
    assert read(written(paths)) == paths
    assert named(paths) == (() if isinstance(value, str) else tuple(value))
    assert describe_paths(paths) == (value if isinstance(value, str) else f"by {' or '.join(value)}")
