"""Pending requests: flows of several rounds, written as coroutines and driven by hand from `step`.

There is no event loop here. A flow runs until it waits for numbered answers. The node passes incoming answers to it, and the flow
continues in that same step. Every wait has a deadline, questions are sent again until answered, and a peer that is declared dead
answers `None` at once. The same events cause the same order of resumption: deterministic.
"""

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from agiledart_kernel.instants import MILLISECOND, Duration, Instant
from agiledart_kernel.machine import CancelTimer, Effect, Message, Send, SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream

A = TypeVar("A", bound=Message)

MAX_DEAD_PEERS = 1_024
"""Dead peers remembered, so that requests to them fail at once."""

ITEMS_A_TURN = 4
"""Runs that a flow over all runs handles in one step: a look at the placement of one takes a millisecond on a server."""

TURN_PAUSE = Duration(50 * MILLISECOND)
"""Time between two turns: a look at 256 runs takes three seconds, less than the time between two looks."""


class PeerRequest(NamedTuple):
    """A message to a peer that the peer answers with a message of this class and the same number.

    `resend_intervals`: number of resend intervals before it is sent again; more for large messages and slow answers.
    """

    to: Peer
    message: Message
    expects: type[Message]
    resend_intervals: int = 1


class _Wait:
    """The answers that one flow waits for. `missing` maps number → question, or None for answers of the driver or overlay."""

    __slots__ = ("answers", "conversation", "deadline", "missing", "name", "rounds")

    def __init__(self, missing: dict[int, PeerRequest | None], deadline: Instant) -> None:
        self.missing, self.deadline = missing, deadline
        self.answers: dict[int, Any] = {}
        self.conversation: Coroutine[_Wait, None, None] | None = None
        self.name: tuple[str, str, int] = ("node", "wait", 0)
        self.rounds = 0

    def __await__(self) -> "Generator[_Wait, None, dict[int, Any]]":
        yield self
        return self.answers


