"""The contract of all protocol code: `step(event, now) → effects`.

1. `step` is synchronous, total and bounded; it does no I/O, reads no clock, draws only from streams it was given.
2. Effects are carried out in the order returned. What must be durable before it is announced waits for `Completed`.
3. `now` never runs backwards for one machine and means nothing on another node.
4. Same state, same event, same `now`: same effects, on every run and platform.
5. A message from the network never raises out of `step`: it is answered, ignored with an observation, or counted.
"""

from collections.abc import Hashable, Sequence
from typing import Protocol

import msgspec

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something that happened to a machine."""


class Effect(msgspec.Struct, frozen=True, gc=False):
    """Something that a machine wants done."""


class Message(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Something that travels between nodes. Each subclass has an integer `tag`, never reused; fields are only
    appended.
    """


class Received(Event, frozen=True, gc=False):
    """A message came in over a verified link; `sender` is who TLS and its grant say it is."""

    sender: Peer
    message: Message


class TimerFired(Event, frozen=True, gc=False):
    """The deadline set under this name has passed."""

    name: Hashable


class LinkLost(Event, frozen=True, gc=False):
    """A connection to this node was reset, closed or refused: a hint that it may be gone, no proof.

    Args:
        refused: its machine answered that nothing listens there; a node listens as long as it lives, so that is more than silence.
    """

    node: NodeId
    refused: bool = False


class Completed(Event, frozen=True, gc=False):
    """A `Request` was carried out; `result` is what its class promises."""

    request: int
    result: object = None


class Failed(Event, frozen=True, gc=False):
    """A `Request` could not be carried out; `reason` is fit for a user to read."""

    request: int
    reason: str


class Send(Effect, frozen=True, gc=False):
    """Hand a message to the link to this peer; may be lost without notice."""

    to: Peer
    message: Message


class SetTimer(Effect, frozen=True, gc=False):
    """Ask for `TimerFired(name)` at an instant; a timer of the same name is replaced."""

    name: Hashable
    at: Instant


class CancelTimer(Effect, frozen=True, gc=False):
    """Forget the timer of this name, if there is one."""

    name: Hashable


class Machine(Protocol):
    """A sans-IO component."""

    def step(self, event: Event, now: Instant) -> Sequence[Effect]:
        """Take one event at `now`; return what is to be done, in order."""
        ...
