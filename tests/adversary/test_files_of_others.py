"""Links, pipes, sparse files, deep trees and crowds that users' code makes: they stop no agent, and nothing else is read."""

import asyncio
import contextlib
import os
import resource
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from agiledart_agent.checkpoints.checkpoint_service import CheckpointService
from agiledart_agent.executors.work_owners import WorkOwners
from agiledart_agent.fragments import fragment_server, fragment_service
from agiledart_agent.metrics import sink_log_sizes
from agiledart_agent.metrics.sink_log_sizes import SinkLogSizes
from agiledart_agent.run_store import RunStore
from agiledart_executor.snapshots.snapshot_file import (
    DamagedSnapshot,
    read_header,
    read_snapshot,
    run_folder,
    snapshot_path,
)
from agiledart_executor.user_code.application_folders import work_folder
from agiledart_kernel.machine import Completed, Event
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.wire.effects import ForgetRun, KeepFile, RetainSnapshots
from agiledart_node.wire.fragment_effects import FindSnapshot
from agiledart_recovery.wire.names import RunId
from agiledart_sink_log.layout import Description, log_directory, write_description
from agiledart_sink_log.plain_files import bytes_below, remove_tree
from tests.adversary.findings import probe, twin

RUN = RunId("app", 1)
DIGEST = b"\xaa" * 32
SECRET = b"the authority's key"
GENEROUS_SECONDS = 20.0
"""Far above what the lawful way takes; a probe that hangs is ended by it."""


def elements(state: Path) -> Path:
    folder = snapshot_path(run_folder(state, RUN.app, RUN.version), DIGEST).parent
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / "life").write_bytes(b"\x91\x01")
    return folder


def service(state: Path) -> CheckpointService:
    return CheckpointService(state, None, lambda: Peer(NodeId(1)), lambda _: None, lambda _: None)  # type: ignore[arg-type]


def taken(state: Path, digest: bytes) -> bytes:
    """Return what a TAKE of this hash reads: found as the service does, read as the server does."""
    place = service(state).find(RUN, digest, NodeId(9))
    if place is None:
        return b""
    try:
        return fragment_server._part_of(*place)
    except OSError:
        return b""


# ---- 2: links


