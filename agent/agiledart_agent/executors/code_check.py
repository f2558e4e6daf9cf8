"""Dry run: `agiledart_executor.programs.bundle_check` in a process of its own, bounded in time; its output is discarded."""

import asyncio
import contextlib
import os
import signal

import msgspec

from agiledart_agent.executors.bare_process import executor_environment
from agiledart_agent.executors.isolated_python import isolated_command
from agiledart_executor.wire.agent_messages import CodeCheckRequest, CodeCheckResult

SECONDS = 9.0
"""Time for the check; the node that asked waits for ten."""

MAX_ANSWER = 1 << 20


async def check_in_subprocess(wanted: CodeCheckRequest, directory: str) -> CodeCheckResult:
    """Return the result of the process, or why there is none, as text."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        process = await asyncio.create_subprocess_exec(
            *isolated_command("agiledart_executor.programs.bundle_check"), str(writing),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            pass_fds=(writing,), cwd=directory, env=executor_environment(os.environ), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        os.close(reading)
        return CodeCheckResult(f"no process for user code could be started: {error.strerror}")
    finally:
        os.close(writing)
    try:
        answering = asyncio.gather(_read(reading), process.communicate(msgspec.msgpack.encode(wanted)))
        answer, _ = await asyncio.wait_for(answering, SECONDS)
        return msgspec.msgpack.decode(answer, type=CodeCheckResult)
    except TimeoutError:
        return CodeCheckResult(f"user code, or what it reads and writes, was not ready within {SECONDS:.0f} s")
    except (OSError, msgspec.MsgspecError):
        return CodeCheckResult(f"the process of user code ended (code {process.returncode})")
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _read(reading: int) -> bytes:
    """Read all that the process writes, up to the bound. It must be read while it runs, since a pipe holds only 64 KiB."""
    loop = asyncio.get_running_loop()
    stream = asyncio.StreamReader()
    pipe, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(os.dup(reading), "rb")
    )
    try:
        answer = b""
        while len(answer) < MAX_ANSWER and (more := await stream.read(MAX_ANSWER - len(answer))):
            answer += more
        return answer
    finally:
        pipe.close()
