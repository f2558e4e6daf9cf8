"""Sessions that brokers keep for the sources of a run that has ended: a process of its own ends them there.

The connectors' libraries and the users' secrets never enter the agent's process for it.
"""

import asyncio
import contextlib
import os
import signal
from typing import Final

import msgspec

from agiledart_agent.executors.bare_process import executor_environment
from agiledart_agent.executors.isolated_python import isolated_command
from agiledart_agent.settings import AgentSettings
from agiledart_connectors.mqtt.broker_session import SessionRequest

SECONDS: Final = 120.0
"""Time for one process; it tries again while a broker is away."""


async def end_sessions(settings: AgentSettings, request: SessionRequest) -> list[str]:
    """End sessions; return why some are left."""
    try:
        process = await asyncio.create_subprocess_exec(
            *isolated_command("agiledart_executor.ending_sessions"),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            cwd=str(settings.state_dir), env=executor_environment(os.environ), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return [f"sessions at brokers are left: no process could be started: {error.strerror}"]
    try:
        answer, _ = await asyncio.wait_for(process.communicate(msgspec.msgpack.encode(request)), SECONDS)
        return msgspec.msgpack.decode(answer, type=list[str])
    except TimeoutError:
        return [f"sessions at brokers are left: their brokers did not answer for {SECONDS:.0f} s"]
    except (OSError, msgspec.MsgspecError):
        return [f"sessions at brokers are left: the process that ends them ended (code {process.returncode})"]
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
