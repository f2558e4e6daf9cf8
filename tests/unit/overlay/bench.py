"""A machine on the bench: events in, effects out, with a clock that the test moves."""

from typing import TypeVar

from agiledart_kernel.instants import MILLISECOND, Instant
from agiledart_kernel.machine import Effect, Event, Message, Received, Send, SetTimer, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_overlay.tables.arc import Arc
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.events import JoinRing

E = TypeVar("E", bound=Effect)
M = TypeVar("M", bound=Message)


def peer(number: int, incarnation: int = 1) -> Peer:
    """A peer whose id starts with this number."""
    return Peer(NodeId(number << 120), incarnation)


class Bench:
    """One machine; timers fire when the clock passes them."""

    def __init__(self, number: int = 1, config: OverlayConfig | None = None, incarnation: int = 1) -> None:
        self.machine = OverlayMachine(peer(number, incarnation), config or OverlayConfig.lan(), RandomStream(1, number))
        self.now = 0
        self.timers: dict[object, int] = {}
        self.effects: list[Effect] = []

    def give(self, event: Event) -> list[Effect]:
        """One event now; its effects are returned, and kept."""
        effects = self.machine.step(event, Instant(self.now))
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.timers[effect.name] = effect.at
        self.effects.extend(effects)
        return effects

    def receive(self, sender: Peer, message: Message) -> list[Effect]:
        """A message now."""
        return self.give(Received(sender, message))

    def wait(self, milliseconds: int) -> list[Effect]:
        """Let time pass and timers fire; everything that they did."""
        until = self.now + milliseconds * MILLISECOND
        done: list[Effect] = []
        while self.timers and min(self.timers.values()) <= until:
            name = min(self.timers, key=lambda name: self.timers[name])
            self.now = max(self.now, self.timers.pop(name))
            done.extend(self.give(TimerFired(name)))
        self.now = until
        return done

    def claim(self) -> Arc | None:
        """Keys that the machine would deliver now."""
        return self.machine.claim(Instant(self.now))

    def found(self) -> "Bench":
        """Make it a ring of one."""
        self.give(JoinRing(()))
        return self

    def adopt(self, *peers: Peer) -> "Bench":
        """Make it a member that knows these."""
        self.found()
        self.machine.adopt(peers, Instant(self.now))
        return self


def sent(effects: list[Effect], kind: type[M]) -> list[tuple[Peer, M]]:
    """Messages of a kind among effects, with their receivers."""
    return [(each.to, each.message) for each in effects if isinstance(each, Send) and isinstance(each.message, kind)]


def of(effects: list[Effect], kind: type[E]) -> list[E]:
    """Effects of a kind."""
    return [each for each in effects if isinstance(each, kind)]
