"""Fragment service of an agent: connects the node's effects with bytes on disk, replica nodes and stored fragments of others.

Sealing, coding and hashing of large states happen in one thread, reading and writing in another; the loop goes on
meanwhile.
"""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

from agiledart_agent.driver import Driver
from agiledart_agent.fragments.erasure_code import cut, joined, sealed, unsealed
from agiledart_agent.fragments.fragment_client import Dial, FragmentClient
from agiledart_agent.fragments.fragment_file_store import FragmentFileStore, FragmentUnavailable
from agiledart_agent.fragments.fragment_messages import FragmentDescriptor
from agiledart_agent.fragments.fragment_scrubber import FragmentScrubber
from agiledart_agent.fragments.fragment_server import Find, FragmentServer
from agiledart_agent.state_files.deletion_retry import DeletionRetry
from agiledart_agent.state_files.durable_file import write_durably
from agiledart_executor.snapshots.snapshot_file import MAX_SNAPSHOT_FILE_BYTES, run_folder, snapshot_path
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.wire.fragment_effects import (
    DropStoredFragments,
    FetchFragment,
    FindSnapshot,
    FragmentDecision,
    FragmentOffered,
    FragmentStored,
    RebuildSnapshot,
    StoreFragment,
)
from agiledart_recovery.fragments.arithmetic import fragment_bytes
from agiledart_recovery.limits import SEAL_BYTES
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import InstanceSnapshot
from agiledart_sink_log.plain_files import open_plain, read_plain

MAX_CUT: Final = 4
"""Snapshots whose fragments are kept in memory while they are sent."""

AUTHORISE_SECONDS: Final = 15.0

R = TypeVar("R")
_Cut = tuple[bytes, int, int]


