"""A way round for data links, which a test can cut, stall and heal: each executor is reached through a proxy of the test's.

Agents started as `python -m tests.e2e.detoured_agent` ask the test for the address that they announce for their
executors. Messages between agents go directly.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from tests.e2e import mesh as e2e_mesh

T = TypeVar("T")
VARIABLE = "DETOUR_PORT"
RELAYS_GO_STRAIGHT = "DETOUR_RELAYS"


class _Passing:
    """One connection through the proxy."""

    def __init__(self, writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
        self.writers = writers
        self.passes = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Bytes of one direction, as long as they pass."""
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await self.passes.wait()
                writer.write(data)
                await writer.drain()
        for one in self.writers:
            one.close()


class Detours:
    """All proxies, on a thread with a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._is_open = True
        self._connections: list[_Passing] = []
        self.port = self._call(self._serve(self._asked))

    def _call(self, work: Awaitable[T]) -> T:
        async def run() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(20)

    async def _serve(self, handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> int:
        server = await asyncio.start_server(handler, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """An agent wants a way round to an address."""
        host, _, port = (await reader.readline()).decode().strip().rpartition(":")

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._connect(host, int(port), reader, writer)

        writer.write(b"127.0.0.1:%d\n" % await self._serve(connected))
        await writer.drain()
        writer.close()

    async def _connect(self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_reader, to_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        one = _Passing((writer, to_writer))
        if self._is_open:
            one.passes.set()
        self._connections.append(one)
        one.tasks = [
            asyncio.create_task(one.pump(reader, to_writer)),
            asyncio.create_task(one.pump(to_reader, writer)),
        ]

    @property
    def made(self) -> int:
        """Connections so far."""
        return len(self._connections)

    def cut(self) -> None:
        """Nothing passes any more, and no end is notified."""

        async def work() -> None:
            self._is_open = False
            for one in self._connections:
                one.passes.clear()

        self._call(work())

    def heal(self, *, resumes: bool) -> None:
        """New connections pass; `resumes`: bytes in transit pass too. Else it stays where it is, as in a long back-off."""

        async def work() -> None:
            self._is_open = True
            for one in self._connections if resumes else ():
                one.passes.set()

        self._call(work())

    def reset(self) -> None:
        """All connections break."""

        async def work() -> None:
            for one in self._connections:
                for writer in one.writers:
                    writer.transport.abort()

        self._call(work())

    def close(self) -> None:
        """End all."""

        async def work() -> None:
            tasks = [task for one in self._connections for task in one.tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for one in self._connections:
                for writer in one.writers:
                    writer.transport.abort()

        self._call(work())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


@contextlib.contextmanager
def detours() -> Iterator[Detours]:
    """Agents that are started within have their data links go round."""
    made = Detours()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(e2e_mesh, "COMMAND", [sys.executable, "-m", "tests.e2e.detoured_agent"])
        patch.setenv(VARIABLE, str(made.port))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (os.getcwd(), os.environ.get("PYTHONPATH", "")))))
        try:
            yield made
        finally:
            made.close()
