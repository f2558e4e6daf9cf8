"""Client of an agent's control API over its Unix socket, or over TLS with a token; one request at a time."""

import contextlib
import json
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

import msgspec

from agiledart_control.agent_place import AgentPlace, Notify, find_agent
from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import ConfigurationError, OperationFailed, RemoteProtocolError
from agiledart_kernel.frames import FrameKind, FrameReader, decode_close_reason, frame
from agiledart_kernel.limits import MAX_FRAME_BYTES
from agiledart_kernel.text import harmless, harmless_lines
from agiledart_node.wire.commands import Command
from agiledart_node.wire.control_messages import (
    ControlAnswer,
    ControlMessage,
    ControlProgress,
    ControlRefusal,
    ControlRequest,
)

CONTROL: Codec[ControlMessage] = Codec(ControlMessage)

CONNECT_SECONDS = 5.0
COOKIE = "control.cookie"
ANSWER_SECONDS = 60.0
"""Timeout of a response, seconds. The agent's own deadlines are shorter; this one detects a hung agent."""


class Connection(Protocol):
    """Transport of CONTROL frames to an agent and back."""

    def sign(self, command: Command) -> bytes:
        """Return the command signed by the user; empty where the agent signs, and for commands that only read."""
        ...

    def send(self, body: bytes) -> None:
        """Send one frame; raises OSError."""
        ...

    def receive(self, timeout: float) -> bytes:
        """Return the next CONTROL frame. Raises TimeoutError, or another OSError when the connection is lost."""
        ...

    def interrupt(self) -> None:
        """End a `receive` of another thread with an OSError."""
        ...

    def close(self) -> None:
        """Close the connection; a second call has no effect."""
        ...


class UnixConnection:
    """Connection to an agent's Unix socket; the cookie file beside it authorises the user."""

    def __init__(self, place: AgentPlace, connect_seconds: float) -> None:
        assert place.socket is not None
        cookie = place.socket.with_name(COOKIE).read_bytes()
        self._frames = FrameReader(MAX_FRAME_BYTES)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(connect_seconds)
        try:
            self._socket.connect(str(place.socket))
            self._socket.sendall(frame(FrameKind.HELLO, cookie))
        except OSError:
            self._socket.close()
            raise

    def sign(self, command: Command) -> bytes:
        """Return an empty signature: only the agent's own user can open the socket, and the agent signs."""
        return b""

    def send(self, body: bytes) -> None:
        """Send one frame."""
        self._socket.settimeout(CONNECT_SECONDS)
        self._socket.sendall(frame(FrameKind.CONTROL, body))

    def receive(self, timeout: float) -> bytes:
        """Return the next CONTROL frame."""
        deadline = time.monotonic() + timeout
        while True:
            while (item := self._frames.next()) is not None:
                if item[0] == FrameKind.CONTROL:
                    return item[1]
                if item[0] == FrameKind.CLOSE:
                    raise ConnectionResetError(decode_close_reason(item[1]))
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError("it closed the connection")
            self._frames.feed(data)

    def interrupt(self) -> None:
        """End a `receive` of another thread."""
        with contextlib.suppress(OSError):  # closed meanwhile
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class ControlClient:
    """Requests to one agent. Use it as a context manager, or call `close`."""

    def __init__(
        self, place: AgentPlace, identity: str | None = None, *, connect_seconds: float = CONNECT_SECONDS
    ) -> None:
        self.place = place
        self._number = 0
        try:
            self._connection = _open(place, identity, connect_seconds)
        except (FileNotFoundError, ConnectionError, TimeoutError) as error:
            raise NoAgentError(
                f'No agent answers at {place} ({_why(error)}). Start one with "agiledart agent", '
                f'or a throw-away mesh with "agiledart up".'
            ) from None
        except PermissionError:
            raise OperationFailed(
                f"The agent at {place} belongs to another user; run the command as that user or as root."
            ) from None
        except OSError as error:
            raise NoAgentError(f"No agent answers at {place} ({_why(error)}).") from None

    def __enter__(self) -> "ControlClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def interrupt(self) -> None:
        """End an `ask` of another thread: it raises `NoAgentError`. The client is of no use afterwards."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def ask(
        self, command: Command, *, on_progress: Callable[[str], None] | None = None, timeout: float = ANSWER_SECONDS
    ) -> Any:
        """Send a command and return the JSON document of its response.

        Args:
            on_progress: called with each line of progress from the agent.
            timeout: longest silence of the agent, seconds.

        Raises:
            CommandRefusedError: the agent refused the command; the message is the agent's.
            NoAgentError: the connection was lost, or the agent is silent.
        """
        self._number += 1
        try:
            self._connection.send(CONTROL.encode(ControlRequest(self._number, command, self._connection.sign(command))))
            while True:
                message = CONTROL.decode(self._connection.receive(timeout))
                if isinstance(message, ControlRequest) or message.request != self._number:
                    continue
                if isinstance(message, ControlProgress):
                    if on_progress is not None:
                        on_progress(harmless(message.text))
                elif isinstance(message, ControlRefusal):
                    raise CommandRefusedError(harmless_lines(message.text), message.exit_code, message.reason)
                elif isinstance(message, ControlAnswer):
                    return json.loads(message.body)
        except TimeoutError:
            raise NoAgentError(f"The agent at {self.place} has not answered for {timeout:.0f} s.") from None
        except OSError as error:
            raise NoAgentError(f"The connection to the agent at {self.place} was lost ({_why(error)}).") from None
        except (RemoteProtocolError, msgspec.MsgspecError, ValueError) as error:
            raise OperationFailed(
                f"The agent at {self.place} uses another protocol version: {error}. Compare the versions: agiledart nodes"
            ) from None


def connect(agent: str | None, identity: str | None = None, notify: Notify | None = None) -> ControlClient:
    """Return a client of the agent that `--agent` names, or of the default agent; `notify` as for `find_agent`."""
    if identity is not None and (not agent or find_agent(agent).socket is not None):
        place = f"--agent {agent} is on this machine" if agent else "no --agent HOST:PORT is given"
        raise ConfigurationError(
            f"--identity is for an agent at HOST:PORT, but {place}: an agent on this machine needs no token."
        )
    return ControlClient(find_agent(agent, notify=notify), identity)


def _open(place: AgentPlace, identity: str | None, connect_seconds: float) -> Connection:
    if place.socket is not None:
        return UnixConnection(place, connect_seconds)
    if not identity:
        raise ConfigurationError(
            f"The agent at {place.address} needs your identity: --identity @FILE with a token, or --identity NAME. "
            f"Create a token at the agent:  agiledart token create --role submitter"
        )
    from agiledart_control.remote_connection import RemoteConnection

    return RemoteConnection(place.address, identity, connect_seconds)


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "it does not accept the connection"
    return (error.strerror or str(error) or type(error).__name__).lower()
