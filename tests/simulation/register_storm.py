"""The register alone: real voters and proposers, and a network that delivers any message at any time, any number of times,
or never.

So loss, doubles, disorder and every partition are in it. A value's `reason` holds the history of changes; all histories that were
acknowledged must lie on one line, and none may lose a change. `walk` draws runs from a seed; `search` visits all states of
a small one.
"""

from collections import deque
from typing import Any

import msgspec

from agiledart_kernel.machine import Message, Send
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observation
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.proposer import Phase, Proposer, RegisterOutcome
from agiledart_recovery.register.voter_slot import VoterSlot
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import StoreVoter, VoterFile
from agiledart_recovery.wire.names import INITIAL_CHECKPOINT, RunId, Voter
from agiledart_recovery.wire.observations import ValueAcknowledged
from agiledart_recovery.wire.register_value import Plan, RegisterValue

RUN = RunId("app", 1)
_CONFIG = RecoveryConfig()


def voter(number: int) -> Voter:
    return Voter(Peer(NodeId(number), 1), number)


def first(*voters: int) -> RegisterValue:
    return RegisterValue(RUN, 1, 0, Plan(()), INITIAL_CHECKPOINT, tuple(voter(number) for number in voters))


class Register:
    """Voters 1 … n of which the first three are asked first, and proposers 101 …."""

    def __init__(self, voters: int = 5, proposers: int = 2, forgets: bool = False) -> None:
        self.first = first(1, 2, 3)
        self.forgets = forgets
        self.acknowledged: dict[str, None] = {}
        self.messages: dict[tuple[int, int, Message], None] = {}
        self.desks = {number: self._context(number) for number in (*range(1, voters + 1), *range(101, 101 + proposers))}
        self.voter_slots = {n: VoterSlot(self.desks[n], VoterFile(RUN, n)) for n in range(1, voters + 1)}
        self.proposers = {n: Proposer(self.desks[n], RUN) for n in range(101, 101 + proposers)}
        self.changed = 0

    def _context(self, number: int) -> RecoveryContext:
        return RecoveryContext(Peer(NodeId(number), 1), _CONFIG, RandomStream(1, number), self._observe)

    def _observe(self, observation: Observation) -> None:
        if isinstance(observation, ValueAcknowledged):
            self.acknowledged[observation.value.reason] = None
            self.changed += bool(observation.value.old_voters)

    def wrong(self) -> str:
        """Two acknowledged histories of which neither begins with the other."""
        longest = max(self.acknowledged, key=len, default="")
        off = [history for history in self.acknowledged if not longest.startswith(history)]
        words = longest.split()
        twice = [word for word in words if words.count(word) > 1]
        return f"{off} beside {longest}" if off else f"done twice: {twice}" if twice else ""

    # ---- moves

    def collect(self, number: int) -> None:
        """Messages that a node sends are in the network from now on."""
        context = self.desks[number]
        while context.effects:
            effects, context.effects = context.effects, []
            for effect in effects:
                if isinstance(effect, Send):
                    self.messages[int(effect.to.node), number, effect.message] = None
                elif isinstance(effect, StoreVoter):
                    context.answered(effect.request, None, "")

    def deliver(self, to: int, sender: int, message: Message) -> RegisterOutcome | None:
        """A message arrives."""
        peer, outcome = Peer(NodeId(sender), 1), None
        if isinstance(message, wire.Prepare):
            self.voter_slots[to].on_prepare(peer, message)
        elif isinstance(message, wire.Accept):
            self.voter_slots[to].on_accept(peer, message)
        elif isinstance(message, wire.Promise):
            self.proposers[to].on_promise(peer, message)
        elif isinstance(message, wire.Accepted):
            outcome = self.proposers[to].on_accepted(peer, message)
        elif isinstance(message, wire.BallotRefused):
            outcome = self.proposers[to].on_refused(peer, message)
        self.collect(to)
        return outcome

    def begin(self, number: int) -> None:
        """A proposer reads, under a ballot above all."""
        proposer = self.proposers[number]
        proposer.release()
        proposer.highest = max(each.highest for each in self.proposers.values())
        proposer.begin(proposer.value or self.first)
        self.collect(number)

    def change(self, number: int, word: str, voters: tuple[Voter, ...] | None = None) -> None:
        """A proposer that leads adds a word to the history, and may replace a voter."""
        value = self.proposers[number].value
        assert value is not None
        changes = voters is not None and voters != value.voters
        self.proposers[number].write(
            msgspec.structs.replace(
                value,
                reason=f"{value.reason} {word}".strip(),
                voters=voters if voters is not None else value.voters,
                old_voters=value.voters if changes else (),
            )
        )
        self.collect(number)


