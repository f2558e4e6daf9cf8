"""The process of an agent's page: a visit starts it, the secret of the address opens it, and it ends without viewers."""

import asyncio
import http.client
import json
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agiledart_agent.control import page_process
from agiledart_agent.control.page_process import ADDRESS_FILE, PageProcess
from tests.unit.connectors.reading import until


def begin_session(address: str, secret: str) -> int:
    host = urlsplit(address).netloc
    connection = http.client.HTTPConnection(host, timeout=10)
    connection.request("POST", "/session", json.dumps({"token": secret}), {"Origin": f"http://{host}"})
    return connection.getresponse().status


def secret_in(folder: Path) -> str:
    return (folder / ADDRESS_FILE).read_text().strip().partition("#")[2]


async def gone(process: PageProcess) -> None:
    await asyncio.to_thread(until, lambda: process.pid is None)


def run(test: Callable[[PageProcess], Awaitable[None]], folder: Path, idle_seconds: float) -> None:
    async def main() -> None:
        process = PageProcess(folder, idle_seconds)
        process.write_address("127.0.0.1:9465")
        try:
            await asyncio.wait_for(test(process), 60)
        finally:
            await process.close()
        assert process.pid is None

    asyncio.run(main())


def test_a_visit_starts_one_process_which_ends_without_viewers(tmp_path: Path) -> None:
    async def test(process: PageProcess) -> None:
        address, again = await asyncio.gather(process.visit(), process.visit())
        assert address == again
        first = process.pid
        assert first is not None
        for _ in range(2):  # a bookmark works again and again
            assert await asyncio.to_thread(begin_session, address, secret_in(tmp_path)) == 200
        assert await asyncio.to_thread(begin_session, address, "x" * 32) == 403
        await gone(process)
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)
        assert await process.visit()
        assert process.pid not in (None, first)

    run(test, tmp_path, 1.5)


def test_a_killed_process_is_replaced_at_the_next_visit(tmp_path: Path) -> None:
    async def test(process: PageProcess) -> None:
        assert await process.visit()
        assert process.pid is not None
        os.kill(process.pid, 9)
        await gone(process)
        assert await process.visit()

    run(test, tmp_path, 60)


def test_an_agent_that_ends_does_not_wait_for_a_process_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_process, "isolated_command", lambda program: ["sh", "-c", "exec sleep 100", "--"])

    async def test(process: PageProcess) -> None:
        visit = asyncio.ensure_future(process.visit())
        await asyncio.to_thread(until, lambda: process.pid is not None)
        await asyncio.wait_for(process.close(), 10)
        assert await visit == ""
        assert await process.visit() == "", "a closed agent starts none"

    run(test, tmp_path, 60)


def test_the_secret_outlives_the_agent_and_only_its_user_reads_it(tmp_path: Path) -> None:
    PageProcess(tmp_path).write_address("127.0.0.1:9465")
    secret = secret_in(tmp_path)
    assert len(secret) == 32
    PageProcess(tmp_path).write_address("127.0.0.1:9466")
    assert (tmp_path / ADDRESS_FILE).read_text() == f"http://127.0.0.1:9466/#{secret}\n"
    assert stat.S_IMODE((tmp_path / ADDRESS_FILE).stat().st_mode) == 0o600
    (tmp_path / ADDRESS_FILE).write_text("http://127.0.0.1:9466/#short\n")
    PageProcess(tmp_path).write_address("127.0.0.1:9466")
    assert secret_in(tmp_path) not in (secret, "short")
