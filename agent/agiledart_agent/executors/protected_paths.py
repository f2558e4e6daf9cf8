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


AS_ROOT = (
    "this agent runs as root, so it runs no users' code. Start it as a user of its own, as the systemd unit and the image do; "
    "or set agent.allow_root = true, where only users that you trust submit"
)
ALLOWED_ROOT = "users' code runs as root here (agent.allow_root): admit only users whom you trust"


def root_refusal(settings: AgentSettings) -> str:
    """Return why this agent runs no users' code at all; empty: it does."""
    return AS_ROOT if os.geteuid() == 0 and not settings.allow_root else ""


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


def exposes_python(settings: AgentSettings) -> bool:
    """Return whether users' code can change the Python that this agent runs next: it is not confined, and this user may write."""
    if not unprotected_reason(settings):
        return False
    from agiledart_executor.user_code.confinement import writable_code_folders

    return bool(writable_code_folders())


def unprotected_reason(settings: AgentSettings) -> str:
    """Return why users' code can read this agent's keys; empty: it cannot."""
    if not settings.confine:
        return SWITCHED_OFF
    return "" if landlock.is_there() else UNPROTECTED
