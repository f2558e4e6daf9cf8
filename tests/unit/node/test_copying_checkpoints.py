"""Copies of kept checkpoints: only voters of a run may have its checkpoints kept on a node, or removed there."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agiledart_kernel.machine import Completed
from agiledart_kernel.peer import Peer
from agiledart_node.recovery.checkpoint_exporter import CheckpointExporter
from agiledart_node.wire.checkpoint_effects import DropCheckpoint, FetchCheckpoint
from agiledart_node.wire.checkpoint_messages import CheckpointInfo, CopyReply, RequestCopy
from agiledart_recovery.wire.names import RunId
from tests.unit.recovery.bench import RUN, peer
from tests.unit.recovery.test_holding import running

KEPT = CheckpointInfo("pause", RUN, 1, 3, 0, b"", (), b"\1" * 32, 10)


class Node:
    """Hosts something of a run whose voters are nodes 1, 4 and 5, and votes on it."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.said: list[Any] = []
        self.dropped: list[str] = []

        async def ask_driver(number: int, signed_command: Any, patience: int) -> dict[int, Completed]:
            self.done.append(signed_command)
            return {number: Completed(number, KEPT)}

        context: Any = SimpleNamespace(
            me=peer(1),
            requests=SimpleNamespace(number=lambda: 7),
            ask_driver=ask_driver,
            send=lambda to, message: self.said.append(message),
            drop=self.dropped.append,
        )
        recovery_service: Any = SimpleNamespace(machine=running().machine)
        self.keeping = CheckpointExporter(context, cast("Any", None), recovery_service, cast("Any", None))

    def asked(self, sender: Peer, kept: CheckpointInfo, *, is_withdrawn: bool) -> CopyReply:
        """Answers to a node."""
        asyncio.run(self.keeping.copy(sender, RequestCopy(3, kept, is_withdrawn)))
        answer = self.said.pop()
        assert isinstance(answer, CopyReply)
        return answer


@pytest.mark.parametrize("is_withdrawn", [True, False])
def test_a_node_that_is_not_a_voter_neither_stores_nor_removes_checkpoints(is_withdrawn: bool) -> None:
    node = Node()
    assert "knows of no" in node.asked(peer(9), KEPT, is_withdrawn=is_withdrawn).refusal
    other = msgspec.structs.replace(KEPT, run=RunId("else", 1))
    assert "knows of no" in node.asked(peer(4), other, is_withdrawn=is_withdrawn).refusal
    assert node.done == []
    assert node.dropped == ["copy of a checkpoint"] * 2


def test_a_voter_can_retain_and_release_a_checkpoint() -> None:
    node = Node()
    assert node.asked(peer(4), KEPT, is_withdrawn=False) == CopyReply(3)
    assert node.asked(peer(5), KEPT, is_withdrawn=True) == CopyReply(3)
    assert node.done == [FetchCheckpoint(7, peer(4), KEPT), DropCheckpoint(7, "pause", KEPT.digest, RUN)]
