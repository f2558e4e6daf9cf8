"""The record names the voters of a run, so that its coordinator is found."""

import msgspec

from agiledart_dataflow.plan.deployment import InstancePlace
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.records.application import FINISHED, RUNNING, ApplicationRecord
from agiledart_node.recovery.attempt_records import MAX_GUARDS, with_guards
from tests.unit.node.test_node import ME, SCHEDULER


def guard(number: int) -> Peer:
    return Peer(NodeId(number), 1, f"g{number}")


RECORD = ApplicationRecord(
    "app",
    1,
    7,
    7,
    RUNNING,
    SCHEDULER,
    coordinator=ME,
    nodes=(ME,),
    guards=(guard(1), guard(2)),
    assignment=(InstancePlace(0, 0, 0),),
    by_epoch=True,
)


def test_a_new_voter_becomes_a_non_host_voter_and_a_voting_host_stays_a_host() -> None:
    assert with_guards(RECORD, (guard(1), guard(2), ME)) is None
    changed = with_guards(RECORD, (guard(2), guard(3), ME))
    assert changed is not None
    assert changed.guards == (guard(1), guard(2), guard(3))


def test_an_ended_run_is_unchanged() -> None:
    assert with_guards(msgspec.structs.replace(RECORD, state=FINISHED), (guard(3),)) is None


def test_non_host_voters_are_bounded_and_active_voters_stay() -> None:
    record = msgspec.structs.replace(RECORD, guards=tuple(guard(number) for number in range(1, MAX_GUARDS + 1)))
    changed = with_guards(record, (guard(1), guard(98), guard(99)))
    assert changed is not None
    assert len(changed.guards) == MAX_GUARDS
    assert changed.guards[-3:] == (guard(1), guard(98), guard(99))
    assert guard(2) not in changed.guards
