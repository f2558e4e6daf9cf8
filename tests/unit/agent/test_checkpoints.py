"""Checkpoints as files: made of snapshots, checked to the last byte, kept below bounds, fetched, given to users in pieces."""

import asyncio
import base64
import json
import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from agiledart_agent.checkpoints import checkpoint_store
from agiledart_agent.checkpoints.checkpoint_file import InvalidCheckpointFile, read_manifest, verify
from agiledart_agent.checkpoints.checkpoint_service import CheckpointService
from agiledart_agent.checkpoints.checkpoint_store import TEMPORARY_SECONDS, CheckpointStore
from agiledart_executor.snapshots.snapshot_file import SnapshotHeader, run_folder, write_snapshot
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.machine import Event
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import NotAllowed
from agiledart_node.wire.checkpoint_effects import (
    DropCheckpoint,
    FetchCheckpoint,
    FetchSnapshot,
    GatherCheckpoint,
    SnapshotLocation,
)
from agiledart_node.wire.checkpoint_messages import CheckpointInfo
from agiledart_node.wire.transfer_commands import ReadCheckpoint, UploadCheckpoint
from agiledart_recovery.wire.names import RunId

RUN = RunId("taxi", 3)
OWNER = b"k" * 32
ANN, BOB = Principal("submitter", "", OWNER), Principal("submitter", "", b"b" * 32)


class Away:
    """Links to other desks."""

    def __init__(self) -> None:
        self.desks: dict[NodeId, CheckpointService] = {}
        self.caller = NodeId(2)  # receivers of a whole checkpoint
        self.spoils: Callable[[bytes], bytes] = lambda data: data

    async def take(self, peer: Peer, run: RunId, digest: bytes, most: int) -> AsyncGenerator[bytes]:
        found = self.desks[peer.node].find(run, digest, self.caller)
        if found is None:
            raise OperationFailed("refused: this node does not have it")
        path, offset, length = found
        data = self.spoils(path.read_bytes()[offset : offset + length])
        for start in range(0, len(data), 1_000):
            yield data[start : start + 1_000]


class Site:
    """Some nodes with their disks."""

    def __init__(self, root: Path, count: int = 2) -> None:
        self.links = Away()
        self.peers = [Peer(NodeId(number + 1), 1, f"pi{number}") for number in range(count)]
        self.told: list[Event] = []
        self.warned: list[str] = []
        self.root = root
        self.desks = [self.open(number) for number in range(count)]

    def folder(self, number: int) -> Path:
        return self.root / f"pi{number}"

    def open(self, number: int) -> CheckpointService:
        peer = self.peers[number]
        links: Any = self.links
        desk = CheckpointService(self.folder(number), links, lambda: peer, self.told.append, self.warned.append)
        self.links.desks[peer.node] = desk
        return desk

    def saved(
        self, number: int, stage: int, role: str = "stage", *, unread: int = 0, size: int = 5_000
    ) -> SnapshotLocation:
        """A snapshot of an instance on a node."""
        header = SnapshotHeader(1, 1, 7, stage, 0, (f"step{stage}",), unread=unread)
        digest, length = write_snapshot(run_folder(self.folder(number), *_pair(RUN)), header, [os.urandom(size)])
        return SnapshotLocation(self.peers[number], stage, 1, 0, role, digest, length + 100)

    async def gathered(self, *snapshots: SnapshotLocation, name: str = "pause", at: int = 0) -> CheckpointInfo:
        about = CheckpointInfo(name, RUN, 1, 7, 123_000, OWNER, (), b"\0" * 32, 0)
        return await self.desks[at]._gather(GatherCheckpoint(1, about, b"spec", b"plan", snapshots))


def _pair(run: RunId) -> tuple[str, int]:
    return run.app, run.version


async def _until(holds: Callable[[], bool]) -> None:
    while True:
        if holds():
            return
        await asyncio.sleep(0)


