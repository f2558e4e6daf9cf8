"""Initial state of a topology from a checkpoint, and each refusal with its sentence."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pytest

from agiledart import Connector, Topology, sum_of, tumbling
from agiledart_agent.checkpoints.checkpoint_file import ArchivedSnapshot
from agiledart_cli.verbs.state.restore_plan import PlannedTopology, graph_of, plan_restore
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_kernel.errors import ConfigurationError


class Row(NamedTuple):
    at: int
    key: int
    value: int


def graph(
    *, sums: str = "sums", by: Callable[[Any], Any] = lambda row: row.key, returns: Any = int, width: int = 50,
    source: str = "rows", instances: int = 1, stateful_steps: bool = True, more: bool = False, kind: str = "list",
) -> PlannedTopology:  # fmt: skip
    topology = Topology("job")
    rows = topology.source(source, Connector(kind, payload=[]), rows=Row, event_time=lambda row: row.at)
    if stateful_steps:
        keyed = rows.key_by(by, returns=returns)
        window = keyed.window(tumbling(timedelta(milliseconds=width)))
        window.aggregate(sums, sum_of(lambda row: row.value)).sink("out", Connector("list", payload=[]))
    else:
        rows.map(lambda row: row.value, name=sums, returns=int).sink("out", Connector("list", payload=[]))
    if more:
        again = rows.key_by(lambda row: row.key, returns=int).window(tumbling(timedelta(seconds=1)))
        again.aggregate("more", sum_of(lambda row: row.value)).sink("else", Connector("list", payload=[]))
    specification = topology.specification()
    return PlannedTopology(
        specification, plan_stages(specification, {sums: instances} if stateful_steps and instances > 1 else {})
    )


def snapshots(of: PlannedTopology) -> list[ArchivedSnapshot]:
    return [
        ArchivedSnapshot(stage.index, 1, index, stage.kind, bytes([stage.index, index]) * 16, 0, 100)
        for stage in of.plan.stages
        for index in range(stage.parallelism)
    ]


def test_the_same_topology_restores_all_state() -> None:
    before = graph(instances=2)
    found = plan_restore(before, graph(instances=2), snapshots(before), {"out": 3}, ())
    assert found.kind == "whole"
    assert [name for name, _ in found.taken] == ["rows", "sums"]
    assert len(found.snapshots) == len(snapshots(before))
    assert (found.dropped, found.empty) == ((), ())


def test_another_number_of_instances_restores_the_state_of_steps() -> None:
    before = graph(instances=2)
    found = plan_restore(before, graph(instances=3), snapshots(before), {"out": 0}, ())
    assert found.kind == "steps"
    assert dict(found.taken)["sums"] == "200 bytes, on 3 instances instead of 2"
    assert [(one.stage, one.index) for one in found.snapshots] == [(0, 0), (1, 0), (1, 1), (2, 0)], (
        "the sink knows its file"
    )


def test_new_steps_begin_empty_and_dropped_ones_are_left_out() -> None:
    before = graph()
    found = plan_restore(before, graph(sums="totals", more=True), snapshots(before), {}, ("sums",))
    assert found.taken == (("rows", "continues reading"),)
    assert found.dropped == ("sums",)
    assert sorted(found.empty) == ["more", "totals"]
    assert [one.stage for one in found.snapshots] == [0, 2], "the sink knows its file"


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (graph(sums="totals"), "the state of sums, and the topology has no such step"),
        (graph(stateful_steps=False), "the state of sums, which has no state now"),
        (graph(source="lines"), "the position of source rows, and the topology has no such step"),
        (graph(by=lambda row: str(row.key), returns=str), "sums had keys of type int, and now of str"),
        (graph(width=70), "sums has changed since it was saved (window: "),
    ],
    ids=["renamed", "stateless", "source", "keys", "window"],
)
def test_incompatible_state_is_refused_and_can_be_dropped(after: PlannedTopology, said: str) -> None:
    before = graph()
    with pytest.raises(ConfigurationError) as refusal:
        plan_restore(before, after, snapshots(before), {}, ())
    assert said in str(refusal.value)
    drop = "rows" if "rows" in said else "sums"
    assert f"--drop {drop}" in str(refusal.value)
    assert plan_restore(before, after, snapshots(before), {}, (drop,)).dropped == (drop,)


def test_an_unknown_step_to_drop_is_refused_with_a_suggestion() -> None:
    before = graph()
    with pytest.raises(ConfigurationError, match=r"--drop sumz: .* Did you mean sums\? It has: rows, sums"):
        plan_restore(before, before, snapshots(before), {}, ("sumz",))


def test_waiting_rows_are_restored_in_the_same_topology_only() -> None:
    before = graph()
    assert plan_restore(before, graph(), snapshots(before), {"sums": 2}, ()).kind == "whole"
    for after in (graph(more=True), graph(instances=2)):
        with pytest.raises(ConfigurationError, match="rows that wait to be merged \\(2 before sums\\)"):
            plan_restore(before, after, snapshots(before), {"sums": 2}, ())


def test_a_topology_of_another_version_is_refused() -> None:
    one = graph()
    plan = msgspec.msgpack.encode(one.plan)
    assert graph_of(msgspec.msgpack.encode(one.specification), plan, "x") == one
    with pytest.raises(ConfigurationError, match="cannot be read by this version"):
        graph_of(b"\xc1", plan, "x")
