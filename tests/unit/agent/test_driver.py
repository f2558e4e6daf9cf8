"""The loop between node and world: effects in order, one that fails alone, timers."""

import asyncio
from typing import Any, cast

from agiledart_agent.driver import Driver, now
from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Effect, Event, Send, SetTimer, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.wire.messages import Departing, Refute


class Script:
    """A node that answers events with preset answers."""

    def __init__(self, *answers: list[Effect]) -> None:
        self.answers = list(answers)
        self.events: list[Event] = []
        self.timer_fired = asyncio.Event()

    def step(self, event: Event, at: Instant) -> list[Effect]:
        self.events.append(event)
        if isinstance(event, TimerFired):
            self.timer_fired.set()
        return self.answers.pop(0) if self.answers else []


def test_an_effect_that_fails_is_reported_and_does_not_stop_others() -> None:
    told: list[dict[str, Any]] = []
    sent: list[Send] = []

    def send(effect: Send) -> None:
        if isinstance(effect.message, Refute):
            raise OverflowError("beyond 64 bits")
        sent.append(effect)

    async def run() -> Script:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        peer = Peer(NodeId(1))
        node = Script([Send(peer, Refute(1)), Send(peer, Departing()), SetTimer("t", now())])
        driver = Driver(cast(Any, node), send)
        driver.feed(cast(Any, Departing()))  # any event
        await node.timer_fired.wait()
        driver.stop()
        return node

    node = asyncio.run(asyncio.wait_for(run(), 10))
    assert [effect.message for effect in sent] == [Departing()]
    assert node.events[1] == TimerFired("t")
    assert [str(context["exception"]) for context in told] == ["beyond 64 bits"]
    assert "Send" in told[0]["message"]
