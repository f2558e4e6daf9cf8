"""Values and desks for tests of recovery."""

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observation
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire.names import INITIAL_CHECKPOINT, CheckpointId, InstanceId, RunId, Voter
from agiledart_recovery.wire.register_value import (
    Assignment,
    InstanceRole,
    InstanceSnapshot,
    Plan,
    RegisterValue,
    SavedState,
)

RUN = RunId("taxi", 1)


def peer(number: int, incarnation: int = 1) -> Peer:
    return Peer(NodeId(number), incarnation, f"node-{number}")


def context(number: int = 1, observed: list[Observation] | None = None) -> RecoveryContext:
    return RecoveryContext(
        peer(number), RecoveryConfig(), RandomStream(number), (observed if observed is not None else []).append
    )


def plan(source: int = 1, stage: int = 2, sink: int = 3, *, is_pinned: bool = False) -> Plan:
    return Plan(
        (
            Assignment(InstanceId("source"), InstanceRole.SOURCE, peer(source), is_pinned=True),
            Assignment(InstanceId("stage"), InstanceRole.STAGE, peer(stage), is_pinned=is_pinned),
            Assignment(InstanceId("sink"), InstanceRole.SINK, peer(sink), is_pinned=True),
        ),
        (("source", "stage"), ("stage", "sink")),
    )


def value(attempt: int = 1, committed: CheckpointId = INITIAL_CHECKPOINT, made: Plan | None = None) -> RegisterValue:
    voters = tuple(Voter(peer(number), number) for number in (1, 4, 5))
    replica_nodes = tuple(NodeId(number) for number in (6, 7, 8))
    saved = (
        (SavedState(InstanceId("stage"), (InstanceSnapshot(committed, b"hash", 10, 2, replica_nodes),)),)
        if committed.epoch
        else ()
    )
    return RegisterValue(RUN, 1, attempt, made or plan(), committed, voters, (), saved)
