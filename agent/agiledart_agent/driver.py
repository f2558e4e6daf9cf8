"""Driver of a `Node` on an event loop: it reads the clock, keeps the timers and carries out effects.

All I/O of the agent hangs on it. It takes events strictly one after the other, also when carrying out an effect causes
the next one at once, so the node never sees itself in mid-step.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import CancelTimer, Effect, Event, Send, SetTimer, TimerFired
from agiledart_node.node import Node

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> Instant:
    """Return monotonic nanoseconds, including time for which the machine slept where the system has such a clock:
    leases expire then.
    """
    return Instant(time.clock_gettime_ns(_CLOCK))


class Driver:
    """Loop between one node and the world.

    Args:
        node: the machine.
        send: hands a message to the links.
    """

    def __init__(self, node: Node, send: Callable[[Send], None]) -> None:
        self.node = node
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._timers: dict[Hashable, tuple[Instant, asyncio.TimerHandle]] = {}
        self._events: deque[Event] = deque()
        self._stepping = False
        self._stopped = False
        self._actions: dict[type, Callable[[Any], None]] = {
            Send: send,
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
        }

    def on(self, effect: type[Effect], action: Callable[[Any], None]) -> None:
        """Register the action that carries out a class of effect."""
        self._actions[effect] = action

    def feed(self, event: Event) -> None:
        """Take an event, now or right after those that wait."""
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events and not self._stopped:
                for effect in self.node.step(self._events.popleft(), now()):
                    action = self._actions.get(type(effect))
                    if action is not None:
                        self._carry_out(action, effect)
        finally:
            self._stepping = False

    def _carry_out(self, action: Callable[[Any], None], effect: Effect) -> None:
        """Carry out one effect. A failure is our bug: it is logged and must not stop the other effects of the step.

        A node without its timers would look alive and do nothing.
        """
        try:
            action(effect)
        except Exception as error:  # noqa: BLE001  see above: one failed effect must not stop the others
            kind = type(effect).__name__
            self._loop.call_exception_handler({"message": f"error in carrying out {kind}", "exception": error})

    def stop(self) -> None:
        """Take no more events; drop all timers."""
        self._stopped = True
        for _, handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
        self._events.clear()

    def _set_timer(self, effect: SetTimer) -> None:
        self._cancel_timer(CancelTimer(effect.name))
        delay = max(0.0, (effect.at - now()) / 1e9)
        self._timers[effect.name] = (effect.at, self._loop.call_later(delay, self._fire, effect.name, effect.at))

    def _cancel_timer(self, effect: CancelTimer) -> None:
        if timer := self._timers.pop(effect.name, None):
            timer[1].cancel()

    def _fire(self, name: Hashable, at: Instant) -> None:
        if at > now():  # the loop's clock ticks in milliseconds and may wake a little early
            self._timers[name] = (at, self._loop.call_later(0.001, self._fire, name, at))
            return
        self._timers.pop(name, None)
        self.feed(TimerFired(name))
