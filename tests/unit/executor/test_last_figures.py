"""Last reports of a process when an instance breaks: its last figures, and in any case that it broke."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from agiledart_executor.programs.instance_reporter import InstanceReporter
from agiledart_executor.programs.worker import Worker
from agiledart_executor.wire.agent_messages import InstanceFailure, InstanceName, InstanceReports


def instance(number: int, report: Any) -> Any:
    """One that has begun."""
    return SimpleNamespace(
        source=None,
        instance_name=InstanceName(number, 0),
        has_begun=True,
        has_handed_over=False,
        needs_restart=False,
        report=report,
    )


def test_unencodable_figures_do_not_delay_the_failure_report() -> None:
    def raises() -> dict[str, Any]:
        raise RuntimeError("a reader of a package is closed")

    broken, sound = instance(0, raises), instance(1, lambda: {"rows": 7})
    told: list[Any] = []
    reporter = InstanceReporter(lambda: [broken, sound], told.append, lambda running, text: None, lambda: None)
    reporter.instance_failed(broken, "its disk is gone")
    assert told == [
        InstanceReports(((sound.instance_name, {"rows": 7}),)),
        InstanceFailure(broken.instance_name, "its disk is gone", is_crash=False),
    ]


def test_a_task_that_dies_fails_every_local_instance(capsys: pytest.CaptureFixture[str]) -> None:
    failed: list[tuple[Any, str]] = []
    here = SimpleNamespace(name="counts.0")
    host = SimpleNamespace(running={0: here}, fail_change=lambda running, text: failed.append((running, text)))
    worker: Any = SimpleNamespace(_host=host, _tasks=set())
    worker._ended = partial(Worker._ended, worker)

    async def dies() -> None:
        raise KeyError("it has begun")

    async def play() -> None:
        Worker._spawn(worker, dies())
        await asyncio.wait(worker._tasks)
        await asyncio.sleep(0)

    asyncio.run(play())
    assert failed == [(here, "counts.0: its executor cannot go on: KeyError('it has begun')")]
    assert "KeyError" in capsys.readouterr().err
