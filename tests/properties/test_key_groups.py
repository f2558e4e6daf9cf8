"""State by key group: every keyed operator goes on in two others, to which its groups were divided, as if nothing had happened."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import hopping, null, tumbling
from agiledart_dataflow.aggregation import panes
from agiledart_dataflow.aggregation.make_operator import MakeStore
from agiledart_dataflow.data.batch import listed
from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.data.partitioning import key_group
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.operators.base import Operator
from agiledart_dataflow.plan.step import Step
from agiledart_dataflow.plan.step_kinds import STEP_KINDS
from agiledart_dataflow.runtime.program import Program
from agiledart_dataflow.state.entries import EntryCodec
from agiledart_dataflow.state.key_groups import Division, restore_state, snapshot_of
from agiledart_dataflow.state.store import KeyedStore
from agiledart_executor.state.sqlite_store import SqliteStore
from agiledart_kernel.errors import LocalProtocolError
from agiledart_kernel.limits import KEY_GROUPS
from agiledart_kernel.randomness import RandomStream
from tests.conformance.operator_cases import ALL, CASES, Case, key, ms
from tests.conformance.test_operators import ROWS, topology_of
from tests.reference.inline_host import InlineHost
from tests.reference.rows import Row


def beside_a_patient_one(a: Any, b: Any) -> Any:
    """A window that lets no row in late, in a topology where another one does."""
    a.key_by(key).window(tumbling(ms(7), allowed_lateness=ms(9))).count("patient").sink("no", null())
    return a.key_by(key).window(hopping(ms(6), ms(3))).aggregate("x", ALL)


def patient(a: Any, b: Any) -> Any:
    """A window that goes on listening."""
    return a.key_by(key).window(hopping(ms(6), ms(3), allowed_lateness=ms(9))).aggregate("x", ALL)


ALL_CASES = [*CASES, Case("patient", patient, list), Case("beside a patient one", beside_a_patient_one, list)]
Line = tuple[Position, str, Any]
"""(position, side output or "", row)."""


class Input(NamedTuple):
    """One call of an operator."""

    rows: list[Any]
    positions: list[Any]
    watermark: Position


class Recorder:
    """In the place of an operator: notes with what it was called."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.inputs: list[Input] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)

    def run(self, rows: list[Any], positions: list[Any], watermark: Position) -> Any:
        """As the operator does."""
        order = list(listed(positions)) if positions is not None else [(watermark[0], n) for n in range(len(rows))]
        self.inputs.append(Input(list(rows), order, watermark))
        return self._operator.run(rows, positions, watermark)


def recorded(
    case: Case, rows: Sequence[Row], seed: int, at_least: Carries, divisions: Sequence[Division] = ("by group",)
) -> tuple[Program, dict[int, list[Input]]]:
    """Inputs of the operators of a case's stages, by stage, in some run of it with one instance each."""
    host = InlineHost(topology_of(case, rows), parallelism=1, seed=seed, at_least=at_least)
    recorders: dict[int, Recorder] = {}
    for (stage, _), instance in host.instances.items():
        if instance.state.division in divisions:
            assert instance.steps.operator is not None
            instance.steps.operator = recorders[stage] = Recorder(instance.steps.operator)
            instance.steps.run_batch = None
    host.run()
    return host.program, {stage: recorder.inputs for stage, recorder in recorders.items()}


@contextmanager
def operators(program: Program, stage: int, on_disk: Sequence[bool]) -> Iterator[list[Operator]]:
    """New operators of a stage; those that can keep their state on disk do so where it is asked for."""
    stores: list[KeyedStore] = []
    with TemporaryDirectory() as folder:

        def make_store(step: str, codec: EntryCodec) -> KeyedStore:
            stores.append(SqliteStore(step, codec, Path(folder), cached_keys=1))
            return stores[-1]

        state = program.steps(stage)[0].state
        if state is not None:
            state.keep = "disk"  # its request does not matter without a store
        yield [operator_of(program, stage, make_store if disk else None) for disk in on_disk]
        for store in stores:
            store.close()


