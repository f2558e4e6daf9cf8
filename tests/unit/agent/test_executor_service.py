"""Requests to an agent's executors, in any order: a run stopped before its process exists does not get one."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agiledart_agent.executors.executor_pool import ExecutorPool
from agiledart_agent.executors.executor_service import ExecutorService
from agiledart_agent.executors.log_ownership_proofs import LogOwnershipProofs
from agiledart_executor.wire.agent_messages import AcknowledgeCheckpoint, DeclineCheckpoint, InstanceName
from agiledart_kernel.codec import encode
from agiledart_kernel.machine import Failed
from agiledart_kernel.node_id import NodeId
from agiledart_node.wire.effects import PrepareExecutors, StartInstances, StopInstances
from tests.unit.node.test_node import part
from tests.unit.node.test_stage_changes import STAGES

WANTED = StartInstances(7, msgspec.structs.replace(part(), plan=encode(STAGES)))


class SlowDesk(ExecutorService):
    """It looks at quotas until a test says so."""

    def __init__(self, folder: Path) -> None:
        settings = SimpleNamespace(
            state_dir=folder, executor_memory_mb=100, stuck_warning=1.0, stuck_limit=1.0, name="pi3", quotas={}
        )
        self.told: list[Any] = []
        applications = SimpleNamespace(started=len, ended=lambda *_: None)
        known: dict[str, Any] = {
            "key": None,
            "node_id": NodeId(7),
            "applications": applications,
            "know_tickets": lambda _: False,
        }
        known["touch_network"] = lambda: None
        anything = cast(Any, SimpleNamespace(**known))
        nobody = cast(Any, print)
        super().__init__(
            cast(Any, settings), anything, anything, anything, anything,
            nobody, self.told.append, anything, nobody, nobody,
            LogOwnershipProofs(folder, NodeId(7), nobody), nobody, nobody,
        )  # fmt: skip
        self.go = asyncio.Event()

    async def _refusal(self, *_: Any) -> tuple[str, str]:
        await self.go.wait()
        return "", ""


@pytest.mark.parametrize("stopped", ["app", "another"])
def test_an_executor_stopped_during_its_quota_check_is_not_started(tmp_path: Path, stopped: str) -> None:
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


@pytest.mark.parametrize("stopped", ["app", "another"])
def test_an_executor_stopped_during_its_quota_check_is_not_prepared(tmp_path: Path, stopped: str) -> None:
    """The next plan of the run may give this node other instances, so other folders."""
    prepared: list[str] = []

    async def prepare(application: str, *_: Any) -> None:
        prepared.append(application)

    async def play() -> None:
        desk = SlowDesk(tmp_path)
        pool = cast(ExecutorPool, SimpleNamespace(prepare=prepare, stop=lambda *_: None))
        desk._begin_to_start(pool, PrepareExecutors(WANTED.part, (0,)))
        desk._stop_instances(pool, StopInstances(stopped, 1))
        desk.go.set()
        await asyncio.gather(*desk._tasks)
        assert desk._starts == {}

    asyncio.run(play())
    assert prepared == ([] if stopped == "app" else ["app"])


def test_an_unsaved_instance_is_logged_once_and_its_recovery_again(tmp_path: Path) -> None:
    logged: list[str] = []

    async def play() -> None:
        desk, name = SlowDesk(tmp_path), InstanceName(2, 0)
        take = cast(Any, SimpleNamespace(warning=_says(logged), info=_says(logged)))
        desk._log, desk._count_snapshot = take, lambda *_: None
        for epoch in (1, 2):
            desk._prepared(
                "app", 1, DeclineCheckpoint(epoch, name, "out.csv cannot be written: no space left on device")
            )
        desk._prepared("app", 1, DeclineCheckpoint(3, name, "out.csv is gone"))
        for epoch in (4, 5):
            desk._prepared("app", 1, AcknowledgeCheckpoint(epoch, name, b"hash", 10, (5,)))

    asyncio.run(play())
    begins = "instance 0 of stage 2 of app cannot be saved, so no epoch is committed until it can be: "
    assert logged == [
        f"{begins}out.csv cannot be written: no space left on device",
        f"{begins}out.csv is gone",
        "instance 0 of stage 2 of app can be saved again",
    ]


def test_reasons_of_unsaved_instances_are_forgotten_with_their_run_or_evicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agiledart_agent.executors.executor_service.MAX_BROKEN", 3)
    logged: list[str] = []

    async def play() -> None:
        desk, pool = SlowDesk(tmp_path), cast(ExecutorPool, SimpleNamespace(stop=lambda *_: None))
        desk._log = cast(Any, SimpleNamespace(warning=_says(logged), info=_says(logged)))

        def is_told_anew(application: str, version: int) -> bool:
            before = len(logged)
            desk._prepared(application, version, DeclineCheckpoint(1, InstanceName(2, 0), "full"))
            return len(logged) > before

        assert all(is_told_anew(*run) for run in (("app", 1), ("app", 2), ("other", 1)))
        desk._stop_instances(pool, StopInstances("app", 1))
        assert [is_told_anew(*run) for run in (("app", 2), ("other", 1))] == [False, False]
        assert is_told_anew("app", 1)
        assert is_told_anew("newest", 1), "and the oldest is forgotten"
        assert [is_told_anew(*run) for run in (("newest", 1), ("other", 1), ("app", 2))] == [False, False, True]

    asyncio.run(play())


def _says(logged: list[str]) -> Any:
    def take(event: str, text: str, **fields: object) -> None:
        logged.append(text)

    return take