def play(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_snapshots_of_several_nodes_are_one_file_that_is_fetched_and_kept(tmp_path: Path) -> None:
    async def work() -> None:
        site = Site(tmp_path)
        here, there = site.saved(0, 0, "source"), site.saved(1, 1, size=300_000)
        made = await site.gathered(here, there)
        path = tmp_path / "pi0" / "checkpoints" / "pause.checkpoint"
        manifest, digest = verify(path)
        assert (digest, path.stat().st_size, path.stat().st_mode & 0o777) == (made.digest, made.size, 0o600)
        assert [one.digest for one in manifest.snapshots] == [here.digest, there.digest]
        assert (manifest.application, manifest.version, manifest.epoch, manifest.owner) == ("taxi", 3, 7, OWNER)
        with pytest.raises(OperationFailed, match="this node does not have it"):
            await site.desks[1]._fetch(FetchCheckpoint(2, site.peers[0], made))
        site.desks[0].store.grant_transfer(made.digest, NodeId(3))
        assert site.desks[0].find(RUN, made.digest, NodeId(2)) is None, "it is lent to another one"
        site.desks[0].store.grant_transfer(made.digest, NodeId(2))
        copied = await site.desks[1]._fetch(FetchCheckpoint(2, site.peers[0], made))
        assert copied == made
        assert site.open(1).store.named == ()  # a process that has just started has not looked yet
        again = site.open(1)
        again.store.read_stored()
        assert again.store.named == (made,)
        assert again.find(RUN, there.digest) is not None

    play(work())


@pytest.mark.parametrize("where", ["begin", "element", "manifest", "end", "short", "long", "empty"])
def test_a_file_other_than_the_written_one_is_refused(tmp_path: Path, where: str) -> None:
    async def work() -> None:
        site = Site(tmp_path)
        await site.gathered(site.saved(0, 0), site.saved(1, 1))
        path = tmp_path / "pi0" / "checkpoints" / "pause.checkpoint"
        raw = bytearray(path.read_bytes())
        at = {"begin": 2, "element": 3_000, "manifest": len(raw) - 80, "end": len(raw) - 3}.get(where)
        if at is not None:
            raw[at] ^= 1
        raw = {"short": raw[:-1], "long": raw + b"x", "empty": bytearray()}.get(where, raw)
        path.write_bytes(raw)
        with pytest.raises(InvalidCheckpointFile, match=r"not a checkpoint|damaged|incomplete|do not|are not where"):
            verify(path)

    play(work())


def test_the_manifest_keeps_the_names_of_format_1(tmp_path: Path) -> None:
    async def work() -> None:
        site = Site(tmp_path)
        await site.gathered(site.saved(0, 0))
        raw = (tmp_path / "pi0" / "checkpoints" / "pause.checkpoint").read_bytes()
        start = raw.index(b'{"format":1')
        manifest, _ = json.JSONDecoder().raw_decode(raw[start:].decode("latin-1"))
        assert {"life", "elements"} <= set(manifest)
        assert set(manifest["elements"][0]) == {"stage", "term", "index", "role", "digest", "offset", "length"}

    play(work())


def test_a_newer_format_is_refused_with_the_version_that_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        site = Site(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr("agiledart_agent.checkpoints.checkpoint_service.FORMAT", 9)
            with pytest.raises(OperationFailed, match="has format 9 of agiledart"):
                await site.gathered(site.saved(0, 0))

    play(work())


def test_a_snapshot_other_than_the_committed_one_is_refused_and_discarded(tmp_path: Path) -> None:
    async def work() -> None:
        site = Site(tmp_path)
        site.links.spoils = lambda data: data[:-1] + bytes([data[-1] ^ 1])
        with pytest.raises(
            OperationFailed, match="pi1 did not send the snapshot of stage 1: a node sent another snapshot"
        ):
            await site.gathered(site.saved(1, 1))
        assert not list((tmp_path / "pi0" / "checkpoints").iterdir())
        with pytest.raises(
            OperationFailed, match="pi1 did not send the snapshot of stage 5: refused: this node does not have it"
        ):
            await site.gathered(SnapshotLocation(site.peers[1], 5, 1, 0, "stage", b"x" * 32, 10))

    play(work())


def test_a_copy_damaged_in_transit_is_not_kept(tmp_path: Path) -> None:
    async def work() -> None:
        site = Site(tmp_path)
        made = await site.gathered(site.saved(0, 0))
        site.links.spoils = lambda data: data[:100] + b"?" + data[101:]
        site.desks[0].store.grant_transfer(made.digest, NodeId(2))
        with pytest.raises(OperationFailed, match="the file is damaged"):
            await site.desks[1]._fetch(FetchCheckpoint(2, site.peers[0], made))
        assert site.desks[1].store.named == ()
        assert not list((tmp_path / "pi1" / "checkpoints").iterdir())

    play(work())


def test_a_copy_of_another_run_than_announced_is_not_kept(tmp_path: Path) -> None:
    async def work() -> None:
        site = Site(tmp_path)
        made = await site.gathered(site.saved(0, 0))
        said = msgspec.structs.replace(made, run=RunId("bus", 1))
        site.desks[0].store.grant_transfer(made.digest, NodeId(2))
        with pytest.raises(OperationFailed, match="the received checkpoint is not the requested one"):
            await site.desks[1]._fetch(FetchCheckpoint(2, site.peers[0], said))
        assert not list((tmp_path / "pi1" / "checkpoints").iterdir())

    play(work())


def test_a_checkpoint_is_refused_while_a_source_has_logged_rows(tmp_path: Path) -> None:
    async def work() -> None:
        site = Site(tmp_path)
        with pytest.raises(
            OperationFailed, match="step0 has read ahead 4,711 bytes, which wait in its log and cannot be read again"
        ):
            await site.gathered(site.saved(1, 0, "source", unread=4_711))
        assert site.desks[0].store.named == ()

    play(work())


def test_a_name_is_kept_once_and_a_node_keeps_a_bounded_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setattr(checkpoint_store, "MAX_KEPT", 2)
        site = Site(tmp_path)
        one = site.saved(0, 0)
        made = await site.gathered(one, name="a")
        with pytest.raises(OperationFailed, match="this node already keeps a checkpoint a"):
            await site.gathered(one, name="a")
        with pytest.raises(OperationFailed, match="is an invalid checkpoint name"):
            await site.gathered(one, name="../a")
        await site.gathered(one, name="b")
        with pytest.raises(OperationFailed, match="this node already keeps 2 checkpoints: remove one"):
            await site.gathered(one, name="c")
        await site.desks[0]._drop(DropCheckpoint(1, "a", b"another", RUN))
        assert len(site.desks[0].store.named) == 2
        await site.desks[0]._drop(DropCheckpoint(1, "a", made.digest, RunId("taxi", 4)))
        assert len(site.desks[0].store.named) == 2
        await site.desks[0]._drop(DropCheckpoint(1, "a", made.digest, RUN))
        assert [kept.name for kept in site.desks[0].store.named] == ["b"]

    play(work())


def test_no_checkpoint_takes_more_than_its_share_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setattr(checkpoint_store, "FREE_SHARE", 0.0)
        site = Site(tmp_path)
        with pytest.raises(OperationFailed, match="free bytes, and the checkpoint has"):
            await site.gathered(site.saved(0, 0))

    play(work())


def test_temporary_checkpoints_expire_or_are_evicted_by_newer_ones(tmp_path: Path) -> None:
    async def work() -> None:
        site = Site(tmp_path)
        for _ in range(6):
            await site.gathered(site.saved(0, 0), name="")
        folder = tmp_path / "pi0" / "checkpoints"
        assert len(list(folder.glob("*.passing"))) == checkpoint_store.MAX_TEMPORARY
        now = max(path.stat().st_mtime for path in folder.iterdir())
        later = CheckpointStore(tmp_path / "pi0", site.warned.append, lambda: now + TEMPORARY_SECONDS + 1)
        (folder / ".7.part").write_bytes(b"half")
        later.read_stored()
        assert not list(folder.iterdir())

    play(work())


def test_a_user_downloads_a_file_in_pieces_and_uploads_it_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        monkeypatch.setattr("agiledart_agent.checkpoints.checkpoint_service.MAX_UPLOAD_CHUNK_BYTES", 2_000)
        site = Site(tmp_path)
        snapshot = site.saved(0, 0)
        made = await site.gathered(snapshot, name="")
        raw = b""
        while True:
            piece = await site.desks[0].read(ReadCheckpoint("taxi", made.digest.hex(), len(raw)), ANN)
            raw += base64.b64decode(str(piece["data"]))
            if not piece["left"]:
                break
        with pytest.raises(OperationFailed, match="no longer has that checkpoint of bus"):
            await site.desks[0].read(ReadCheckpoint("bus", made.digest.hex(), 0), ANN)
        answer: dict[str, object] = {}
        for at in range(0, len(raw), 2_000):
            part = raw[at : at + 2_000]
            answer = await site.desks[1].upload(UploadCheckpoint("new", made.digest.hex(), len(raw), at, part), ANN)
        assert answer == {"have": len(raw), "is_whole": True}
        await site.desks[0]._place_snapshot(FetchSnapshot(1, site.peers[1], RunId("new", 1), snapshot.digest, 10_000))
        assert (run_folder(tmp_path / "pi0", "new", 1) / "elements" / snapshot.digest.hex()).exists()
        damaged = raw[:500] + bytes([raw[500] ^ 1]) + raw[501:]
        with pytest.raises(OperationFailed, match="damaged"):
            await site.desks[1].upload(UploadCheckpoint("new", "ab" * 32, len(raw), 0, damaged), ANN)
        assert len(list((tmp_path / "pi1" / "checkpoints").iterdir())) == 1

    play(work())


def test_another_user_reads_no_checkpoint_and_a_hash_alone_uploads_none(tmp_path: Path) -> None:
    async def work() -> None:
        site = Site(tmp_path)
        made = await site.gathered(site.saved(0, 0))
        desk, digest = site.desks[0], made.digest.hex()
        with pytest.raises(
            NotAllowed, match="taxi belongs to the key 6b6b6b6b6b6b6b6b…, not to you: you may not export it"
        ):
            await desk.read(ReadCheckpoint("taxi", digest, 0), BOB)
        for principal in (ANN, Principal("admin"), Principal("submitter", "app:taxi", b"c" * 32)):
            assert (await desk.read(ReadCheckpoint("taxi", digest, 0), principal))["data"]
        raw = (tmp_path / "pi0" / "checkpoints" / "pause.checkpoint").read_bytes()
        told = await desk.upload(UploadCheckpoint("taxi", digest, len(raw), 0, raw[:10]), BOB)
        assert told == {"have": 10, "is_whole": False}
        assert (await desk.upload(UploadCheckpoint("taxi", digest, len(raw), 0, raw[:10]), ANN))["is_whole"]
        assert (await desk.upload(UploadCheckpoint("taxi", digest, len(raw), 10, raw[10:]), BOB))["is_whole"]

    play(work())


def test_the_second_of_two_concurrent_checkpoints_with_one_name_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        site = Site(tmp_path)
        one, two = site.saved(0, 0), site.saved(1, 1, size=50_000)
        both = await asyncio.gather(site.gathered(one, name="a"), site.gathered(two, name="a"), return_exceptions=True)
        made = [each for each in both if isinstance(each, CheckpointInfo)]
        assert [str(each) for each in both if isinstance(each, OperationFailed)] == [
            "this node already keeps a checkpoint a"
        ]
        assert list(site.desks[0].store.named) == made
        (path,) = (tmp_path / "pi0" / "checkpoints").iterdir()
        assert verify(path)[1] == made[0].digest

    play(work())


def test_a_piece_out_of_order_is_answered_with_the_received_length(tmp_path: Path) -> None:
    async def work() -> None:
        desk = Site(tmp_path).desks[0]
        await desk.upload(UploadCheckpoint("new", "ab" * 32, 30, 0, b"0123456789"), ANN)
        assert await desk.upload(UploadCheckpoint("new", "ab" * 32, 30, 20, b"0123456789"), ANN) == {
            "have": 10,
            "is_whole": False,
        }

    play(work())


def test_an_announced_upload_is_reserved_until_the_last_piece(tmp_path: Path) -> None:
    async def work() -> None:
        desk = Site(tmp_path).desks[0]
        digest, huge = "ab" * 32, 64 << 30
        assert await desk.upload(UploadCheckpoint("new", digest, 2, 0, b"0"), ANN) == {"have": 1, "is_whole": False}
        with pytest.raises(OperationFailed, match="The file was announced with 2 bytes, and now has 68,719,476,736"):
            await desk.upload(UploadCheckpoint("new", digest, huge, 1, b"1" * 1_000), ANN)
        with pytest.raises(OperationFailed, match="The file was announced with 2 bytes"):
            await desk.upload(UploadCheckpoint("new", digest, huge, 0, b"1" * 1_000), ANN)
        with pytest.raises(OperationFailed, match="The client sent more than the announced 2 bytes"):
            await desk.upload(UploadCheckpoint("new", digest, 2, 1, b"1" * 1_000), ANN)
        (path,) = (tmp_path / "pi0" / "checkpoints").iterdir()
        assert path.stat().st_size == 1
        piece = UploadCheckpoint("new", "cd" * 32, 9_000, 0, b"1" * 1_000)
        await desk.upload(piece, ANN)
        await asyncio.gather(
            *(desk.upload(UploadCheckpoint("new", "cd" * 32, 9_000, 1_000, b"2" * 10), ANN) for _ in range(5))
        )
        assert max(path.stat().st_size for path in (tmp_path / "pi0" / "checkpoints").iterdir()) == 1_010

    play(work())


def test_a_stalled_upload_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setattr("agiledart_agent.state_files.uploads.IDLE_SECONDS", 0.01)
        desk = Site(tmp_path).desks[0]
        await desk.upload(UploadCheckpoint("new", "ab" * 32, 30, 0, b"0123456789"), ANN)
        await _until(lambda: not list((tmp_path / "pi0" / "checkpoints").iterdir()))

    play(work())


def test_concurrent_uploads_share_the_disk_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setattr(
            "agiledart_agent.checkpoints.checkpoint_store.shutil.disk_usage", lambda path: SimpleNamespace(free=1_000)
        )
        desk = Site(tmp_path).desks[0]
        await desk.upload(UploadCheckpoint("new", "ab" * 32, 400, 0, b"0"), ANN)
        with pytest.raises(OperationFailed, match="the disk has 1,000 free bytes, and the checkpoint has 400"):
            await desk.upload(UploadCheckpoint("new", "cd" * 32, 400, 0, b"0"), ANN)

    play(work())


def test_a_damaged_file_is_reported_at_start_and_not_listed(tmp_path: Path) -> None:
    async def work() -> None:
        site = Site(tmp_path)
        await site.gathered(site.saved(0, 0))
        path = tmp_path / "pi0" / "checkpoints" / "pause.checkpoint"
        path.write_bytes(path.read_bytes()[:-1])
        again = site.open(0)
        again.store.read_stored()
        assert again.store.named == ()
        assert "a checkpoint cannot be used" in site.warned[0]
        with pytest.raises(InvalidCheckpointFile):
            read_manifest(path)

    play(work())
