"""`stop --checkpoint`, `checkpoint export` and `checkpoint remove`: each refusal with its sentence."""

from typing import Any, cast

import msgspec
import pytest

from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Asker
from agiledart_node.asking.kept_checkpoints import KeptCheckpoints
from agiledart_node.desk.desk import CommandRefused, NotAllowed
from agiledart_node.records.application import ApplicationRecord
from agiledart_node.recovering.keeping_state import elements_of
from agiledart_node.wire.checkpoint_messages import KnownCheckpoint
from agiledart_node.wire.commands import Stop
from agiledart_recovery.wire.names import Run
from tests.unit.node import test_change_plans as plans

RECORD = ApplicationRecord("taxi", 1, 7, 7, "running", Peer(plans.PI[0].node), by_epoch=True)
ME, OTHER = b"m" * 32, b"o" * 32


def keeping() -> KeptCheckpoints:
    nothing = cast("Any", None)
    return KeptCheckpoints(nothing, nothing, nothing, nothing, nothing)


@pytest.mark.parametrize(
    ("changes", "command", "said", "code"),
    [
        ({}, Stop("taxi", checkpoint="a/b"), "is no name of a checkpoint", 2),
        ({}, Stop("taxi", checkpoint=".hidden"), "is no name of a checkpoint", 2),
        ({}, Stop("taxi", now=True, checkpoint="s"), "--now cuts an application", 2),
        ({"by_epoch": False}, Stop("taxi", checkpoint="s"), 'Submit it with delivery="exactly-once"', 1),
        ({"state": "deploying"}, Stop("taxi", checkpoint="s"), "is deploying: try again when it runs", 1),
        ({"state": "finished"}, Stop("taxi", checkpoint="s"), "nothing of its state is left", 1),
        ({"stopping": True}, Stop("taxi", checkpoint="s"), "is being drained already: its windows close", 1),
    ],
)
def test_what_cannot_be_stopped_with_a_checkpoint(changes: dict[str, Any], command: Stop, said: str, code: int) -> None:
    with pytest.raises(CommandRefused) as refusal:
        keeping()._refuse_stop(command, msgspec.structs.replace(RECORD, **changes))
    assert said in refusal.value.text
    assert refusal.value.exit_code == code


def test_what_runs_and_is_saved_can() -> None:
    keeping()._refuse_stop(Stop("taxi", checkpoint="before-the-change_1.2"), RECORD)


@pytest.mark.parametrize(
    ("asker", "why"),
    [
        (Asker("admin"), ""),
        (Asker("submitter", "", ME), ""),
        (Asker("submitter", "", OTHER), "owner"),
        (Asker("submitter", "app:taxi", OTHER), ""),
        (Asker("submitter", "app:bus", ME), "scope"),
        (Asker("reader"), "role"),
    ],
)
@pytest.mark.parametrize("verb", ["export", "checkpoint"])
def test_a_checkpoint_belongs_to_whom_its_application_belonged(asker: Asker, why: str, verb: str) -> None:
    kept = KnownCheckpoint("pause", Run("taxi", 1), 1, 7, 0, ME, (), b"\0" * 32, 10)
    if not why:
        keeping().check(asker, verb, kept)
        return
    with pytest.raises(NotAllowed) as refusal:
        keeping().check(asker, verb, kept)
    assert refusal.value.reason == why


def test_elements_are_where_their_instances_run() -> None:
    value = plans.value()
    places = {each.party: each.host for each in value.plan.assignments}
    for element in elements_of(value):
        assert element.host in places.values()
    moved = msgspec.structs.replace(value, plan=msgspec.structs.replace(value.plan, assignments=()))
    if value.saved:
        with pytest.raises(Exception, match="on its way to another node"):
            elements_of(moved)
