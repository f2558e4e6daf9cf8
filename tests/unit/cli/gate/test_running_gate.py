"""Process of a gate beside a mesh that is slow, a provider without answers, a full disk, and orders without an object."""

import asyncio
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from agiledart_cli.gate import provider_calls
from agiledart_cli.gate.gate_disk import GateDisk
from agiledart_cli.gate.gate_file import GateFile
from agiledart_cli.gate.mesh_link import MeshLink, MeshView
from agiledart_cli.gate.running_gate import RunningGate
from agiledart_cli.gate.stage_observer import not_looked_at
from agiledart_kernel.instants import SECOND
from agiledart_provisioning.gate.gate_messages import Decision, DrainLeased, NodeSeen, ProviderHost
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.lease_entry import LeaseEntry, LeaseState

SETTINGS = GateSettings("act", 40, 1_000, "small", 1, 3_600 * SECOND)
VIEW = MeshView((NodeSeen("a1"),), (), (), {}, False, frozenset(), (), ())


class SlowMesh:
    """Mesh in which each drain lasts until the test ends it, and everything else is done at once."""

    def __init__(self, *orders: tuple[str, str, str]) -> None:
        self.orders, self.reports = orders, list[bytes]()
        self.drains_end, self.draining = threading.Event(), list[str]()
        self.looked, self.all_drain = asyncio.Event(), threading.Event()
        self.loop, self.running = asyncio.get_running_loop(), 0

    def report_and_look(self, report: bytes, places: int, tokens: dict[str, str]) -> MeshView:
        self.reports.append(report)
        self.loop.call_soon_threadsafe(self.looked.set)
        orders, self.orders = self.orders, ()
        return MeshView(VIEW.nodes, (), (), {}, False, frozenset(), orders, (), not_looked_at(self.running))

    def drain(self, node: str, *, undo: bool) -> str:
        self.draining.append(node)
        self.drains_end.wait(20)
        return ""

    def note(self, *what: str) -> None:
        pass


class SilentProvider:
    """Provider that answers nothing."""

    async def hosts(self, prefix: str) -> tuple[ProviderHost, ...]:
        await asyncio.Event().wait()
        return ()


def gate(folder: Path, mesh: SlowMesh, lines: list[str]) -> RunningGate:
    file = GateFile("gw", "", "", "hosts", 0.85, 900 * SECOND, "", "", SETTINGS, "local", {})
    provider, link = cast(Any, SilentProvider()), cast(MeshLink, mesh)
    return RunningGate(file, SETTINGS, provider, GateDisk(folder), link, "5e1f0000", 1, lines.append)


def test_a_gate_looks_at_the_mesh_while_many_nodes_are_drained(tmp_path: Path) -> None:
    async def play() -> None:
        mesh = SlowMesh()
        running = gate(tmp_path, mesh, [])
        for number in range(20):
            running._carry_out(DrainLeased(f"gw-{number}", f"n{number}"))
        try:
            await asyncio.sleep(0)
            await asyncio.wait_for(running._look(), 10)
        finally:
            mesh.drains_end.set()
        await asyncio.gather(*running._tasks)
        assert sorted(mesh.draining) == sorted(f"n{number}" for number in range(20))

    asyncio.run(play())


def test_an_order_without_an_object_is_printed(tmp_path: Path) -> None:
    async def play() -> None:
        lines: list[str] = []
        running = gate(tmp_path, SlowMesh(("release", "b9", "ann"), ("release", "", "ann")), lines)
        await running._look()
        assert lines == [
            "ann orders: release b9", "nothing to release: no live lease has the host b9",
            "ann orders: release", "nothing to release: no lease is live",
        ]  # fmt: skip

    asyncio.run(play())


def test_applications_beyond_the_limit_are_named_once(tmp_path: Path) -> None:
    async def play() -> None:
        mesh, lines = SlowMesh(), list[str]()
        running = gate(tmp_path, mesh, lines)
        for mesh.running in (50, 53, 53, 50, 51):
            await running._look()
        assert lines == [
            "stages of 3 applications are not looked at: 53 run, the limit is 50",
            "stages of 1 application are not looked at: 51 run, the limit is 50",
        ]

    asyncio.run(play())


def test_a_provider_without_an_answer_is_a_fault_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_calls, "CALL_SECONDS", 0.01)

    async def play() -> None:
        mesh = SlowMesh()
        running = gate(tmp_path, mesh, [])
        await running._calls.list_hosts(0)
        await running._look()
        assert b'"fault":"the provider cannot be reached: no answer in 0 s"' in mesh.reports[0]

    asyncio.run(play())


def test_a_full_disk_is_a_fault_and_ends_no_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: GateDisk, is_paused: bool) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(GateDisk, "set_paused", full)

    async def play() -> None:
        mesh = SlowMesh(("pause", "", "ann"))
        running = gate(tmp_path, mesh, [])
        await running._look()
        assert running.machine.is_paused
        await running._look()
        assert b'"fault":"the gate\'s folder cannot be written: No space left on device"' in mesh.reports[1]

    asyncio.run(play())


def test_an_advice_is_printed_once_also_between_others(tmp_path: Path) -> None:
    async def play() -> None:
        lines: list[str] = []
        running = gate(tmp_path, SlowMesh(), lines)
        for _ in range(3):
            running._carry_out(Decision("would scale", "", "a/s to 2: rows wait"))
            running._carry_out(Decision("would lease", "", "b waits for capacity"))
        assert lines == ["would scale: a/s to 2: rows wait", "would lease: b waits for capacity"]

    asyncio.run(play())


def test_the_largest_report_is_one_that_an_agent_takes(tmp_path: Path) -> None:
    """Reasons in another script are three times as many bytes as characters."""

    async def play() -> None:
        mesh = SlowMesh()
        running = gate(tmp_path, mesh, [])
        for number in range(70):
            lease = f"gw-{number}" + "x" * 100
            running.machine.ledger.entries[lease] = LeaseEntry(
                lease,
                "gw",
                "h" * 120,
                "small",
                1_000_000,
                10,
                number,
                LeaseState.JOINED,
                why="網" * 1_000,
                node="n" * 64,
            )
            running._use.use[lease] = {f"{number}-{name}" + "a" * 50: 1.0 for name in range(64)}
            running._carry_out(Decision("stays", lease, "網" * 1_000))
        await running._look()
        assert 20_000 < len(mesh.reports[0]) <= 48_000
        assert mesh.reports[0].count(b'"other applications"') == 1

    asyncio.run(play())
