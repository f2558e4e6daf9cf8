"""Applications in one real process, without an agent: a crash, a hang or an exit of one, and the others."""

import asyncio
import os
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from agiledart_agent.executors import executor_nursery
from agiledart_agent.executors.bare_process import LaunchError
from agiledart_agent.executors.executor_listener import ExecutorEvents
from agiledart_agent.executors.executor_pool import ExecutorPool
from agiledart_agent.executors.executor_sharing import SharingBounds
from agiledart_dataflow.plan.deployment import DeploymentPart, InstancePlace, PlacedInstance
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_executor.user_code import landlock
from agiledart_executor.user_code.bounds import Bounds
from agiledart_executor.user_code.user_builder import (
    absolute_settings,
    build_bundle,
    encode_bundle,
    load_builder,
    make_bundle,
)
from agiledart_executor.wire.agent_messages import Configure, InstanceFailure, InstanceName
from agiledart_kernel.codec import encode
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_transport.tls_contexts import TlsCredentials

ME = Peer(NodeId(7), 1, "a1", "127.0.0.1:1")
WAIT_SECONDS = 60.0
MB = 1_000_000
ANN, BOB = bytes(32), bytes([1] * 32)

CODE = """
import ctypes
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from agiledart import Sink, Source, Topology

COUNT = []

class Reading(NamedTuple):
    value: int

def act(what: str, reading: Reading) -> bool:
    if reading.value != 3:
        return True
    if what == "crash":
        ctypes.string_at(0)
    if what == "exit":
        os._exit(3)
    if what == "hang":
        time.sleep(60)
    if what == "fork":
        os.fork()
    if what == "directory":
        os.chdir("/")
    if what.startswith("peek"):
        for path in what.split(",")[1:]:
            try:
                print(f"{path}: {Path(path).read_text()}")
            except OSError as error:
                print(f"{path}: {error.strerror}")
    if what == "raise":
        raise ValueError("three is too many")
    return True

def small(readings: Source[Reading], report: Sink[Reading], name: str = "small", what: str = "") -> Topology:
    COUNT.append(name)
    print(f"{name} is number {len(COUNT)} in {os.getcwd()}")
    if what == "import":
        from agiledart import nothing_of_this_name
    topology = Topology(name)
    if what == "limit":
        topology.limit(stuck_limit=timedelta(seconds=30))
    topology.source("readings", readings).filter(lambda row: act(what, row), name="act").sink("report", report)
    return topology
"""


class Place:
    """A pool that shares, and what it reports."""

    def __init__(self, folder: Path, warning_seconds: float = 30.0, most: int = 8) -> None:
        self.folder, self.root = folder, folder / "state"
        self.root.mkdir()
        (folder / "code.py").write_text(CODE)
        (folder / "rows.csv").write_text("value\n" + "".join(f"{number}\n" for number in range(10)))
        self.printed: dict[str, list[str]] = {}
        self.finished: dict[str, list[InstanceName]] = {}
        self.broke: dict[str, list[InstanceFailure]] = {}
        self._bounds = Bounds(warning_seconds, 60.0, 1_000 * MB)
        events = ExecutorEvents(
            reported=lambda *_: None,
            finished=lambda app, version, name, report: self.finished.setdefault(app, []).append(name),
            broke=lambda app, version, broke: self.broke.setdefault(app, []).append(broke),
            printed=lambda app, text: self.printed.setdefault(app, []).append(text),
            refused=lambda *_: None,
            verify_peer=cast(Any, None),
        )
        bounds = SharingBounds(most, 1_000 * MB, 1_000_000)
        self.pool = ExecutorPool(events, self._configuration, str(self.root), forks=True, sharing=bounds)

    def _configuration(self, application: str, version: int, number: int, part: bytes) -> Configure:
        return Configure(
            application, version, number, TlsCredentials(b"", ""), (), NodeId(number), 1, "a1", "127.0.0.1", ME.address,
            bounds=self._bounds, home=ME.node, closed=(str(self.root),),
        )  # fmt: skip

    def part(self, name: str, what: str, owner: bytes, attempt: int) -> DeploymentPart:
        builder = load_builder("code.py:small", self.folder)
        settings = {
            "name": name,
            "what": what,
            "readings": f"csv:{self.folder}/rows.csv?header=1",
            "report": f"log:{name}",
        }
        made = absolute_settings(builder, settings, self.folder)
        bundle = make_bundle(builder, {**made, "what": "" if what == "import" else what})
        specification = build_bundle(bundle).specification()
        plan = plan_stages(specification)
        places = tuple(InstancePlace(stage.index, 0, 0) for stage in plan.stages)
        bundle = msgspec.structs.replace(bundle, parameters=made)
        return DeploymentPart(
            name, 1, 1, attempt, encode(specification), encode(plan), encode_bundle(bundle), (ME,),
            tuple(PlacedInstance(place.stage, 0) for place in places), places, (), ME, ME, by_epoch=True, owner=owner,
        )  # fmt: skip

    async def launch(self, name: str, what: str = "", owner: bytes = ANN, attempt: int = 1) -> int:
        """Start an application. Return its process."""
        part = self.part(name, what, owner, attempt)
        names = [InstanceName(placed.stage, 0) for placed in part.instances]
        await self.pool.launch(
            name, 1, len(name), {0: names}, encode(part), {n.stage: "act" for n in names}, by_epoch=True
        )
        return next(e.process.pid for e in self.pool.processes if e.application == name)

    def read(self, *names: str) -> None:
        for name in names:
            self.pool.start_sources(name, 1)

    def why(self, name: str) -> str:
        """Return the only message about the end of an application's instances."""
        (message,) = {broke.message for broke in self.broke[name]}
        return message


