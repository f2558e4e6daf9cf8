"""Copies of kept checkpoints: only who votes on a run may have its checkpoints kept on a node, or let go there."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agiledart_kernel.machine import Completed
from agiledart_kernel.peer import Peer
from agiledart_node.recovering.keeping_state import KeepingState
from agiledart_node.wire.checkpoint_effects import DropCheckpoint, FetchCheckpoint
from agiledart_node.wire.checkpoint_messages import AskCopy, CopyIs, KnownCheckpoint
from agiledart_recovery.wire.names import Run
from tests.unit.recovery.bench import RUN, peer
from tests.unit.recovery.test_holding import running

KEPT = KnownCheckpoint("pause", RUN, 1, 3, 0, b"", (), b"\1" * 32, 10)


class Node:
    """Hosts something of a run whose voters are nodes 1, 4 and 5, and votes on it."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.said: list[Any] = []
        self.dropped: list[str] = []

        async def driven(number: int, order: Any, patience: int) -> dict[int, Completed]:
            self.done.append(order)
            return {number: Completed(number, KEPT)}

        desk: Any = SimpleNamespace(
            me=peer(1),
            talks=SimpleNamespace(number=lambda: 7),
            driven=driven,
            send=lambda to, message: self.said.append(message),
            drop=self.dropped.append,
        )
        recovering: Any = SimpleNamespace(machine=running().machine)
        self.keeping = KeepingState(desk, cast("Any", None), recovering, cast("Any", None))

    def asked(self, sender: Peer, kept: KnownCheckpoint, *, is_back: bool) -> CopyIs:
        """What a node is answered."""
        asyncio.run(self.keeping.copy(sender, AskCopy(3, kept, is_back)))
        answer = self.said.pop()
        assert isinstance(answer, CopyIs)
        return answer


@pytest.mark.parametrize("is_back", [True, False])
def test_who_does_not_vote_on_a_run_neither_plants_nor_removes_its_checkpoints(is_back: bool) -> None:
    node = Node()
    assert "knows of no" in node.asked(peer(9), KEPT, is_back=is_back).refusal
    other = msgspec.structs.replace(KEPT, run=Run("else", 1))
    assert "knows of no" in node.asked(peer(4), other, is_back=is_back).refusal
    assert node.done == []
    assert node.dropped == ["copy of a checkpoint"] * 2


def test_a_voter_of_the_run_has_one_kept_and_let_go() -> None:
    node = Node()
    assert node.asked(peer(4), KEPT, is_back=False) == CopyIs(3)
    assert node.asked(peer(5), KEPT, is_back=True) == CopyIs(3)
    assert node.done == [FetchCheckpoint(7, peer(4), KEPT), DropCheckpoint(7, "pause", KEPT.digest, RUN)]