class PendingRequests:
    """All pending requests of one node.

    Attributes:
        now: instant of the current step; set by the node.
        effects: emitted effects; emptied by the node after each step.
    """

    def __init__(self, random: RandomStream, resend: Duration, limit: int) -> None:
        self.now = Instant(0)
        self.effects: list[Effect] = []
        self._resend, self._limit = resend, limit
        self._next_number = random.bits(40)  # so that numbers of an earlier incarnation are not used again
        self._waits: dict[int, _Wait] = {}
        self._by_name: dict[tuple[str, str, int], _Wait] = {}
        self._open = 0
        self._dead_peers: dict[NodeId, int] = {}

    @property
    def count(self) -> int:
        """Number of flows in progress."""
        return self._open

    @property
    def is_full(self) -> bool:
        """Return whether the limit of flows is reached."""
        return self._open >= self._limit

    def number(self) -> int:
        """Return a request number that was never used before."""
        self._next_number += 1
        return self._next_number

    def begin(self, conversation: Coroutine[Any, None, None]) -> None:
        """Run a flow up to its first wait. The caller checks `is_full` when the requester is another node."""
        self._open += 1
        self._resume(conversation)

    async def answers(self, questions: Mapping[int, PeerRequest | None], timeout: Duration) -> dict[int, Any]:
        """Ask questions, and wait until all are answered or the time is over.

        Numbers without an answer are missing; None: the peer is gone.
        """
        open_questions = dict(questions)
        unreachable: dict[int, Any] = {}
        for number, question in questions.items():
            if question is not None and self.is_gone(question.to):
                del open_questions[number]
                unreachable[number] = None
            elif question is not None:
                self.effects.append(Send(question.to, question.message))
        return unreachable | await _Wait(open_questions, Instant(self.now + timeout))

    async def ask(self, to: Peer, message: Message, number: int, expects: type[A], timeout: Duration) -> A | None:
        """Ask one peer one question; None when it is gone or silent."""
        answers = await self.answers({number: PeerRequest(to, message, expects)}, timeout)
        answer = answers.get(number)
        return answer if isinstance(answer, expects) else None

    async def ask_all(
        self, peers: Iterable[Peer], message: Callable[[int, Peer], Message], expects: type[A], timeout: Duration
    ) -> list[tuple[Peer, A | None]]:
        """Ask each of several peers one question, all at once; return each with its answer, None where it is gone or silent."""
        asked = {self.number(): peer for peer in peers}
        questions = {number: PeerRequest(peer, message(number, peer), expects) for number, peer in asked.items()}
        received = await self.answers(questions, timeout)
        answers = ((peer, received.get(number)) for number, peer in asked.items())
        return [(peer, answer if isinstance(answer, expects) else None) for peer, answer in answers]

    async def pause(self, duration: Duration) -> None:
        """Wait for a duration."""
        await _Wait({self.number(): None}, Instant(self.now + duration))

    async def pause_after(self, items: int) -> None:
        """Pause after every `ITEMS_A_TURN` items of a long flow, so that other events come between; `items`: those so far."""
        if items and items % ITEMS_A_TURN == 0:
            await self.pause(TURN_PAUSE)

    def resolve(self, number: int, answer: object) -> bool:
        """Pass an answer of the driver or the overlay to its flow; False when no flow waits for it."""
        wait = self._waits.get(number)
        if wait is None or wait.missing.get(number) is not None:
            return False
        self._take(wait, number, answer)
        return True

    def reply_received(self, sender: Peer, number: int, answer: Message) -> bool:
        """Pass a peer's answer to its flow; False when no flow waits for it, or the answer is of the wrong kind."""
        wait = self._waits.get(number)
        question = wait.missing.get(number) if wait is not None else None
        if wait is None or question is None:
            return False
        if question.to.node != sender.node or not isinstance(answer, question.expects):
            return False
        self._take(wait, number, answer)
        return True

    def peer_gone(self, peer: Peer) -> None:
        """Answer None to every flow that waits for this incarnation of a peer, which was declared dead or left."""
        if len(self._dead_peers) >= MAX_DEAD_PEERS:
            del self._dead_peers[next(iter(self._dead_peers))]
        self._dead_peers[peer.node] = peer.incarnation
        lost = [
            (wait, number)
            for number, wait in self._waits.items()
            if (question := wait.missing.get(number)) is not None
            and question.to.node == peer.node
            and question.to.incarnation <= peer.incarnation
        ]
        for wait, number in lost:
            if number in wait.missing:
                self._take(wait, number, None)

    def peer_seen(self, peer: Peer) -> None:
        """Note a message of a peer, which proves that it lives."""
        if self._dead_peers and peer.node in self._dead_peers:
            del self._dead_peers[peer.node]

    def is_gone(self, peer: Peer) -> bool:
        """Return whether this incarnation of a peer was declared dead or left, and has sent nothing since."""
        return self._dead_peers.get(peer.node, -1) >= peer.incarnation

    def timer(self, name: tuple[str, str, int]) -> None:
        """Handle a wait's timer: send unanswered questions again, or give up at the deadline."""
        wait = self._by_name.get(name)
        if wait is None:
            return
        if self.now >= wait.deadline:
            self._finish(wait)
            return
        wait.rounds += 1
        for question in wait.missing.values():
            if question is not None and wait.rounds % question.resend_intervals == 0:
                self.effects.append(Send(question.to, question.message))
        self._set_timer(wait)

    def _take(self, wait: _Wait, number: int, answer: object) -> None:
        del wait.missing[number]
        del self._waits[number]
        wait.answers[number] = answer
        if not wait.missing:
            self._finish(wait)

    def _finish(self, wait: _Wait) -> None:
        for number in wait.missing:
            del self._waits[number]
        wait.missing = {}
        del self._by_name[wait.name]
        self.effects.append(CancelTimer(wait.name))
        assert wait.conversation is not None
        self._resume(wait.conversation)

    def _resume(self, conversation: Coroutine[Any, None, None]) -> None:
        while True:
            try:
                wait: _Wait = conversation.send(None)
            except StopIteration:
                self._open -= 1
                return
            if wait.missing:
                break
        wait.conversation = conversation
        wait.name = ("node", "wait", self.number())
        self._by_name[wait.name] = wait
        for number in wait.missing:
            self._waits[number] = wait
        self._set_timer(wait)

    def _set_timer(self, wait: _Wait) -> None:
        asks = any(question is not None for question in wait.missing.values())
        at = min(wait.deadline, Instant(self.now + self._resend)) if asks else wait.deadline
        self.effects.append(SetTimer(wait.name, at))

    def violations(self) -> list[str]:
        """Return violated invariants: every flow waits for a number, and every awaited number leads to its flow."""
        broken = []
        awaited = 0
        for name, wait in self._by_name.items():
            awaited += len(wait.missing)
            if (
                wait.name != name
                or not wait.missing
                or any(self._waits.get(number) is not wait for number in wait.missing)
            ):
                broken.append(f"talk: {name[2]} waits for {list(wait.missing)}, and no number leads to it")
        if awaited != len(self._waits) or self._open != len(self._by_name):
            broken.append(
                f"talk: {self._open} are open, {len(self._by_name)} wait, for {awaited} of {len(self._waits)} numbers"
            )
        if len(self._dead_peers) > MAX_DEAD_PEERS:
            broken.append(f"bound: {len(self._dead_peers)} dead peers, at most {MAX_DEAD_PEERS}")
        return broken
