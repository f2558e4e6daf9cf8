"""Which process an executor program of a small application gets, with `[executors] share = "owner"`.

Applications of one owner come together in a process up to a bound. One that was at work when its process crashed, hung or
was stopped gets a process of its own from its restart on; one that was there twice when the cause was unknown, too.
"""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agiledart_agent.executors.bare_process import BareProcess, LaunchError
from agiledart_agent.executors.shared_folders import SharedFolders, remove_leftovers
from agiledart_agent.executors.shared_process import SharedProcess
from agiledart_agent.executors.shared_program import SharedEnd, SharedProgramProcess
from agiledart_agent.executors.sharing_rules import why_alone
from agiledart_agent.executors.work_owners import WorkOwners
from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_executor.user_code.application_folders import own_folders, work_folder
from agiledart_executor.user_code.bounds import Bounds
from agiledart_executor.wire.agent_messages import Configure, ShareProcess
from agiledart_kernel.codec import Codec
from agiledart_sink_log.layout import logs_in

GATHER_SECONDS: Final = 0.5
"""Time for which the first restart waits for others of its owner: a process can use only folders that are known when it begins."""

IDLE_SECONDS: Final = 60.0
HANG_FACTOR: Final = 2.0
"""A call of user code may take this many times `stuck_warning` in a shared process, because all others wait for it."""

ROOM: Final = 0.75
"""Share of the memory bound beyond which a process takes no further application."""

OVER_ROWS_LOOKS: Final = 10
"""Looks, once a second, with too many rows after which the busiest application leaves."""

STRIKES: Final = 2
FOLDERS_EACH: Final = 8
MAX_REMEMBERED: Final = 1_024

_PART: Codec[DeploymentPart] = Codec(DeploymentPart)


@dataclass(frozen=True)
class SharingBounds:
    """Bounds of one shared process.

    Args:
        applications: most of them; 0: no process is shared.
        memory_bytes: resident memory of the process.
        rows_per_second: that pass the steps of all its applications.
    """

    applications: int = 0
    memory_bytes: int = 0
    rows_per_second: int = 0


NO_SHARING: Final = SharingBounds()


