"""Reports of an executor about its instances: figures twice a second, samples of taps, and failures."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection
from typing import Final

from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.instances.step_taps import StepTaps
from agiledart_executor.programs.launchable import Launchable
from agiledart_executor.programs.report_texts import bounded_text, log_texts
from agiledart_executor.wire.agent_messages import ExecutorMessage, InstanceFailure, InstanceName, InstanceReports
from agiledart_kernel.codec import encode

REPORT_SECONDS = 0.5
"""Seconds between two reports to the agent; the reports are also the executor's heartbeat."""

QUIET_NS: Final = 10_000_000
"""Time that instances have worked since the last report, up to which figures are sent only with every second report."""

STILL_REPORTS: Final = 4
"""Reports without any work after which instances count as still: their last figures have said that nothing is done."""

STILL_SECONDS: Final = 5
"""Seconds of the wall clock between two figures of still instances: only ages change in them."""


class InstanceReporter:
    """Reporter of the instances of one executor.

    Args:
        instances: returns all instances in this process.
        send: sends a message to the agent.
        fail: fails an instance whose figures cannot be sent.
        look: looks at the routes before each report.
        has_heartbeat: as of `Surroundings`; then a report without figures is not sent.
    """

    def __init__(
        self,
        instances: Callable[[], Collection[RunningInstance]],
        send: Callable[[ExecutorMessage], None],
        fail: Callable[[RunningInstance, str], None],
        look: Callable[[], None],
        has_heartbeat: Callable[[int], bool] = lambda number: False,
    ) -> None:
        self._instances, self._send, self._fail, self._look = instances, send, fail, look
        self._has_heartbeat = has_heartbeat
        self._taps: StepTaps | None = None
        self._busy_ns = self._still_reports = 0
        self._reported: frozenset[tuple[InstanceName, int, str]] = frozenset()

    def open_tap(self, code: Launchable | None, step: str) -> None:
        """Sample the rows of a step for a while; do nothing before the code is loaded."""
        if self._taps is None and code is not None:
            self._taps = StepTaps(code.steps, code.row_type, time.time_ns)
        if self._taps is not None:
            self._taps.open(step, time.monotonic())

    async def report_periodically(self) -> None:
        """Send figures twice a second; their absence shows the agent that user code does not return.

        Reports go out at whole and half seconds of the wall clock. So the figures of different nodes are of one moment, as far as
        their clocks agree. While instances do little, a report at a half second has no figures; while they do nothing, few have.
        """
        while True:
            self._look()
            reports: list[tuple[InstanceName, dict[str, object]]] = []
            wall_seconds = time.time()
            is_brief = self.is_brief(wall_seconds)
            for running in tuple(self._instances()):
                if not running.has_begun or running.has_handed_over:
                    continue
                running.release_watermarks()
                if running.latencies is not None:
                    running.latencies.hand_over()
                if running.instance is not None:
                    log_texts(running.instance.reports.take())
                    if running.sink.notices is not None:
                        log_texts([f"{running.name}: {note}" for note in running.sink.notices.take_notices()])
                elif running.source is not None:
                    log_texts(running.source.take_messages())
                if is_brief:
                    continue
                report = running.report()
                try:
                    encode(report)
                except (TypeError, ValueError, OverflowError) as error:  # an event time beyond 64 bits, for example
                    self._fail(running, f"{running.name}: its figures cannot be sent: {error}")
                else:
                    reports.append((running.instance_name, report))
            if not self._has_heartbeat(int(wall_seconds / REPORT_SECONDS)) or reports:
                self._send(InstanceReports(tuple(reports)))
            if self._taps is not None:
                for sampled in self._taps.take_samples(self._instances(), time.monotonic()):
                    self._send(sampled)
            await asyncio.sleep(REPORT_SECONDS - time.time() % REPORT_SECONDS)

    def is_brief(self, wall_seconds: float) -> bool:
        """Return whether the report of this moment has no figures. Figures are a third of what an executor with few rows costs.

        Figures of new instances, those behind a barrier, and those of another state of a connection do not wait.
        """
        instances = tuple(self._instances())
        busy_ns = sum(running.busy_ns for running in instances)
        worked_ns, self._busy_ns = busy_ns - self._busy_ns, busy_ns
        before, self._reported = (
            self._reported,
            frozenset((running.instance_name, running.barrier, running.connection_status()) for running in instances),
        )
        if before != self._reported:
            self._still_reports = 0
            return False
        self._still_reports = 0 if worked_ns else self._still_reports + 1
        is_half_second = wall_seconds % (2 * REPORT_SECONDS) >= REPORT_SECONDS
        is_still = self._still_reports > STILL_REPORTS and int(wall_seconds) % STILL_SECONDS > 0
        return worked_ns <= QUIET_NS and (is_half_second or is_still)

    def instance_failed(self, running: RunningInstance, message: str) -> None:
        """Report an instance that cannot go on, after the last figures of all."""
        if running.source is not None:
            log_texts(running.source.take_messages())
        self._report_last_figures()
        self._send(InstanceFailure(running.instance_name, bounded_text(message), is_crash=running.needs_restart))

    def _report_last_figures(self) -> None:
        """Send the figures of all instances before their run ends, for the record of the failed run."""
        reports = []
        for running in tuple(self._instances()):
            if running.has_begun and not running.has_handed_over:
                with contextlib.suppress(
                    Exception
                ):  # a figure that cannot be encoded may be why the instance broke, and that failure is sent in any case
                    report = running.report()
                    encode(report)
                    reports.append((running.instance_name, report))
        self._send(InstanceReports(tuple(reports)))
