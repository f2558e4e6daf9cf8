"""An agent that only answers: a Unix socket whose answers a test decides."""

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from agiledart_control.agent_place import AGENT_FILE
from agiledart_control.control_client import CONTROL
from agiledart_kernel.frames import FrameKind, FrameReader, frame
from agiledart_kernel.limits import MAX_FRAME_BYTES
from agiledart_node.wire.commands import Command
from agiledart_node.wire.control_messages import (
    ControlAnswer,
    ControlMessage,
    ControlProgress,
    ControlRefusal,
    ControlRequest,
)

Reply = Callable[[Command], list[Any]]
"""Command → what to send back, in order: text is progress, a `ControlRefusal` refuses, bytes go out raw, all else answers."""


class FakeAgent:
    """Takes each client in a thread. A context manager.

    Args:
        folder: becomes a state directory with `agent.json` and `control.sock`.
    """

    def __init__(self, folder: Path, reply: Reply, name: str = "a1") -> None:
        self.folder, self._reply = folder, reply
        self.asked: list[Command] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(folder / "control.sock"))
        self._socket.listen()
        (folder / "control.cookie").write_bytes(b"cookie")
        note = {"pid": os.getpid(), "name": name, "control": str(folder / "control.sock")}
        (folder / AGENT_FILE).write_text(json.dumps(note))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "FakeAgent":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(60)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._attend, args=(connection,), daemon=True).start()

    def _attend(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        frames = FrameReader(MAX_FRAME_BYTES)
        while data := connection.recv(1 << 16):
            frames.feed(data)
            while (item := frames.next()) is not None:
                if item[0] == FrameKind.HELLO:
                    assert item[1] == b"cookie"
                    continue
                request = CONTROL.decode(item[1])
                assert isinstance(request, ControlRequest)
                self.asked.append(request.command)
                for part in self._reply(request.command):
                    if part is None:
                        return
                    connection.sendall(part if isinstance(part, bytes) else _framed(request.request, part))


def _framed(number: int, part: Any) -> bytes:
    message: ControlMessage
    if isinstance(part, str):
        message = ControlProgress(number, part)
    elif isinstance(part, ControlRefusal):
        message = ControlRefusal(number, part.text, part.exit_code, part.reason)
    else:
        message = ControlAnswer(number, json.dumps(part).encode())
    return frame(FrameKind.CONTROL, CONTROL.encode(message))
