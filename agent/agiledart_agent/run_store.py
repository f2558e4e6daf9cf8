"""Stored state of the runs in which this node takes part: small files that are on the disk before the node acts on them.

    runs/NAME.VERSION/part      what the node hosts, with the users' code
                      voter     its voter slot in the run's register
                      life      the last attempt that it has entered
                      elements/ snapshots that its instances saved (written by executors)
                      ending    the run is over; sink files of these snapshots still have to get their names

One thread writes the files of a run in order, each behind a checksum. After a start all of them are reported to the
node, which then waits for requests. A damaged file is left out, with a warning. A voter that forgot what it promised
does not vote until it gets a voter slot again. A host that forgot its last attempt takes part from the next one on,
like a node that never had anything of the run.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from agiledart_agent.state_files.deletion_retry import DeletionRetry
from agiledart_executor.snapshots.checksummed_file import DamagedFile, add_checksum, verified_content
from agiledart_executor.snapshots.snapshot_file import EXECUTOR_FOLDERS, DamagedSnapshot, read_header
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_kernel.name_patterns import is_application_name
from agiledart_node.wire.effects import DropSnapshots, ForgetPart, ForgetRun, KeepFile, RetainSnapshots
from agiledart_node.wire.events import RunsFound, StoredFile
from agiledart_sink_log.plain_files import path_below, read_plain, remove_tree

FOLDER = "runs"
MAX_FILE_BYTES: Final = 256 << 20
"""Longest file of a run: a part has the users' code and the plan."""

PASS_SECONDS: Final = 0.5
"""Time for what is no snapshot: votes wait behind it."""

DELETION_SECONDS: Final = 5.0
"""Time of one pass over the folders that leave; the agent's end waits for it."""

MAX_SNAPSHOTS_LISTED: Final = 20_000
"""Names in a folder of snapshots that one pass looks at; users' code may put any number there."""

_TRASH: Final = ".leaving"
_NAMES = ("part", "voter", "life", "record")
_ENDING = "ending"

_NEED_ATTEMPT = ("part", "record")
"""Files that are of no use without the last attempt: a host that does not know it must not continue what it hosted then."""

_END: msgspec.msgpack.Decoder[tuple[tuple[bytes, ...], str]] = msgspec.msgpack.Decoder(tuple[tuple[bytes, ...], str])

_LOST = {
    "voter": "this node does not vote on the run until it gets a voter slot again; the other voters know what was decided",
    "life": "this node takes part in the run again from its next attempt on",
    "part": "what this node hosted of the run is restored from its neighbours in the next attempt",
    "record": "other nodes have a copy",
}


