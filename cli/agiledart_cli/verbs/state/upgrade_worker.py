"""Process that carries out an upgrade, so that it goes on when the command line that asked for it is killed.

It reads an `UpgradeTask` from stdin and writes lines of JSON: progress, then the status or the error. The command line watches it,
and finishes the upgrade itself when this process is killed.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from agiledart_cli.errors import exit_code_of
from agiledart_cli.verbs.state.upgrade_run import UpgradeRun, UpgradeTask
from agiledart_control.errors import CommandRefusedError
from agiledart_kernel.errors import AgileDartError


def carried_out(task: UpgradeTask, report: Callable[[str], None]) -> dict[str, Any]:
    """Carry out an upgrade in a process of its own, or here when that process ends without a result; return the new status.

    Raises:
        CommandRefusedError, OperationFailed: as `UpgradeRun.finish`.
    """
    worker = subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    with worker.stdout:
        with contextlib.suppress(BrokenPipeError), worker.stdin:
            worker.stdin.write(msgspec.msgpack.encode(task))
        for line in worker.stdout:
            with contextlib.suppress(msgspec.MsgspecError):
                message = msgspec.json.decode(line, type=dict[str, Any])
                if "progress" in message:
                    report(message["progress"])
                elif "status" in message:
                    worker.wait()
                    status: dict[str, Any] = message["status"]
                    return status
                elif "error" in message:
                    worker.wait()
                    raise CommandRefusedError(message["error"], message["exit_code"])
    worker.wait()
    report("the process of the upgrade was ended; going on here")
    return UpgradeRun(task, report).finish()


def _write(message: dict[str, Any]) -> None:
    """Write one line; the command line may be gone."""
    with contextlib.suppress(OSError):
        os.write(sys.stdout.fileno(), msgspec.json.encode(message) + b"\n")


def main() -> None:
    """Run the process."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=UpgradeTask)
    try:
        _write({"status": UpgradeRun(task, lambda text: _write({"progress": text})).finish()})
    except AgileDartError as error:
        _write({"error": str(error), "exit_code": exit_code_of(error)})


if __name__ == "__main__":
    main()
