"""What an agent's executors are asked to do, in any order: who is stopped before a process of it is there does not get one."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agiledart_agent.executors.executor_desk import ExecutorDesk
from agiledart_agent.executors.executor_pool import ExecutorPool
from agiledart_agent.executors.log_titles import LogTitles
from agiledart_kernel.codec import encode
from agiledart_kernel.machine import Failed
from agiledart_kernel.node_id import NodeId
from agiledart_node.wire.effects import StartInstances, StopInstances
from tests.unit.node.test_node import part
from tests.unit.node.test_taking_terms import STAGES

WANTED = StartInstances(7, msgspec.structs.replace(part(), plan=encode(STAGES)))


class SlowDesk(ExecutorDesk):
    """It looks at quotas until a test says so."""

    def __init__(self, folder: Path) -> None:
        settings = SimpleNamespace(
            state_dir=folder, executor_memory_mb=100, stuck_warning=1.0, stuck_limit=1.0, name="pi3", quotas={}
        )
        self.told: list[Any] = []
        applications = SimpleNamespace(started=len, ended=lambda *_: None)
        anything = cast(Any, SimpleNamespace(key=None, node_id=NodeId(7), applications=applications))
        nobody = cast(Any, print)
        super().__init__(
            cast(Any, settings), anything, anything, anything, anything,
            nobody, self.told.append, nobody, nobody, LogTitles(folder, NodeId(7), nobody), nobody, nobody,
        )  # fmt: skip
        self.go = asyncio.Event()

    async def _refusal(self, *_: Any) -> tuple[str, str]:
        await self.go.wait()
        return "", ""


@pytest.mark.parametrize("stopped", ["app", "another"])
def test_who_is_stopped_while_its_quota_is_looked_at_is_not_started(tmp_path: Path, stopped: str) -> None:
    launched: list[str] = []

    async def launch(application: str, *_: Any, **__: Any) -> dict[Any, str]:
        launched.append(application)
        return {}

    async def play() -> SlowDesk:
        desk = SlowDesk(tmp_path)
        pool = cast(ExecutorPool, SimpleNamespace(launch=launch, stop=lambda *_: None))
        desk._begin_to_start(pool, WANTED)
        desk._stop_instances(pool, StopInstances(stopped, 1))
        desk.go.set()
        await asyncio.gather(*desk._tasks, return_exceptions=stopped != "app")
        return desk

    desk = asyncio.run(play())
    if stopped == "app":
        assert (launched, desk.told) == ([], [Failed(7, "app was stopped while it started")])
    else:
        assert launched == ["app"]
