"""Supervision of the reach process: events are taken, an end is followed by a new start, and wrong or endless talk is bounded."""

import asyncio
import io
from pathlib import Path

import pytest

from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.reaching import reach_process
from agiledart_agent.reaching.reach_process import ReachProcess
from agiledart_reach.messages import MAX_LAN_ADDRESSES, ReachStart

START = ReachStart(bytes(32), "ab" * 32, "192.0.2.7", 9464, announce=True, map_port=True)

PRELUDE = """
import socket, sys
from agiledart_reach.messages import *
pair = socket.socket(fileno=int(sys.argv[1]))
(start,) = MessageReader().feed(pair.recv(4096))
def say(message): pair.sendall(encode_message(message))
def wait(): pair.recv(1)
"""


class WatchedLog(io.StringIO):
    """Log whose changes can be awaited."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()

    def write(self, text: str) -> int:
        self.changed.set()
        return super().write(text)


async def supervised(
    tmp_path: Path, program: str, until: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[ReachProcess, str]:
    """Run a program in place of the real one until the log holds a text."""
    (tmp_path / "fake_reach.py").write_text(PRELUDE + program)
    monkeypatch.syspath_prepend(tmp_path)
    log = WatchedLog()
    process = ReachProcess(START, AgentLog(stream=log), "fake_reach")
    running = asyncio.create_task(process.run_forever())
    async with asyncio.timeout(60):
        while until not in log.getvalue():
            assert not running.done()
            log.changed.clear()
            await log.changed.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return process, log.getvalue()


def run(tmp_path: Path, program: str, until: str, monkeypatch: pytest.MonkeyPatch) -> tuple[ReachProcess, str]:
    return asyncio.run(supervised(tmp_path, program, until, monkeypatch))


def test_events_are_taken_and_the_end_of_the_agent_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"""
assert start.port == 9464 and start.map_port
say(LanPeerFound("192.0.2.8:1")); say(PortMapped("11.0.0.1:9464")); say(ReachFailed("mdns", "no multicast"))
wait()
open({str(tmp_path / "ended")!r}, "w").close()
"""
    process, log = run(tmp_path, program, "no multicast", monkeypatch)
    assert list(process.neighbours) == ["192.0.2.8:1"]
    assert process.mapped.result() == "11.0.0.1:9464"
    assert (tmp_path / "ended").exists()
    assert "a node was announced on this network at 192.0.2.8:1" in log


def test_a_process_that_ends_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach_process, "FIRST_PAUSE_SECONDS", 0.01)
    process, log = run(tmp_path, "sys.exit(3)", "next start in 0.04 s", monkeypatch)
    assert log.count("the process of py-libp2p ended") >= 3
    assert process.mapped.result() == ""


def test_nonsense_ends_the_process_and_floods_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
for number in range(500): say(LanPeerFound(f"192.0.2.8:{number + 1}"))
pair.sendall(b"\\xff" * 8)
wait()
"""
    process, log = run(tmp_path, program, "a message of 4294967295 bytes", monkeypatch)
    assert len(process.neighbours) == MAX_LAN_ADDRESSES
    assert log.count("was announced") <= 17


def test_a_process_that_takes_too_much_memory_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach_process, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(reach_process, "MAX_MEMORY_BYTES", 64 << 20)
    _, log = run(tmp_path, "held = bytearray(b'x') * (80 << 20)\nwait()", "MB", monkeypatch)
    assert "it took more than 64 MB" in log
