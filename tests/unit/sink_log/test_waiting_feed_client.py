"""A writer whose feed's agent has a full disk: it waits, says so, and publishes once there is room."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest

from agiledart_kernel.node_id import NodeId
from agiledart_sink_log import feed_client
from agiledart_sink_log.feed_client import FeedClient, FeedError
from agiledart_sink_log.feed_protocol import FULL, LOST_STAGE, BatchPublished, FeedAnswer, FeedLocated, FeedRefused
from agiledart_transport.agent_connection import ClientIdentity

R = TypeVar("R")
WHY = "The disk of pi1 is full. Make room there, and the query goes on."


class Agent:
    """An agent that gives these answers, one after the other."""

    def __init__(self, answers: list[FeedAnswer]) -> None:
        self.answers = answers

    def exchange(self, number: int, request: bytes, codec: Any, seconds: float) -> FeedAnswer:
        return self.answers.pop(0)


class Client(FeedClient):
    """A client whose connections lead to that agent; a pause takes no time and moves the clock."""

    def __init__(
        self, answers: list[FeedAnswer], report: Callable[[str], None], pause: Callable[[float], None]
    ) -> None:
        super().__init__(["pi1:9464"], ClientIdentity(b"", b"", ()), 1.0, report, pause)
        self.answers = answers

    def _ask(self, address: str, expect: Any, use: Callable[[Any, int], R], through: Any = ()) -> R:
        return use(Agent(self.answers), 1)


def test_a_writer_waits_for_room_and_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    located = FeedLocated(1, "usual", NodeId(1), "pi1", "pi1:9464")
    full = FeedRefused(1, FULL, WHY)
    done = BatchPublished(1, 0, 7)
    said: list[str] = []
    client = Client(cast(list[FeedAnswer], [located, *[full] * 40, done]), said.append, pause)
    assert client.publish("usual", ("q", 0), b"[]", ()) == done
    assert set(said) == {f"agiledart: the query waits: {WHY}"}
    assert len(said) == pytest.approx(now[0] / feed_client.REPORT_SECONDS, abs=1.5)
    assert now[0] > 30 * client.agent_timeout_s

    client = Client(cast(list[FeedAnswer], [located, FeedRefused(1, LOST_STAGE, "gone")]), said.append, pause)
    with pytest.raises(FeedError, match="gone"):
        client.publish("usual", ("q", 1), b"[]", ())
