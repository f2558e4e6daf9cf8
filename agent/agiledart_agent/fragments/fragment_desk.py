"""Joins the node's words about fragments with bytes: elements on this disk, holders' services, the shelf of others' fragments.

Sealing, coding and hashing of large states happen in a thread, reading and writing in another; the loop goes on meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

from agiledart_agent.clearing import Clearing
from agiledart_agent.driver import Driver
from agiledart_agent.durable_file import write_durably
from agiledart_agent.fragments.erasure import cut, joined, sealed, unsealed
from agiledart_agent.fragments.fragment_links import Dial, FragmentClient
from agiledart_agent.fragments.fragment_shelf import FragmentShelf, NoFragment
from agiledart_agent.fragments.scrubbing import Scrubbing
from agiledart_agent.fragments.server import Find, FragmentServer
from agiledart_agent.fragments.wire import About
from agiledart_executor.elements import element_path, run_folder
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.wire.fragment_effects import (
    DropFragments,
    FetchFragment,
    FindElement,
    FragmentJudged,
    FragmentOffered,
    FragmentStored,
    RebuildElement,
    StoreFragment,
)
from agiledart_recovery.fragments.arithmetic import fragment_bytes
from agiledart_recovery.limits import SEAL_BYTES
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.names import Run
from agiledart_recovery.wire.value import Element

MAX_CUT: Final = 4
"""Elements whose fragments are kept in memory while they go out."""

JUDGE_SECONDS: Final = 15.0

R = TypeVar("R")
_Cut = tuple[bytes, int, int]


class FragmentDesk:
    """All that one agent has to do with fragments.

    Args:
        me: this node; what it fetches from itself is read from the shelf.
        state_dir: elements and shelf are below it.
        dial: opens links of the service.
        feed: takes events for the node.
        count_refused: called with (reason, who) for each refusal.
        find: what else than fragments lies here, for who knows its hash.

    Attributes:
        rebuilt: elements that were put together here.
        snapshots, snapshot_bytes, snapshot_pause_ns: of elements that instances here have saved; `snapshot_longest_ns`: the longest
            time for which rows waited at once for one.
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
        self.shelf = FragmentShelf(state_dir)
        self._clearing = Clearing(self._disk, self.shelf.clear)
        self.client = FragmentClient(dial)
        self.server = FragmentServer(self.shelf, self._disk, self._judge, self._stored, count_refused, find)
        self.scrubbing = Scrubbing(self.shelf, self._disk, feed)
        self._judging: dict[int, asyncio.Future[FragmentJudged]] = {}
        self._number = 0
        self._cuts: dict[_Cut, asyncio.Task[list[bytes]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.rebuilt = self.snapshots = self.snapshot_bytes = self.snapshot_pause_ns = 0
        self.snapshot_longest_ns = 0

    def register(self, driver: Driver) -> None:
        """Carry out what the node asks."""
        driver.on(StoreFragment, lambda effect: self._spawn(effect.request, self._store(effect)))
        driver.on(FetchFragment, lambda effect: self._spawn(effect.request, self._fetch(effect)))
        driver.on(FindElement, lambda effect: self._spawn(effect.request, self._find(effect)))
        driver.on(RebuildElement, lambda effect: self._spawn(effect.request, self._rebuild(effect)))
        driver.on(DropFragments, self._drop)
        driver.on(FragmentJudged, self._judged)

    def _drop(self, effect: DropFragments) -> None:
        def work() -> None:
            self.shelf.drop(effect.keys)
            self._clearing.work()

        self._disk.submit(work)

    def found(self) -> tuple[tuple[FragmentKey, NodeId], ...]:
        """Fragments that lie here after a start, each with the host that had it put here."""
        return tuple((header.about.key, header.owner) for header in self.shelf.found())

    def snapped(self, size: int, pause_ns: int, longest_ns: int) -> None:
        """An instance here has saved itself."""
        self.snapshots, self.snapshot_bytes = self.snapshots + 1, self.snapshot_bytes + size
        self.snapshot_pause_ns += pause_ns
        self.snapshot_longest_ns = max(self.snapshot_longest_ns, longest_ns)

    async def close(self) -> None:
        """Let go of everything; what was not acknowledged was not stored."""
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

    # ---- own elements

    def _path(self, run: Run, digest: bytes) -> Path:
        return element_path(run_folder(self._state_dir, run.app, run.version), digest)

    async def _find(self, effect: FindElement) -> bool:
        path = self._path(effect.run, effect.digest)
        return await self._code(lambda: _whole(path, effect.digest) is not None)

    async def _code(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._coder, work)

    async def _store(self, effect: StoreFragment) -> None:
        element, index = effect.element, effect.key.index
        fragments = await self._fragments(effect.key.run, element, effect.secret)
        digest = await self._code(lambda: sha256(fragments[index]).digest())
        about = About(effect.key, element.digest, element.length, element.m, len(fragments), digest)
        await self.client.put(effect.holder, about, fragments[index], effect.life)

    def _fragments(self, run: Run, element: Element, secret: bytes) -> "asyncio.Task[list[bytes]]":
        """All fragments of an element, made once for all its holders."""
        key = (element.digest, element.m, len(element.holders))
        task = self._cuts.pop(key, None)
        if task is None:
            path = self._path(run, element.digest)
            task = asyncio.ensure_future(self._code(lambda: _cut(path, element, secret)))
        self._cuts[key] = task  # the newest stands last
        while len(self._cuts) > MAX_CUT:
            del self._cuts[next(iter(self._cuts))]
        asyncio.get_running_loop().call_later(JUDGE_SECONDS, self._forget_cut, key, task)
        return task

    def _forget_cut(self, key: _Cut, task: "asyncio.Task[list[bytes]]") -> None:
        if self._cuts.get(key) is task:
            del self._cuts[key]

    async def _fetch(self, effect: FetchFragment) -> bytes:
        element = effect.element
        if effect.holder.node == self._me:
            return await asyncio.get_running_loop().run_in_executor(self._disk, self._own, effect)
        most = fragment_bytes(element.length, element.m)
        return await self.client.get(
            effect.holder, effect.key, element.digest, effect.offset, effect.length, effect.length or most
        )

    def _own(self, effect: FetchFragment) -> bytes:
        """Bytes of a fragment that lies here."""
        try:
            about = self.shelf.about(effect.key, effect.element.digest)
            if not effect.length:
                self.shelf.verify(about)
            return self.shelf.read(about, effect.offset, effect.length or about.size)
        except NoFragment as error:
            raise OperationFailed(str(error)) from None

    async def _rebuild(self, effect: RebuildElement) -> None:
        path = self._path(effect.key.run, effect.element.digest)
        await self._code(lambda: _rebuild(path, effect))
        self.rebuilt += 1

    # ---- others' fragments

    async def _judge(self, peer: Peer, key: FragmentKey, life: int) -> tuple[str, str]:
        self._number += 1
        number = self._number
        answer: asyncio.Future[FragmentJudged] = asyncio.get_running_loop().create_future()
        self._judging[number] = answer
        self._feed(FragmentOffered(number, peer, key, life))
        try:
            judged = await asyncio.wait_for(answer, JUDGE_SECONDS)
        except TimeoutError:
            return "busy", "the node does not say whether it may be kept"
        finally:
            self._judging.pop(number, None)
        return judged.refused, judged.text

    def _judged(self, effect: FragmentJudged) -> None:
        answer = self._judging.get(effect.request)
        if answer is not None and not answer.done():
            answer.set_result(effect)

    def _stored(self, key: FragmentKey, peer: Peer) -> None:
        self._feed(FragmentStored(key, peer))


def _whole(path: Path, digest: bytes) -> bytes | None:
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    return raw if sha256(raw).digest() == digest else None


def _cut(path: Path, element: Element, secret: bytes) -> list[bytes]:
    raw = _whole(path, element.digest)
    if raw is None or len(raw) + SEAL_BYTES != element.length:
        raise OperationFailed(f"{path} is not the element that was saved")
    return cut(sealed(raw, element.digest, secret), element.m, len(element.holders))


def _rebuild(path: Path, effect: RebuildElement) -> None:
    element = effect.element
    for data in joined(effect.stripes, element.m, len(element.holders), element.length):
        raw = unsealed(data, element.digest, effect.secret)
        if raw is not None:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_durably(path, raw)
            return
    raise OperationFailed("what the fragments give is not the element that was saved")
