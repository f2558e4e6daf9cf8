"""`stop --checkpoint`, `checkpoint export` and `checkpoint remove`: each refusal with its sentence."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agiledart_kernel.machine import Completed
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import CommandRefused, NotAllowed
from agiledart_node.records.application import ApplicationRecord
from agiledart_node.records.permission_checks import check
from agiledart_node.recovery.checkpoint_exporter import snapshots_to_gather
from agiledart_node.user_commands import checkpoint_list
from agiledart_node.user_commands.command_service import CommandParts
from agiledart_node.user_commands.retained_checkpoints import RetainedCheckpoints
from agiledart_node.wire.checkpoint_commands import Checkpoints, ExportCheckpoint
from agiledart_node.wire.checkpoint_effects import AllowCheckpointFetch
from agiledart_node.wire.checkpoint_messages import CheckpointInfo, RequestDownload, RetainedCheckpointList
from agiledart_node.wire.commands import Stop
from agiledart_node.wire.recovery_responses import CheckpointsResponse
from agiledart_recovery.wire.names import RunId
from tests.unit.node import test_change_plans as plans

RECORD = ApplicationRecord("taxi", 1, 7, 7, "running", Peer(plans.PI[0].node), by_epoch=True)
ME, OTHER = b"m" * 32, b"o" * 32


def keeping() -> RetainedCheckpoints:
    nothing = cast("Any", None)
    return RetainedCheckpoints(CommandParts(nothing, nothing, nothing, nothing, nothing))


@pytest.mark.parametrize(
    ("changes", "command", "said", "code"),
    [
        ({}, Stop("taxi", checkpoint="a/b"), "invalid checkpoint name", 2),
        ({}, Stop("taxi", checkpoint=".hidden"), "invalid checkpoint name", 2),
        ({}, Stop("taxi", now=True, checkpoint="s"), "--now cuts an application", 2),
        ({"by_epoch": False}, Stop("taxi", checkpoint="s"), 'Submit it with delivery="survive"', 1),
        ({"state": "deploying"}, Stop("taxi", checkpoint="s"), "is deploying: try again when it runs", 1),
        ({"state": "finished"}, Stop("taxi", checkpoint="s"), "nothing of its state is left", 1),
        ({"stopping": True}, Stop("taxi", checkpoint="s"), "is being drained already: its windows close", 1),
    ],
)
def test_runs_that_cannot_be_stopped_with_a_checkpoint_are_refused(
    changes: dict[str, Any], command: Stop, said: str, code: int
) -> None:
    with pytest.raises(CommandRefused) as refusal:
        keeping()._refuse_stop(command, msgspec.structs.replace(RECORD, **changes))
    assert said in refusal.value.text
    assert refusal.value.exit_code == code


def test_a_running_application_with_checkpoints_can_be_stopped_with_one() -> None:
    keeping()._refuse_stop(Stop("taxi", checkpoint="before-the-change_1.2"), RECORD)


@pytest.mark.parametrize(
    ("principal", "why"),
    [
        (Principal("admin"), ""),
        (Principal("submitter", "", ME), ""),
        (Principal("submitter", "", OTHER), "owner"),
        (Principal("submitter", "app:taxi", OTHER), ""),
        (Principal("submitter", "app:bus", ME), "scope"),
        (Principal("reader"), "role"),
    ],
)
@pytest.mark.parametrize("verb", ["export", "checkpoint"])
def test_a_checkpoint_belongs_to_the_owner_of_its_application(principal: Principal, why: str, verb: str) -> None:
    retained = CheckpointInfo("pause", RunId("taxi", 1), 1, 7, 0, ME, (), b"\0" * 32, 10)
    if not why:
        keeping().check(principal, verb, retained)
        return
    with pytest.raises(NotAllowed) as refusal:
        keeping().check(principal, verb, retained)
    assert refusal.value.reason == why


ANN, BOB = Principal("submitter", "", ME), Principal("submitter", "", OTHER)
OF_ANN = CheckpointInfo("pause", RunId("taxi", 1), 1, 7, 0, ME, (), b"\1" * 32, 10)
OF_BOB = CheckpointInfo("pause", RunId("bus", 1), 1, 9, 0, OTHER, (), b"\2" * 32, 10)


class Answers:
    """Messages to a user, and existing files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *retained: CheckpointInfo) -> None:
        async def everybody(*_: object) -> list[tuple[Peer, RetainedCheckpointList]]:
            return [(plans.PI[0], RetainedCheckpointList(1, retained))]

        monkeypatch.setattr("agiledart_node.user_commands.retained_checkpoints.ask_all_agents", everybody)
        context: Any = SimpleNamespace(names=dict, reply=lambda _, body: self.said.append(body))
        nothing = cast("Any", None)
        self.context, self.keeping = (
            context,
            RetainedCheckpoints(CommandParts(context, nothing, nothing, nothing, nothing)),
        )
        self.said: list[Any] = []
        self.found: ApplicationRecord | None = None

    async def record(self, name: str, principal: Principal, verb: str) -> ApplicationRecord:
        """As `StatusQueries`."""
        if self.found is None:
            raise CommandRefused(f"There is no application {name}.")
        check(principal, verb, name, self.found)
        return self.found

    async def statuses(self, *_: object, **__: object) -> dict[str, Any]:
        """As `StatusQueries`."""
        return {}

    def listed(self, name: str, principal: Principal) -> list[str]:
        """Hashes of kept checkpoints that `checkpoint list` shows."""
        questions: Any = self
        asyncio.run(checkpoint_list.checkpoints(self.context, questions, self.keeping, 1, Checkpoints(name), principal))
        return [row.digest[:2] for row in self.said[-1].retained]


