"""Search for relays and next hops on behalf of executors."""

from collections.abc import Callable

from agiledart_agent.circuits.agent_links import AgentLinks
from agiledart_agent.circuits.next_hops import HopRecord
from agiledart_agent.circuits.relay_service import CircuitRequirements
from agiledart_executor.wire.agent_messages import FindRelays, HopFigures, RelayOffer, RelaysFound
from agiledart_shuffle.proposals import COST_MOST


class RelaySearch:
    """Answers to executors that look for relays to an executor of another agent.

    Args:
        links: links of this agent.
    """

    def __init__(self, links: AgentLinks) -> None:
        self._links = links

    async def find(self, asked: FindRelays, application: str, answer: Callable[[RelaysFound], None]) -> None:
        """Answer with relays that have agreed, or, when none is wanted, with the next hops and their costs."""
        if not asked.most:
            hops = self._links.relay_service.next_hops.to(asked.agent, asked.by) if asked.with_hops else ()
            figures = tuple(_figures_of(hop) for hop in hops)
            may_dial, address = self._links.may_dial_node(asked.agent), self._links.published_address(asked.agent)
            answer(RelaysFound(asked.request, may_dial=may_dial, hops=figures, address=address))
            return
        try:
            requirements = CircuitRequirements(asked.most, asked.avoid, asked.by, asked.doubted, asked.direct)
            relays = await self._links.find_circuits(asked.agent, application, asked.executor, requirements)
        except OSError as error:
            answer(RelaysFound(asked.request, refused=str(error)))
        else:
            answer(RelaysFound(asked.request, tuple(RelayOffer(*relay) for relay in relays)))


def _figures_of(hop: HopRecord) -> HopFigures:
    most = float(COST_MOST)
    return HopFigures(
        hop.name, not hop.is_target, min(most, hop.omega), hop.attempts, min(most, hop.to_go), hop.reason, hop.relays
    )
