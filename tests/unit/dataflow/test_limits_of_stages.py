"""Limits of a stage: its edges are planned for the higher number, and stay the same for every number between the limits."""

from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pytest

from agiledart import Topology, TopologyError, collect, count_of, null, records, tumbling
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.plan.parallelism_request import (
    RequestedParallelism,
    is_valid_parallelism,
    limits_text,
    parse_limits,
)
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_dataflow.plan.stages import expand_parallelism, plan_stages
from agiledart_dataflow.runtime.program import compile_program
from agiledart_executor.local_runs.local_run import run_topology
from tests.reference.inline_host import InlineHost


class Row(NamedTuple):
    """A row."""

    at: int
    key: int


ROWS = [Row(n // 3, n * 7 % 11) for n in range(900)]


def job(sink: Any = collect) -> Topology:
    """A stateless stage, then one by key, then the sink."""
    topology = Topology("job")
    rows = topology.source("rows", records(ROWS, row_type=Row), event_time=lambda row: row.at)
    kept = rows.filter(lambda row: row.key != 5, name="kept").map(lambda row: row, name="same")
    counts = (
        kept.key_by(lambda row: row.key).window(tumbling(timedelta(milliseconds=50))).aggregate("counts", count_of())
    )
    counts.sink("out", sink)
    return topology


def planned(asked: dict[str, RequestedParallelism], topology: Topology | None = None) -> StagePlan:
    """The plan of the job."""
    return plan_stages((topology or job()).specification(), asked)


def test_a_stage_starts_at_its_lower_limit_with_edges_for_the_higher_one() -> None:
    plan = planned({"kept": (1, 4), "counts": (2, 4)})
    assert [(stage.parallelism, stage.low, stage.high, stage.scales) for stage in plan.stages] == [
        (1, 1, 1, False),
        (1, 1, 4, True),
        (2, 2, 4, True),
        (1, 1, 1, False),
    ]
    assert [edge.partitioning for edge in plan.edges] == ["round_robin", "key", "single"]
    assert [edge.carries for edge in plan.edges] == ["positions", "positions", "positions"]


def test_a_stage_with_limits_is_never_joined_one_to_one() -> None:
    topology = Topology("two")
    rows = topology.source("rows", records([], row_type=Row), event_time=lambda row: row.at)
    one = rows.map(lambda row: row, name="one")
    one.map(lambda row: row, name="left").union(one.map(lambda row: row, name="right"), name="both").sink("o", collect)

    def joining(asked: dict[str, RequestedParallelism]) -> set[str]:
        return {edge.partitioning for edge in plan_stages(topology.specification(), asked).edges if edge.target != 5}

    fixed: dict[str, RequestedParallelism] = {"one": 2, "left": 2, "right": 2, "both": 2}
    assert "forward" in joining(fixed)
    assert "forward" not in joining(dict.fromkeys(fixed, (2, 2)))


@pytest.mark.parametrize("sink", [collect, null()])
def test_without_limits_nothing_changes(sink: Any) -> None:
    """A stage of one instance keeps plain rows; only stages that may scale cost more."""
    fixed = plan_stages(job(sink).specification(), 1)
    assert [edge.partitioning for edge in fixed.edges] == ["single", "single", "single"]
    assert [edge.carries for edge in fixed.edges] == ["times", "times", "rows"]
    limited = plan_stages(job(sink).specification(), {"counts": (1, 4)})
    costs = ["positions", "positions", "positions"] if sink is collect else ["times", "times", "rows"]
    assert [edge.carries for edge in limited.edges] == costs


def test_every_number_between_the_limits_has_the_same_edges_and_the_same_bytes() -> None:
    topology = job()
    start = planned({"kept": (1, 4), "counts": (1, 4)}, topology)
    frames = set()
    for number in range(1, 5):
        plan = start.with_instances({"kept": number, "counts": number})
        assert plan.edges == start.edges
        program = compile_program(topology, plan)
        batch = Batch([Row(1, 2)], [(1, 0, 0, 0)], (1, 0, 0, 0))
        frames.add(bytes(program.codec(0).encode(batch)))
        assert [stage.parallelism for stage in plan.stages] == [1, number, number, 1]
    assert len(frames) == 1


@pytest.mark.parametrize("numbers", [(1, 1), (1, 3), (4, 1), (3, 4)])
def test_the_results_are_the_same_for_every_number(numbers: tuple[int, int]) -> None:
    expected = run_topology(job()).collected["out"]
    asked: dict[str, RequestedParallelism] = {"kept": (1, 4), "counts": (1, 4)}
    for seed in range(3):
        host = InlineHost(job(), parallelism=asked, starts={"kept": numbers[0], "counts": numbers[1]}, seed=seed)
        assert host.run()["out"] == expected


def test_an_unplanned_change_is_refused_with_the_option_that_would_allow_it() -> None:
    plan = planned({"counts": (2, 4)})
    for number, words in [
        (8, r"planned for 2 to 4 instances, not 8\. Submit it with --parallelism counts=2\.\.8, or call "
            r"topology\.scale\('counts', 2, 8\): .*costs 4 to 8 % of the time of a job"),
        (1, r"not 1\. .*counts=1\.\.4"),
        (0, r"not 0\. 1 to 128 are possible"),
        (129, r"not 129\. 1 to 128 are possible"),
    ]:  # fmt: skip
        with pytest.raises(TopologyError, match=words):
            plan.with_instances({"counts": number})
    with pytest.raises(TopologyError, match="Did you mean counts"):
        plan.with_instances({"count": 3})
    with pytest.raises(TopologyError, match="out runs once: it is a sink"):
        plan.with_instances({"out": 2})


def test_a_plain_number_may_be_lowered_when_no_partner_depends_on_it() -> None:
    plan = planned({"kept": 3, "counts": 3})
    assert plan.with_instances({"counts": 1}).stages[2].parallelism == 1
    with pytest.raises(TopologyError, match="1 to 3 instances"):
        plan.with_instances({"counts": 4})
    topology = Topology("two")
    rows = topology.source("rows", records([], row_type=Row), event_time=lambda row: row.at)
    one = rows.map(lambda row: row, name="one")
    one.map(lambda row: row, name="left").sink("a", collect)
    one.map(lambda row: row, name="right").sink("b", collect)
    with pytest.raises(TopologyError, match=r"left and one were planned with the same number .*left=1\.\.2"):
        plan_stages(topology.specification(), 2).with_instances({"left": 1})


def test_the_submission_overrides_the_builders_limits() -> None:
    topology = job()
    topology.scale("counts", 1, 4)
    specification = topology.specification()
    assert plan_stages(specification).stages[2].high == 4
    assert plan_stages(specification, {"counts": 2}).stages[2].scales is False
    assert plan_stages(specification, {"counts": (2, 3)}).stages[2].low == 2
    assert expand_parallelism(specification, {"": 5}) == {"kept": 5}, (
        "a number for all leaves alone what the builder said"
    )
    assert expand_parallelism(specification, {"": (1, 5), "counts": 2}) == {"kept": (1, 5), "counts": 2}
    topology.scale("counts", 2, 2)
    assert plan_stages(topology.specification()).stages[2].parallelism == 2


def test_limits_are_kept_in_the_specification_and_the_plan() -> None:
    topology = job()
    before = topology.specification().digest()
    topology.scale("counts", 1, 4)
    assert topology.specification().digest() != before
    plan = plan_stages(topology.specification())
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=StagePlan) == plan
    compile_program(topology, plan)


@pytest.mark.parametrize(
    ("step", "low", "high", "words"),
    [
        ("count", 1, 4, "no step 'count' to scale. Did you mean counts?"),
        ("counts", 0, 4, "cannot scale from 0 to 4"),
        ("counts", 5, 4, "the lower one first"),
        ("counts", 1, 129, "1 to 128"),
        ("counts", True, 4, "cannot scale"),
        ("counts", 1.0, 4, "cannot scale"),
        ("out", 1, 2, "'out' runs once (sink)"),
        ("rows", 1, 2, "'rows' runs once (source)"),
    ],
)
def test_invalid_limits_are_rejected_in_the_builder(step: str, low: Any, high: Any, words: str) -> None:
    with pytest.raises(TopologyError) as error:
        job().scale(step, low, high)
    assert words in str(error.value)
    assert "test_limits_of_stages.py" in str(error.value), "the line that is wrong"


def test_steps_of_one_stage_need_the_same_limits() -> None:
    with pytest.raises(TopologyError, match=r"one number: kept=1\.\.4, same=1\.\.2"):
        planned({"kept": (1, 4), "same": (1, 2)})
    with pytest.raises(TopologyError, match=r"kept=1\.\.4, same=3"):
        planned({"kept": (1, 4), "same": 3})
    with pytest.raises(TopologyError, match=r"Limits 4\.\.1 are not possible"):
        planned({"kept": (4, 1)})
    with pytest.raises(TopologyError, match="out runs once"):
        planned({"out": (1, 2)})


@pytest.mark.parametrize(
    ("text", "asked"),
    [("4", 4), ("1..8", (1, 8)), ("8..8", (8, 8)), ("8..1", None), ("0", None), ("1..", None), ("..8", None),
     ("1..2..3", None), ("-1", None), ("129", None), ("1..129", None), ("", None), ("٣", None), ("1.8", None)],
)  # fmt: skip
def test_limits_are_parsed_and_formatted(text: str, asked: RequestedParallelism | None) -> None:
    assert parse_limits(text) == asked
    if asked is not None:
        assert is_valid_parallelism(asked)
        assert limits_text(asked) == text
