"""Errors of the command line, and the exit code of every error."""

from agiledart_kernel.errors import AgileDartError, ConfigurationError, OperationFailed, TopologyError

FAILED, USAGE, NO_AGENT, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143


class NoAgentError(AgileDartError):
    """No agent answers; the message names the places that were searched and how to start one."""


class CommandRefusedError(OperationFailed):
    """An agent refused a command; the exit code is its choice. `reason`: word of a missing permission, else empty."""

    def __init__(self, text: str, exit_code: int, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason
        self.exit_code = exit_code if exit_code in (FAILED, USAGE) else FAILED


class TerminatedError(BaseException):
    """SIGTERM or SIGHUP came: unwind, clean up, end."""


def exit_code_of(error: AgileDartError) -> int:
    """The exit code that an error stands for."""
    if isinstance(error, NoAgentError):
        return NO_AGENT
    if isinstance(error, ConfigurationError | TopologyError):
        return USAGE
    return error.exit_code if isinstance(error, CommandRefusedError) else FAILED
