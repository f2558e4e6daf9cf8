"""Processes that applications of one owner share: their folders, their bounds, and each user's message at their end."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agiledart_agent.executors.bare_process import BareProcess, LaunchError
from agiledart_agent.executors.executor_sharing import ROOM, STRIKES, ExecutorSharing, SharingBounds
from agiledart_agent.executors.shared_folders import SharedFolders, remove_leftovers
from agiledart_agent.executors.shared_program import SharedEnd, SharedProgramProcess
from agiledart_agent.executors.sharing_rules import MAX_INSTANCES, why_alone
from agiledart_connectors.credentials import ProvisionedSecrets
from agiledart_dataflow.plan.connectors import ConnectorSpecification
from agiledart_dataflow.plan.deployment import DeploymentPart, InstancePlace, PlacedInstance
from agiledart_dataflow.plan.specification import Specification, StepSpecification
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_executor.user_code import landlock
from agiledart_executor.user_code.bundle import Bundle, encode_bundle
from agiledart_executor.wire.agent_messages import InstanceName, InstanceReports
from agiledart_kernel.codec import encode
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer

ME = Peer(NodeId(7), 1, "a1", "10.0.0.1:1")

CONFINED = """
import sys
from pathlib import Path
from agiledart_executor.user_code.confinement import Confinement
root, *own = map(Path, sys.argv[1:])
assert Confinement([root], own).enforce()
for line in sys.stdin:
    try:
        Path(line.strip()).write_text("x")
        print("written", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""


@pytest.mark.skipif(not landlock.is_there(), reason="the kernel has no Landlock")
def test_a_confined_process_gets_folders_that_were_set_aside_and_no_others(tmp_path: Path) -> None:
    known, strange = tmp_path / "work" / "known", tmp_path / "work" / "strange"
    for folder in (known, strange):
        folder.mkdir(parents=True)
    folders = SharedFolders(tmp_path, "one")
    usable = folders.set_aside([known, tmp_path / "gone"], 2)
    with subprocess.Popen(
        [sys.executable, "-c", CONFINED, str(tmp_path), *map(str, usable)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None

        def write(path: Path) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        late = tmp_path / "work" / "late"
        assert write(known / "a") == "written"
        assert write(strange / "a") == "Permission denied"
        assert folders.claim([late / "files", late])
        assert write(late / "files" / "a") == "written"
        assert not folders.claim([strange]), "it holds files that another process may use"
        assert folders.claim([late, known])
        assert folders.claim([tmp_path / "runs" / "late.1" / "elements"])
        assert write(tmp_path / "runs" / "late.1" / "elements" / "a") == "written"
        assert not folders.claim([tmp_path / "logs" / "more"]), "none is left"
        assert not (tmp_path / "logs" / "more").exists()
        process.stdin.close()
    folders.remove()
    assert not (tmp_path / "shared" / "one").exists()
    assert (late / "files" / "a").read_text() == "x"


def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    folders = SharedFolders(tmp_path, "one")
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    folders.set_aside([tmp_path / "target", tmp_path / "link"], 1)
    assert folders.claim([tmp_path / "target"])
    assert not folders.claim([tmp_path / "link"])
    remove_leftovers(tmp_path)
    assert not (tmp_path / "shared").exists()


def part(source: str = "csv", path: str = "/data/in.csv", sink: str = "log", **more: Any) -> DeploymentPart:
    steps = (
        StepSpecification(0, "readings", "source", connector=ConnectorSpecification(source, path, (), "")),
        StepSpecification(1, "report", "sink", (0,), connector=ConnectorSpecification(sink, "report", (), "")),
    )
    job = Specification("mine", steps)
    stages = plan_stages(job)
    places = tuple(InstancePlace(stage.index, 0, 0) for stage in stages.stages)
    made = DeploymentPart(
        "mine", 1, 1, 1, msgspec.msgpack.encode(job), msgspec.msgpack.encode(stages), encode_bundle(Bundle("a:b", {})),
        (ME,), tuple(PlacedInstance(place.stage, 0) for place in places), places, (), ME, ME, by_epoch=True, owner=b"k",
    )  # fmt: skip
    return msgspec.structs.replace(made, **more)


def configuration() -> Any:
    return SimpleNamespace(home=ME.node, secrets=ProvisionedSecrets(), latency_log_bytes=0, closed=())


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (part(), ""),
        (part("mqtt", "broker/topic"), ""),
        (part(owner=b""), "its owner is unknown"),
        (part(by_epoch=False), "it is not saved, so the end of another application would end it"),
        (part(path="in.csv"), "readings names a file by its place in the working directory"),
        (part(sink="csv"), "its connector csv may need a process of its own"),
        (part("kafka"), "its connector kafka may need a process of its own"),
        (part(instances=(PlacedInstance(0, 0, 1),)), "it has several executors, or parallel instances"),
        (
            part(assignment=tuple(InstancePlace(stage, 0, 0) for stage in range(MAX_INSTANCES + 1))),
            f"it has more than {MAX_INSTANCES} instances here",
        ),
        (
            part(bundle=encode_bundle(Bundle("a:b", {}, requires=("numpy",)))),
            "it imports numpy, which may be native code",
        ),
    ],
)
def test_only_small_applications_without_needs_of_their_own_share(wanted: DeploymentPart, reason: str) -> None:
    assert why_alone(wanted, configuration()) == reason


def test_each_application_gets_a_message_about_the_end_with_the_known_cause() -> None:
    known = SharedEnd("crashed in rule.py:4 in f (Segmentation fault, killed by SIGSEGV)", "", "a", 3)
    assert known.why_lost("a", "clean") == f"the process of clean {known.text}"
    assert known.why_lost("b", "sum") == (
        f"the process of sum, shared with 2 other applications of its owner, {known.text}: a was at work"
    )
    unknown = SharedEnd("ended (exit code 3)", "", "", 2)
    assert unknown.why_lost("b", "sum") == (
        "the process of sum, shared with 1 other application of its owner, ended (exit code 3): "
        "which one was at work is unknown"
    )
    memory = SharedEnd("was stopped", "it took 300 MB", "", 2)
    assert memory.why_lost("b", "sum").endswith("was stopped (it took 300 MB): which one was at work is unknown")


class FakeShared:
    """A shared process that is none."""

    def __init__(self, owner: bytes, applications: tuple[str, ...]) -> None:
        self.owner, self.is_open, self.over_rows, self.idle_since = owner, True, 0, 0.0
        self.watch: Any = SimpleNamespace(memory=0, look=lambda *_: ("", False), is_over_memory=False)
        self.programs = {number: SharedProgramProcess(name, 1) for number, name in enumerate(applications)}
        self.folders = SimpleNamespace(claim=lambda _: True, remove=lambda: None)

    @property
    def rows_per_second(self) -> float:
        return sum(program.rows_per_second for program in self.programs.values())


def sharing(root: Path) -> ExecutorSharing:
    return ExecutorSharing(root, SharingBounds(3, 1_000, 100), cast(Any, None), print, lambda _: None)


def test_a_process_is_for_its_owner_up_to_its_bounds(tmp_path: Path) -> None:
    async def play() -> None:
        made, full, big = sharing(tmp_path), FakeShared(b"k", ("a", "b", "c")), FakeShared(b"k", ("d",))
        big.watch.memory = 1_000 * ROOM + 1
        busy, other, free = FakeShared(b"k", ("e",)), FakeShared(b"other", ("f",)), FakeShared(b"k", ("g",))
        busy.programs[0].rows_per_second = 101.0
        made.processes = cast(Any, [full, big, busy, other])
        assert made._with_room(b"k", (), configuration()) is None
        made.processes = cast(Any, [full, big, busy, other, free])
        assert made._with_room(b"k", (), configuration()) is cast(Any, free)

    asyncio.run(play())


def test_leftovers_are_removed_before_any_owner_sets_folders_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared" / "leftover").mkdir(parents=True)

    async def play() -> None:
        go = asyncio.Event()

        async def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
            if work is remove_leftovers:
                await go.wait()
            return work(*arguments)

        async def start() -> BareProcess:
            raise LaunchError("none")

        monkeypatch.setattr(asyncio, "to_thread", in_thread)
        shared = ExecutorSharing(tmp_path, SharingBounds(3, 1_000, 100), start, print, lambda _: None)
        opened = [asyncio.create_task(shared._opened(owner, configuration())) for owner in (b"ann", b"bob")]
        for _ in range(9):
            await asyncio.sleep(0)
        assert [path.name for path in (tmp_path / "shared").iterdir()] == ["leftover"]
        go.set()
        await asyncio.gather(*opened, return_exceptions=True)

    asyncio.run(play())
    names = [path.name for path in (tmp_path / "shared").iterdir()]
    assert len(names) == 2
    assert "leftover" not in names


def test_the_application_at_work_gets_its_own_process_and_others_only_after_a_second_riddle(tmp_path: Path) -> None:
    async def play() -> None:
        made = sharing(tmp_path)

        def ended(application: str, *members: str) -> None:
            made._ended(cast(Any, FakeShared(b"k", members)), SharedEnd("ended", "", application, len(members)))

        ended("a", "a", "b", "c")
        assert made._strikes == {"a": STRIKES}
        ended("", "b", "c")
        ended("", "c", "d")
        assert made._strikes == {"a": STRIKES, "b": 1, "c": STRIKES, "d": 1}
        raw = encode(part(application="c"))
        assert await made.attach(raw, configuration()) is None

    asyncio.run(play())


def test_the_busiest_application_leaves_a_process_with_too_many_rows(tmp_path: Path) -> None:
    async def play() -> None:
        made, process = sharing(tmp_path), FakeShared(b"k", ("calm", "busy"))
        made.processes = cast(Any, [process])
        leaving: list[tuple[SharedProgramProcess, str]] = []
        for second in range(40):
            for number, rate in enumerate((5, 400)):
                report = {"passed_rows": second * rate}
                process.programs[number].count(InstanceReports(((InstanceName(0, 0), report),)))
            if leaving := made.look(float(second)):
                break
        ((program, why),) = leaving
        assert program.application == "busy"
        assert "the applications of a process may have 100 together (executors.share_rows)" in why
        assert made._strikes == {"busy": STRIKES}

    asyncio.run(play())


def test_without_bounds_nothing_is_shared(tmp_path: Path) -> None:
    alone = ExecutorSharing(tmp_path, SharingBounds(), cast(Any, None), print, lambda _: None)
    assert asyncio.run(alone.attach(b"", configuration())) is None
    assert os.listdir(tmp_path) == []
