"""Reasons with which agents refuse requests, shared by the protocols of logs and feeds."""

from typing import Final

NOT_ALLOWED: Final = "not allowed"
OVERLOADED: Final = "overloaded"
ELSEWHERE: Final = "elsewhere"
UNAVAILABLE: Final = "unavailable"

NO_AGENT: Final = "no agent"
"""No agent was reachable before the timeout; a client says so, never an agent."""

PASSING_REASONS: Final = (ELSEWHERE, OVERLOADED, UNAVAILABLE)
"""Reasons after which a client retries a little later."""
