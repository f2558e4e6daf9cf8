"""The table of step kinds says what planning and the ledger go by; windows are read back from their written form."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agiledart_dataflow
from agiledart_dataflow.event_time.windows import Counted, Panes, Session, Sliding, Window, read_window
from agiledart_dataflow.plan.specification import Specification, StepSpecification
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.plan.step_kinds import STEP_KINDS, kind_named
from agiledart_kernel.errors import TopologyError

SIZES = st.integers(1, 10**15)
WINDOWS = st.one_of(
    st.builds(Sliding, SIZES),
    st.builds(Panes, SIZES, SIZES, st.integers(0, 10**12)),
    st.builds(Session, SIZES),
    st.builds(Counted, SIZES, SIZES),
)


@given(WINDOWS)
def test_a_window_is_parsed_from_its_written_form(window: Window) -> None:
    assert read_window(str(window)) == window


@pytest.mark.parametrize("written", ["", "hopping(1 ms)", "sliding(1 s)", "hopping(1 ms, every 2 ms)x", "round(3 ms)"])
def test_an_unknown_window_is_refused(written: str) -> None:
    with pytest.raises(TopologyError, match="knows no window"):
        read_window(written)


def test_every_kind_is_one_of_stateless_stateful_bare_or_source() -> None:
    for kind in STEP_KINDS.values():
        assert kind.is_stateless + kind.has_state + kind.is_bare + (kind.stage == "source") == 1, kind.name


def test_joins_number_their_branches() -> None:
    for kind in STEP_KINDS.values():
        assert kind.branches == (kind.joins or kind.inputs == "any"), kind.name
        assert not kind.branches or kind.path % 2 == 1, f"{kind.name} appends no number of the branch"


def test_an_unknown_kind_of_another_version_is_displayed_but_not_planned() -> None:
    steps = (StepSpecification(0, "rows", "source"), StepSpecification(1, "odd", "quantum-join", (0,)))
    assert kind_named("quantum-join").stage == "operator"
    assert [step.name for step in Specification("t", steps).sources] == ["rows"]
    with pytest.raises(TopologyError, match="odd: this version of AgileDart knows no step of kind 'quantum-join'"):
        plan_stages(Specification("t", steps))


def test_step_kinds_are_not_compared_with_strings() -> None:
    """Outside the table and the verbs, which make steps of a kind, no step's kind is compared with a text."""
    package = Path(agiledart_dataflow.__file__).parent
    rooms = [package / room for room in ("plan", "runtime")]
    found = [
        f"{path.relative_to(package)}:{node.lineno} {ast.unparse(node)}"
        for path in sorted(path for room in rooms for path in room.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare)
        and ast.unparse(node.left) in ("step.kind", "head.kind", "steps[0].kind")
        and not ast.unparse(node).endswith("STEP_KINDS")
    ]
    assert found == []
