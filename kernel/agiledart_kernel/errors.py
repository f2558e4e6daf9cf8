"""The error tree. What the caller should do about an error decides its class."""


class AgileDartError(Exception):
    """Root of all errors that AgileDart raises on purpose; never raised itself."""


class ConfigurationError(AgileDartError):
    """A setting is wrong; the message names it, its value and what is allowed. Fix it and start again."""


class TopologyError(AgileDartError):
    """The user's graph is wrong; the message names the step and guesses the mistake."""


class LocalProtocolError(AgileDartError):
    """*We* asked for something that is not legal now: our bug, or misuse of an interface."""


class RemoteProtocolError(AgileDartError):
    """A *peer* broke the protocol. Drop, observe and count; it never ends a process.

    Attributes:
        reason: short word from a bounded set, used as a counter's label.
        detail: more, for people.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, detail


class Refused(RemoteProtocolError):
    """A peer is who it says it is, or not, but may not do what it wants; `reason` says why."""


class UserCodeError(AgileDartError):
    """User code raised. The message has the step, the record and the user's own frames of the traceback."""


class OperationFailed(AgileDartError):
    """What the user asked for could not be done; the message says why and what to do next."""


class BusyError(OperationFailed):
    """Somebody else has it this moment, and may let go of it in the next."""


class RollBackNeeded(OperationFailed):
    """What came since the last epoch is not where it was put: trying again does not help, going back to that epoch does."""


class InternalError(AgileDartError):
    """An invariant failed: our bug. Please report it with the trace."""
