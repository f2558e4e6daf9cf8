"""Reports of an executor whose instances do little: figures with each second report, at once when something is new."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agiledart_executor.programs.instance_reporter import QUIET_NS, InstanceReporter
from agiledart_executor.programs.shared_programs import SharedPrograms
from agiledart_executor.user_code.bounds import Bounds
from agiledart_executor.user_code.crash_report import CrashReporter
from agiledart_executor.wire.agent_messages import InstanceName, InstanceReports, ShareProcess


def instance(stage: int) -> Any:
    """An instance that has done nothing."""
    status = {"text": ""}
    return SimpleNamespace(
        busy_ns=0,
        barrier=0,
        instance_name=InstanceName(stage, 0),
        status=status,
        connection_status=lambda: status["text"],
    )


def test_figures_of_quiet_instances_go_with_each_second_report() -> None:
    counts, sink = instance(0), instance(1)
    instances: list[Any] = [counts]
    reporter = InstanceReporter(lambda: instances, lambda _: None, lambda *_: None, lambda: None)
    assert not reporter.is_brief(7.51)  # the first figures of an instance wait for nothing
    assert not reporter.is_brief(8.01)
    assert reporter.is_brief(8.51)
    counts.busy_ns += QUIET_NS
    assert not reporter.is_brief(9.01)
    assert reporter.is_brief(9.51)
    counts.busy_ns += QUIET_NS + 1
    assert not reporter.is_brief(10.0)
    counts.busy_ns += QUIET_NS + 1
    assert not reporter.is_brief(10.51)
    instances.append(sink)
    assert not reporter.is_brief(11.51)
    assert reporter.is_brief(12.51)
    sink.barrier = 3
    assert not reporter.is_brief(12.51)
    assert reporter.is_brief(13.51)


def test_figures_of_still_instances_go_every_five_seconds_until_something_happens() -> None:
    source = instance(0)
    reporter = InstanceReporter(lambda: [source], lambda _: None, lambda *_: None, lambda: None)

    def figures(first: float, reports: int) -> list[float]:
        walls = [first + number / 2 for number in range(reports)]
        return [wall for wall in walls if not reporter.is_brief(wall)]

    assert figures(100.01, 41) == [100.01, 101.01, 102.01, 105.01, 110.01, 115.01, 120.01]
    source.busy_ns += 1
    assert figures(120.51, 12) == [
        121.01,
        122.01,
        125.01,
    ]  # the first brings the row, the second says that nothing is done
    source.status["text"] = "the broker is away"
    assert figures(126.51, 8) == [126.51, 127.01, 128.01, 130.01]


def test_programs_of_one_process_send_one_heartbeat_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []

    async def reports_at(*walls: float) -> None:
        none = cast(Any, None)
        process = SharedPrograms(ShareProcess("/", "/", Bounds()), CrashReporter(-1), none, none, none)
        for wall in walls:
            monkeypatch.setattr(time, "time", lambda wall=wall: wall)
            reporters = [
                InstanceReporter(list, sent.append, lambda *_: None, lambda: None, process.has_heartbeat)
                for _ in range(25)
            ]
            tasks = [asyncio.create_task(reporter.report_periodically()) for reporter in reporters]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()

    asyncio.run(reports_at(8.51, 9.01, 9.51))
    assert sent == [InstanceReports(())] * 3
