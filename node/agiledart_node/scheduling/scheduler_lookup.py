"""Look-up of a scheduler, from an application that needs one to the scheduler that registered it.

First comes this node's cache, then a random walk through the zone, then the records of the scheduler slots, then an election.
A scheduler that is full refuses, and the look-up goes on with what it has learned.

Source: [AgileDART] (found by gossip within ⌈log₁₆ N⌉ hops); the project's overlay specification §9 steps 2 to 4.
"""

from dataclasses import dataclass, field

from agiledart_kernel.counts import saturating_increment
from agiledart_kernel.instants import MILLISECOND, Duration
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.scheduling.advertisements import Advertisements
from agiledart_node.scheduling.election import Election
from agiledart_node.scheduling.gossip import Gossip
from agiledart_node.scheduling.messages import (
    MAX_VISITED,
    Advertisement,
    ApplicationRegistered,
    FindScheduler,
    RegisterApplication,
    SchedulerFound,
    SchedulerSlot,
)
from agiledart_node.scheduling.observations import SchedulerLookedUp
from agiledart_overlay.tables.leaf_set import LeafSet

HOP_TIME = Duration(400 * MILLISECOND)
"""Time allowed for one hop of a walk; a lost walk ends after the time of its hops."""

MAX_TRIES = 256
"""Schedulers asked by one look-up."""

_PAUSE = Duration(200 * MILLISECOND)
_SILENCES = 3


def estimated_nodes(leaf_set: LeafSet, owner: NodeId, bits: int) -> int:
    """Estimate the number of nodes of the ring by the density of the leaf set; exact while the leaf set holds them all."""
    if leaf_set.is_whole:
        return len(leaf_set) + 1
    clockwise, counterclockwise = leaf_set.clockwise, leaf_set.counterclockwise
    arc = (clockwise[-1].node - counterclockwise[-1].node) % (1 << bits)
    return ((len(clockwise) + len(counterclockwise)) << bits) // max(arc, 1)


def walk_length(nodes: int, digit_bits: int) -> int:
    """Return ⌈log_(2^b) N⌉, at least 1."""
    hops = 1
    while 1 << (digit_bits * hops) < nodes:
        hops += 1
    return hops


@dataclass(slots=True)
class LookupState:
    """State of one look-up.

    Attributes:
        refused: nodes that did not register the application → whether they are considered dead.
        ttl: hops that the walk may still make.
        how: where the last asked scheduler came from.
    """

    domain: str
    application: str
    version: int
    ticket: int
    ttl: int
    refused: dict[NodeId, bool] = field(default_factory=dict)
    visited: tuple[NodeId, ...] = ()
    hops: int = 0
    how: str = "cache"


