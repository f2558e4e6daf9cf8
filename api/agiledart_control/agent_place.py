"""Lookup of the agent that a command uses: `--agent`, else the default state directory, else a mesh of `agiledart up`."""

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agiledart_agent.settings import SERVICE_STATE_DIR, default_state_dir
from agiledart_control.errors import NoAgentError
from agiledart_kernel.errors import ConfigurationError

AGENT_FILE = "agent.json"
"""File in which a running agent describes itself, in its state directory."""

MESH_FILE = "mesh.json"
"""File in which `agiledart up` lists its agents, in the user's state directory."""


NOTIFIED_FILE = "mesh.notified"
"""File beside `MESH_FILE` with the terminals that were notified which mesh their commands use."""

MAX_NOTIFIED = 64

Notify = Callable[[str], None]


@dataclass(frozen=True)
class AgentPlace:
    """Address of an agent: the path of its Unix socket, or HOST:PORT."""

    socket: Path | None = None
    address: str = ""
    name: str = ""

    def __str__(self) -> str:
        return self.address or str(self.socket)


def find_agent(
    given: str | None, environment: Mapping[str, str] = os.environ, *, notify: Notify | None = None
) -> AgentPlace:
    """Return the agent that `--agent` names; for None the agent in the default state directory, else the first of a mesh.

    Raises `NoAgentError` when no agent runs there, `ConfigurationError` when the text is neither a path, an address nor the name of
    an agent of `agiledart up`. `notify`: called, once in a terminal, with a
    sentence on the choice of an agent of a mesh.
    """
    user = default_state_dir(environment)
    if given:
        return _named(given, user / MESH_FILE)
    if place := default_agent(environment):
        return place
    if place := _in_mesh(user / MESH_FILE, notify):
        return place
    raise NoAgentError(
        f"No agent answers: none in {_short(user)}, no --agent given. "
        f'Start one with "agiledart agent", or a throw-away mesh with "agiledart up".'
    )


def default_agent(environment: Mapping[str, str] = os.environ) -> AgentPlace | None:
    """Return the agent in the user's or the service's default state directory, which commands use before any mesh."""
    for folder in dict.fromkeys((default_state_dir(environment), SERVICE_STATE_DIR)):
        if place := in_state_dir(folder):
            return place
    return None


def in_state_dir(folder: Path) -> AgentPlace | None:
    """Return the agent that runs in a state directory; None when none runs, even if a killed agent left its files."""
    note = read_note(folder / AGENT_FILE)
    if note is None or not is_running(note.get("pid")):
        return None
    return AgentPlace(socket=folder / str(note.get("control", "control.sock")), name=str(note.get("name", "")))


def read_note(path: Path) -> dict[str, Any] | None:
    """Return the content of a small JSON file; None when it is missing, unreadable or not an object."""
    try:
        note = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return note if isinstance(note, dict) else None


def is_running(pid: object) -> bool:
    """Return whether a process with this number exists."""
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _named(given: str, mesh_file: Path) -> AgentPlace:
    path = Path(given).expanduser()
    if path.is_dir():
        place = in_state_dir(path)
        if place is None:
            raise NoAgentError(
                f'No agent runs in {given}. Start it with "agiledart agent --state-dir {given}"; one that was started may wait for '
                "its clock or its ring, and its log says so."
            )
        return place
    if path.is_socket():
        return AgentPlace(socket=path)
    host, colon, port = given.rpartition(":")
    if colon and host and port.isascii() and port.isdigit() and "/" not in host:
        return AgentPlace(address=given)
    if "/" in given or path.exists():
        raise NoAgentError(f"No agent answers: {given} is neither a state directory nor a socket.")
    agents = _mesh_agents(mesh_file)
    for place in agents:
        if place.name == given:
            return place
    known = f" Agents of `agiledart up`: {', '.join(place.name for place in agents)}." if agents else ""
    raise ConfigurationError(
        f"--agent {given}: give a state directory, a socket or HOST:PORT, or the name of an agent of `agiledart up`.{known}"
    )


def mesh_agents(environment: Mapping[str, str] = os.environ) -> list[AgentPlace]:
    """Return the running agents of the user's `agiledart up`."""
    return _mesh_agents(default_state_dir(environment) / MESH_FILE)


def _mesh_agents(note_file: Path) -> list[AgentPlace]:
    """Return the agents of a running mesh that run."""
    note = read_note(note_file)
    if note is None or not is_running(note.get("pid")):
        return []
    folders = note.get("agents", [])
    return [place for folder in folders if (place := in_state_dir(Path(str(folder))))]


def _in_mesh(note_file: Path, notify: Notify | None) -> AgentPlace | None:
    note = read_note(note_file)
    if note is None or not is_running(note.get("pid")):
        return None
    for folder in note.get("agents", []):
        if place := in_state_dir(Path(str(folder))):
            if notify is not None and not _was_notified(
                note_file.with_name(NOTIFIED_FILE), f"{os.getsid(0)} {note['pid']}"
            ):
                notify(f"no --agent given: using {place.name} in {folder}")
            return place
    return None


def _was_notified(path: Path, entry: str) -> bool:
    """Return whether this terminal session was notified of this mesh before, and record that it is now.

    When the file cannot be written, the notification is repeated.
    """
    notified = []
    with contextlib.suppress(OSError, UnicodeDecodeError):
        notified = path.read_text().splitlines()[-MAX_NOTIFIED:]
    if entry in notified:
        return True
    with contextlib.suppress(OSError):
        path.write_text("".join(f"{line}\n" for line in [*notified, entry]))
    return False


def _short(path: Path) -> str:
    home = os.environ.get("HOME", "")
    return "~" + str(path)[len(home) :] if home and str(path).startswith(home + "/") else str(path)
