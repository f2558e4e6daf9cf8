"""systemd is notified on request, and no service manager when none asked."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from agiledart_agent.host.service_manager import ServiceManager


@pytest.fixture
def manager(tmp_path: Path) -> socket.socket:
    """The manager's end, in the usual place."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    end.bind(str(tmp_path / "notify"))
    end.setblocking(False)
    return end


def test_the_service_manager_is_notified(manager: socket.socket) -> None:
    supervisor = ServiceManager(manager.getsockname())
    supervisor.notify("READY=1", "STATUS=here")
    assert manager.recv(100) == b"READY=1\nSTATUS=here"
    manager.close()
    supervisor.notify("READY=1")


def test_an_abstract_socket_is_supported(tmp_path: Path) -> None:
    name = f"agiledart-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(f"\0{name}")
        ServiceManager(f"@{name}").notify("READY=1")
        assert end.recv(100) == b"READY=1"


def test_the_environment_is_read_once_and_not_passed_on(tmp_path: Path) -> None:
    environment = {
        "NOTIFY_SOCKET": str(tmp_path / "x"),
        "WATCHDOG_USEC": "30000000",
        "WATCHDOG_PID": str(os.getpid()),
        "A": "1",
    }
    supervisor = ServiceManager.from_environment(environment)
    assert environment == {"A": "1"}
    assert supervisor.watchdog_seconds == 30
    supervisor.notify("READY=1")  # no process listens there


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "30000000"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"},
    ],
)
def test_without_a_watchdog_no_heartbeat_is_sent(environment: dict[str, str]) -> None:
    supervisor = ServiceManager.from_environment(environment)
    assert supervisor.watchdog_seconds == 0
    asyncio.run(asyncio.wait_for(supervisor.keep_alive(), 1))


def test_heartbeats_continue(manager: socket.socket) -> None:
    async def main() -> list[bytes]:
        alive = asyncio.create_task(ServiceManager(manager.getsockname(), 0.002).keep_alive())
        loop = asyncio.get_running_loop()
        signs = [await asyncio.wait_for(loop.sock_recv(manager, 100), 5) for _ in range(3)]
        alive.cancel()
        return signs

    assert asyncio.run(main()) == [b"WATCHDOG=1"] * 3
    manager.close()
