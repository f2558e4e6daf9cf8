"""Entry of an agent into its ring: a node that is busy is asked again, a refusal ends the entry."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agiledart_agent.reaching.ring_entry import RingEntry
from agiledart_agent.ring.not_greeted import BUSY_TRIES, SILENT_TRIES, NotGreeted
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer

SEED = "192.0.2.1:9464"
FOUNDER = Peer(NodeId(1), 1, "a1", SEED)
BUSY, SILENT = (NotGreeted(f"{SEED} did not answer within 3 s", tries) for tries in (BUSY_TRIES, SILENT_TRIES))
REFUSED = NotGreeted(f"{SEED}: used up")


async def nothing(*_: Any) -> None:
    return None


def enter(*answers: Peer | NotGreeted) -> tuple[tuple[Peer, ...], int]:
    """Members that an agent with a token finds, and the number of its questions."""
    asked: list[str] = []

    async def greet(address: str) -> Peer | NotGreeted:
        asked.append(address)
        return answers[len(asked) - 1]

    reaching = SimpleNamespace(addresses=lambda own: [], is_on=False, pause=nothing)
    links = SimpleNamespace(greet=greet, address="192.0.2.2:9464")
    reachability = SimpleNamespace(prepare=nothing, text="")
    entry = RingEntry(
        cast(Any, links), cast(Any, reaching), cast(Any, reachability), cast(Any, None), cast(Any, SimpleNamespace()),
        has_token=True,
    )  # fmt: skip
    return asyncio.run(entry.find_members([SEED])), len(asked)


def test_a_node_that_is_busy_is_asked_again() -> None:
    assert enter(*[BUSY] * (BUSY_TRIES - 1), FOUNDER) == ((FOUNDER,), BUSY_TRIES)


def test_a_node_that_stays_silent_ends_the_entry_with_the_reason() -> None:
    with pytest.raises(OperationFailed, match=r"Could not join: 192\.0\.2\.1:9464 did not answer within 3 s\."):
        enter(*[SILENT] * SILENT_TRIES)


def test_a_refusal_ends_the_entry_at_once() -> None:
    with pytest.raises(OperationFailed, match="used up"):
        enter(REFUSED)