def operator_of(program: Program, stage: int, make_store: MakeStore | None = None) -> Operator:
    """A new one."""
    operator = program.operator(stage, None, make_store)
    assert operator is not None
    return operator


def fed(operator: Operator, given: Input) -> list[Line]:
    """Output of an operator for one input, its side outputs included."""
    out, at = operator.run(list(given.rows), list(given.positions), given.watermark)
    lines = [(position, "", row) for position, row in zip(at or (), out, strict=True)]
    sides: dict[str, tuple[list[Any], list[Position]]] = getattr(operator, "sides", {})
    for tag, (rows, places) in sides.items():
        lines += [(position, tag, row) for position, row in zip(places, rows, strict=True)]
    sides.clear()
    return lines


def part_of(given: Input, step: Step, groups: frozenset[int]) -> Input:
    """The rows of an input whose keys are of these groups; those that go to every instance stay."""
    functions = step.key_functions

    def is_in(row: Any, position: Any) -> bool:
        if step.traits.shares_second and position[-1]:
            return True
        key_of = functions[position[-1]] if len(functions) > 1 else functions[0]
        return key_group(key_of(row)) in groups

    kept = [number for number, (row, at) in enumerate(zip(given.rows, given.positions, strict=True)) if is_in(row, at)]
    return Input([given.rows[n] for n in kept], [given.positions[n] for n in kept], given.watermark)


def in_order(lines: list[Line]) -> list[Line]:
    """By position; a merge of the outputs of several instances does the same."""
    return sorted(lines, key=lambda line: (line[1], line[0]))


def move_some(two: list[Operator], owners: list[int], random: RandomStream) -> None:
    """About half of the groups change their owner while both are at work."""
    held = [group for operator in two for group in operator.groups()]
    for group in [group for group in held if random.index(2)]:
        origin = two[owners[group]]
        owners[group] = 1 - owners[group]
        two[owners[group]].restore_group(group, origin.snapshot_group(group))
        origin.drop_group(group)
        assert group not in origin.groups()
    assert sorted(group for operator in two for group in operator.groups()) == sorted(held)


def divided(
    program: Program, stage: int, inputs: list[Input], cuts: tuple[int, int], on_disk: Sequence[bool], seed: int
) -> list[Line]:
    """Output of one operator up to the first cut, then of two that share its groups; after the second some of them move."""
    random = RandomStream(seed, "groups")
    step = program.steps(stage)[0]
    owners = [random.index(2) for _ in range(KEY_GROUPS)]
    lines: list[Line] = []
    with operators(program, stage, on_disk) as (one, *two):
        for one_input in inputs[: cuts[0]]:
            lines += fed(one, one_input)
        held = one.groups()
        assert held == sorted(set(held))
        for group in sorted(held, key=lambda group: random.uniform()):
            two[owners[group]].restore_group(group, one.snapshot_group(group))
        for other in two:
            other.restore_rest(one.snapshot_rest())
        assert [*two[0].groups(), *two[1].groups()] == sorted(held, key=lambda group: (owners[group], group))
        assert two[0].state_keys + two[1].state_keys == one.state_keys
        for number, one_input in enumerate(inputs[cuts[0] :], cuts[0]):
            if number >= cuts[1] and not random.index(3):
                move_some(two, owners, random)
            for index, other in enumerate(two):
                groups = frozenset(group for group in range(KEY_GROUPS) if owners[group] == index)
                lines += fed(other, part_of(one_input, step, groups))
    return lines


SEEDS = st.integers(0, 1_000_000)


