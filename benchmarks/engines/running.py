"""One run of one engine in a process of its own: its result, its time, and the CPU time of all its processes."""

import ctypes
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.engines.setup import ROOT
from benchmarks.processes import tree

_SUBREAPER = 36
_END_SECONDS = 5.0


class RunError(Exception):
    """A run without a result; the message has the engine's last output."""


@dataclass(frozen=True)
class EngineRun:
    """Result and cost of one run.

    Attributes:
        result: printed by its process: counts, sums, `seconds` from the first tuple to the last result.
        cpu_seconds: of all its processes, start and end included.
        wall_seconds: of all of it.
        memory_mb: largest resident memory of any one of them.
        others: cores that everything else on the machine used meanwhile; 0 is a quiet machine.
    """

    result: dict[str, Any]
    cpu_seconds: float
    wall_seconds: float
    memory_mb: float
    others: float


@dataclass
class EngineProcess:
    """A running process and its output."""

    process: "subprocess.Popen[bytes]"
    output: Any
    errors: Any
    began: float = field(default_factory=time.monotonic)

    def wait(self, timeout: float) -> tuple[dict[str, Any], float, float]:
        """Wait; return (its last RESULT, CPU seconds of it and its children, their largest memory in MB).

        Raises `RunError` when there is no result.
        """
        deadline = self.began + timeout
        while True:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                end(self.process.pid)
                os.wait4(self.process.pid, 0)
                raise RunError(f"no result within {timeout:.0f} s. {self.last_output()}")
            time.sleep(0.005)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.output.seek(0)
        result: dict[str, Any] | None = None
        for line in self.output.read().decode("utf-8", "replace").splitlines():
            if line.startswith("RESULT "):
                result = json.loads(line.removeprefix("RESULT "))
        if self.process.returncode or result is None:
            raise RunError(f"ended with {self.process.returncode}. {self.last_output()}")
        return result, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024

    def last_output(self) -> str:
        """Return the end of its standard error."""
        self.errors.seek(0)
        return " | ".join(self.errors.read().decode("utf-8", "replace").strip().splitlines()[-3:])[-400:]


def adopt() -> None:
    """Become the parent of processes that engines leave behind, so that they can be found and ended."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def launch(command: Sequence[str], extra: Mapping[str, str] | None = None) -> EngineProcess:
    """Start a command in a session of its own, with this checkout importable."""
    output, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  held until it is waited for
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
        "PYTHONDONTWRITEBYTECODE": "",
        **(extra or {}),
    }
    process = subprocess.Popen(
        list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, start_new_session=True
    )
    return EngineProcess(process, output, errors)


def run(command: Sequence[str], timeout: float, extra: Mapping[str, str] | None = None) -> EngineRun:
    """Run a command to its end; raises `RunError`."""
    busy, began = _busy(), time.monotonic()
    result, cpu, memory = launch(command, extra).wait(timeout)
    wall = time.monotonic() - began
    return EngineRun(result, cpu, wall, memory, max(0.0, (_busy() - busy - cpu) / wall))


def end(pid: int) -> None:
    """End a process that we started and all its descendants."""
    members = tree(pid)
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for member in members:
            try:
                os.kill(member, sign)
            except ProcessLookupError:
                continue
        if sign is signal.SIGTERM:
            time.sleep(min(1.0, _END_SECONDS))


def _busy() -> float:
    """CPU seconds of the whole machine so far."""
    with open("/proc/stat") as file:
        fields = [int(text) for text in file.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