class FragmentService:
    """Work of one agent on fragments.

    Args:
        me: this node; what it fetches from itself is read from its own store.
        state_dir: snapshots and fragment files are below it.
        dial: opens links of the service.
        feed: takes events for the node.
        count_refused: called with (reason, peer) for each refusal.
        find: looks up other bytes than fragments by their hash.

    Attributes:
        rebuilt: snapshots that were rebuilt here.
        snapshots, snapshot_bytes, snapshot_pause_ns: of snapshots that instances here have saved.
        snapshot_longest_ns: longest time for which rows waited at once for one.
    """

    def __init__(
        self,
        me: NodeId,
        state_dir: Path,
        dial: Dial,
        feed: Callable[[Event], None],
        count_refused: Callable[[str, str], None],
        find: Find = lambda run, digest, node: None,
    ) -> None:
        self._me, self._state_dir, self._feed = me, state_dir, feed
        self._disk = ThreadPoolExecutor(1, "fragments")
        self._coder = ThreadPoolExecutor(1, "erasure")
        self.store = FragmentFileStore(state_dir)
        self._clearing = DeletionRetry(self._disk, self.store.clear)
        self.client = FragmentClient(dial)
        self.server = FragmentServer(self.store, self._disk, self._authorise_put, self._stored, count_refused, find)
        self.scrubbing = FragmentScrubber(self.store, self._disk, feed)
        self._pending_authorisations: dict[int, asyncio.Future[FragmentDecision]] = {}
        self._number = 0
        self._cuts: dict[_Cut, asyncio.Task[list[bytes]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.rebuilt = self.snapshots = self.snapshot_bytes = self.snapshot_pause_ns = 0
        self.snapshot_longest_ns = 0

    def register(self, driver: Driver) -> None:
        """Register the effects of the node."""
        driver.on(StoreFragment, lambda effect: self._spawn(effect.request, self._store(effect)))
        driver.on(FetchFragment, lambda effect: self._spawn(effect.request, self._fetch(effect)))
        driver.on(FindSnapshot, lambda effect: self._spawn(effect.request, self._find(effect)))
        driver.on(RebuildSnapshot, lambda effect: self._spawn(effect.request, self._rebuild(effect)))
        driver.on(DropStoredFragments, self._drop)
        driver.on(FragmentDecision, self._put_authorised)

    def _drop(self, effect: DropStoredFragments) -> None:
        def work() -> None:
            self.store.drop(effect.keys)
            self._clearing.work()

        self._disk.submit(work)

    def stored_fragments(self) -> tuple[tuple[FragmentKey, NodeId], ...]:
        """Return the fragments that are here after a start, each with the host that stored it."""
        return tuple((header.about.key, header.owner) for header in self.store.stored_headers())

    def count_snapshot(self, size: int, pause_ns: int, longest_ns: int) -> None:
        """Count a snapshot that an instance here has saved."""
        self.snapshots, self.snapshot_bytes = self.snapshots + 1, self.snapshot_bytes + size
        self.snapshot_pause_ns += pause_ns
        self.snapshot_longest_ns = max(self.snapshot_longest_ns, longest_ns)

    async def close(self) -> None:
        """Cancel pending work. Fragments that were not acknowledged are not stored."""
        await self.server.close()
        await self.client.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._coder.shutdown(wait=False, cancel_futures=True)
        self._disk.shutdown(wait=False, cancel_futures=True)

    def _spawn(self, request: int, work: Awaitable[object]) -> None:
        async def answered() -> None:
            try:
                outcome: Event = Completed(request, await work)
            except OperationFailed as error:
                outcome = Failed(request, str(error))
            except OSError as error:
                outcome = Failed(request, (error.strerror or str(error)).lower())
            self._feed(outcome)

        task = asyncio.ensure_future(answered())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- own snapshots

    def _path(self, run: RunId, digest: bytes) -> Path:
        return snapshot_path(run_folder(self._state_dir, run.app, run.version), digest)

    async def _find(self, effect: FindSnapshot) -> bool:
        path = self._path(effect.run, effect.digest)
        return await self._code(lambda: _is_here(path, effect))

    async def _code(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._coder, work)

    async def _store(self, effect: StoreFragment) -> None:
        snapshot, index = effect.snapshot, effect.key.index
        fragments = await self._fragments(effect.key.run, snapshot, effect.secret)
        digest = await self._code(lambda: sha256(fragments[index]).digest())
        about = FragmentDescriptor(effect.key, snapshot.digest, snapshot.length, snapshot.m, len(fragments), digest)
        await self.client.put(effect.replica_node, about, fragments[index], effect.attempt)

    def _fragments(self, run: RunId, snapshot: InstanceSnapshot, secret: bytes) -> "asyncio.Task[list[bytes]]":
        """Return the task that makes all fragments of a snapshot, once for all its replica nodes."""
        key = (snapshot.digest, snapshot.m, len(snapshot.replica_nodes))
        task = self._cuts.pop(key, None)
        if task is None:
            path = self._path(run, snapshot.digest)
            task = asyncio.ensure_future(self._code(lambda: _encode_file(path, snapshot, secret)))
        self._cuts[key] = task  # the newest stands last
        while len(self._cuts) > MAX_CUT:
            del self._cuts[next(iter(self._cuts))]
        asyncio.get_running_loop().call_later(AUTHORISE_SECONDS, self._forget_cut, key, task)
        return task

    def _forget_cut(self, key: _Cut, task: "asyncio.Task[list[bytes]]") -> None:
        if self._cuts.get(key) is task:
            del self._cuts[key]

    async def _fetch(self, effect: FetchFragment) -> bytes:
        snapshot = effect.snapshot
        if effect.replica_node.node == self._me:
            return await asyncio.get_running_loop().run_in_executor(self._disk, self._own, effect)
        most = fragment_bytes(snapshot.length, snapshot.m)
        return await self.client.get(
            effect.replica_node, effect.key, snapshot.digest, effect.offset, effect.length, effect.length or most
        )

    def _own(self, effect: FetchFragment) -> bytes:
        """Return bytes of a fragment on this node."""
        try:
            about = self.store.about(effect.key, effect.snapshot.digest)
            if not effect.length:
                self.store.verify(about)
            return self.store.read(about, effect.offset, effect.length or about.size)
        except FragmentUnavailable as error:
            raise OperationFailed(str(error)) from None

    async def _rebuild(self, effect: RebuildSnapshot) -> None:
        path = self._path(effect.key.run, effect.snapshot.digest)
        await self._code(lambda: _rebuild(path, effect))
        self.rebuilt += 1

    # ---- fragments of other nodes

    async def _authorise_put(self, peer: Peer, key: FragmentKey, attempt: int) -> tuple[str, str]:
        self._number += 1
        number = self._number
        answer: asyncio.Future[FragmentDecision] = asyncio.get_running_loop().create_future()
        self._pending_authorisations[number] = answer
        self._feed(FragmentOffered(number, peer, key, attempt))
        try:
            decision = await asyncio.wait_for(answer, AUTHORISE_SECONDS)
        except TimeoutError:
            return "busy", "the node did not decide in time whether it may be stored"
        finally:
            self._pending_authorisations.pop(number, None)
        return decision.refused, decision.text

    def _put_authorised(self, effect: FragmentDecision) -> None:
        answer = self._pending_authorisations.get(effect.request)
        if answer is not None and not answer.done():
            answer.set_result(effect)

    def _stored(self, key: FragmentKey, peer: Peer) -> None:
        self._feed(FragmentStored(key, peer))


def _whole(path: Path, digest: bytes, size: int) -> bytes | None:
    """Return a snapshot of this size; None when something else is there. Users' code may put anything in its place."""
    try:
        raw = read_plain(path, size)
    except OSError:
        return None
    return raw if sha256(raw).digest() == digest else None


def _is_whole(path: Path, digest: bytes) -> bool:
    """Return whether the file is the snapshot, without taking it into memory."""
    try:
        with open(open_plain(path, os.O_RDONLY), "rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_SNAPSHOT_FILE_BYTES:
                return False
            return hashlib.file_digest(file, "sha256").digest() == digest
    except OSError:
        return False


def _is_here(path: Path, effect: FindSnapshot) -> bool:
    """Return whether a snapshot is on this disk; one that the register holds is written first. Raises OSError."""
    if _is_whole(path, effect.digest):
        return True
    if sha256(effect.content).digest() != effect.digest:
        return False
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_durably(path, effect.content)
    return True


def _encode_file(path: Path, snapshot: InstanceSnapshot, secret: bytes) -> list[bytes]:
    raw = _whole(path, snapshot.digest, snapshot.length - SEAL_BYTES)
    if raw is None or len(raw) + SEAL_BYTES != snapshot.length:
        raise OperationFailed(f"{path} is not the snapshot that was saved")
    return cut(sealed(raw, snapshot.digest, secret), snapshot.m, len(snapshot.replica_nodes))


def _rebuild(path: Path, effect: RebuildSnapshot) -> None:
    snapshot = effect.snapshot
    for data in joined(effect.stripes, snapshot.m, len(snapshot.replica_nodes), snapshot.length):
        raw = unsealed(data, snapshot.digest, effect.secret)
        if raw is not None:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_durably(path, raw)
            return
    raise OperationFailed("the fragments do not rebuild the snapshot that was saved")
