"""Reports while an agent enters its ring."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agiledart_agent.ring import join_progress
from agiledart_agent.ring.join_progress import JoinProgress


def reports(monkeypatch: pytest.MonkeyPatch, *, joins_at: float, text: str) -> list[str]:
    """Texts on the log of a join that lasts so many seconds; the first report comes after 0.1 s, others 0.1 s apart."""
    monkeypatch.setattr(join_progress, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(join_progress, "AGAIN_SECONDS", 0.1)
    logged: list[str] = []

    async def play() -> None:
        joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        progress = JoinProgress(cast(Any, SimpleNamespace(info=lambda _event, line: logged.append(line))))
        progress.text = text
        asyncio.get_running_loop().call_later(joins_at, joined.set_result, None)
        await progress.report_until(joined)

    asyncio.run(play())
    return logged


def test_a_long_join_reports_its_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    logged = reports(monkeypatch, joins_at=0.35, text="waiting for an answer of pi1:9464")
    assert len(logged) >= 2
    assert set(logged) == {"  waiting for an answer of pi1:9464"}


@pytest.mark.parametrize(("joins_at", "text"), [(0.0, "waiting"), (0.3, "")])
def test_a_quick_join_and_one_without_a_reason_report_nothing(
    monkeypatch: pytest.MonkeyPatch, joins_at: float, text: str
) -> None:
    assert reports(monkeypatch, joins_at=joins_at, text=text) == []


def test_the_first_report_comes_within_three_seconds() -> None:
    assert join_progress.FIRST_SECONDS < 3.0
