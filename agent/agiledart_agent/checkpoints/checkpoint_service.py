"""Checkpoint service of an agent: builds files from the snapshots of several nodes, fetches them, keeps them and serves them."""

import asyncio
import base64
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from agiledart_agent.checkpoints.checkpoint_file import (
    FORMAT,
    MAX_SNAPSHOT_BYTES,
    ArchivedSnapshot,
    CheckpointFileWriter,
    CheckpointManifest,
    InvalidCheckpointFile,
    append_snapshot,
)
from agiledart_agent.checkpoints.checkpoint_store import CheckpointStore
from agiledart_agent.driver import Driver
from agiledart_agent.fragments.fragment_client import FragmentClient
from agiledart_agent.state_files.durable_file import write_durably
from agiledart_agent.state_files.uploads import Uploads, opened
from agiledart_dataflow.plan.specification import FORMAT as FORM
from agiledart_executor.snapshots.snapshot_file import DamagedSnapshot, read_header_at, run_folder, snapshot_path
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import ApplicationOwnership, Principal, refusal
from agiledart_kernel.version import VERSION
from agiledart_node.context.node_context import NotAllowed
from agiledart_node.records.permission_checks import why_not
from agiledart_node.wire.checkpoint_effects import (
    AllowCheckpointFetch,
    DropCheckpoint,
    FetchCheckpoint,
    FetchSnapshot,
    GatherCheckpoint,
    ReadCheckpoints,
    SnapshotLocation,
)
from agiledart_node.wire.checkpoint_messages import CheckpointInfo
from agiledart_node.wire.transfer_commands import MAX_UPLOAD_CHUNK_BYTES, ReadCheckpoint, UploadCheckpoint
from agiledart_recovery.wire.names import RunId
from agiledart_sink_log.plain_files import open_plain, plain_size

R = TypeVar("R")


