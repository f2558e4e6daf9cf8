"""Rules about nodes and expected figures in the language: where they stand, what cuts the graph, what a user gets wrong."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from agiledart import Topology, TopologyError, collect, records
from agiledart_dataflow.plan.placement_rules import NO_RULES, ExpectedFigures, PlacementRules
from agiledart_dataflow.plan.stages import plan_stages


class Row(NamedTuple):
    """A row."""

    at: int


def job() -> Topology:
    """rows → clean+scale → counts → out."""
    topology = Topology("job")
    rows = topology.source("rows", records([], row_type=Row), event_time=lambda row: row.at)
    scaled = rows.map(lambda row: row, name="clean").map(lambda row: row, name="scale")
    scaled.key_by(lambda row: row.at).running_count("counts").sink("out", collect)
    return topology


def test_a_stage_has_the_rules_of_its_steps_and_the_graph_is_cut_where_they_differ() -> None:
    topology = job()
    assert [stage.name for stage in plan_stages(topology.specification()).stages] == [
        "rows",
        "clean+scale",
        "counts",
        "out",
    ]
    topology.place("scale", labels=["gpu", "fast"], zone="attic", apart_from=["host:clean"], together_with=["counts"])
    stages = {stage.name: stage.rules for stage in plan_stages(topology.specification()).stages}
    rules = PlacementRules(("fast", "gpu"), "attic", (), ("counts",), (("host", "clean"),))
    assert stages == {"rows": NO_RULES, "clean": NO_RULES, "scale": rules, "counts": NO_RULES, "out": NO_RULES}
    topology.place("scale")
    assert len(plan_stages(topology.specification()).stages) == 4, "a call without rules removes them"


def test_steps_with_the_same_rules_stay_in_one_stage() -> None:
    topology = job()
    for step in ("clean", "scale"):
        topology.place(step, on=["pi2", "pi1"])
    (stage,) = (stage for stage in plan_stages(topology.specification()).stages if "clean" in stage.name)
    assert (stage.name, stage.rules.on) == ("clean+scale", ("pi1", "pi2"))


def test_expected_figures_are_part_of_the_digest_and_cut_nothing() -> None:
    topology, before = job(), job().specification().digest()
    topology.expect("rows", rows_per_s=100, bytes=40)
    topology.expect("scale", ms=2, selectivity=0.5)
    specification = topology.specification()
    assert specification.steps[0].expected == ExpectedFigures(rows_per_s=100.0, bytes=40.0)
    assert specification.steps[2].expected == ExpectedFigures(ms=2.0, selectivity=0.5)
    assert specification.digest() != before
    assert len(plan_stages(specification).stages) == 4


@pytest.mark.parametrize(
    ("rule", "refused", "allowed"),
    [
        (PlacementRules(labels=("gpu",)), "needs the label gpu", ("a", "", ("gpu", "x"))),
        (PlacementRules(zone="attic"), "only zone attic", ("a", "attic", ())),
        (PlacementRules(on=("a", "b")), "only on a, b", ("b", "", ())),
    ],
)
def test_a_rule_names_itself_where_it_forbids_a_node(
    rule: PlacementRules, refused: str, allowed: tuple[str, str, tuple[str, ...]]
) -> None:
    assert rule.broken_by("c", "cellar", ("x",)) == refused
    assert rule.broken_by(*allowed) == ""


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t.place("scales", zone="x"), "Did you mean scale"),
        (lambda t: t.place("scale", labels="gpu"), r"labels is a list of names, as \['gpu'\]"),
        (lambda t: t.place("scale", labels=["two words"]), "cannot be a label"),
        (lambda t: t.place("scale", apart_from=["host:clea"]), "no step 'clea'. Did you mean clean"),
        (lambda t: t.place("scale", together_with=["scale"]), "apart from itself"),
        (lambda t: t.place("scale", together_with=["clean"], apart_from=["clean"]), "together with 'clean' and apart"),
        (lambda t: t.place("scale", labels=[f"l{n}" for n in range(17)]), "at most 16"),
        (lambda t: t.place("rows", zone="x"), "is a source: pin it with at="),
        (lambda t: t.expect("scale", rows_per_s=3), "is no source"),
        (lambda t: t.expect("scale", ms=-1), "ms is -1; expected is a number from 0"),
        (lambda t: t.expect("scale", selectivity=True), "selectivity is True"),
        (lambda t: t.expect("nothing", ms=1), "there is no step 'nothing'"),
    ],
)
def test_mistakes_are_named_at_the_line_of_the_call(call: Callable[[Topology], None], words: str) -> None:
    with pytest.raises(TopologyError, match=words) as raised:
        call(job())
    assert "test_placement_rules.py:" in str(raised.value)
