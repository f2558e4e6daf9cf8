"""Paths that users' code must not touch: state directory, its user's identities, the file of its join token, its log."""

import os
from pathlib import Path

from agiledart_agent.identity.user_identity import identities_folder
from agiledart_agent.settings import AgentSettings
from agiledart_executor.user_code import landlock

UNPROTECTED = (
    "users' code can read this agent's keys: the kernel has no Landlock (Linux 5.19 or newer, with landlock among lsm=)"
)
SWITCHED_OFF = "users' code can read this agent's keys: agent.confine is false"


def protected_paths(settings: AgentSettings) -> tuple[str, ...]:
    """Return files and folders; none when users' code is not confined."""
    if not settings.confine:
        return ()
    closed = [settings.state_dir, identities_folder()]
    if settings.join.startswith("@"):
        closed.append(Path(settings.join[1:]).expanduser())
    for descriptor in (1, 2):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if os.path.isfile(target):
            closed.append(Path(target))
    return tuple(dict.fromkeys(str(path) for path in closed))


def unprotected_reason(settings: AgentSettings) -> str:
    """Return why users' code can read this agent's keys; empty: it cannot."""
    if not settings.confine:
        return SWITCHED_OFF
    return "" if landlock.is_there() else UNPROTECTED
