"""Which instance of a stage has which group of rows, and which ways rows take: what a real plan's body says to executors."""

from collections.abc import Mapping

import msgspec

from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.wire.names import InstanceId
from agiledart_recovery.wire.register_value import Plan
from agiledart_simulation.pipeline.pipeline_messages import PipelineRow

GROUPS = 4

JOINED = "L"
"""The source that has a side of its own where it comes in."""

JOINED_INDEX = 1
"""Its number, as rows' positions have it."""

Tables = dict[str, tuple[int, ...]]
"""Stage → the index of the instance that owns each group."""

_TABLES = msgspec.json.Decoder(Tables)


def encode_tables(tables: Mapping[str, tuple[int, ...]]) -> bytes:
    """As a plan carries it."""
    return msgspec.json.encode(tables, order="sorted")


def tables_of(plan: Plan) -> Tables:
    """Of a plan; a stage without a table has one instance, which owns everything."""
    return _TABLES.decode(plan.body) if plan.body else {}


def drawn_table(random: RandomStream, instances: int) -> tuple[int, ...]:
    """Some owners for all groups; each instance owns one at least."""
    table = [*range(instances), *(random.index(instances) for _ in range(GROUPS - instances))]
    random.shuffle(table)
    return tuple(table)


def group_of(stage: str, row: PipelineRow) -> int:
    """Each stage groups rows in a way of its own."""
    return (row.number // (1 + len(stage) + ord(stage[0]) % 3) + row.at[1]) % GROUPS


def owned(plan: Plan, instance: InstanceId) -> tuple[int, ...]:
    """Groups of an instance."""
    table = tables_of(plan).get(instance.stage, (0,) * GROUPS)
    return tuple(group for group, index in enumerate(table) if index == instance.index)


SHARED = -1
"""In place of a group: what rows of a broadcast edge say to all instances alike."""

OTHERS = 1_000
"""A row's count at a stage that joins: its group's rows, and so many times what the other side has said so far."""


def marked_shared(body: bytes, edge: tuple[str, str]) -> bytes:
    """The body of a plan in which an edge is a broadcast."""
    return encode_tables({**_TABLES.decode(body), ">".join(edge): ()})


def is_shared(tables: Tables, source: str, stage: str) -> bool:
    """Whether each row of an edge goes to all instances."""
    return f"{source}>{stage}" in tables


def joins(plan: Plan, stage: str) -> bool:
    """Whether the second source has a side of its own at a stage: its rows are counted beside all others, and what it has said so
    far is seen in each row that leaves. By group, as a join by key, or by all instances, as with broadcast state.
    """
    return (JOINED, stage) in plan.edges


def other_side(plan: Plan, tables: Tables, stage: str, row: PipelineRow) -> int:
    """Where what the other side says is counted, for a row."""
    return SHARED if is_shared(tables, JOINED, stage) else group_of(stage, row)


def owner_of(plan: Plan, tables: Tables, stage: str, row: PipelineRow) -> InstanceId:
    """The instance that gets a row."""
    index = tables[stage][group_of(stage, row)] if stage in tables else 0
    return plan.stage(stage)[index].instance


def targets_of(plan: Plan, stage: str) -> list[str]:
    """Stages that a stage sends to."""
    return [target for source, target in plan.edges if source == stage]


def sources_of(plan: Plan, stage: str) -> list[InstanceId]:
    """Instances that send to a stage."""
    return [each.instance for source, target in plan.edges if target == stage for each in plan.stage(source)]


def counting_stages(plan: Plan, stage: str) -> list[str]:
    """Stages that count rows of a source, in order: each stage of the model has one that it sends to."""
    way = []
    while onward := targets_of(plan, stage):
        stage = onward[0]
        way.append(stage)
    return way[:-1]
