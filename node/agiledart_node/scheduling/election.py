"""Election of a scheduler for a free scheduler slot, and look-up of a slot's holder.

Source: [AgileDART] (a nearby peer, usually one with much computing power, is voted scheduler); the project's overlay
specification §9 step 4. The claim is read before a winner is sought, so most elections that another look-up has decided end
without a vote.
"""

from agiledart_kernel.instants import Duration
from agiledart_kernel.node_id import NodeId, key_of_name, ring_distance
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.node_context import NodeContext
from agiledart_node.scheduling.advertisements import Advertisements
from agiledart_node.scheduling.claims import Claims
from agiledart_node.scheduling.gossip import REGION, Gossip
from agiledart_node.scheduling.messages import AskCandidate, Candidate, SchedulerSlot
from agiledart_node.scheduling.observations import ElectionBegun

MAX_SCHEDULER_SLOTS = 4_096
"""Scheduler slots of one domain; enough for 204,800 applications."""

VOTES = 3
"""Samples drawn before a look-up gives up because every sampled peer is a scheduler already."""


def winner_of(candidates: dict[NodeId, tuple[Peer, Candidate]], domain: str) -> Peer | None:
    """Return the elected peer: no scheduler yet, greatest capacity score, then least load, then nearest to hash(domain)."""
    key = key_of_name("zone", domain)
    ranked = [
        (-candidate.capacity, candidate.load, ring_distance(node, key), node, peer)
        for node, (peer, candidate) in candidates.items()
        if not candidate.is_taken
    ]
    return min(ranked)[4] if ranked else None


class Election:
    """Finds the holder of the first scheduler slot that may have capacity, and fills the slot when it is free."""

    def __init__(
        self, context: NodeContext, known: Advertisements, gossip: Gossip, claims: Claims, random: RandomStream
    ) -> None:
        self._context, self._known, self._gossip, self._claims, self._random = context, known, gossip, claims, random
        self.votes = 0

    async def find_holder(self, domain: str, refused: dict[NodeId, bool]) -> tuple[Peer, SchedulerSlot] | None:
        """Return the holder of the first scheduler slot of a domain that is not known to be full; elect one when it is free.

        Args:
            refused: node → whether it is considered dead; a dead holder is replaced, other refused ones are skipped.

        Returns:
            None when the ring does not answer, or no node can be elected.
        """
        full = {
            ad.scheduler_slot.index
            for ad in self._known.of(domain)
            if not ad.has_capacity and ad.scheduler.node not in refused
        }
        for index in range(MAX_SCHEDULER_SLOTS):
            if index in full:
                continue
            seen = await self._claims.read(domain, index)
            if seen is None:
                return None
            claim = seen[1]
            holder = claim.winner if claim is not None else None
            if claim is not None and holder is not None and not self._is_dead(holder, refused):
                if holder.node in refused:
                    continue
                return holder, claim.scheduler_slot
            winner = await self._winner(domain, index, holder, refused)
            if winner is None:
                return None
            claim = await self._claims.claim(domain, index, winner, seen)
            if claim is None:
                return None
            if claim.winner is not None and claim.winner.node not in refused:
                return claim.winner, claim.scheduler_slot
        return None

    def _is_dead(self, holder: Peer, refused: dict[NodeId, bool]) -> bool:
        return refused.get(holder.node, False) or self._context.requests.is_gone(holder)

    async def _winner(self, domain: str, index: int, but: Peer | None, refused: dict[NodeId, bool]) -> Peer | None:
        """Sample live peers of the domain until one of them can be elected; this node is included when it belongs to the domain.

        A node that has refused is not elected: it would refuse again, and the look-up would give it the next scheduler slot, too.
        """
        self._context.observe(ElectionBegun(domain, index))
        self.votes += 1
        requests, config = self._context.requests, self._context.config
        for _ in range(VOTES):
            sample = self._sample(domain, but, refused)
            timeout = Duration(config.report_timeout_ns)
            answers = await requests.ask_all(sample, lambda number, _: AskCandidate(number), Candidate, timeout)
            candidates = {peer.node: (peer, answer) for peer, answer in answers if answer is not None}
            winner = winner_of(candidates, domain)
            if winner is not None:
                return winner
        return None

    def _sample(self, domain: str, but: Peer | None, refused: dict[NodeId, bool]) -> list[Peer]:
        """Return random peers of the domain. In a region: of the zones with the fewest schedulers, so that they spread evenly."""
        me = self._context.me
        fit = (peer for peer in self._gossip.peers(domain) if peer.node not in refused)
        peers = [peer for peer in fit if but is None or peer.node != but.node]
        is_fit = me.node not in refused and (but is None or but.incarnation_key != me.incarnation_key)
        if is_fit and (domain in (REGION, me.zone) or not peers):
            peers.append(me)
        if domain == REGION:
            count: dict[str, int] = {}
            for ad in self._known.of(domain):
                count[ad.scheduler.zone] = count.get(ad.scheduler.zone, 0) + 1
            least = min((count.get(peer.zone, 0) for peer in peers), default=0)
            peers = [peer for peer in peers if count.get(peer.zone, 0) == least]
        self._random.shuffle(peers)
        sample = peers[: self._context.config.election_sample]
        if domain != REGION and me in peers and me not in sample:
            sample[-1] = me
        return sample
