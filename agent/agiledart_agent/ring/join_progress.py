"""Reports of an agent that enters its ring, on its log, after a few seconds and now and then."""

import asyncio
from typing import Final

from agiledart_agent.event_log.agent_log import AgentLog

FIRST_SECONDS: Final = 2.5
AGAIN_SECONDS: Final = 10.0
"""Time from the start of the join to the first report, and between two."""


class JoinProgress:
    """Reports of one join.

    Attributes:
        text: of the next report; empty: there is nothing to report.
    """

    def __init__(self, log: AgentLog) -> None:
        self._log = log
        self.text = ""

    async def report_until(self, joined: "asyncio.Future[None]") -> None:
        """Report what the agent waits for until it is in the ring."""
        pause = FIRST_SECONDS
        while not joined.done():
            await asyncio.wait({joined}, timeout=pause)
            if not joined.done() and self.text:
                self._log.info("ring.waiting", f"  {self.text}")
                pause = AGAIN_SECONDS
