"""A node knows when it is wrong: mistakes planted in its parts are found by its own `violations()`."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from agiledart_node.context.node_context import NodeContext
from agiledart_node.context.pending_requests import PendingRequests
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.wire.commands import Info, ListApplications
from agiledart_node.wire.events import UserRequest
from agiledart_node.wire.formation_messages import Deploy
from tests.unit.node.test_node import SCHEDULER, Bench, deployed, part

Patch = pytest.MonkeyPatch


def nobody_is_watched(patch: Patch) -> None:
    patch.setattr(NodeContext, "watch", lambda self, peer: None)


def watched_by_the_desk_only(patch: Patch) -> None:
    patch.setattr(NodeContext, "watch", lambda self, peer: self._watched.update({peer.node: 1}))


def answered_and_still_awaited(patch: Patch) -> None:
    right = PendingRequests._take

    def take(self: PendingRequests, wait: Any, number: int, answer: object) -> None:
        right(self, wait, number, answer)
        self._waits[number] = wait

    patch.setattr(PendingRequests, "_take", take)


def no_end_of_room(patch: Patch) -> None:
    patch.setattr(ApplicationHost, "_objection", lambda self, part, hosted: ("", False))


def go(bench: Bench) -> None:
    """A part runs here, another would be too large, and a user asks."""
    deployed(bench)
    bench.feed(UserRequest(1, Info(), ""))
    bench.feed(UserRequest(2, ListApplications(), ""))
    large = part(copies=3, planned=3)
    bench.hear(SCHEDULER, Deploy(9, msgspec.structs.replace(large, application="large")))


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (nobody_is_watched, "this node does not watch"),
        (watched_by_the_desk_only, "is wanted 1 times, and not watched"),
        (answered_and_still_awaited, "talk: "),
        (no_end_of_room, "bound: 4 instances, at most 2"),
    ],
)
def test_a_violation_is_reported(mistake: Callable[[Patch], None], sentence: str, monkeypatch: Patch) -> None:
    """Each step of these tests is checked by the fixture of this folder."""
    with monkeypatch.context() as patch:
        mistake(patch)
        with pytest.raises(AssertionError, match=sentence):
            go(Bench(capacity=2))
    go(Bench(capacity=2))
