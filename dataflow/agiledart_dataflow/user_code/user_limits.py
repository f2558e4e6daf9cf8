"""Resource limits for an application's own code, set by its author. They travel with the code, not with the graph."""

from datetime import timedelta

import msgspec

from agiledart_kernel.errors import ConfigurationError

MIN_MEMORY_MB = 64
"""Least memory limit: an executor without any user code takes about 30 MB."""

MAX_SECONDS = 86_400.0


class UserLimits(msgspec.Struct, frozen=True, gc=False):
    """Limits that the author of an application sets; None: the agent's setting applies.

    Attributes:
        stuck_warning: seconds that one call may take before the log names its line.
        stuck_limit: seconds after which the application fails; 0: never.
        memory_bytes: limit of each executor; an agent's own lower limit still applies.
    """

    stuck_warning: float | None = None
    stuck_limit: float | None = None
    memory_bytes: int | None = None


def user_limits(
    stuck_warning: timedelta | None = None, stuck_limit: timedelta | None = None, memory_mb: int | None = None
) -> UserLimits:
    """Return the limits for the arguments of the builder. Raises ConfigurationError that names the invalid one."""
    warning = None if stuck_warning is None else stuck_warning.total_seconds()
    limit = None if stuck_limit is None else stuck_limit.total_seconds()
    for name, seconds in (("stuck_warning", warning), ("stuck_limit", limit)):
        if seconds is not None and not 0 <= seconds <= MAX_SECONDS:
            raise ConfigurationError(f"{name} is {seconds:g} s; allowed are 0 to {MAX_SECONDS:,.0f}")
    if warning == 0:
        raise ConfigurationError("stuck_warning is 0 s; leave it out, or set stuck_limit=timedelta(0) for no limit")
    if memory_mb is not None and memory_mb < MIN_MEMORY_MB:
        raise ConfigurationError(f"memory_mb is {memory_mb}; an executor needs at least {MIN_MEMORY_MB}")
    return UserLimits(warning, limit, None if memory_mb is None else memory_mb * 1_000_000)