class RunStore:
    """Files of runs below a state directory.

    Args:
        node: id of the node, in hex, to which the files belong.
        feed: takes the outcome of each write, as an event for the node.
        warn: takes a sentence about a file that is damaged, or that the disk does not take.

    Attributes:
        ending: runs whose end an earlier process of the agent had begun to carry out.
        refused: files that the disk did not take. The node does not make the promise or enter the attempt that they
            record; to other nodes it is failed.
    """

    def __init__(
        self, state_dir: Path, node: str, feed: Callable[[Event], None], warn: Callable[[str], None] = lambda _: None
    ) -> None:
        self._root, self._node, self._feed, self._warn = state_dir / FOLDER, node, feed, warn
        self._thread = ThreadPoolExecutor(1, "runs")
        self._loop = asyncio.get_running_loop()
        self._leaving: set[Path] = set()
        self._forgotten: dict[Path, Future[None]] = {}  # folder of a run → deletion that was requested for it last
        self._clearing = DeletionRetry(self._thread, self._clear)
        self._deleting_thread = ThreadPoolExecutor(1, "deleting")
        self._deleting = DeletionRetry(
            self._deleting_thread, lambda: remove_tree(self._root / _TRASH, DELETION_SECONDS)
        )
        self.ending: list[ForgetRun] = []
        self.refused = 0
        self._takes = True

    def stored_runs(self) -> RunsFound:
        """Return everything that is stored here. An unreadable file is left out: other nodes have its content."""
        files: list[StoredFile] = []
        folders: list[tuple[str, int]] = []
        for folder in sorted(self._root.glob("*.*")) if self._root.is_dir() else []:
            application, _, version = folder.name.rpartition(".")
            if version.isdecimal() and is_application_name(application):
                if not _is_known(folder):
                    self._leaving.add(folder)
                elif (ending := self._ending(folder)) is not None:
                    self.ending.append(ForgetRun(application, int(version), *ending))
                else:
                    folders.append((application, int(version)))
                    read = self._read(folder)
                    files += (StoredFile(application, int(version), name, raw) for name, raw in read.items())
        self._thread.submit(self._clearing.work)
        return RunsFound(tuple(files), folders=tuple(folders))

    def _ending(self, folder: Path) -> tuple[tuple[bytes, ...], str] | None:
        """Return snapshots and reason of a run that is over and whose end is not carried out yet. None: no such end is recorded."""
        try:
            return _END.decode(
                verified_content(read_plain(folder / _ENDING, MAX_FILE_BYTES), self._run_of(folder / _ENDING))
            )
        except (OSError, DamagedFile, msgspec.MsgspecError):
            return None

    def _read(self, folder: Path) -> dict[str, bytes]:
        contents: dict[str, bytes] = {}
        left_out: set[str] = set()
        for name in _NAMES:
            path = folder / name
            try:
                contents[name] = verified_content(read_plain(path, MAX_FILE_BYTES), self._run_of(path))
            except FileNotFoundError:
                continue
            except (OSError, DamagedFile) as error:
                reason = (error.strerror or "").lower() if isinstance(error, OSError) else error
                self._warn(f"{path} is damaged ({reason}): {_LOST[name]}.")
                left_out |= {name, *(_NEED_ATTEMPT if name == "life" else ())}
        return {name: content for name, content in contents.items() if name not in left_out}

    def _run_of(self, path: Path) -> str:
        return f"{self._node}/{path.parent.name}/{path.name}"

    def keep(self, effect: KeepFile) -> None:
        """Write a file, force it to the disk, then report it."""
        path = self._folder(effect.application, effect.version) / effect.name

        def work() -> None:
            self._leaving = {left for left in self._leaving if left != path.parent and path.parent not in left.parents}
            (path.parent / _ENDING).unlink(missing_ok=True)  # the run is not over
            try:
                _write(path, add_checksum(effect.content, self._run_of(path)))
            except OSError as error:
                why = f"{path} cannot be written: {(error.strerror or str(error)).lower()}"
                self.refused += 1
                self._report_disk_state(
                    takes=False, text=f"{why}. Until it can be written, this node neither votes nor starts anything."
                )
                self._feed_event(Failed(effect.request, why))
            else:
                self._report_disk_state(takes=True, text=f"{path.parent} can be written again.")
                self._feed_event(Completed(effect.request, None))

        self._thread.submit(work)

    def keep_snapshots(self, effect: RetainSnapshots) -> None:
        """Drop all snapshots but these and later ones. A snapshot that is being written has no name yet."""
        folder = self._folder(effect.application, effect.version) / "elements"
        wanted = {digest.hex() for digest in effect.digests}

        def work() -> None:
            for name in _names_in(folder):
                path = folder / name
                if name[:1] != "." and name not in wanted and not _is_later(path, (effect.attempt, effect.epoch)):
                    self._leaving.discard(path) if remove_tree(path, PASS_SECONDS) else self._leaving.add(path)
            if self._leaving:
                self._clearing.work()

        self._thread.submit(work)

    def drop_snapshots(self, effect: DropSnapshots) -> None:
        """Drop copies of snapshots that were fetched here and that no instance reads."""
        folder = self._folder(effect.application, effect.version) / "elements"

        def work() -> None:
            for digest in effect.digests:
                remove_tree(folder / digest.hex(), PASS_SECONDS)

        self._thread.submit(work)

    def forget_part(self, effect: ForgetPart) -> None:
        """Drop what the node hosts of a run. Its votes and the attempt that it entered stay."""
        folder = self._folder(effect.application, effect.version)

        def work() -> None:
            for name in ("part", "record"):
                (folder / name).unlink(missing_ok=True)
            self._leave(*(folder / name for name in EXECUTOR_FOLDERS))

        self._forget(folder, work)

    async def begin_to_forget(self, effect: ForgetRun) -> None:
        """Record that the run is over and its end is being carried out: if the agent dies, its next process completes the end."""
        path = self._folder(effect.application, effect.version) / _ENDING
        content = add_checksum(msgspec.msgpack.encode((effect.digests, effect.why)), self._run_of(path))

        def work() -> None:
            with contextlib.suppress(OSError):  # then it is done in this process, or not at all
                _write(path, content)

        await self._loop.run_in_executor(self._thread, work)

    def forget(self, effect: ForgetRun) -> None:
        """Delete everything of a run that is over."""
        folder = self._folder(effect.application, effect.version)
        self._forget(folder, lambda: self._leave(folder))

    def sweep(self, application: str, version: int) -> None:
        """Delete folders of a forgotten run: a process that was just starting may have made them after the run was forgotten."""
        folder = self._folder(application, version)
        with contextlib.suppress(RuntimeError):  # the agent ends; its next start sweeps
            self._forget(folder, lambda: None if _is_known(folder) else self._leave(folder))

    async def until_forgotten(self, application: str, version: int) -> None:
        """Wait for the requested deletions of a run. Folders that a new start of the run makes before would go with them."""
        if (deletion := self._forgotten.get(self._folder(application, version))) is not None:
            await asyncio.wait([asyncio.wrap_future(deletion)])

    def _forget(self, folder: Path, work: Callable[[], None]) -> None:
        self._forgotten = {of: deletion for of, deletion in self._forgotten.items() if not deletion.done()}
        self._forgotten[folder] = self._thread.submit(work)

    def _leave(self, *folders: Path) -> None:
        self._leaving.update(folders)
        self._clearing.work()

    def _clear(self) -> bool:
        """Move folders out of the way at once, so that the run may come back; a thread of its own deletes what was moved."""
        trash = self._root / _TRASH
        for folder in tuple(self._leaving):
            if os.path.lexists(folder):
                try:
                    trash.mkdir(mode=0o700, exist_ok=True)
                    os.replace(folder, trash / f"{time.time_ns()}")
                except OSError:
                    continue
            self._leaving.discard(folder)
        with contextlib.suppress(RuntimeError):  # the agent ends; its next start deletes
            self._deleting_thread.submit(self._deleting.work)
        return not self._leaving

    def close(self) -> None:
        """Finish the requested writes and stop."""
        self._thread.shutdown(wait=True)
        self._deleting_thread.shutdown(wait=True)

    def _folder(self, application: str, version: int) -> Path:
        return path_below(self._root, f"{application}.{version}")

    def _report_disk_state(self, *, takes: bool, text: str) -> None:
        """Warn of the first file that the disk does not take, and of the first that it takes again."""
        if takes is not self._takes:
            self._takes = takes
            with contextlib.suppress(RuntimeError):  # the agent ends, and its loop is closed
                self._loop.call_soon_threadsafe(self._warn, text)

    def _feed_event(self, event: Event) -> None:
        try:
            self._loop.call_soon_threadsafe(self._feed, event)
        except RuntimeError:  # the agent ends, and its loop is closed
            return


def _is_known(folder: Path) -> bool:
    """Return whether this node stores anything of the run of this folder: a part, a vote, an attempt, or an end to carry out."""
    return any((folder / name).exists() for name in (*_NAMES, _ENDING))


def _names_in(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, MAX_SNAPSHOTS_LISTED)]
    except OSError:
        return []


def _is_later(path: Path, checkpoint: tuple[int, int]) -> bool:
    try:
        header = read_header(path)
    except DamagedSnapshot:
        return False
    return (header.attempt, header.epoch) > checkpoint


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
