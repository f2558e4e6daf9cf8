"""Check of user code on this node for `submit --dry-run`: does it load here, and would its sources and sinks open?

The command is `python -m agiledart_executor.programs.bundle_check FD`. The program reads a `CodeCheckRequest` from standard input
and writes a `CodeCheckResult` to the descriptor FD. It has a process of its own, so that a missing library or hanging user code
does no harm to the agent. The check reads and writes no rows and opens no sink.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from agiledart_connectors.credentials import provision_secrets
from agiledart_connectors.probing import logs_here, probe_sink, probe_source
from agiledart_dataflow.plan.step import Step
from agiledart_executor.programs.launchable import ready_program
from agiledart_executor.user_code.application_confinement import confine_code_check
from agiledart_executor.user_code.bounds import Bounds, bind_process
from agiledart_executor.wire.agent_messages import CodeCheckRequest, CodeCheckResult, ConnectorCheck
from agiledart_kernel.errors import AgileDartError

MAX_TEXT = 500


def check(wanted: CodeCheckRequest, directory: Path) -> CodeCheckResult:
    """Load the code and probe its connectors. `directory` is the agent's state directory, closed to that code."""
    logs = logs_here(directory)
    provision_secrets(wanted.secrets)
    try:
        confine_code_check(directory, wanted.closed)
        program = ready_program(wanted.plan, wanted.bundle)
    except AgileDartError as error:
        return CodeCheckResult(str(error)[:MAX_TEXT])
    tried = ((stage, step) for stage in wanted.stages for step in program.steps(stage) if step.connector is not None)
    return CodeCheckResult("", tuple(_checked(stage, step, logs) for stage, step in tried))


def _checked(stage: int, step: Step, logs: Mapping[str, bool]) -> ConnectorCheck:
    connector: Any = step.connector
    url, is_source = connector.url(), step.source is not None
    guarantee = ""
    try:
        if is_source:
            probed = probe_source(connector, step.row_type)
        else:
            probed = probe_sink(connector, step.row_type, logs)
        guarantee = probed.guarantee
        return ConnectorCheck(stage, url, True, probed.text[:MAX_TEXT], guarantee)
    except AgileDartError as error:
        text = str(error)
    except OSError as error:
        text = f"{error.filename or url}: {error.strerror or error}"
    except Exception as error:  # noqa: BLE001  a third-party package or a driver may raise anything
        text = f"{type(error).__name__}: {error}"
    return ConnectorCheck(stage, url, False, text[:MAX_TEXT], guarantee)


def main() -> None:
    """Check the request on standard input and write the result to the descriptor that the first argument names."""
    directory, answering = Path.cwd(), int(sys.argv[1])
    os.set_inheritable(
        answering, False
    )  # else a program that user code starts would keep the agent waiting for its end
    wanted = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=CodeCheckRequest)
    if wanted.memory_bytes:
        bind_process(Bounds(memory_bytes=wanted.memory_bytes))
    result = check(wanted, directory)
    with os.fdopen(answering, "wb") as out:
        out.write(msgspec.msgpack.encode(result))
    os._exit(0)  # do not wait for threads of drivers and of user code


if __name__ == "__main__":
    main()