class CheckpointService:
    """Work of one agent on checkpoints that outlive their runs.

    Args:
        state_dir: the files are below it.
        client: fetches bytes from other nodes.
        me: returns this node.
        feed: takes events for the node.
        warn: takes a sentence about a file that cannot be used.
    """

    def __init__(
        self,
        state_dir: Path,
        client: FragmentClient,
        me: Callable[[], Peer],
        feed: Callable[[Event], None],
        warn: Callable[[str], None],
    ) -> None:
        self._state_dir, self._client, self._me, self._feed = state_dir, client, me, feed
        self._disk = ThreadPoolExecutor(1, "checkpoints")
        self.store = CheckpointStore(state_dir, warn)
        self._tasks: set[asyncio.Task[None]] = set()
        self._uploads = Uploads(self.store, self._disk)

    def register(self, driver: Driver) -> None:
        """Register the effects of the node. The files on this disk are read first."""
        self.store.read_stored()
        driver.on(GatherCheckpoint, lambda effect: self._spawn(effect.request, self._gather(effect)))
        driver.on(FetchCheckpoint, lambda effect: self._spawn(effect.request, self._fetch(effect)))
        driver.on(ReadCheckpoints, lambda effect: self._feed(Completed(effect.request, self.store.named)))
        driver.on(DropCheckpoint, lambda effect: self._spawn(effect.request, self._drop(effect)))
        driver.on(AllowCheckpointFetch, lambda effect: self.store.grant_transfer(effect.digest, effect.node))
        driver.on(FetchSnapshot, lambda effect: self._spawn(effect.request, self._place_snapshot(effect)))

    def find(self, run: RunId, digest: bytes, node: NodeId | None = None) -> tuple[Path, int, int] | None:
        """Return the place of bytes that another node may fetch from here, as (path, offset, length).

        The bytes are a snapshot of a run, a snapshot within a checkpoint, or a checkpoint for which the node has a
        transfer grant.
        """
        path = snapshot_path(run_folder(self._state_dir, run.app, run.version), digest)
        try:
            return path, 0, plain_size(path)
        except OSError:
            return self.store.look_up(digest, node)

    async def close(self) -> None:
        """Cancel pending work."""
        self._uploads.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._disk.shutdown(wait=False, cancel_futures=True)

    def _spawn(self, request: int, work: Awaitable[object]) -> None:
        async def answered() -> None:
            try:
                outcome: Event = Completed(request, await work)
            except (OperationFailed, InvalidCheckpointFile, DamagedSnapshot) as error:
                outcome = Failed(request, str(error))
            except OSError as error:
                outcome = Failed(request, (error.strerror or str(error)).lower())
            self._feed(outcome)

        task = asyncio.ensure_future(answered())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _on_disk(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)

    # ---- building a checkpoint

    async def _gather(self, effect: GatherCheckpoint) -> CheckpointInfo:
        most = sum(snapshot.most for snapshot in effect.snapshots)
        await self._on_disk(lambda: self.store.check_capacity(effect.about.name, most))
        path, archive = await self._on_disk(self.store.begin)
        try:
            snapshots = [await self._gathered(effect.about.run, location, archive) for location in effect.snapshots]
            manifest = _manifest(effect, snapshots)
            await self._on_disk(lambda: archive.close(manifest))
            await self._on_disk(lambda: _refuse_unread(path, manifest))
        except BaseException:
            archive.drop()
            raise
        try:
            return await self._on_disk(lambda: self.store.finish(path, effect.about.name, checks=False))
        finally:
            await self._on_disk(lambda: path.unlink(missing_ok=True))

    async def _gathered(
        self, run: RunId, location: SnapshotLocation, archive: CheckpointFileWriter
    ) -> ArchivedSnapshot:
        offset = archive.size
        name = location.host.name or location.host.node.short
        try:
            async with aclosing(
                _pieces_of(location.content)
                if location.content
                else self._pieces(location.host, run, location.digest, min(location.most, MAX_SNAPSHOT_BYTES))
            ) as pieces:
                length = await append_snapshot(archive, location.digest, pieces)
        except (OperationFailed, InvalidCheckpointFile) as error:
            raise OperationFailed(f"{name} did not send the snapshot of stage {location.stage}: {error}") from None
        return ArchivedSnapshot(
            location.stage, location.generation, location.index, location.role, location.digest, offset, length
        )

    async def _pieces(self, host: Peer, run: RunId, digest: bytes, most: int) -> AsyncGenerator[bytes]:
        """Yield the bytes under a hash, from this node or another."""
        if host.node != self._me().node:
            async with aclosing(self._client.take(host, run, digest, most)) as taken:
                async for piece in taken:
                    yield piece
            return
        location = self.find(run, digest)
        if location is None:
            raise OperationFailed("this node does not have it")
        path, offset, left = location
        while left:
            size = min(MAX_UPLOAD_CHUNK_BYTES, left)
            data = await self._on_disk(lambda at=offset, size=size: _read(path, at, size))  # type: ignore[misc]
            offset, left = offset + size, left - size
            yield data

    # ---- keeping a checkpoint

    async def _fetch(self, effect: FetchCheckpoint) -> CheckpointInfo:
        wanted = effect.checkpoint
        name = "" if effect.is_temporary else wanted.name
        location = self.store.look_up(wanted.digest)
        if location is not None and (not name or location[0].name.startswith(f"{name}.")):
            return wanted
        await self._on_disk(lambda: self.store.check_capacity(name, wanted.size))
        path = self.store.temporary_path()
        try:
            async with aclosing(self._pieces(effect.replica_node, wanted.run, wanted.digest, wanted.size)) as pieces:
                await self._written(path, pieces)
            known = await self._on_disk(lambda: self.store.finish(path, name, checks=True))
        finally:
            await self._on_disk(lambda: path.unlink(missing_ok=True))
        if (known.digest, known.run) != (wanted.digest, wanted.run):
            await self._on_disk(lambda: self.store.drop(name, known.digest, known.run))
            raise OperationFailed("the received checkpoint is not the requested one")
        return known

    async def _written(self, path: Path, pieces: AsyncIterator[bytes]) -> None:
        file = await self._on_disk(lambda: opened(path))
        try:
            async for piece in pieces:
                await self._on_disk(lambda piece=piece: file.write(piece))  # type: ignore[misc]
        finally:
            await self._on_disk(file.close)

    async def _drop(self, effect: DropCheckpoint) -> None:
        await self._on_disk(lambda: self.store.drop(effect.name, effect.digest, effect.run))

    async def _place_snapshot(self, effect: FetchSnapshot) -> None:
        """Place a snapshot where its run looks for it."""
        most = min(effect.most, MAX_SNAPSHOT_BYTES)
        async with aclosing(self._pieces(effect.replica_node, effect.run, effect.digest, most)) as taken:
            pieces = [piece async for piece in taken]
        path = snapshot_path(run_folder(self._state_dir, effect.run.app, effect.run.version), effect.digest)
        await self._on_disk(lambda: _put(path, b"".join(pieces), effect.digest))

    # ---- for users

    async def read(self, command: ReadCheckpoint, principal: Principal) -> dict[str, object]:
        """Return a piece of a file for a user. Raises `OperationFailed`, or `NotAllowed`: it belongs to another's application."""
        stored = self.store.file_of(_digest(command.digest))
        if stored is None or stored[1].run.app != command.name:
            raise OperationFailed(f"This agent no longer has that checkpoint of {command.name}. Export it again.")
        path, known = stored
        if reason := _refusal(principal, known):
            raise NotAllowed(reason, why_not(principal, "export", reason, command.name, known.owner))
        try:
            size = plain_size(path)
            left = max(0, size - command.offset)
            data = await self._on_disk(lambda: _read(path, command.offset, min(left, MAX_UPLOAD_CHUNK_BYTES)))
        except OSError as error:
            raise OperationFailed(f"The checkpoint cannot be read: {(error.strerror or str(error)).lower()}.") from None
        return {"data": base64.b64encode(data).decode(), "left": left - len(data)}

    async def upload(self, command: UploadCheckpoint, principal: Principal) -> dict[str, object]:
        """Take a piece of a user's file. Return how much of it is here, and whether it is complete. Raises `OperationFailed`.

        A user that may not read a stored file has to send all of it: a hash alone does not prove that the user has the
        file.
        """
        digest = _digest(command.digest)
        stored = self.store.file_of(digest)
        if stored is not None and not _refusal(principal, stored[1]):
            return {"have": command.size, "is_whole": True}
        try:
            have, digest_received = await self._uploads.take(command)
        except OSError as error:
            raise OperationFailed(
                f"This agent could not store the file: {(error.strerror or str(error)).lower()}."
            ) from None
        if digest_received and digest_received != digest:
            raise OperationFailed("The received file is not the announced one. Try again.")
        return {"have": have, "is_whole": bool(digest_received)}