class SchedulerLookup:
    """Looks up schedulers, and forwards the look-ups of other nodes."""

    def __init__(
        self, context: NodeContext, known: Advertisements, gossip: Gossip, election: Election, random: RandomStream
    ) -> None:
        self._context, self._known, self._gossip, self._election, self._random = (
            context,
            known,
            gossip,
            election,
            random,
        )
        self._busy: dict[str, list[int]] = {}

    async def find(
        self, domain: str, application: str, version: int, ticket: int, first: Advertisement | None = None
    ) -> tuple[Peer, SchedulerSlot]:
        """Return a scheduler that has registered the application.

        Args:
            version, ticket: as in `RegisterApplication`.
            first: the scheduler to ask first, if known.

        Raises:
            CommandRefused: no scheduler could be found or elected.
        """
        overlay, config = self._context.overlay, self._context.config.overlay
        nodes = estimated_nodes(overlay.leaf_set, self._context.me.node, config.id_bits)
        # A scheduler of an incompatible version would not understand the submission.
        unfit = dict.fromkeys(self._context.incompatible_nodes, False)
        look_up = LookupState(domain, application, version, ticket, walk_length(nodes, config.digit_bits), unfit)
        votes, silences = self._election.votes, 0
        for _ in range(MAX_TRIES):
            scheduler = (
                (first.scheduler, first.scheduler_slot) if first is not None else await self._known_scheduler(look_up)
            )
            first = None
            if scheduler is not None:
                has_taken = await self._register(look_up, *scheduler)
            elif not await self._enter(
                domain
            ):  # another look-up has finished meanwhile: the cache may know a scheduler now
                continue
            else:
                look_up.how = "claim"
                try:
                    scheduler = await self._election.find_holder(domain, look_up.refused)
                    has_taken = scheduler is not None and await self._register(look_up, *scheduler)
                finally:
                    self._leave(domain)
            if scheduler is not None and has_taken:
                elections = self._election.votes - votes
                how = "election" if elections and look_up.how == "claim" else look_up.how
                self._context.observe(SchedulerLookedUp(application, how, max(look_up.hops, 1), elections))
                return scheduler
            silences += scheduler is None
            if silences == _SILENCES:
                break
            if scheduler is None:
                await self._context.requests.pause(_PAUSE)
        where = f"zone {domain}" if domain else "this network"
        if any(not advertisement.has_capacity for advertisement in self._known.of(domain)):
            raise CommandRefused(
                f"The schedulers of {where} serve as many applications as they may, and no other node can become one. Stop an "
                f"application, or add a node."
            )
        raise CommandRefused(f"No scheduler of {where} could be found or elected: the ring did not answer. Try again.")

    async def _known_scheduler(self, look_up: LookupState) -> tuple[Peer, SchedulerSlot] | None:
        """Return the next scheduler to ask, from this node's cache or the cache of a node that the walk meets."""
        best = self._known.best(look_up.domain, look_up.refused)
        if best is None and look_up.ttl:
            look_up.how = "walk"
            best = await self._walk(look_up)
        return (best.scheduler, best.scheduler_slot) if best is not None else None

    async def _enter(self, domain: str) -> bool:
        """Let one look-up at a time ask for the slots of a domain. Return False after waiting for the end of another one."""
        waiting = self._busy.get(domain)
        if waiting is None:
            self._busy[domain] = []
            return True
        number = self._context.requests.number()
        waiting.append(number)
        await self._context.requests.answers({number: None}, Duration(self._context.config.ask_timeout_ns))
        return False

    def _leave(self, domain: str) -> None:
        for number in self._busy.pop(domain):
            self._context.requests.resolve(number, None)

    async def _walk(self, look_up: LookupState) -> Advertisement | None:
        """Send the query on its random walk. Return None when its hops are used up."""
        requests, me = self._context.requests, self._context.me
        number, ttl = requests.number(), look_up.ttl
        refused = tuple(look_up.refused)[-MAX_VISITED:]
        visited = (look_up.visited or (me.node,))[-MAX_VISITED:]
        if not self._pass_on(FindScheduler(number, me, look_up.domain, ttl, visited, refused)):
            look_up.ttl = 0
            return None
        answers = await requests.answers({number: None}, Duration(HOP_TIME * (ttl + 1)))
        reply = answers.get(number)
        if not isinstance(reply, SchedulerFound):
            look_up.hops, look_up.ttl = look_up.hops + ttl, 0
            return None
        look_up.hops += min(reply.hops, ttl)
        look_up.ttl = max(0, ttl - reply.hops) if reply.advertisement is not None else 0
        look_up.visited = reply.visited
        if reply.advertisement is not None:
            self._gossip.take(reply.advertisement)
        return reply.advertisement

    def on_find(self, sender: Peer, message: FindScheduler) -> None:
        """Answer another node's query from the cache, or forward it."""
        visited = (*message.visited, self._context.me.node)[-MAX_VISITED:]
        best = self._known.best(message.domain, message.refused)
        if best is None and message.ttl > 1:
            query = FindScheduler(
                message.request,
                message.origin,
                message.domain,
                message.ttl - 1,
                visited,
                message.refused,
                saturating_increment(message.hops),
            )
            if self._pass_on(query):
                return
        self._context.send(message.origin, SchedulerFound(message.request, message.hops, visited, best))

    def on_found(self, sender: Peer, message: SchedulerFound) -> None:
        """End a walk of this node; any node on the walk may answer."""
        if not self._context.requests.resolve(message.request, message):
            self._context.drop("late answer")

    def _pass_on(self, query: FindScheduler) -> bool:
        peers = [peer for peer in self._gossip.peers(query.domain) if peer.node not in query.visited]
        if not peers:
            return False
        self._context.send(self._random.choice(peers), query)
        return True

    async def _register(self, look_up: LookupState, scheduler: Peer, scheduler_slot: SchedulerSlot) -> bool:
        requests = self._context.requests
        number = requests.number()
        look_up.hops += 1
        question = RegisterApplication(number, scheduler_slot, look_up.application, look_up.version, look_up.ticket)
        answer = await requests.ask(
            scheduler, question, number, ApplicationRegistered, Duration(self._context.config.ask_timeout_ns)
        )
        if answer is not None and answer.advertisement is not None:
            self._gossip.take(answer.advertisement)
        if answer is not None and answer.other is not None:
            self._gossip.take(answer.other)
        if answer is not None and answer.accepted:
            return True
        if answer is None or answer.advertisement is None:
            self._known.drop(scheduler, self._context.now)
        # The holder did not answer, or does not hold the slot although the record says so: the slot may be given to another node.
        held = answer.advertisement.scheduler_slot if answer is not None and answer.advertisement is not None else None
        is_holder = held is not None and (held.domain, held.index) == (scheduler_slot.domain, scheduler_slot.index)
        look_up.refused[scheduler.node] = not is_holder
        return False
