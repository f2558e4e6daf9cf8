"""Supervisor of the reach process: starts it, reads its events, bounds its memory, and starts it again when it ends.

The agent never waits for it and goes on without it. The process gets no key: the peer id needs the public half only.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.executors.bare_process import executor_environment
from agiledart_reach.messages import (
    MAX_LAN_ADDRESSES,
    AnnouncementSent,
    LanPeerFound,
    MessageReader,
    PortMapped,
    ReachFailed,
    ReachMessage,
    ReachStart,
    encode_message,
)

MAX_MEMORY_BYTES = 256 << 20
"""Resident size at which the process is ended. It has 82 MB at rest; a stranger once drove a libp2p host to 1,160 MB."""

MAX_LOGGED_ADDRESSES = 16
"""Announcements that get a line in the log: anybody on the local network may send thousands."""

LOOK_SECONDS = 5.0
START_SECONDS = 30.0
"""Longest start of the process: it imports for 0.6 s on a server, for ten times as long on a busy board."""

FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 1.0, 60.0

PROGRAM = "agiledart_reach.reach_program"


def has_libp2p() -> bool:
    """Return whether py-libp2p is installed; nothing is imported."""
    return find_spec("libp2p") is not None and find_spec("trio") is not None


class ReachProcess:
    """The reach process of one agent.

    Args:
        start: request that each new process gets.
        program: module that the process runs.

    Attributes:
        neighbours: addresses of neighbours on the local network, the latest ones last.
        mapped: future of the outside address at the router; "" when there is none.
    """

    def __init__(self, start: ReachStart, log: AgentLog, program: str = PROGRAM) -> None:
        self._start, self._log, self._program = start, log, program
        self._process: asyncio.subprocess.Process | None = None
        self.neighbours: dict[str, None] = {}
        self.mapped: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._news = asyncio.Event()
        self._announced = asyncio.Event()

    async def run_forever(self) -> None:
        """Keep the process running; pause longer after each end. Cancel this to end both."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = asyncio.get_running_loop().time()
            reason = await self._run_once()
            if not self.mapped.done():
                self.mapped.set_result("")
            if asyncio.get_running_loop().time() - began > LAST_PAUSE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            self._log.warning("reach.ended", f"  the process of py-libp2p ended ({reason}); next start in {pause:g} s")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE_SECONDS)

    async def wait_for_neighbour(self, seconds: float) -> None:
        """Return when a new address was found, or this time after this node was announced: the start itself may take long."""
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._announced.wait(), START_SECONDS)
            await asyncio.wait_for(self._news.wait(), seconds)

    async def _run_once(self) -> str:
        """Run one process to its end. Return the reason."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", self._program, str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),), env=executor_environment(os.environ), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            ours.close()
            return f"it could not be started: {error.strerror}"
        finally:
            theirs.close()
        self._process = process
        watching = asyncio.create_task(self._watch_memory(process.pid))
        try:
            reader, writer = await asyncio.open_connection(sock=ours)
            writer.write(encode_message(self._start))
            try:
                reason = await self._read(reader)
            finally:
                writer.close()  # the process withdraws its announcement and gives the port back
            return watching.result() if watching.done() else reason
        finally:
            watching.cancel()
            await self._reap(process)

    async def _reap(self, process: asyncio.subprocess.Process) -> None:
        """Wait until the process has gone; end it when it takes long."""
        try:
            await asyncio.wait_for(process.wait(), LOOK_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def _read(self, reader: asyncio.StreamReader) -> str:
        """Take the events of the process until its stream ends. Return the reason of the end."""
        messages = MessageReader()
        try:
            while data := await reader.read(4_096):
                for message in messages.feed(data):
                    self._take(message)
        except (OSError, ValueError) as error:
            return str(error)
        return "its stream ended"

    def _take(self, message: ReachMessage) -> None:
        match message:
            case LanPeerFound(address) if len(address) <= 64:
                if address not in self.neighbours:
                    self._news.set()
                    if len(self.neighbours) < MAX_LOGGED_ADDRESSES:
                        self._log.info("reach.neighbour", f"  a node was announced on this network at {address}")
                self.neighbours.pop(address, None)
                self.neighbours[address] = None
                while len(self.neighbours) > MAX_LAN_ADDRESSES:
                    del self.neighbours[next(iter(self.neighbours))]
            case AnnouncementSent():
                self._announced.set()
            case PortMapped(address) if len(address) <= 64:
                self._log.info("reach.mapped", f"  the router passes {address} on to this agent")
                if not self.mapped.done():
                    self.mapped.set_result(address)
            case ReachFailed(service, reason):
                self._log.warning("reach.unavailable", f"  {service[:16]}: {reason[:200]}")
                if service == "mdns":
                    self._announced.set()
                if service == "upnp" and not self.mapped.done():
                    self.mapped.set_result("")
            case _:
                pass

    async def _watch_memory(self, pid: int) -> str:
        """End the process when it takes too much memory. Return the reason."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except (OSError, IndexError, ValueError):
                continue
            if pages * os.sysconf("SC_PAGE_SIZE") > MAX_MEMORY_BYTES:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
                return f"it took more than {MAX_MEMORY_BYTES >> 20} MB"
