"""Entry of an agent into its ring, up to the members that it joins through: their addresses, their answers, a relay."""

import asyncio
from typing import Final

from agiledart_agent.circuits.agent_links import AgentLinks
from agiledart_agent.reaching.reachability_keeper import ReachabilityKeeper
from agiledart_agent.reaching.reaching import Reaching
from agiledart_agent.ring.join_progress import JoinProgress
from agiledart_agent.ring.not_greeted import SILENT_TRIES, NotGreeted
from agiledart_agent.ring.rejoin_monitor import RejoinMonitor
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.peer import Peer
from agiledart_node.reaching.dial_rules import host_of, is_private

MAX_PAUSE_SECONDS: Final = 2.0
"""Longest pause between two tries."""


class RingEntry:
    """One entry.

    Args:
        has_token: the agent joins by a token, so a network that does not answer is an error.
    """

    def __init__(
        self,
        links: AgentLinks,
        reaching: Reaching,
        reachability: ReachabilityKeeper,
        rejoin_monitor: RejoinMonitor,
        progress: JoinProgress,
        *,
        has_token: bool,
    ) -> None:
        self._links, self._reaching, self._reachability = links, reaching, reachability
        self._rejoin_monitor, self._progress, self._has_token = rejoin_monitor, progress, has_token

    async def find_members(self, seeds: list[str]) -> tuple[Peer, ...]:
        """Return the members that answer; this agent is then reachable for them. Raises `OperationFailed`."""
        peers: list[Peer] = []
        reasons: list[str] = []
        tried, tries = 0, SILENT_TRIES if seeds else 0
        while tried < tries:
            candidates = dict.fromkeys([*seeds, *self._reaching.addresses(self._links.address)])
            self._progress.text = f"waiting for an answer of {', '.join(candidates)}"
            answers = await asyncio.gather(*(self._links.greet(address) for address in candidates))
            peers = [peer for peer in answers if isinstance(peer, Peer)]
            refusals = [answer for answer in answers if isinstance(answer, NotGreeted)]
            reasons = [refusal.text for refusal in refusals]
            if peers:
                break
            tried += 1
            if self._has_token:
                tries = max([SILENT_TRIES if self._reaching.is_on else 1, *(refusal.tries for refusal in refusals)])
            if tried < tries:
                await self._reaching.pause(min(MAX_PAUSE_SECONDS, 0.5 * tried))
        if seeds and not peers:
            if self._has_token:
                raise OperationFailed(_not_joined_text(seeds, reasons))
            await self._rejoin_monitor.look()
        self._progress.text = "waiting for a relay, since other nodes cannot dial this one"
        await self._reachability.prepare(peers)
        if peers:
            names = ", ".join(peer.name or peer.node.short for peer in peers)
            self._progress.text = (
                f"{names} answered; waiting for the node that must admit this one. {self._reachability.text}"
            )
        return tuple(peers)


def _not_joined_text(seeds: list[str], reasons: list[str]) -> str:
    """Describe for users why no member answered, and what would help when all addresses are of one private network."""
    text = f"Could not join: {'; '.join(reasons)}."
    if all(is_private(host_of(address)) for address in seeds):
        text += (
            " Addresses like these lead there from one network only. Elsewhere, use a token of an agent that others can"
            " dial, or let the router there pass the port on and start that agent with --advertise."
        )
    return text
