"""Files that sinks of a run that has ended had begun: they get their names, where no process of the run is left to do it.

Elements say where they lie, and users' code wrote those; so a process that has nothing of the agent's looks at them.
"""

import asyncio
import contextlib
import os
import signal
import sys

import msgspec

from agiledart_agent.executors.bare_process import executor_environment
from agiledart_agent.executors.ended_sink_logs import commit_ended_logs, committed_in
from agiledart_agent.executors.protected_paths import protected_paths
from agiledart_agent.settings import AgentSettings
from agiledart_connectors.files.pending_place import parse_pending_place
from agiledart_executor.finalising.finalise_messages import FilesToFinalise, FinaliseRequest, FinaliseResult
from agiledart_kernel.errors import OperationFailed
from agiledart_node.wire.effects import CommitLogs, ForgetRun

SECONDS = 600.0
"""For one process: it may have to make a large Parquet file anew."""

TRIES = 60
PAUSE_SECONDS = 0.5
"""Between two tries at the end of a run, whose processes are just ending."""


async def publish_ended_files(settings: AgentSettings, effect: CommitLogs) -> list[str]:
    """Let all rows of a finished run be seen; returns what is wrong, which nothing mends.

    Raises:
        OperationFailed: something is still being written, or a disk does not take it: to be tried again.
    """
    unrepairable = await asyncio.to_thread(commit_ended_logs, settings.state_dir, effect)
    return unrepairable + await _finished(settings, effect)


async def finish_remaining_files(settings: AgentSettings, effect: ForgetRun) -> list[str]:
    """The same of a run that is about to be forgotten, however it ended; logs say why. Nobody waits: it is tried for a while."""
    again = ""
    for _ in range(TRIES):
        try:
            where = "are not shown in their log"
            unrepairable = await asyncio.to_thread(commit_ended_logs, settings.state_dir, effect)
            where = "stay in files that end in .part"
            return unrepairable + await _finished(settings, effect)
        except OperationFailed as error:
            again = f"{where}: {error}"
        await asyncio.sleep(PAUSE_SECONDS)
    return [f"rows of the last epoch of {effect.application} {again}"]


async def _finished(settings: AgentSettings, effect: CommitLogs | ForgetRun) -> list[str]:
    files = await asyncio.to_thread(_to_finish, settings, effect)
    if not files:
        return []
    found = await _finished_apart(FinaliseRequest(effect.application, files, protected_paths(settings)), settings)
    if found.again:
        raise OperationFailed(found.again)
    return [
        f"rows of the last epoch of {effect.application} are in no file of their own: {text}"
        for text in found.unrepairable
    ]


def _to_finish(settings: AgentSettings, effect: CommitLogs | ForgetRun) -> tuple[FilesToFinalise, ...]:
    found: list[FilesToFinalise] = []
    shown, _ = committed_in(
        settings.state_dir, effect
    )  # what is wrong was told with the logs, or the run has failed of it
    for one in shown:
        with contextlib.suppress(msgspec.MsgspecError, ValueError):  # it is not from this version
            place = parse_pending_place(one.identity)
            if place is not None and place.has_any():
                found.append(FilesToFinalise(place, one.ends))
    return tuple(found)


async def _finished_apart(wanted: FinaliseRequest, settings: AgentSettings) -> FinaliseResult:
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "agiledart_executor.finalising",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            cwd=str(settings.state_dir), env=executor_environment(os.environ), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return FinaliseResult(again=f"no process could be started: {error.strerror}")
    try:
        answer, _ = await asyncio.wait_for(process.communicate(msgspec.msgpack.encode(wanted)), SECONDS)
        return msgspec.msgpack.decode(answer, type=FinaliseResult)
    except TimeoutError:
        return FinaliseResult((f"their disk did not take them within {SECONDS:.0f} s",))
    except (OSError, msgspec.MsgspecError):
        return FinaliseResult((f"the process that finishes them ended (code {process.returncode})",))
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
