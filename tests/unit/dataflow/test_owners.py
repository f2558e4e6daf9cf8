"""Tables of owners: how groups are read, and that senders go by the table and by nothing else."""

from collections import Counter
from typing import Any, NamedTuple

import msgspec
import pytest

from agiledart import Topology, TopologyError, col, collect, count, records
from agiledart_dataflow.data.batch import Batch, as_rows
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.partitioning import key_group, round_robin_group
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.outbox import Outbox
from agiledart_dataflow.runtime.program import Program, compile_program
from agiledart_dataflow.state.owner_table import are_owners, groups_of, owners_by_key, owners_round_robin, ranges_text
from agiledart_kernel.limits import KEY_GROUPS


class Row(NamedTuple):
    """A row."""

    at: int
    key: int


def job() -> Topology:
    """A stage by turn, and one by key."""
    topology = Topology("job")
    rows = topology.source("rows", records([], row_type=Row), event_time="at")
    rows.map(lambda row: row, name="same").key_by(col("key")).running("totals", n=count()).sink("out", collect)
    return topology


def scattered(stage: str, instances: int) -> tuple[Program, bytes]:
    """The job with a table that no formula gives."""
    topology = job()
    plan = plan_stages(topology.specification(), {"same": (3, 4), "totals": (3, 4)})
    table = bytes((group * group + group // 3) % instances for group in range(KEY_GROUPS))
    stages = [
        msgspec.structs.replace(one, owners=table, parallelism=instances) if stage in one.name else one
        for one in plan.stages
    ]
    return compile_program(topology, msgspec.structs.replace(plan, stages=tuple(stages))), table


def sent(program: Program, stage: int, batch: Batch) -> dict[int, list[Any]]:
    """Target → rows."""
    outbox = Outbox(program.plan, stage, 0, program.key_functions(stage))
    found: dict[int, list[Any]] = {}

    def emit(edge: int, target: int, part: Batch) -> None:
        found.setdefault(target, []).extend(as_rows(part.held))

    outbox.send(batch.held, batch.order, batch.watermark, emit)
    return found


ROWS = [Row(n, n * 31 % 257) for n in range(1000)]
POSITIONS: list[Any] = [(row.at, 0, 0, number) for number, row in enumerate(ROWS)]


@pytest.mark.parametrize("in_columns", [False, True])
def test_a_row_with_a_key_goes_to_the_owner_of_its_group(in_columns: bool) -> None:
    program, table = scattered("totals", 4)
    held = Columns.from_rows(ROWS, Row) if in_columns else ROWS
    found = sent(program, 1, Batch(held, POSITIONS, POSITIONS[-1]))
    for target in range(4):
        assert found[target] == [row for row in ROWS if table[key_group(row.key)] == target]


def test_a_row_without_a_key_goes_to_the_owner_of_the_next_key_group() -> None:
    program, table = scattered("same", 4)
    found = sent(program, 0, Batch(ROWS, POSITIONS, POSITIONS[-1]))
    for target in range(4):
        assert found.get(target, []) == [row for row in ROWS if table[round_robin_group(row.at)] == target]
    assert [round_robin_group(number) for number in (0, 1, 127, 128, 255, 256)] == [0, 1, 127, 1, 0, 2]


def test_few_successive_rows_without_keys_reach_all_instances() -> None:
    """An instance that needs long for a row has credit for a few rows only: the others must not wait meanwhile."""
    program, _ = scattered("same", 4)
    turns = owners_round_robin(4)
    stages = [msgspec.structs.replace(one, owners=turns) if one.name == "same" else one for one in program.plan.stages]
    even = compile_program(program.topology, msgspec.structs.replace(program.plan, stages=tuple(stages)))
    found = sent(even, 0, Batch(ROWS[:8], POSITIONS[:8], POSITIONS[7]))
    assert [len(found[target]) for target in range(4)] == [2, 2, 2, 2]


@pytest.mark.parametrize("distance", [1, 2, 4, 64, 128])
def test_records_at_even_distances_reach_all_instances_evenly(distance: int) -> None:
    table = owners_round_robin(4)
    numbers = range(0, KEY_GROUPS * KEY_GROUPS, distance)
    shares = Counter(table[round_robin_group(number)] for number in numbers)
    assert [shares[target] for target in range(4)] == [len(numbers) // 4] * 4


def test_an_instance_may_own_nothing() -> None:
    program, _ = scattered("totals", 1)
    stages = list(program.plan.stages)
    stages[2] = msgspec.structs.replace(stages[2], parallelism=3)
    idle = compile_program(program.topology, msgspec.structs.replace(program.plan, stages=tuple(stages)))
    found = sent(idle, 1, Batch(ROWS, POSITIONS, POSITIONS[-1]))
    assert (len(found[0]), found[1], found[2]) == (len(ROWS), [], [])


def test_a_plan_with_an_invalid_owner_table_is_refused() -> None:
    topology = job()
    plan = plan_stages(topology.specification(), {"totals": 3})
    for table in (b"", owners_by_key(3)[:-1], owners_by_key(4)):
        stages = [msgspec.structs.replace(one, owners=table) if one.keyed else one for one in plan.stages]
        broken = msgspec.msgpack.decode(
            msgspec.msgpack.encode(msgspec.structs.replace(plan, stages=tuple(stages))), type=StagePlan
        )
        with pytest.raises(TopologyError, match="has no table of the key owners of totals"):
            compile_program(topology, broken)


def test_initial_owner_tables_are_contiguous() -> None:
    assert groups_of(owners_by_key(4), 1) == tuple(range(32, 64))
    assert groups_of(owners_round_robin(4), 1) == tuple(range(1, 128, 4))
    assert plan_stages(job().specification()).stages[1].owners == b"", "one instance needs no table"
    assert plan_stages(job().specification(), {"totals": (1, 4)}).stages[2].owners == bytes(KEY_GROUPS)
    assert are_owners(owners_round_robin(5), 5)
    assert not are_owners(owners_round_robin(5), 4)


@pytest.mark.parametrize(
    ("groups", "text"),
    [((), ""), ((0,), "0"), ((0, 1, 2), "0-2"), ((1, 3, 4, 127), "1,3-4,127"), (tuple(range(128)), "0-127")],
)
def test_key_groups_are_formatted_as_ranges(groups: tuple[int, ...], text: str) -> None:
    assert ranges_text(groups) == text
