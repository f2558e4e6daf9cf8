"""The files of a run on a node's disk: one that is damaged, or another node's, is left out, and that is said with its name."""

import asyncio
import errno
import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agiledart_agent.run_store import RunStore
from agiledart_agent.state_files import deletion_retry
from agiledart_executor.snapshots.snapshot_file import (
    EXECUTOR_FOLDERS,
    SnapshotHeader,
    run_folder,
    snapshot_path,
    write_snapshot,
)
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_node.wire.effects import ForgetRun, KeepFile, RetainSnapshots
from agiledart_node.wire.events import RunsFound

NAMES = ("part", "voter", "life", "record")


def kept(state_dir: Path, node: str) -> Path:
    """The files of one run, as this node writes them; their folder."""

    async def work() -> None:
        told: list[Event] = []
        store = RunStore(state_dir, node, told.append)
        for number, name in enumerate(NAMES):
            store.keep(KeepFile(number, "app", 1, name, b"\x91" + name.encode() * 5))
        store.close()
        await asyncio.sleep(0)
        assert told == [Completed(number, None) for number in range(len(NAMES))]

    asyncio.run(work())
    return state_dir / "runs" / "app.1"


def found(state_dir: Path, node: str = "n1") -> tuple[dict[str, bytes], list[str]]:
    """(what lies there by name, what is said)."""

    async def work() -> tuple[dict[str, bytes], list[str]]:
        said: list[str] = []
        store = RunStore(state_dir, node, lambda event: None, said.append)
        files = {file.name: file.content for file in store.stored_runs().files}
        store.close()
        return files, said

    return asyncio.run(work())


WHOLE = {name: b"\x91" + name.encode() * 5 for name in NAMES}


def without(name: str) -> dict[str, bytes]:
    """Remains of runs: a host that does not know its last attempt continues with no instance from it."""
    gone = {name, "part", "record"} if name == "life" else {name}
    return {one: content for one, content in WHOLE.items() if one not in gone}


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_bit_is_always_detected(tmp_path: Path, name: str) -> None:
    path = kept(tmp_path, "n1") / name
    assert found(tmp_path) == (WHOLE, [])
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(damaged))
        files, (said,) = found(tmp_path)
        assert files == without(name), bit
        assert said.startswith(f"{path} is damaged (its checksum does not match): ")


