"""An application that no nodes could hold: it waits when gates may lease the missing places, else the answer says how many."""

import asyncio
from typing import Any

import pytest

from agiledart_kernel.errors import OperationFailed
from agiledart_node.forming.submission_runner import SubmissionRunner
from agiledart_placement.baselines.ledger import NoCapacity


async def placed(places: int, missing: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often it is tried again before it is deployed. Raises what the user reads."""
    waits = 0

    async def form(self: Any, *arguments: Any) -> Any:
        if not waits:
            raise NoCapacity("no node has capacity.", could_fit=False, missing=missing)
        return None

    async def leasable() -> int:
        return places

    async def wait(*arguments: Any) -> None:
        nonlocal waits
        waits += 1

    monkeypatch.setattr(SubmissionRunner, "_form", form)
    runner: Any = object.__new__(SubmissionRunner)
    runner.leasable_places = leasable
    nothing: Any = None
    await runner._placed(nothing, nothing, nothing, [], wait)
    return waits


def test_it_waits_for_machines_that_gates_may_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asyncio.run(placed(8, 8, monkeypatch)) == 1


def test_it_is_refused_with_the_places_that_gates_may_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        OperationFailed, match="may still lease machines for 8 instances; it needs 9 more than all nodes"
    ):
        asyncio.run(placed(8, 9, monkeypatch))
    with pytest.raises(NoCapacity, match="no node has capacity") as caught:
        asyncio.run(placed(0, 9, monkeypatch))
    assert "lease" not in str(caught.value)