class ExecutorSharing:
    """Shared processes of one agent.

    Args:
        root: the agent's state directory.
        bounds: of each process.
        start: starts a process.
        printed: takes a line of output of an application.
        ended: called when a process has ended, to clear up behind it.
    """

    def __init__(
        self,
        root: Path,
        bounds: SharingBounds,
        start: Callable[[], Awaitable[BareProcess]],
        printed: Callable[[str, str], None],
        ended: Callable[[SharedProcess], None],
    ) -> None:
        self._root, self._bounds, self._start = root, bounds, start
        self._printed, self._on_end = printed, ended
        self.processes: list[SharedProcess] = []
        self._locks: defaultdict[bytes, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._expected: dict[tuple[bytes, str], tuple[Path, ...]] = {}
        self._strikes: dict[str, int] = {}
        self._sweep: asyncio.Task[None] | None = None

    async def attach(self, raw_part: bytes, configuration: Configure) -> BareProcess | None:
        """Begin an executor program in a shared process. None: the application needs a process of its own.

        Raises:
            LaunchError: the system gives no process.
        """
        if not self._bounds.applications:
            return None
        part = _PART.decode(raw_part)
        if self._strikes.get(part.application, 0) >= STRIKES or why_alone(part, configuration):
            return None
        latencies = configuration.latency_log_bytes > 0
        wanted = own_folders(part, self._root, configuration.home, has_latencies=latencies)
        key = part.owner, part.application
        self._expected[key] = wanted
        try:
            async with self._locks[part.owner]:
                return await self._place(part, wanted, configuration)
        except OSError as error:
            raise LaunchError(f"{error.filename or self._root}: {(error.strerror or str(error)).lower()}") from None
        finally:
            self._expected.pop(key, None)

    async def _place(
        self, part: DeploymentPart, wanted: tuple[Path, ...], configuration: Configure
    ) -> BareProcess | None:
        try:
            if (shared := self._with_room(part.owner, wanted, configuration)) is not None:
                return await shared.attach(part.application)
            if part.attempt > 1:
                await asyncio.sleep(GATHER_SECONDS)
            process = await self._opened(part.owner, configuration)
            if self._claims(process, wanted, configuration):
                return await process.attach(part.application)
        except LaunchError as error:  # the process has just ended, or none can be opened: one of its own may start
            self._printed(part.application, f"warning: {error}; it starts in a process of its own")
        return None

    def _with_room(self, owner: bytes, wanted: tuple[Path, ...], configuration: Configure) -> SharedProcess | None:
        for process in self.processes:
            has_room = (
                process.is_open
                and process.owner == owner
                and len(process.programs) < self._bounds.applications
                and process.watch.memory <= self._bounds.memory_bytes * ROOM
                and process.rows_per_second <= self._bounds.rows_per_second
            )
            if has_room and self._claims(process, wanted, configuration):
                return process
        return None

    def _claims(self, process: SharedProcess, wanted: tuple[Path, ...], configuration: Configure) -> bool:
        return not configuration.closed or process.folders.claim(wanted)

    async def _opened(self, owner: bytes, configuration: Configure) -> SharedProcess:
        """Open a process for the applications that are expected now."""
        if self._sweep is None:
            self._sweep = asyncio.create_task(asyncio.to_thread(remove_leftovers, self._root))
        await asyncio.shield(self._sweep)  # it would take the folders of another owner's process, too
        expected = [path for (key, _), paths in self._expected.items() if key == owner for path in paths]
        known = await asyncio.to_thread(_folders_of, self._root, owner)
        existing = dict.fromkeys((*expected, *known))
        folders = SharedFolders(self._root, secrets.token_hex(8))
        usable = await asyncio.to_thread(folders.set_aside, existing, self._bounds.applications * FOLDERS_EACH)
        bare = await self._start()
        limit = configuration.bounds.warning_seconds * HANG_FACTOR
        bounds = Bounds(
            configuration.bounds.warning_seconds, limit, self._bounds.memory_bytes, "executors.share_memory_mb"
        )
        process = SharedProcess(bare, owner, folders, self._printed, self._ended)
        bare.watch.bounds = bounds
        bare.watch.wait_until(asyncio.get_running_loop().time())
        own = tuple(map(str, usable))
        await process.open(ShareProcess(str(self._root), str(folders.working), bounds, configuration.closed, own))
        self.processes.append(process)
        return process

    def _ended(self, process: SharedProcess, end: SharedEnd) -> None:
        """Note which applications must not share a process again."""
        if process in self.processes:
            self.processes.remove(process)
        for program in process.programs.values():
            if end.application == program.application:
                self.exclude(program.application, "it was at work when the process that it shared ended")
            elif not end.application:
                why = f"{STRIKES} processes that it shared have ended without a known cause"
                self._strike(program.application, 1, why)
        self._on_end(process)
        asyncio.get_running_loop().run_in_executor(None, process.folders.remove)

    def exclude(self, application: str, why: str) -> None:
        """Give an application a process of its own from its next start on."""
        self._strike(application, STRIKES, why)

    def _strike(self, application: str, weight: int, why: str) -> None:
        self._strikes[application] = self._strikes.pop(application, 0) + weight
        if self._strikes[application] >= STRIKES:
            self._printed(application, f"from now on it has a process of its own on this node: {why}")
        while len(self._strikes) > MAX_REMEMBERED:
            del self._strikes[next(iter(self._strikes))]

    def look(self, now: float) -> list[tuple[SharedProgramProcess, str]]:
        """Look after all processes, once a second. Return programs that must leave theirs, with the reason."""
        leaving: list[tuple[SharedProgramProcess, str]] = []
        for process in tuple(self.processes):
            if not process.programs and now - process.idle_since > IDLE_SECONDS:
                process.close()
                continue
            complaint, is_over = process.watch.look(now, 0.0)
            if is_over:
                process.end_for(complaint, is_silent=not process.watch.is_over_memory)
            leaving += self._busiest(process)
        return leaving

    def _busiest(self, process: SharedProcess) -> list[tuple[SharedProgramProcess, str]]:
        """Return the application that has most rows, when all together have had too many for a while."""
        for program in process.programs.values():
            program.look()
        bound = self._bounds.rows_per_second
        process.over_rows = process.over_rows + 1 if process.rows_per_second > bound else 0
        if process.over_rows < OVER_ROWS_LOOKS or not process.programs:
            return []
        process.over_rows = 0
        busiest = max(process.programs.values(), key=lambda program: program.rows_per_second)
        why = (
            f"{busiest.rows_per_second:,.0f} rows/s pass its steps, and the applications of a process may have {bound:,} "
            f"together (executors.share_rows)"
        )
        self.exclude(busiest.application, why)
        return [(busiest, f"it restarts in a process of its own: {why}")]

    async def close(self) -> None:
        """End all processes, and wait for their end."""
        processes = tuple(self.processes)
        for process in processes:
            process.close()
        for process in processes:
            await process.wait()


def _folders_of(root: Path, owner: bytes) -> list[Path]:
    """Return folders that an owner's applications have here: those of its names, and the logs that these began."""
    names = WorkOwners(root).names_of(owner)
    logs = [at for at, log in logs_in(root) if log.application in names]
    return [*(work_folder(root, name) for name in names), *logs][:MAX_REMEMBERED]
