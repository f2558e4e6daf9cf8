"""Contract of all protocol code: `step(event, now) → effects`.

1. `step` is synchronous, total and bounded. It does no I/O, reads no clock, and draws only from streams it was given.
2. The driver carries out effects in the order returned. What must be durable before it is announced waits for
`Completed`.
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
    """Action that a machine requests from its driver."""


class Message(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Value that travels between nodes. Each subclass has an integer `tag`, never reused. Fields are only appended."""


class Received(Event, frozen=True, gc=False):
    """A message arrived over a verified link. `sender` is the peer as TLS and its grant prove it."""

    sender: Peer
    message: Message


class TimerFired(Event, frozen=True, gc=False):
    """The deadline set under this name has passed."""

    name: Hashable


class LinkLost(Event, frozen=True, gc=False):
    """A connection to this node was reset, closed or refused: a hint that the node may have failed, no proof.

    Args:
        refused: the node's machine answered that no process listens there. A running node always listens, so this says
            more than silence.
    """

    node: NodeId
    refused: bool = False


class Completed(Event, frozen=True, gc=False):
    """A `Request` was carried out. `result` is what its class promises."""

    request: int
    result: object = None


class Failed(Event, frozen=True, gc=False):
    """A `Request` could not be carried out. `reason` is fit for a user to read."""

    request: int
    reason: str


class Send(Effect, frozen=True, gc=False):
    """Hand a message to the link to this peer. It may be lost without notice."""

    to: Peer
    message: Message


class SetTimer(Effect, frozen=True, gc=False):
    """Request `TimerFired(name)` at an instant. It replaces a timer of the same name."""

    name: Hashable
    at: Instant


class CancelTimer(Effect, frozen=True, gc=False):
    """Cancel the timer of this name, if there is one."""

    name: Hashable


class Machine(Protocol):
    """Interface of a sans-IO component."""

    def step(self, event: Event, now: Instant) -> Sequence[Effect]:
        """Take one event at `now`. Return the effects to carry out, in order."""
        ...
