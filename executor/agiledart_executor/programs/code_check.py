"""`python -m agiledart_executor.programs.code_check FD`, for `submit --dry-run`: does this code load here, would its sources and sinks open?

A `CodeCheckRequest` comes on standard input, a `CodeCheckResult` goes to the descriptor. The process is one of its own, so that a library
that is missing, or user code that hangs, does no harm to the agent. Nothing is read or written; sinks are not opened.
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
    """Load the code and try the connectors. `directory`: the agent's state directory, closed to that code."""
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
            found = probe_source(connector, step.row_type)
        else:
            found = probe_sink(connector, step.row_type, logs)
        guarantee = found.guarantee
        return ConnectorCheck(stage, url, True, found.text[:MAX_TEXT], guarantee)
    except AgileDartError as error:
        text = str(error)
    except OSError as error:
        text = f"{error.filename or url}: {error.strerror or error}"
    except Exception as error:  # noqa: BLE001  a package of somebody else's, or a driver
        text = f"{type(error).__name__}: {error}"
    return ConnectorCheck(stage, url, False, text[:MAX_TEXT], guarantee)


def main() -> None:
    """Standard input → the descriptor that the first argument names."""
    directory, answering = Path.cwd(), int(sys.argv[1])
    os.set_inheritable(answering, False)  # who waits for its end does not wait for a program that users' code starts
    wanted = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=CodeCheckRequest)
    if wanted.memory_bytes:
        bind_process(Bounds(memory_bytes=wanted.memory_bytes))
    found = check(wanted, directory)
    with os.fdopen(answering, "wb") as out:
        out.write(msgspec.msgpack.encode(found))
    os._exit(0)  # threads of drivers and of users' code do not matter any more


if __name__ == "__main__":
    main()