def play(scenario: Callable[[Place], Awaitable[None]], place: Place) -> None:
    async def whole() -> None:
        try:
            await scenario(place)
        finally:
            await place.pool.close()
            assert place.pool._sharing.processes == []

    asyncio.run(whole())


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not is_so():  # noqa: ASYNC110  processes tell nothing but what is looked at
            await asyncio.sleep(0)


def test_applications_of_one_owner_share_and_end_alone(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        one, two, other = (
            await place.launch("one"),
            await place.launch("two"),
            await place.launch("strange", owner=BOB),
        )
        assert one == two != other
        place.read("one", "two", "strange")
        await until(lambda: {"one", "two", "strange"} <= place.finished.keys())
        for name in ("one", "two"):
            begun = [line for line in place.printed[name] if " is number " in line]
            assert len(begun) == 1, begun
            assert begun[0].startswith(f"{name} is number 1 in {place.root}/shared/"), "modules and output are its own"
        place.pool.stop("one", 1)
        await place.pool.until_gone("one", 1)
        os.kill(two, 0)
        assert place.broke == {}
        assert await place.launch("late") == two
        place.read("late")
        await until(lambda: "late" in place.finished)
        assert (place.root / "work" / "late" / "files").is_dir()

    play(scenario, Place(tmp_path))


@pytest.mark.parametrize(
    ("what", "more", "own", "others"),
    [
        ("crash", {}, r"crashed in code.py:\d+ in act \(Segmentation fault", "bad was at work"),
        ("exit", {}, r"ended \(exit code 3", "which one was at work is unknown"),
        (
            "hang",
            {"warning_seconds": 1.0},
            r"user code has not returned for \d+ s: code.py:\d+ in act",
            "bad was at work",
        ),
    ],
)
def test_an_end_of_the_process_gives_each_one_message_and_the_culprit_its_own(
    tmp_path: Path, what: str, more: dict[str, Any], own: str, others: str
) -> None:
    async def scenario(place: Place) -> None:
        shared = await place.launch("bad", what)
        assert {await place.launch("good"), await place.launch("fine")} == {shared}
        place.read("bad")
        await until(lambda: {"bad", "good", "fine"} <= place.broke.keys())
        assert re.search(own, place.why("bad")), place.why("bad")
        for name in ("good", "fine"):
            assert place.why(name).endswith(others)
            assert all(broke.is_crash for broke in place.broke[name])
        restarts = await asyncio.gather(*(place.launch(name, attempt=2) for name in ("bad", "good", "fine")))
        assert restarts[1] == restarts[2]
        assert (restarts[0] == restarts[1]) == (what == "exit")
        place.read("bad", "good", "fine")
        await until(lambda: {"bad", "good", "fine"} <= place.finished.keys())

    play(scenario, Place(tmp_path, **more))


def test_user_code_that_changes_its_process_harms_no_neighbour(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        shared = await place.launch("good")
        closed = place.root / "node.key"
        closed.write_text("secret")
        await place.launch("strange", owner=BOB)
        strange = place.root / "work" / "strange" / "files" / "note"
        strange.write_text("secret")
        own = place.root / "work" / "good" / "files" / "note"
        own.write_text("of the same owner")
        assert await place.launch("peek", f"peek,{closed},{strange},{own}") == shared
        place.read("peek")
        await until(lambda: f"{own}: of the same owner" in place.printed["peek"])
        if landlock.is_there():
            for path in (closed, strange):
                assert f"{path}: Permission denied" in place.printed["peek"]
        for what in ("fork", "directory", "raise"):
            assert await place.launch(what, what) == shared
            place.read(what)
            await until(lambda what=what: what in {**place.finished, **place.broke})
        with pytest.raises(LaunchError, match="nothing_of_this_name"):
            await place.launch("import", "import")
        assert "three is too many" in place.why("raise")
        assert sum("user code forked its process" in line for line in place.printed["fork"]) == 1
        limited = await place.launch("limit", "limit")
        assert limited != shared, "it has limits of its own"
        assert await place.launch("late") == shared
        place.read("good", "late", "limit")
        await until(lambda: {"good", "late", "limit"} <= place.finished.keys())
        assert place.broke.keys() == {"raise"}

    play(scenario, Place(tmp_path))


def test_user_code_in_a_process_of_its_own_harms_neither_others_nor_their_nursery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_nursery, "ANSWER_SECONDS", WAIT_SECONDS)

    async def scenario(place: Place) -> None:
        pids = [await place.launch("good")]
        nursery = place.pool._nursery.pid
        for what in ("fork", "directory", "raise", "exit"):
            pids.append(await place.launch(what, what))
            place.read(what)
            await until(lambda what=what: what in {**place.finished, **place.broke})
        with pytest.raises(LaunchError, match="nothing_of_this_name"):
            await place.launch("import", "import")
        assert "three is too many" in place.why("raise")
        assert "ended (exit code 3: os._exit by user code or a library)" in place.why("exit")
        assert sum("user code forked its process" in line for line in place.printed["fork"]) == 1
        pids.append(await place.launch("late"))
        assert len(set(pids)) == len(pids)
        assert place.pool._nursery.pid == nursery
        place.read("good", "late")
        await until(lambda: {"good", "late", "fork", "directory"} <= place.finished.keys())
        assert place.broke.keys() == {"raise", "exit"}

    play(scenario, Place(tmp_path, most=0))


def test_a_full_process_is_followed_by_another_one(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        pids = [await place.launch(f"app{number}") for number in range(5)]
        assert (pids[0], pids[2]) == (pids[1], pids[3])
        assert len(set(pids)) == 3
        os.kill(pids[0], signal.SIGKILL)
        await until(lambda: {"app0", "app1"} <= place.broke.keys())
        assert place.broke.keys() == {"app0", "app1"}

    play(scenario, Place(tmp_path, most=2))
