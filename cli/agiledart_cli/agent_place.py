"""Which agent a command talks to: what `--agent` says, else the one in the usual place, else one of `agiledart up`."""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agiledart_agent.settings import SERVICE_STATE_DIR, default_state_dir
from agiledart_cli.errors import NoAgentError
from agiledart_cli.output import print_message
from agiledart_kernel.errors import ConfigurationError

AGENT_FILE = "agent.json"
"""What a running agent says about itself in its state directory."""

MESH_FILE = "mesh.json"
"""Where `agiledart up` says, in the user's state directory, which agents it runs."""


NOTIFIED_FILE = "mesh.notified"
"""Which terminals were told which mesh their commands use, beside `MESH_FILE`."""

MAX_NOTIFIED = 64


@dataclass(frozen=True)
class AgentPlace:
    """How to reach an agent: by the path of its Unix socket, or by HOST:PORT."""

    socket: Path | None = None
    address: str = ""
    name: str = ""

    def __str__(self) -> str:
        return self.address or str(self.socket)


def find_agent(given: str | None, environment: Mapping[str, str] = os.environ) -> AgentPlace:
    """Where the agent is that `--agent` names; None: the agent in the usual state directory, else a mesh's first.

    Raises `NoAgentError` when there is none, `ConfigurationError` when the text names nothing.
    """
    if given:
        return _named(given)
    user = default_state_dir(environment)
    for folder in dict.fromkeys((user, SERVICE_STATE_DIR)):
        if place := in_state_dir(folder):
            return place
    if place := _in_mesh(user / MESH_FILE):
        return place
    raise NoAgentError(
        f"No agent answers: none in {_short(user)}, no --agent given. "
        f'Start one with "agiledart agent", or a throw-away mesh with "agiledart up".'
    )


def in_state_dir(folder: Path) -> AgentPlace | None:
    """The agent that runs in a state directory; None when there is none, or what is left of one that was killed."""
    note = read_note(folder / AGENT_FILE)
    if note is None or not is_running(note.get("pid")):
        return None
    return AgentPlace(socket=folder / str(note.get("control", "control.sock")), name=str(note.get("name", "")))


def read_note(path: Path) -> dict[str, Any] | None:
    """A small JSON file; None when it is not there, not readable or no object."""
    try:
        note = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return note if isinstance(note, dict) else None


def is_running(pid: object) -> bool:
    """Whether a process of this number exists."""
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _named(given: str) -> AgentPlace:
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
    raise ConfigurationError(f"--agent {given}: give a state directory, a socket or HOST:PORT.")


def _in_mesh(note_file: Path) -> AgentPlace | None:
    note = read_note(note_file)
    if note is None or not is_running(note.get("pid")):
        return None
    for folder in note.get("agents", []):
        if place := in_state_dir(Path(str(folder))):
            if not _was_notified(note_file.with_name(NOTIFIED_FILE), f"{os.getsid(0)} {note['pid']}"):
                print_message(f"no --agent given: using {place.name} in {folder}")
            return place
    return None


def _was_notified(path: Path, what: str) -> bool:
    """Whether this terminal (its session) was told of this mesh before; from now on it was. An unwritable note is told again."""
    notified = []
    with contextlib.suppress(OSError, UnicodeDecodeError):
        notified = path.read_text().splitlines()[-MAX_NOTIFIED:]
    if what in notified:
        return True
    with contextlib.suppress(OSError):
        path.write_text("".join(f"{line}\n" for line in [*notified, what]))
    return False


def _short(path: Path) -> str:
    home = os.environ.get("HOME", "")
    return "~" + str(path)[len(home) :] if home and str(path).startswith(home + "/") else str(path)
