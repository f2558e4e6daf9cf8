"""Use of py-libp2p by an agent: addresses of neighbours when others do not answer, and the router's port."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.identity.identity import Identity
from agiledart_agent.reaching.reach_process import ReachProcess
from agiledart_agent.reaching.reach_settings import reach_start
from agiledart_agent.settings import AgentSettings

LAN_SEARCH_SECONDS = 3.0
"""Longest wait for an announcement on the local network between two tries to enter the ring; a busy board needs seconds."""

PORT_MAPPING_SECONDS = 8.0


class Reaching:
    """Neighbours and outside address of one agent; without py-libp2p it has none of both."""

    def __init__(self, settings: AgentSettings, identity: Identity, log: AgentLog) -> None:
        self._settings, self._identity, self._log = settings, identity, log
        self._process: ReachProcess | None = None

    @property
    def is_on(self) -> bool:
        """Return whether the process of py-libp2p is wanted and can run."""
        return self._process is not None

    async def start(self, address: str, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> str:
        """Start the process where the settings want it. Return the outside address at the router, "" when there is none.

        Args:
            address: HOST:PORT under which the local network reaches this agent.
        """
        if (request := reach_start(self._settings, self._identity, address, self._log)) is None:
            return ""
        self._process = ReachProcess(request, self._log)
        spawn(self._process.run_forever())
        if request.map_port:
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(self._process.mapped), PORT_MAPPING_SECONDS)
        return ""

    def addresses(self, own: str) -> list[str]:
        """Return addresses of others that were announced on the local network; TLS proves or refuses each of them."""
        return [address for address in self._process.neighbours if address != own] if self._process else []

    async def pause(self, seconds: float) -> None:
        """Wait before the next try to enter the ring; with py-libp2p, until a neighbour is announced."""
        if self._process is None:
            await asyncio.sleep(seconds)
        else:
            await self._process.wait_for_neighbour(LAN_SEARCH_SECONDS)
