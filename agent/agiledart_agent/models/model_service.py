"""Model service of an agent: takes models from users, fetches them from other nodes, serves them to nodes and executors."""

import asyncio
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

from agiledart_agent.driver import Driver
from agiledart_agent.fragments.fragment_client import FragmentClient
from agiledart_agent.models.model_store import ModelStore
from agiledart_agent.state_files.uploads import Uploads, opened
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_kernel.peer import Peer
from agiledart_node.wire.model_messages import FetchModel
from agiledart_node.wire.transfer_commands import UploadModel
from agiledart_recovery.wire.names import RunId

R = TypeVar("R")


class ModelService:
    """Work of one agent on models' files.

    Args:
        state_dir: the files are below it.
        client: fetches bytes from other nodes.
        me: returns this node.
        feed: takes events for the node.
    """

    def __init__(
        self, state_dir: Path, client: FragmentClient, me: Callable[[], Peer], feed: Callable[[Event], None]
    ) -> None:
        self._client, self._me, self._feed = client, me, feed
        self._disk = ThreadPoolExecutor(1, "models")
        self.store = ModelStore(state_dir)
        self._uploads = Uploads(self.store, self._disk)
        self._fetches: dict[tuple[str, bytes], asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def register(self, driver: Driver) -> None:
        """Register the effect of the node."""
        self.store.drop_incomplete()
        driver.on(FetchModel, self._begin)

    def find(self, application: str, digest: bytes) -> tuple[Path, int, int] | None:
        """Return the place of a model that another node may fetch from here, as (path, offset, length)."""
        location = self.store.path_of(application, digest)
        return None if location is None else (location[0], 0, location[1])

    async def close(self) -> None:
        """Cancel pending work."""
        self._uploads.close()
        tasks = [*self._tasks, *self._fetches.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._disk.shutdown(wait=False, cancel_futures=True)

    async def upload(self, command: UploadModel) -> dict[str, object]:
        """Take a piece of a user's file. Return how much of it is here, and whether it is complete. Raises `OperationFailed`."""
        try:
            have, received = await self._uploads.take(command)
        except OSError as error:
            raise OperationFailed(
                f"This agent could not store the model: {(error.strerror or str(error)).lower()}."
            ) from None
        if received and received.hex() != command.digest:
            raise OperationFailed("The received model is not the announced one. Try again.")
        return {"have": have, "is_whole": bool(received)}

    # ---- fetching

    def _begin(self, effect: FetchModel) -> None:
        async def answered() -> None:
            try:
                await asyncio.shield(self._fetch(effect))
                outcome: Event = Completed(effect.request)
            except OperationFailed as error:
                outcome = Failed(effect.request, str(error))
            except OSError as error:
                outcome = Failed(effect.request, (error.strerror or str(error)).lower())
            self._feed(outcome)

        self._tasks.add(task := asyncio.ensure_future(answered()))
        task.add_done_callback(self._tasks.discard)

    def _fetch(self, effect: FetchModel) -> "asyncio.Task[None]":
        """Return the task that fetches a file; the request may come again while it works."""
        key = (effect.application, effect.digest)
        task = self._fetches.get(key)
        if task is None:
            task = self._fetches[key] = asyncio.ensure_future(self._fetched(effect))
            task.add_done_callback(lambda _: self._fetches.pop(key, None))
        return task

    async def _fetched(self, effect: FetchModel) -> None:
        application, digest = effect.application, effect.digest
        if await self._on_disk(lambda: self.store.has(application, digest)):
            return
        await self._on_disk(lambda: self.store.reserve(effect.size))
        path = self.store.temporary_path()
        try:
            await self._received(effect, path)
            await self._on_disk(lambda: self.store.place(application, digest, path))
        finally:
            await self._on_disk(lambda: path.unlink(missing_ok=True))

    async def _received(self, effect: FetchModel, path: Path) -> None:
        """Write the file's bytes: a copy of the one that is here, else from the first of these nodes that gives it."""
        location = self.store.path_of(effect.application, effect.digest)
        if location is not None:
            await self._on_disk(lambda: shutil.copyfile(location[0], path))
            return
        reasons = []
        for copy_node in effect.copy_nodes:
            if copy_node.node == self._me().node:
                continue
            try:
                await self._write(effect, copy_node, path)
            except OperationFailed as error:
                reasons.append(f"{copy_node.name or copy_node.node.short}: {error}")
            else:
                return
        raise OperationFailed(f"no node gave the model ({'; '.join(reasons) or 'this node does not have it'})")

    async def _write(self, effect: FetchModel, copy_node: Peer, path: Path) -> None:
        file, run, size = await self._on_disk(lambda: opened(path)), RunId(effect.application, 1), 0
        try:
            async with aclosing(self._client.take(copy_node, run, effect.digest, effect.size)) as pieces:
                async for piece in pieces:
                    await self._on_disk(lambda piece=piece: file.write(piece))  # type: ignore[misc]
                    size += len(piece)
        finally:
            await self._on_disk(file.close)
        if size != effect.size:
            raise OperationFailed(f"it sent {size:,} of {effect.size:,} bytes")

    async def _on_disk(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)
