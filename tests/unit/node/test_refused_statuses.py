"""Agents that do not report the rest of a register block a recovery only when they are needed."""

import asyncio
from typing import Any

import pytest

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.user_commands import recover_command
from agiledart_node.user_commands.recover_command import QuorumRecovery
from agiledart_node.wire.checkpoint_commands import RecoverRun
from agiledart_node.wire.quorum_recovery_messages import RegisterReply
from agiledart_recovery.register.quorum_recovery import QuorumRecoveryCheck
from agiledart_recovery.wire.names import Ballot, CheckpointId, Stamp
from agiledart_recovery.wire.register_status import RegisterStatus
from tests.unit.recovery.bench import RUN, peer, value

NOW = Ballot(4, NodeId(4), 1)
OLD = value(2, CheckpointId(2, 7))  # votes: 1, 4, 5; hosts: 1, 2, 3
COMMAND = RecoverRun("taxi", lost_voters=("node-4", "node-5"))
WHY = "This command to recover is refused: its time is 400 seconds away."


class Desk:
    def names(self) -> dict[NodeId, str]:
        return {NodeId(number): f"node-{number}" for number in range(10)}


def votes(number: int) -> RegisterReply:
    return RegisterReply(1, RegisterStatus(number, NOW, Stamp(NOW, 1), OLD))


def found(monkeypatch: pytest.MonkeyPatch, answers: dict[int, RegisterReply]) -> QuorumRecoveryCheck:
    async def everybody(*_: Any) -> list[tuple[Peer, RegisterReply | None]]:
        return [(peer(number), answer) for number, answer in answers.items()]

    monkeypatch.setattr(recover_command, "ask_all_agents", everybody)
    runs = QuorumRecovery(Desk(), None, None, None)  # type: ignore[arg-type]
    finding, left, _ = asyncio.run(runs._survey(RUN, COMMAND, b""))
    assert [each.node for each, _ in left] == [
        NodeId(number) for number, answer in answers.items() if not answer.refusal
    ]
    return finding


TELLS = {1: votes(1), 2: RegisterReply(1), 3: RegisterReply(1)}
REFUSES = RegisterReply(1, refusal=WHY)


def test_a_refusing_node_that_is_not_needed_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, TELLS | {7: REFUSES}).value == OLD


@pytest.mark.parametrize("number", [2, 4])
def test_a_host_or_voter_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    with pytest.raises(CommandRefused) as refused:
        found(monkeypatch, TELLS | {number: REFUSES, 7: REFUSES})
    assert refused.value.text == f"node-{number} does not report what it has of taxi: {WHY}"


def test_without_other_reports_all_refusing_nodes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandRefused) as refused:
        found(monkeypatch, {2: RegisterReply(1), 7: REFUSES, 8: REFUSES})
    assert refused.value.text == f"node-7, node-8 do not report what they have of taxi: {WHY}"