@pytest.fixture(autouse=True, scope="module")
def short_lists() -> Iterator[None]:
    """State of windows is compacted soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panes, "COMPACT_EVERY", 3)
        patch.setattr(panes, "LONG", 2)
        yield


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
@given(
    rows=ROWS,
    is_sorted=st.booleans(),
    at=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    on_disk=st.lists(st.booleans(), min_size=3, max_size=3),
    seed=SEEDS,
)
@settings(max_examples=40, deadline=None)
def test_two_operators_continue_the_state_of_one(
    case: Case, rows: list[Row], is_sorted: bool, at: tuple[int, int], on_disk: list[bool], seed: int
) -> None:
    rows = sorted(rows, key=lambda row: row.at) if is_sorted else rows
    program, inputs = recorded(case, rows, seed, "positions")
    assert inputs or "top" not in case.name
    for stage, calls in inputs.items():
        with operators(program, stage, on_disk[:1]) as (whole,):
            wanted = [line for call in calls for line in fed(whole, call)]
        first, second = sorted(share * len(calls) // 20 for share in at)
        assert in_order(divided(program, stage, calls, (first, second), on_disk, seed)) == in_order(wanted)


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
@given(rows=ROWS, share=st.integers(0, 20), seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_all_groups_in_another_operator_equal_the_original(case: Case, rows: list[Row], share: int, seed: int) -> None:
    """In whatever order they come, and where no positions go with rows, so that the order of arrival counts."""
    rows = sorted(rows, key=lambda row: row.at)
    program, inputs = recorded(case, rows, seed, "rows")
    random = RandomStream(seed, "groups")
    for stage, calls in inputs.items():
        before, after, whole = (operator_of(program, stage) for _ in range(3))
        cut = share * len(calls) // 20
        lines = [line for call in calls[:cut] for line in fed(before, call)]
        for call in calls[: random.index(len(calls))]:
            fed(after, call)  # its contents, from before or after the cut, are replaced
        for group in after.groups():
            if random.index(2) or group not in before.groups():
                after.drop_group(group)
        for group in sorted(before.groups(), key=lambda group: random.uniform()):
            after.restore_group(group, before.snapshot_group(group))
        after.restore_rest(before.snapshot_rest())
        assert snapshot_of(after) == snapshot_of(before)
        lines += [line for call in calls[cut:] for line in fed(after, call)]
        assert lines == [line for call in calls for line in fed(whole, call)]


def rows_of(count: int) -> list[Row]:
    """Enough for every operator to remember something."""
    return [Row(number // 2, "abc"[number % 3], number % 7 - 3, 0.5, number % 2) for number in range(count)]


def test_every_stateful_kind_of_step_is_covered() -> None:
    """A new kind needs a case in `operator_cases.py`, and an operator that says how its state may be parted."""
    parted: dict[str, set[str]] = {}
    for case in ALL_CASES:
        host = InlineHost(topology_of(case, rows_of(4)), parallelism=1, seed=1)
        for (stage, _), instance in host.instances.items():
            parted.setdefault(host.program.steps(stage)[0].kind, set()).add(instance.state.division)
    with_state = {name: kind for name, kind in STEP_KINDS.items() if kind.has_state}
    assert {name: parted.get(name) for name in with_state} == {
        name: {"whole"} if kind.runs_once else {"by group"} for name, kind in with_state.items()
    }
    assert all(divisions == {"none"} for name, divisions in parted.items() if name not in with_state)
    assert {"union", "sink", "side"} <= set(parted)


def test_a_step_without_key_groups_reports_it() -> None:
    case = next(case for case in CASES if case.name == "top")
    host = InlineHost(topology_of(case, rows_of(30)), parallelism=1, seed=1)
    host.run()
    found: dict[str, int] = {}
    for (stage, _), instance in host.instances.items():
        state = instance.state
        kind = host.program.steps(stage)[0].kind
        if state.division != "none":
            continue
        found[kind] = len(state.snapshot_rest())
        assert state.groups() == []
        for ask in (state.snapshot_group, state.drop_group, lambda group, state=state: state.restore_group(group, b"")):
            with pytest.raises(LocalProtocolError, match="has no key group 5"):
                ask(5)
    assert found["sink"] == 0


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_a_restored_state_equals_the_original(case: Case) -> None:
    program, inputs = recorded(case, rows_of(60), 1, "positions", ("by group", "whole"))
    for stage, calls in inputs.items():
        remembered = 0
        for cut in range(1, len(calls), 5):
            operator, other = operator_of(program, stage), operator_of(program, stage)
            for call in calls[:cut]:
                fed(operator, call)
            before = snapshot_of(operator)
            for call in calls[cut:]:
                fed(operator, call)
            for one in (operator, other):
                restore_state(one, before)
                assert snapshot_of(one) == before
            remembered += len(before.groups)
        assert remembered
