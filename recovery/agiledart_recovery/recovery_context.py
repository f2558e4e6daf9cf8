"""Context that the roles of one node share: its identity, the time, reachable peers, and the effects of a step."""

from collections.abc import Callable, Hashable

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Effect, Message, Send, SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observation, Observer
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.host_rules import HostRules, NoHostRules
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.wire.names import RunId

RequestOutcome = Callable[[object, str], None]
"""Callback for a request: its result, and the reason when it failed (empty when it succeeded)."""

IsCommandAuthorised = Callable[[RunId, bytes, bytes], bool]
"""Callback (run, command, last known command): whether an admin signed, later than the last one, that the run continues without
the majority of its voters.
"""


def accept_any_command(run: RunId, signed_command: bytes, last: bytes) -> bool:
    """Accept every command, for networks in which nothing is signed."""
    return True


class RecoveryContext:
    """Effects of a step, pending requests, and what the overlay knows of peers.

    Attributes:
        lost: nodes that the failure detector has declared dead.
        candidates: nodes that could take over an instance, best first.
        host_rules: rules of applications about their hosts; the composed node sets them.
        outbox: messages of this node to itself; the machine delivers them within the same step.
        is_command_authorised: verifies an admin's signed command that begins a configuration.
    """

    def __init__(
        self,
        me: Peer,
        config: RecoveryConfig,
        random: RandomStream,
        observer: Observer,
        is_command_authorised: IsCommandAuthorised = accept_any_command,
    ) -> None:
        self.is_command_authorised = is_command_authorised
        self.me, self.config, self.random = me, config, random
        self.now = Instant(0)
        self.effects: list[Effect] = []
        self.outbox: list[Message] = []
        self.lost: dict[NodeId, None] = {}
        self.candidates: tuple[Peer, ...] = ()
        self.host_rules: HostRules = NoHostRules()
        self._observer = observer
        self._book: dict[NodeId, Peer] = {}
        self._waiting: dict[int, tuple[RunId, RequestOutcome]] = {}
        self._number = 0

    def meet(self, peer: Peer) -> None:
        """Remember the newest handle of a node."""
        known = self._book.get(peer.node)
        if known is None or known.incarnation <= peer.incarnation:
            self._book[peer.node] = peer

    def peer(self, peer: Peer) -> Peer:
        """Return the newest handle of a node."""
        known = self.me if peer.node == self.me.node else self._book.get(peer.node)
        return known if known is not None and known.incarnation >= peer.incarnation else peer

    def send(self, to: Peer, message: Message) -> None:
        """Send a message, also to this node itself."""
        if to.node == self.me.node:
            self.outbox.append(message)
        else:
            self.effects.append(Send(self.peer(to), message))

    def do(self, effect: Effect) -> None:
        """Emit an effect that has no outcome."""
        self.effects.append(effect)

    def ask(self, run: RunId, make: Callable[[int], Effect], outcome: RequestOutcome) -> int:
        """Emit a request for a run whose outcome comes back; return its number."""
        self._number += 1
        self._waiting[self._number] = run, outcome
        self.effects.append(make(self._number))
        return self._number

    def answered(self, request: int, result: object, reason: str) -> None:
        """Deliver the outcome of a request; ignore an unknown request."""
        if (waiting := self._waiting.pop(request, None)) is not None:
            waiting[1](result, reason)

    def run_of(self, request: int) -> RunId | None:
        """Return the run of a request whose outcome is awaited; None when it is unknown."""
        waiting = self._waiting.get(request)
        return waiting[0] if waiting is not None else None

    def set_timer(self, name: Hashable, delay_ns: int) -> None:
        """Set a timer that fires after a delay in nanoseconds."""
        self.effects.append(SetTimer(name, Instant(self.now + delay_ns)))

    def observe(self, observation: Observation) -> None:
        """Pass an observation to the observer."""
        self._observer(observation)

    def can_reach(self, node: NodeId) -> bool:
        """Return whether a node can be reached, as far as the failure detector knows."""
        return node == self.me.node or node not in self.lost