def walk(seed: int, steps: int = 220, *, forgets: bool = False) -> tuple[str, Register]:
    """One run from a seed; returns what was wrong."""
    random, register = RandomStream(seed, "register"), Register(forgets=forgets)
    words = 0
    delivered: dict[Any, None] = {}
    for _ in range(steps):
        fresh = [message for message in register.messages if message not in delivered]
        moves: list[Any] = fresh if random.uniform() < 0.8 else list(register.messages)
        for number, proposer in register.proposers.items():
            if proposer.phase is Phase.IDLE or random.uniform() < 0.04:
                moves += [("begin", number)] * 2
            if proposer.phase is Phase.LEADING and words < 7:
                moves += [("change", number)] * 4
        if not moves:
            continue
        move = random.choice(moves)
        if move[0] == "begin":
            register.begin(move[1])
        elif move[0] == "change":
            value = register.proposers[move[1]].value
            assert value is not None
            voters = list(value.voters)
            if not value.old_voters and random.uniform() < 0.45:
                outside = [n for n in register.voter_slots if n not in [each.voter_slot for each in voters]]
                voters[random.index(3)] = voter(random.choice(outside))
            words += 1
            register.change(move[1], str(words), tuple(voters))
        else:
            delivered[move] = None
            register.deliver(*move)
            if forgets and random.uniform() < 0.05:
                voter_slot = register.voter_slots[1 + random.index(5)]
                voter_slot.__init__(register.desks[voter_slot.voter_slot], VoterFile(RUN, voter_slot.voter_slot))
        if wrong := register.wrong():
            return wrong, register
    return "", register


_SEAT = ("promised", "accepted", "value")
_PROPOSER = (
    "phase",
    "ballot",
    "highest",
    "value",
    "stamp",
    "_number",
    "_known",
    "_want",
    "_asked",
    "_promises",
    "_accepted",
)


def _save(register: Register) -> tuple[Any, ...]:
    voter_slots = tuple(
        tuple(getattr(voter_slot, name) for name in _SEAT) for voter_slot in register.voter_slots.values()
    )
    proposers = tuple(
        tuple(_frozen(getattr(each, name, None)) for name in _PROPOSER) for each in register.proposers.values()
    )
    return voter_slots, proposers, tuple(register.messages), tuple(register.acknowledged)


def _frozen(value: Any) -> Any:
    return ("dict", tuple(value.items())) if isinstance(value, dict) else value


def _restore(register: Register, state: tuple[Any, ...]) -> None:
    voter_slots, proposers, messages, acknowledged = state
    for voter_slot, fields in zip(register.voter_slots.values(), voter_slots, strict=True):
        for name, value in zip(_SEAT, fields, strict=True):
            setattr(voter_slot, name, value)
    for proposer, fields in zip(register.proposers.values(), proposers, strict=True):
        for name, value in zip(_PROPOSER, fields, strict=True):
            is_dict = isinstance(value, tuple) and value and value[0] == "dict"
            setattr(proposer, name, dict(value[1]) if is_dict else value)
    register.messages = dict.fromkeys(messages)
    register.acknowledged = dict.fromkeys(acknowledged)


def search(most: int) -> tuple[str, int, int]:
    """All states of two proposers, breadth first, at most so many: one leads and replaces voter 3 by 4, the other takes over.

    A request that reaches a voter is answered, and the answer arrives at once or never: answers carry their ballot, so a later
    one says nothing else. Each proposer begins once and writes once. Returns what was wrong, how many states there are,
    and in how
    many of them something was acknowledged to the second one.
    """
    register = Register(4, 2)
    register.begin(101)
    _propagate_changes(register)
    start = (_save(register), False, ())
    seen, both = {_key(start)}, 0
    queue: deque[Any] = deque([start])
    while queue and len(seen) < most:
        state, begun, written = queue.popleft()
        _restore(register, state)
        moves: list[Any] = [(*message, heard) for message in register.messages for heard in (True, False)]
        moves += [] if begun else [("begin", 102)]
        moves += [
            ("change", n) for n, each in register.proposers.items() if each.phase is Phase.LEADING and n not in written
        ]
        for move in moves:
            _restore(register, state)
            after = begun, written
            if move[0] == "begin":
                register.begin(102)
                after = True, written
            elif move[0] == "change":
                voters = (voter(1), voter(2), voter(4)) if move[1] == 101 else None
                register.change(move[1], str(move[1]), voters)
                after = begun, (*written, move[1])
            else:
                _ask(register, *move)
            if wrong := register.wrong():
                return wrong, len(seen), both
            reached = (_save(register), *after)
            key = _key(reached)
            if key not in seen:
                seen.add(key)
                both += any("102" in history for history in register.acknowledged)
                queue.append(reached)
    return "", len(seen), both


def _key(state: Any) -> str:
    voter_slots, proposers, messages, acknowledged = state[0]
    return repr((voter_slots, proposers, sorted(map(repr, messages)), acknowledged, state[1:]))


def _ask(register: Register, to: int, sender: int, message: Message, heard: bool) -> None:
    """A question reaches a voter; its answer arrives, or is lost."""
    del register.messages[to, sender, message]
    before = dict(register.messages)
    register.deliver(to, sender, message)
    for answer in [each for each in register.messages if each not in before]:
        del register.messages[answer]
        if heard:
            register.deliver(*answer)


def _propagate_changes(register: Register) -> None:
    while register.messages:
        _ask(register, *next(iter(register.messages)), True)
