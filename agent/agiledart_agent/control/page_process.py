"""Process that serves the page in a browser for an agent with `agent.web`: started by a visit, it ends when no viewer is left.

The agent's own port only redirects. The page's address holds a secret in its fragment, which browsers keep over a redirect
and do not send. It stands in a file of the state directory, so other users, and users' code, begin no session.
"""

import asyncio
import contextlib
import os
import secrets
from pathlib import Path

from agiledart_agent.executors.isolated_python import isolated_command, isolated_environment
from agiledart_agent.state_files.durable_file import write_durably
from agiledart_agent.state_files.private_files import read_private

PROGRAM = "agiledart_cli.web.page_program"
ADDRESS_FILE = "web.address"
"""File of the state directory with the page's address."""

IDLE_SECONDS = 60
"""Time after the last viewer, or after a visit that no viewer follows, after which the process ends."""

ANSWER_SECONDS = 30.0
"""Longest start of the process: it imports for 0.5 s on a server, for ten times as long on a busy board."""

_SECRET_BYTES = 24
_MIN_SECRET = 32


class PageProcess:
    """Starts the process at a visit, and ends it with the agent.

    Args:
        state_dir: of the agent, which the process asks.
        idle_seconds: time without viewers after which the process ends.
    """

    def __init__(self, state_dir: Path, idle_seconds: float = IDLE_SECONDS) -> None:
        self._state_dir, self._idle_seconds = state_dir, idle_seconds
        self._secret = ""
        self._process: asyncio.subprocess.Process | None = None
        self._is_closed = False
        self._visit = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Return the number of the process; None while none runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    def write_address(self, address: str) -> None:
        """Write the page's address, HOST:PORT of the agent's own port, with the secret of earlier starts. Raises OSError."""
        path = self._state_dir / ADDRESS_FILE
        with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
            self._secret = read_private(path).decode().strip().partition("#")[2]
        if len(self._secret) < _MIN_SECRET:
            self._secret = secrets.token_urlsafe(_SECRET_BYTES)
        write_durably(path, f"http://{address}/#{self._secret}\n".encode())

    async def visit(self) -> str:
        """Return the address of the page's server, without the secret; empty when the process cannot be started."""
        async with self._visit:
            for _ in range(2):  # the process may be ending just now
                if self._is_closed:
                    break
                if (port := await self._ask()) is not None:
                    return f"http://127.0.0.1:{port}/"
                await self._end()
            return ""

    async def close(self) -> None:
        """End the process. A visit that waits for its answer ends with it."""
        self._is_closed = True
        if self._process is not None:
            _kill(self._process)
        async with self._visit:
            await self._end()

    async def _ask(self) -> int | None:
        """Announce a visit to the process, a new one where none runs. Return its port; None when it does not answer."""
        try:
            process = self._process or await self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{self._secret}\n".encode())
            line = await asyncio.wait_for(process.stdout.readline(), ANSWER_SECONDS)
            return int(line)
        except (OSError, ValueError, TimeoutError):
            return None

    async def _started(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            *isolated_command(PROGRAM), str(self._state_dir), str(self._idle_seconds),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env=isolated_environment(os.environ), start_new_session=True,
        )  # fmt: skip
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        _kill(process)
        await process.wait()


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        process.kill()
