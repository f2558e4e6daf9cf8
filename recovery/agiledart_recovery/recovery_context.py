"""What the roles of one node share: who it is, what time it is, whom it can reach, and what is to be done."""

from collections.abc import Callable, Hashable

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Effect, Message, Send, SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observation, Observer
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.wire.names import RunId

RequestOutcome = Callable[[object, str], None]
"""Gets what a request brought, and the reason when it failed (empty when it did not)."""

IsCommandAuthorised = Callable[[RunId, bytes, bytes], bool]
"""(run, order, the last one that is known): whether an admin has signed, later than that one, that the run is to go on without the
majority of its voters."""


def accept_any_command(run: RunId, signed_command: bytes, last: bytes) -> bool:
    """Where nothing is signed, what is told is believed."""
    return True


class RecoveryContext:
    """Effects of a step, requests under way, and what the overlay says about peers.

    Attributes:
        lost: nodes that the failure detector has declared dead.
        room: nodes that could take over an instance, best first.
        outbox: messages of this node to itself; the machine delivers them within the same step.
        is_ordered: judges an admin's order with which an era begins.
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
        self._observer = observer
        self._book: dict[NodeId, Peer] = {}
        self._waiting: dict[int, RequestOutcome] = {}
        self._number = 0

    def meet(self, peer: Peer) -> None:
        """Remember the newest handle of a node."""
        known = self._book.get(peer.node)
        if known is None or known.incarnation <= peer.incarnation:
            self._book[peer.node] = peer

    def peer(self, peer: Peer) -> Peer:
        """The newest handle of a node."""
        known = self.me if peer.node == self.me.node else self._book.get(peer.node)
        return known if known is not None and known.incarnation >= peer.incarnation else peer

    def send(self, to: Peer, message: Message) -> None:
        """Send, also to oneself."""
        if to.node == self.me.node:
            self.outbox.append(message)
        else:
            self.effects.append(Send(self.peer(to), message))

    def do(self, effect: Effect) -> None:
        """Ask for something that has no outcome."""
        self.effects.append(effect)

    def ask(self, make: Callable[[int], Effect], outcome: RequestOutcome) -> int:
        """Ask for something whose outcome comes back; returns its number."""
        self._number += 1
        self._waiting[self._number] = outcome
        self.effects.append(make(self._number))
        return self._number

    def answered(self, request: int, result: object, reason: str) -> None:
        """The outcome of a request is known; one that nobody waits for is nothing."""
        outcome = self._waiting.pop(request, None)
        if outcome is not None:
            outcome(result, reason)

    def set_timer(self, name: Hashable, delay_ns: int) -> None:
        """Fire a timer after so long."""
        self.effects.append(SetTimer(name, Instant(self.now + delay_ns)))

    def observe(self, observation: Observation) -> None:
        """Report."""
        self._observer(observation)

    def can_reach(self, node: NodeId) -> bool:
        """As far as the failure detector knows."""
        return node == self.me.node or node not in self.lost
