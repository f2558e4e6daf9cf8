"""Tables of the model job: the owner of each group of rows, and the edges that rows take; a real plan's body has them, too."""

from collections.abc import Mapping

import msgspec

from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.wire.names import InstanceId
from agiledart_recovery.wire.register_value import Plan
from agiledart_simulation.pipeline.pipeline_messages import PipelineRow

GROUPS = 4

JOINED = "L"
"""The source with a side of its own at a stage that joins."""

JOINED_INDEX = 1
"""Number of that source in the positions of rows."""

Tables = dict[str, tuple[int, ...]]
"""Stage → the index of the instance that owns each group."""

_TABLES = msgspec.json.Decoder(Tables)


def encode_tables(tables: Mapping[str, tuple[int, ...]]) -> bytes:
    """Return the tables as a plan carries them."""
    return msgspec.json.encode(tables, order="sorted")


def tables_of(plan: Plan) -> Tables:
    """Return the tables of a plan; a stage without a table has one instance, which owns all groups."""
    return _TABLES.decode(plan.body) if plan.body else {}


def drawn_table(random: RandomStream, instances: int) -> tuple[int, ...]:
    """Draw owners for all groups; each instance owns one at least."""
    table = [*range(instances), *(random.index(instances) for _ in range(GROUPS - instances))]
    random.shuffle(table)
    return tuple(table)


def group_of(stage: str, row: PipelineRow) -> int:
    """Return the group of a row at a stage; each stage groups differently."""
    return (row.number // (1 + len(stage) + ord(stage[0]) % 3) + row.at[1]) % GROUPS


def owned(plan: Plan, instance: InstanceId) -> tuple[int, ...]:
    """Return the groups of an instance."""
    table = tables_of(plan).get(instance.stage, (0,) * GROUPS)
    return tuple(group for group, index in enumerate(table) if index == instance.index)


SHARED = -1
"""Key in place of a group, for rows of a broadcast edge, which count for all instances alike."""

OTHERS = 1_000
"""Factor of the other side's count in a row's count at a stage that joins."""


def marked_shared(body: bytes, edge: tuple[str, str]) -> bytes:
    """Return the body of a plan in which an edge is a broadcast."""
    return encode_tables({**_TABLES.decode(body), ">".join(edge): ()})


def is_shared(tables: Tables, source: str, stage: str) -> bool:
    """Return whether each row of an edge goes to all instances."""
    return f"{source}>{stage}" in tables


def joins(plan: Plan, stage: str) -> bool:
    """Return whether the second source has a side of its own at a stage.

    Its rows are counted beside all others, and each row that leaves shows that count so far. By group, as in a join by key, or
    by all instances, as with broadcast state.
    """
    return (JOINED, stage) in plan.edges


def other_side(plan: Plan, tables: Tables, stage: str, row: PipelineRow) -> int:
    """Return the key under which the other side's rows are counted, for a row."""
    return SHARED if is_shared(tables, JOINED, stage) else group_of(stage, row)


def owner_of(plan: Plan, tables: Tables, stage: str, row: PipelineRow) -> InstanceId:
    """Return the instance that receives a row."""
    index = tables[stage][group_of(stage, row)] if stage in tables else 0
    return plan.stage(stage)[index].instance


def targets_of(plan: Plan, stage: str) -> list[str]:
    """Return the stages that a stage sends to."""
    return [target for source, target in plan.edges if source == stage]


def sources_of(plan: Plan, stage: str) -> list[InstanceId]:
    """Return the instances that send to a stage."""
    return [
        assignment.instance for source, target in plan.edges if target == stage for assignment in plan.stage(source)
    ]


def counting_stages(plan: Plan, stage: str) -> list[str]:
    """Return the stages that count rows of a source, in order: each stage of the model sends to one other."""
    stages = []
    while onward := targets_of(plan, stage):
        stage = onward[0]
        stages.append(stage)
    return stages[:-1]
