"""Values and desks for tests of recovery."""

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observe import Observation
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.config import RecoveryConfig
from agiledart_recovery.desk import Desk
from agiledart_recovery.wire.names import NOTHING_SAVED, Party, Run, Snapshot, Voter
from agiledart_recovery.wire.value import Assignment, Element, Plan, Role, Saved, Value

RUN = Run("taxi", 1)


def peer(number: int, incarnation: int = 1) -> Peer:
    return Peer(NodeId(number), incarnation, f"node-{number}")


def desk(number: int = 1, observed: list[Observation] | None = None) -> Desk:
    return Desk(peer(number), RecoveryConfig(), RandomStream(number), (observed if observed is not None else []).append)


def plan(source: int = 1, stage: int = 2, sink: int = 3, *, is_pinned: bool = False) -> Plan:
    return Plan(
        (
            Assignment(Party("source"), Role.SOURCE, peer(source), is_pinned=True),
            Assignment(Party("stage"), Role.STAGE, peer(stage), is_pinned=is_pinned),
            Assignment(Party("sink"), Role.SINK, peer(sink), is_pinned=True),
        ),
        (("source", "stage"), ("stage", "sink")),
    )


def value(life: int = 1, committed: Snapshot = NOTHING_SAVED, made: Plan | None = None) -> Value:
    voters = tuple(Voter(peer(number), number) for number in (1, 4, 5))
    holders = tuple(NodeId(number) for number in (6, 7, 8))
    saved = (Saved(Party("stage"), (Element(committed, b"hash", 10, 2, holders),)),) if committed.epoch else ()
    return Value(RUN, 1, life, made or plan(), committed, voters, (), saved)