def test_checkpoints_of_another_owners_application_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checkpoint_list, "_response", lambda *_: CheckpointsResponse("taxi", 1, "running", None, None, [])
    )
    of_bob = msgspec.structs.replace(OF_BOB, run=RunId("taxi", 1))
    answers = Answers(monkeypatch, OF_ANN, msgspec.structs.replace(of_bob, name="later"))
    assert answers.listed("taxi", ANN) == ["01"]
    assert answers.listed("taxi", BOB) == ["02"]
    assert answers.listed("taxi", Principal("admin")) == ["02", "01"]
    with pytest.raises(NotAllowed, match="taxi belongs to the key 6d6d"):
        answers.listed("pause", BOB)
    for state in ("running", "finished"):
        answers.found = msgspec.structs.replace(RECORD, state=state, owner_key=OTHER)
        assert answers.listed("taxi", BOB) == ["02"]
    answers = Answers(monkeypatch, OF_ANN)
    answers.found = msgspec.structs.replace(RECORD, owner_key=OTHER)
    assert answers.listed("taxi", BOB) == []
    answers.found = msgspec.structs.replace(RECORD, state="finished", owner_key=OTHER)
    with pytest.raises(CommandRefused, match="its rows are committed, and nothing else is kept of it"):
        answers.listed("taxi", BOB)
    answers.found = None
    with pytest.raises(NotAllowed, match="taxi belongs to the key 6d6d"):
        answers.listed("taxi", BOB)


def test_the_hash_distinguishes_two_checkpoints_with_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    keeping = Answers(monkeypatch, OF_ANN, OF_BOB).keeping

    def one(name: str, principal: Principal) -> CheckpointInfo:
        return asyncio.run(keeping._one(name, principal, "checkpoint"))[0]

    assert (one("pause", ANN), one("pause", BOB)) == (OF_ANN, OF_BOB)
    with pytest.raises(CommandRefused) as refusal:
        one("pause", Principal("admin"))
    assert f"There are 2 checkpoints pause: {'01' * 32} of taxi v1, epoch 7, on " in refusal.value.text
    assert refusal.value.text.endswith("Give the hash of one in place of the name.")
    assert one("02" * 32, Principal("admin")) == OF_BOB
    with pytest.raises(NotAllowed, match="bus belongs to the key 6f6f"):
        one("02" * 32, ANN)


@pytest.mark.parametrize(("principal", "lent"), [(ANN, True), (BOB, False), (Principal("admin"), True)])
def test_a_retained_file_is_transferred_to_the_agent_with_an_authorised_command(
    principal: Principal, lent: bool
) -> None:
    emitted: list[Any] = []
    said: list[Any] = []

    async def ask_driver(number: int, order: Any, patience: int) -> dict[int, Completed]:
        return {number: Completed(number, (OF_ANN, msgspec.structs.replace(OF_BOB, name="another")))}

    context: Any = SimpleNamespace(
        requests=SimpleNamespace(number=lambda: 1),
        config=SimpleNamespace(report_timeout_ns=1),
        ask_driver=ask_driver,
        emit=emitted.append,
        send=lambda to, message: said.append(message),
        drop=lambda reason: None,
    )
    verifier: Any = SimpleNamespace(requires_signatures=True, identify_requester=lambda *_: (principal, "somebody"))
    nothing = cast("Any", None)
    retained = RetainedCheckpoints(CommandParts(context, nothing, nothing, nothing, verifier))
    sender = plans.PI[1]
    asyncio.run(retained.remove_or_transfer(sender, RequestDownload(4, ExportCheckpoint("pause"), b"order")))
    assert emitted == ([AllowCheckpointFetch(OF_ANN.digest, sender.node)] if lent else [])
    assert said[0].request == 4
    assert bool(said[0].refusal) is not lent


def test_snapshots_are_on_the_nodes_of_their_instances() -> None:
    value = plans.value()
    places = {each.instance: each.host for each in value.plan.assignments}
    for snapshot in snapshots_to_gather(value):
        assert snapshot.host in places.values()
    moved = msgspec.structs.replace(value, plan=msgspec.structs.replace(value.plan, assignments=()))
    if value.saved:
        with pytest.raises(Exception, match="on its way to another node"):
            snapshots_to_gather(moved)
