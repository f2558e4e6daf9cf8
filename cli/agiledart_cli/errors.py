"""Errors of the command line, and the exit code of every error."""

from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_kernel.errors import AgileDartError, ConfigurationError, TopologyError

FAILED, USAGE, NO_AGENT, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143


class TerminatedError(BaseException):
    """SIGTERM or SIGHUP came: unwind, clean up, end."""


def exit_code_of(error: AgileDartError) -> int:
    """The exit code that an error stands for."""
    if isinstance(error, NoAgentError):
        return NO_AGENT
    if isinstance(error, ConfigurationError | TopologyError):
        return USAGE
    return error.exit_code if isinstance(error, CommandRefusedError) else FAILED