@probe(2)
@pytest.mark.parametrize("link", [os.symlink])
def test_a_link_among_snapshots_gives_nothing_away(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    (tmp_path / "authority.key").write_bytes(SECRET)
    link(tmp_path / "authority.key", elements(tmp_path) / DIGEST.hex())
    assert taken(tmp_path, DIGEST) == b""


@probe(2)
def test_a_link_that_replaces_a_snapshot_after_it_was_found_gives_nothing_away(tmp_path: Path) -> None:
    (tmp_path / "authority.key").write_bytes(SECRET)
    path = elements(tmp_path) / DIGEST.hex()
    path.write_bytes(b"x" * len(SECRET))
    place = service(tmp_path).find(RUN, DIGEST, NodeId(9))
    assert place is not None
    path.unlink()
    path.symlink_to(tmp_path / "authority.key")
    with pytest.raises(OSError, match=r"symbolic links|no plain file"):
        fragment_server._part_of(*place)


@twin(2)
def test_a_snapshot_is_taken(tmp_path: Path) -> None:
    (elements(tmp_path) / DIGEST.hex()).write_bytes(b"state")
    assert taken(tmp_path, DIGEST) == b"state"


# ---- 6: deep trees


def deep(top: Path, levels: int) -> Path:
    """Make a tree of folders, deeper than a path may be long."""
    top.mkdir(parents=True, exist_ok=True)
    held = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d" * 20, dir_fd=held)
        below = os.open("d" * 20, os.O_RDONLY, dir_fd=held)
        os.close(held)
        held = below
    os.close(held)
    return top


def clear(top: Path) -> None:
    """Delete a tree that a failed probe has left; pytest's own deletion is recursive."""
    assert remove_tree(top, GENEROUS_SECONDS)


async def _restart(state: Path) -> tuple[list[tuple[str, int]], list[Event]]:
    events: list[Event] = []
    store = RunStore(state, "n1", events.append)
    found = store.stored_runs()
    store.keep(KeepFile(1, "other", 1, "voter", b"\x91voter"))
    store.close()
    await asyncio.sleep(0)
    return list(found.folders), events


@probe(6)
@pytest.mark.parametrize("folder", ["opened", "elements"])
def test_a_deep_tree_stops_no_start_and_no_vote(tmp_path: Path, folder: str) -> None:
    top = deep(tmp_path / "runs" / "app.1" / folder, 1_200)
    try:
        _, events = asyncio.run(_restart(tmp_path))
        assert events == [Completed(1, None)]
        assert not (tmp_path / "runs" / "app.1").exists()
    finally:
        clear(top.parent)


@probe(6)
def test_a_deep_tree_in_a_forgotten_run_is_deleted(tmp_path: Path) -> None:
    top = deep(elements(tmp_path) / "aa", 1_200)

    async def work() -> None:
        store = RunStore(tmp_path, "n1", lambda _: None)
        store.forget(ForgetRun(RUN.app, RUN.version))
        store.close()

    try:
        asyncio.run(work())
        assert not top.exists()
        for _ in range(50):  # on a slow disk the next starts of the agent go on with it
            if (tmp_path / "runs" / ".leaving").exists():
                asyncio.run(_restart(tmp_path))
        assert sorted(path.name for path in (tmp_path / "runs").iterdir()) in ([], ["other.1"])
    finally:
        clear(top)


@twin(6)
def test_a_run_with_files_is_found_after_a_restart_and_forgotten(tmp_path: Path) -> None:
    (elements(tmp_path) / DIGEST.hex()).write_bytes(b"state")
    folders, events = asyncio.run(_restart(tmp_path))
    assert (folders, events) == ([("app", 1)], [Completed(1, None)])
    assert (elements(tmp_path) / DIGEST.hex()).exists()


@probe(6)
def test_a_tree_too_deep_for_one_pass_goes_in_several(tmp_path: Path) -> None:
    top = deep(tmp_path / "top", 1_200)
    try:
        passes = next(number for number in range(200) if remove_tree(top, 0.2))
        assert passes < 200
    finally:
        clear(top)


@probe(6)
def test_closed_folders_are_opened_and_deleted(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a" / "b" / "c").mkdir(parents=True)
    (top / "a" / "b" / "file").write_text("x")
    for folder in (top / "a" / "b" / "c", top / "a" / "b", top / "a", top):
        folder.chmod(0)
    assert remove_tree(top, GENEROUS_SECONDS)
    assert not top.exists()


@twin(6)
def test_a_link_to_a_folder_is_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("stays")
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "link").symlink_to(tmp_path / "other")
    assert remove_tree(tmp_path / "top", GENEROUS_SECONDS)
    assert (tmp_path / "other" / "file").read_text() == "stays"
    (tmp_path / "link").symlink_to(tmp_path / "other")
    assert remove_tree(tmp_path / "link", GENEROUS_SECONDS)
    assert (tmp_path / "other" / "file").read_text() == "stays"


# ---- 7: pipes


@probe(7)
@pytest.mark.timeout(60)
def test_a_pipe_among_snapshots_holds_no_vote_back(tmp_path: Path) -> None:
    pipe = elements(tmp_path) / ("ff" * 32)
    os.mkfifo(pipe)

    async def work() -> list[Event]:
        events: asyncio.Queue[Event] = asyncio.Queue()
        store = RunStore(tmp_path, "n1", events.put_nowait)
        store.keep_snapshots(RetainSnapshots(RUN.app, RUN.version, (DIGEST,), 1, 1))
        store.keep(KeepFile(1, "other", 1, "voter", b"\x91voter"))
        try:
            return [await asyncio.wait_for(events.get(), GENEROUS_SECONDS)]
        finally:
            release(pipe)
            store.close()

    assert asyncio.run(work()) == [Completed(1, None)]


def release(pipe: Path) -> None:
    """Let a thread go that waits for a writer of this pipe."""
    with contextlib.suppress(OSError):
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


@probe(7)
@pytest.mark.timeout(60)
def test_a_pipe_is_no_snapshot(tmp_path: Path) -> None:
    pipe = elements(tmp_path) / DIGEST.hex()
    os.mkfifo(pipe)
    run = run_folder(tmp_path, RUN.app, RUN.version)
    with pytest.raises(DamagedSnapshot):
        read_header(pipe)
    with pytest.raises(Exception, match="cannot be read"):
        read_snapshot(run, DIGEST)
    assert fragment_service._is_here(pipe, FindSnapshot(1, RUN, DIGEST)) is False
    assert taken(tmp_path, DIGEST) == b""


@twin(7)
def test_snapshots_that_are_not_retained_go_and_later_ones_stay(tmp_path: Path) -> None:
    folder = elements(tmp_path)
    (folder / DIGEST.hex()).write_bytes(b"retained")
    (folder / ("bb" * 32)).write_bytes(b"old")
    (folder / ".1.0.part").write_bytes(b"in work")

    async def work() -> None:
        store = RunStore(tmp_path, "n1", lambda _: None)
        store.keep_snapshots(RetainSnapshots(RUN.app, RUN.version, (DIGEST,), 1, 1))
        store.close()

    asyncio.run(work())
    assert sorted(path.name for path in folder.iterdir()) == [".1.0.part", DIGEST.hex()]


# ---- 8: sparse files


def sparse(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@probe(8)
def test_a_sparse_file_is_not_taken_into_memory(tmp_path: Path) -> None:
    path = sparse(elements(tmp_path) / DIGEST.hex(), 1 << 30)
    before = peak()
    assert fragment_service._is_here(path, FindSnapshot(1, RUN, DIGEST)) is False
    assert peak() - before < 100 << 20


@twin(8)
def test_a_snapshot_on_the_disk_is_found_and_cut(tmp_path: Path) -> None:
    path = elements(tmp_path) / DIGEST.hex()
    path.write_bytes(b"state")
    digest = sha256(b"state").digest()
    assert fragment_service._is_here(path, FindSnapshot(1, RUN, digest)) is True


# ---- 14: crowds in a log's folder


@probe(14)
def test_a_deep_tree_in_a_log_fails_no_figures(tmp_path: Path) -> None:
    top = deep(tmp_path / "log", 1_500)
    try:
        assert bytes_below(str(top)) >= 0
    finally:
        clear(top)


@probe(14)
def test_the_size_of_a_crowd_of_files_is_a_lower_bound(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / str(number)).write_bytes(b"x" * 10)
    assert bytes_below(str(tmp_path), 50) == 500


@twin(14)
def test_the_size_of_a_log_counts_its_partitions(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "segment").write_bytes(b"x" * 100)
    (tmp_path / "log.json").write_bytes(b"y" * 11)
    assert bytes_below(str(tmp_path)) == 111


@probe(14)
def test_a_scrape_of_a_crowded_log_counts_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_log_sizes, "INLINE_ENTRIES", 10)
    log = crowded_log(tmp_path, 50)

    async def work() -> list[int]:
        sizes = SinkLogSizes(tmp_path)
        first = dict(sizes.look())["app"]
        async with asyncio.timeout(GENEROUS_SECONDS):
            while (seen := dict(sizes.look())["app"]) < bytes_below(str(log)):  # noqa: ASYNC110  a scrape is a poll
                await asyncio.sleep(0)
        return [first, seen]

    first, seen = asyncio.run(work())
    assert first <= 10 * 100 < seen


@twin(14)
def test_a_scrape_of_a_small_log_has_its_size_at_once(tmp_path: Path) -> None:
    log = crowded_log(tmp_path, 5)
    assert SinkLogSizes(tmp_path).look() == (("app", bytes_below(str(log))),)


def crowded_log(root: Path, files: int) -> Path:
    log = log_directory(root, "out")
    log.mkdir(parents=True)
    write_description(log, Description(1, "id", "out", "app", 1, "int", [], 1, 1, 1, 0, 0))
    for number in range(files):
        (log / f"x{number}").write_bytes(b"x" * 100)
    return log


# ---- 16: the next owner of a name


@probe(16)
def test_the_next_owner_of_a_name_finds_an_empty_folder(tmp_path: Path) -> None:
    owners = WorkOwners(tmp_path)
    assert owners.claim("app", b"first", is_used=False) == ""
    files = work_folder(tmp_path, "app") / "files"
    files.mkdir(parents=True)
    (files / "private").write_text("rows")
    (work_folder(tmp_path, "app") / "owner").write_text(b"second".hex())  # users' code writes here what it likes
    assert owners.claim("app", b"second", is_used=False) == ""
    assert not work_folder(tmp_path, "app").exists()


@twin(16)
def test_the_same_owner_finds_the_files_again(tmp_path: Path) -> None:
    owners = WorkOwners(tmp_path)
    assert owners.claim("app", b"first", is_used=False) == ""
    folder = work_folder(tmp_path, "app")
    folder.mkdir(parents=True)
    (folder / "state").write_text("rows")
    assert WorkOwners(tmp_path).claim("app", b"first", is_used=True) == ""
    assert WorkOwners(tmp_path).claim("other", b"second", is_used=False) == ""
    assert (folder / "state").read_text() == "rows"


@probe(16)
def test_a_folder_in_use_is_not_emptied_for_another_owner(tmp_path: Path) -> None:
    owners = WorkOwners(tmp_path)
    owners.claim("app", b"first", is_used=False)
    folder = work_folder(tmp_path, "app")
    folder.mkdir(parents=True)
    assert "still runs" in owners.claim("app", b"second", is_used=True)
    assert folder.exists()
