"""Unfinished files of sinks of an ended run: they get their names, when no process of the run is left to do it.

Snapshots say where the files are, and users' code wrote the snapshots. So a process without access to anything of the
agent handles them.
"""

import asyncio
import contextlib
import os
import signal

import msgspec

from agiledart_agent.executors.bare_process import executor_environment
from agiledart_agent.executors.ended_sink_logs import commit_ended_logs, committed_in
from agiledart_agent.executors.isolated_python import isolated_command
from agiledart_agent.executors.protected_paths import protected_paths
from agiledart_agent.settings import AgentSettings
from agiledart_connectors.files.pending_place import parse_pending_place
from agiledart_executor.finalising.finalise_messages import FilesToFinalise, FinaliseRequest, FinaliseResult
from agiledart_kernel.errors import OperationFailed
from agiledart_node.wire.effects import CommitLogs, ForgetRun

SECONDS = 600.0
"""Time for one process: it may have to rewrite a large Parquet file."""

TRIES = 60
PAUSE_SECONDS = 0.5
"""Pause between two tries at the end of a run, whose processes are just ending."""


async def publish_ended_files(settings: AgentSettings, effect: CommitLogs) -> list[str]:
    """Make all rows of a finished run visible. Return the errors that no retry mends.

    Raises:
        OperationFailed: a file is still being written, or a disk does not take it: to be tried again.
    """
    unrepairable = await asyncio.to_thread(commit_ended_logs, settings.state_dir, effect)
    return unrepairable + await _finished(settings, effect)


async def finish_remaining_files(settings: AgentSettings, effect: ForgetRun) -> list[str]:
    """Publish the files of a run that is about to be forgotten, however it ended.

    The agent logs the returned errors. No caller waits, so this function tries for a while.
    """
    pending_error = ""
    for _ in range(TRIES):
        try:
            where = "are not visible in their log"
            unrepairable = await asyncio.to_thread(commit_ended_logs, settings.state_dir, effect)
            where = "stay in files that end in .part"
            return unrepairable + await _finished(settings, effect)
        except OperationFailed as error:
            pending_error = f"{where}: {error}"
        await asyncio.sleep(PAUSE_SECONDS)
    return [f"rows of the last epoch of {effect.application} {pending_error}"]


async def _finished(settings: AgentSettings, effect: CommitLogs | ForgetRun) -> list[str]:
    files = await asyncio.to_thread(_to_finish, settings, effect)
    if not files:
        return []
    result = await _finished_apart(FinaliseRequest(effect.application, files, protected_paths(settings)), settings)
    if result.again:
        raise OperationFailed(result.again)
    return [
        f"rows of the last epoch of {effect.application} are in no file of their own: {text}"
        for text in result.unrepairable
    ]


def _to_finish(settings: AgentSettings, effect: CommitLogs | ForgetRun) -> tuple[FilesToFinalise, ...]:
    files: list[FilesToFinalise] = []
    outputs, _ = committed_in(
        settings.state_dir, effect
    )  # errors were reported with the logs, or the run has failed by them
    for output in outputs:
        with contextlib.suppress(msgspec.MsgspecError, ValueError):  # the place is not from this version
            place = parse_pending_place(output.identity)
            if place is not None and place.has_any():
                files.append(FilesToFinalise(place, output.ends))
    return tuple(files)


async def _finished_apart(wanted: FinaliseRequest, settings: AgentSettings) -> FinaliseResult:
    try:
        process = await asyncio.create_subprocess_exec(
            *isolated_command("agiledart_executor.finalising"),
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
