"""Tree of errors. The class of an error says what the caller should do about it."""


class AgileDartError(Exception):
    """Root of all errors that AgileDart raises on purpose. It is never raised itself."""


def system_text(error: BaseException) -> str:
    """Return the system's text for an error, without its number and path; for errors of other kinds their own text."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


class ConfigurationError(AgileDartError):
    """A setting is wrong. The message names the setting, its value and what is allowed. Fix it and start again."""


class TopologyError(AgileDartError):
    """The user's graph is wrong. The message names the step and suggests what was meant."""


class LocalProtocolError(AgileDartError):
    """*This side* requested something that is not legal now: our bug, or misuse of an interface."""


class RemoteProtocolError(AgileDartError):
    """A *peer* broke the protocol. Drop the message, observe and count it; this error never ends a process.

    Attributes:
        reason: short word from a bounded set, used as a counter's label.
        detail: further text for people.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, detail


class Refused(RemoteProtocolError):
    """A peer may not do what it requests, whether or not its identity is proven. `reason` says why."""


class UserCodeError(AgileDartError):
    """User code raised an error. The message has the step, the record and the user's own frames of the traceback."""


class OperationFailed(AgileDartError):
    """The requested operation failed. The message says why and what to do next."""


class BusyError(OperationFailed):
    """Another process holds the resource at this moment and may release it soon. Try again."""


class RollBackNeeded(OperationFailed):
    """Output since the last committed epoch is not where the sink wrote it.

    Retrying does not help; a roll-back to that epoch does.
    """


class InternalError(AgileDartError):
    """An invariant failed: our bug. Please report it with the trace."""