DAMAGES: dict[str, Callable[[bytes], bytes]] = {"empty": lambda raw: b"", "half": lambda raw: raw[: len(raw) // 2]}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_truncated_entry_is_left_out(tmp_path: Path, name: str, damage: str) -> None:
    path = kept(tmp_path, "n1") / name
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    files, (said,) = found(tmp_path)
    assert files == without(name)
    assert str(path) in said


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_another_node_is_not_used(tmp_path: Path, name: str) -> None:
    """Two nodes that both believe to be the same voter could decide two things."""
    other, path = kept(tmp_path / "2", "n2") / name, kept(tmp_path / "1", "n1") / name
    shutil.copyfile(other, path)
    files, (said,) = found(tmp_path / "1")
    assert files == without(name)
    assert str(path) in said


def test_files_of_an_earlier_release_are_read(tmp_path: Path) -> None:
    folder = kept(tmp_path, "n1")
    for name, content in WHOLE.items():
        (folder / name).write_bytes(content)
    assert found(tmp_path) == (WHOLE, [])


def test_unreported_snapshots_stay(tmp_path: Path) -> None:
    """An executor has written them, and its word has not come: they belong to an epoch that is still to be committed."""
    folder = run_folder(tmp_path, "app", 1)

    def written(attempt: int, epoch: int) -> bytes:
        return write_snapshot(folder, SnapshotHeader(7, attempt, epoch, 0, 0, ("step",)), [b"state"])[0]

    needed, old, same, later = written(1, 3), written(1, 2), written(1, 4), written(1, 5)
    next_life = written(2, 1)
    damaged = written(1, 6)
    snapshot_path(folder, damaged).write_bytes(b"ADARTEL1 and no more")

    async def work() -> None:
        store = RunStore(tmp_path, "n1", lambda event: None)
        store.keep_snapshots(RetainSnapshots("app", 1, (needed,), 1, 4))
        store.close()

    asyncio.run(work())
    kept = {path.name for path in (folder / "elements").iterdir()}
    assert kept == {digest.hex() for digest in (needed, later, next_life)}
    assert not kept & {digest.hex() for digest in (old, same, damaged)}


def test_snapshots_of_a_forgotten_run_are_removed_with_it(tmp_path: Path) -> None:
    """It was just beginning when the run was called off; a run of which something is known keeps its folder."""
    kept(tmp_path, "n1")
    left = run_folder(tmp_path, "off", 1)

    def begun(folder: Path) -> None:
        for name in EXECUTOR_FOLDERS:
            (folder / name).mkdir(parents=True)

    async def work() -> None:
        store = RunStore(tmp_path, "n1", lambda event: None)
        for name in ("app", "off"):
            begun(run_folder(tmp_path, name, 1))
            store.sweep(name, 1)
        store.close()

    asyncio.run(work())
    assert not left.exists()
    assert {path.name for path in run_folder(tmp_path, "app", 1).iterdir()} == {*NAMES, *EXECUTOR_FOLDERS}
    begun(left)
    assert found(tmp_path) == (WHOLE, [])
    assert not left.exists(), "an agent that starts sweeps, too"


def test_an_unfinished_removal_is_completed_by_the_next_process(tmp_path: Path) -> None:
    """The agent died while files of the run were getting their names: no such file is reported to the node."""
    folder = kept(tmp_path, "n1")
    effect = ForgetRun("app", 1, (b"one", b"two"), "user code raised")

    async def begin() -> None:
        store = RunStore(tmp_path, "n1", lambda event: None)
        await store.begin_to_forget(effect)
        store.close()

    async def look(node: str = "n1") -> tuple[list[ForgetRun], RunsFound]:
        store = RunStore(tmp_path, node, lambda event: None)
        found = store.stored_runs()
        store.close()
        return store.ending, found

    asyncio.run(begin())
    assert asyncio.run(look()) == ([effect], RunsFound(()))
    assert asyncio.run(look("n2"))[0] == [], "that of another node's is none"
    raw = (folder / "ending").read_bytes()
    for damage in (raw[:-1], raw[:-1] + bytes([raw[-1] ^ 1]), b""):
        (folder / "ending").write_bytes(damage)
        ending, told = asyncio.run(look())
        assert (ending, len(told.files)) == ([], len(NAMES)), "it is not over by a damaged word"

    async def keep() -> None:
        store = RunStore(tmp_path, "n1", lambda event: None)
        await store.begin_to_forget(effect)
        store.keep(KeepFile(1, "app", 1, "life", b"\x912"))
        store.close()

    asyncio.run(keep())
    assert asyncio.run(look())[0] == [], "it goes on"


def test_a_run_that_could_not_be_removed_goes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may have no descriptor left for a look into the folder."""
    monkeypatch.setattr(deletion_retry, "AGAIN_SECONDS", 0.02)
    folder = kept(tmp_path, "n1")
    trash = folder.parent / ".leaving"
    snapshot_path(folder, bytes(32)).parent.mkdir()
    snapshot_path(folder, bytes(32)).touch()

    async def work() -> None:
        store = RunStore(tmp_path, "n1", lambda event: None)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        held = os.open(os.devnull, os.O_RDONLY)
        resource.setrlimit(resource.RLIMIT_NOFILE, (held, before[1]))
        try:
            store.forget(ForgetRun("app", 1))
            await asyncio.get_running_loop().run_in_executor(store._thread, int)  # it was tried
            await asyncio.get_running_loop().run_in_executor(store._deleting_thread, int)
            assert os.access(trash, os.F_OK)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            os.close(held)
        async with asyncio.timeout(30):
            while trash.exists():  # each attempt is made by the thread
                await asyncio.get_running_loop().run_in_executor(store._deleting_thread, int)
        store.close()

    asyncio.run(work())


def test_a_run_that_is_stored_again_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder did not go, and now it is wanted."""
    monkeypatch.setattr(deletion_retry, "AGAIN_SECONDS", 0.0)
    folder = kept(tmp_path, "n1")

    make = Path.mkdir

    def refuse(path: Path, *arguments: Any, **options: Any) -> None:
        if path.name == ".leaving":
            raise OSError(errno.ENOSPC, "no space")
        make(path, *arguments, **options)

    async def work() -> None:
        store = RunStore(tmp_path, "n1", lambda event: None)
        loop = asyncio.get_running_loop()
        with monkeypatch.context() as struck:
            struck.setattr(Path, "mkdir", refuse)
            store.forget(ForgetRun("app", 1))
            store.keep(KeepFile(1, "app", 1, "life", b"2"))
            await loop.run_in_executor(store._thread, int)
        for _ in range(3):
            await loop.run_in_executor(store._thread, int)
        store.close()

    asyncio.run(work())
    assert (folder / "life").exists()


def test_a_new_start_of_a_run_can_wait_until_its_folder_is_removed(tmp_path: Path) -> None:
    """Writes of other runs may hold the removal back."""
    folder = kept(tmp_path, "n1")

    async def work() -> None:
        store = RunStore(tmp_path, "n1", lambda event: None)
        others = threading.Event()
        store._thread.submit(others.wait)
        store.forget(ForgetRun("app", 1))
        await store.until_forgotten("another", 1)
        waiting = asyncio.create_task(store.until_forgotten("app", 1))
        await asyncio.sleep(0)
        assert (waiting.done(), folder.exists()) == (False, True)
        others.set()
        await waiting
        assert not folder.exists()
        await store.until_forgotten("app", 1)
        store.close()

    asyncio.run(work())


def test_a_failing_vote_write_is_reported_and_counted_and_so_is_its_recovery(tmp_path: Path) -> None:
    async def work() -> tuple[list[Event], list[str], int]:
        told: list[Event] = []
        said: list[str] = []
        answers: asyncio.Queue[Event] = asyncio.Queue()
        store = RunStore(tmp_path, "n1", answers.put_nowait, said.append)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            for number, most in enumerate((1 << 20, 3, 3, 1 << 20)):
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
                store.keep(KeepFile(number, "app", 1, "voter", b"\x91voter"))
                told.append(await answers.get())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, ignored)
            store.close()
        return told, said, store.refused

    told, said, refused = asyncio.run(work())
    assert [type(each) for each in told] == [Completed, Failed, Failed, Completed]
    folder = tmp_path / "runs" / "app.1"
    assert said == [
        f"{folder}/voter cannot be written: file too large. Until it can be written, this node neither votes nor starts anything.",
        f"{folder} can be written again.",
    ]
    assert refused == 2
