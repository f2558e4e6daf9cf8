"""Errors of an agent that is asked: it does not answer, or it refuses."""

from typing import Final

from agiledart_kernel.errors import AgileDartError, OperationFailed

_EXIT_CODES: Final = (1, 2)
"""Failed, and wrong usage: the exit codes that an agent may choose."""


class NoAgentError(AgileDartError):
    """No agent answers; the message names the places that were searched and how to start one."""


class CommandRefusedError(OperationFailed):
    """An agent refused a command; the exit code is its choice. `reason`: word of a missing permission, else empty."""

    def __init__(self, text: str, exit_code: int, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason
        self.exit_code = exit_code if exit_code in _EXIT_CODES else _EXIT_CODES[0]