def _refuse_unread(path: Path, manifest: CheckpointManifest) -> None:
    """Refuse a checkpoint whose source has read ahead rows that arrive only once: no snapshot holds them.

    Raises `OperationFailed`.
    """
    with path.open("rb") as file:
        for snapshot in manifest.snapshots:
            if snapshot.role == "source":
                file.seek(snapshot.offset)
                header = read_header_at(file, f"the snapshot of stage {snapshot.stage}")
                if header.unread:
                    raise OperationFailed(
                        f"{header.steps[0]} has read ahead {header.unread:,} bytes, which wait in its log and cannot be read again"
                    )


async def _pieces_of(content: bytes) -> AsyncGenerator[bytes]:
    """Yield a snapshot that the register holds."""
    yield content


def _manifest(effect: GatherCheckpoint, snapshots: list[ArchivedSnapshot]) -> CheckpointManifest:
    about = effect.about
    return CheckpointManifest(
        FORMAT,
        VERSION,
        FORM,
        about.name,
        about.run.app,
        about.run.version,
        about.attempt,
        about.epoch,
        about.taken_ms or int(time.time() * 1_000),
        about.owner,
        list(about.shared),
        effect.specification,
        effect.plan,
        snapshots,
    )


def _refusal(principal: Principal, known: CheckpointInfo) -> str:
    """Return why a requester may not read the checkpoint; empty: it may."""
    return refusal(principal, "export", ApplicationOwnership(known.run.app, known.owner, shared=known.shared))


def _digest(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise OperationFailed(f"{text!r} is not the hash of a checkpoint, which has 64 hex digits.") from None


def _read(path: Path, offset: int, size: int) -> bytes:
    with open(open_plain(path, os.O_RDONLY), "rb") as file:
        file.seek(offset)
        return file.read(size)


def _put(path: Path, raw: bytes, digest: bytes) -> None:
    if sha256(raw).digest() != digest:
        raise OperationFailed("the received snapshot is not the requested one")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_durably(path, raw)
