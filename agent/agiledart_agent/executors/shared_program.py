"""One executor program in a process that several applications share, as the agent sees the process of an executor."""

from dataclasses import dataclass
from typing import Final

from agiledart_agent.executors.child_process import ReportedProcess
from agiledart_dataflow.counts.statistics import PASSED_ROWS
from agiledart_executor.wire.agent_messages import InstanceReports

_RATE_SECONDS: Final = 4
"""Seconds over which the rate of rows is smoothed."""


@dataclass(frozen=True)
class SharedEnd:
    """End of a shared process.

    Args:
        text: the end of `the process …`.
        reason: that the process, or its watch, gave; empty: none.
        application: that was at work; empty: it is unknown.
        applications: number of those that shared it.
    """

    text: str
    reason: str
    application: str
    applications: int

    def why_lost(self, application: str, steps: str) -> str:
        """Return why an application's instances are lost, for its user."""
        if application == self.application:
            return self.reason or f"the process of {steps} {self.text}"
        others = f"{self.applications - 1} other application{'s' if self.applications > 2 else ''} of its owner"
        how = f"{self.text} ({self.reason})" if self.reason and not self.application else self.text
        culprit = f"{self.application} was at work" if self.application else "which one was at work is unknown"
        return f"the process of {steps}, shared with {others}, {how}: {culprit}"


class SharedProgramProcess(ReportedProcess):
    """One executor program, as the agent sees the process of an executor.

    Args:
        application: its name.
        pid: of the process that it runs in.

    Attributes:
        mark: of its user code in stack dumps; empty before the code is loaded.
        rows_per_second: of the last few seconds.
        end: of the process, when the program ended with it.
    """

    def __init__(self, application: str, pid: int) -> None:
        super().__init__(pid)
        self.application = application
        self.mark = ""
        self._passed_rows: dict[tuple[int, int], int] = {}
        self.rows_per_second, self._rows = 0.0, 0
        self.end: SharedEnd | None = None

    def kill(self) -> None:
        """Do nothing: a program ends by itself once its pair is closed, or with a process that does not return."""

    def count(self, reports: InstanceReports) -> None:
        """Count the rows that have passed its steps."""
        for name, report in reports.reports:
            rows = report.get(PASSED_ROWS, 0)
            if isinstance(rows, int):
                self._passed_rows[name.stage, name.index] = rows

    def look(self) -> None:
        """Work out the rate of rows, once a second."""
        rows = sum(self._passed_rows.values())
        self.rows_per_second += (max(0, rows - self._rows) - self.rows_per_second) / _RATE_SECONDS
        self._rows = rows

    def set_status(self, code: int, end: SharedEnd | None = None) -> None:
        """Take 0 once it has ended alone, else the exit code and the end of its process; the first report counts."""
        if self.returncode is None:
            self.end = end
        super().set_status(code)
