"""What this node must not forget of the runs in which it takes part: small files, on the disk before anybody acts on them.

    runs/NAME.VERSION/part      what it hosts, with the users' code
                      voter     its seat in the run's register
                      life      the last life that it has entered
                      elements/ what its instances saved (written by executors)
                      ending    it is over; of these elements files of sinks are still to get their names

Files of one run are written in order, by one thread, each behind a checksum. After a start all of them are told to the node, which
then waits to be asked. A damaged one is left out, and that is said: a seat that forgot what it promised does not vote until it is
put in again, and a host that forgot its last life takes part from the next one on, like one that never had anything of the run.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from agiledart_agent.state_files.deletion_retry import DeletionRetry
from agiledart_executor.snapshots.checksummed_file import DamagedFile, add_checksum, verified_content
from agiledart_executor.snapshots.snapshot_file import EXECUTOR_FOLDERS, DamagedSnapshot, read_header
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_node.wire.effects import DropSnapshots, ForgetPart, ForgetRun, KeepFile, RetainSnapshots
from agiledart_node.wire.events import RunsFound, StoredFile

FOLDER = "runs"
_NAMES = ("part", "voter", "life", "record")
_ENDING = "ending"

_NEED_ATTEMPT = ("part", "record")
"""Who does not know its last life must not go on with what it hosted then."""

_END: msgspec.msgpack.Decoder[tuple[tuple[bytes, ...], str]] = msgspec.msgpack.Decoder(tuple[tuple[bytes, ...], str])

_LOST = {
    "voter": "this node does not vote on the run until it is given a seat again; the other voters know what was decided",
    "life": "this node takes part in the run again from its next life on",
    "part": "what this node hosted of the run is brought back from its neighbours in the next life",
    "record": "other nodes have a copy",
}


class RunStore:
    """The runs' files below a state directory.

    Args:
        node: whose these are, in hex.
        feed: takes the outcome of each write, as an event for the node.
        warn: takes a sentence about a file that is damaged, or that the disk does not take.

    Attributes:
        ending: runs whose end an earlier process of the agent had begun to carry out.
        refused: files that the disk did not take. What was to be promised or entered with them is not: to others this node is dead.
    """

    def __init__(
        self, state_dir: Path, node: str, feed: Callable[[Event], None], warn: Callable[[str], None] = lambda _: None
    ) -> None:
        self._root, self._node, self._feed, self._warn = state_dir / FOLDER, node, feed, warn
        self._thread = ThreadPoolExecutor(1, "runs")
        self._loop = asyncio.get_running_loop()
        self._leaving: set[Path] = set()
        self._clearing = DeletionRetry(self._thread, self._clear)
        self.ending: list[ForgetRun] = []
        self.refused = 0
        self._takes = True

    def found(self) -> RunsFound:
        """Everything that lies here. A file that cannot be read is left out: others have what it said."""
        files: list[StoredFile] = []
        folders: list[tuple[str, int]] = []
        for folder in sorted(self._root.glob("*.*")) if self._root.is_dir() else []:
            application, _, version = folder.name.rpartition(".")
            if version.isdecimal():
                if not _is_known(folder):
                    shutil.rmtree(folder, ignore_errors=True)
                if (ending := self._ending(folder)) is not None:
                    self.ending.append(ForgetRun(application, int(version), *ending))
                elif folder.exists():
                    folders.append((application, int(version)))
                    read = self._read(folder)
                    files += (StoredFile(application, int(version), name, raw) for name, raw in read.items())
        return RunsFound(tuple(files), folders=tuple(folders))

    def _ending(self, folder: Path) -> tuple[tuple[bytes, ...], str] | None:
        """Elements of a run that is over, and whose end is not carried out, and why it is; None: it is not, or not said to be."""
        try:
            return _END.decode(verified_content((folder / _ENDING).read_bytes(), self._run_of(folder / _ENDING)))
        except (OSError, DamagedFile, msgspec.MsgspecError):
            return None

    def _read(self, folder: Path) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        left_out: set[str] = set()
        for name in _NAMES:
            path = folder / name
            try:
                found[name] = verified_content(path.read_bytes(), self._run_of(path))
            except FileNotFoundError:
                continue
            except (OSError, DamagedFile) as error:
                why = (error.strerror or "").lower() if isinstance(error, OSError) else error
                self._warn(f"{path} is damaged ({why}): {_LOST[name]}.")
                left_out |= {name, *(_NEED_ATTEMPT if name == "life" else ())}
        return {name: content for name, content in found.items() if name not in left_out}

    def _run_of(self, path: Path) -> str:
        return f"{self._node}/{path.parent.name}/{path.name}"

    def keep(self, effect: KeepFile) -> None:
        """Write a file, force it to the disk, then say so."""
        path = self._folder(effect.application, effect.version) / effect.name

        def work() -> None:
            self._leaving.discard(path.parent)
            (path.parent / _ENDING).unlink(missing_ok=True)  # it is not over
            try:
                _write(path, add_checksum(effect.content, self._run_of(path)))
            except OSError as error:
                why = f"{path} cannot be written: {(error.strerror or str(error)).lower()}"
                self.refused += 1
                self._report_disk_state(
                    takes=False, text=f"{why}. Until it can be, this node neither votes nor begins anything anew."
                )
                self._feed_event(Failed(effect.request, why))
            else:
                self._report_disk_state(takes=True, text=f"{path.parent} can be written again.")
                self._feed_event(Completed(effect.request, None))

        self._thread.submit(work)

    def keep_snapshots(self, effect: RetainSnapshots) -> None:
        """Drop all elements but these and later ones; one that is being written has no name yet."""
        folder = self._folder(effect.application, effect.version) / "elements"
        wanted = {digest.hex() for digest in effect.digests}

        def work() -> None:
            for path in folder.glob("[0-9a-f]*"):
                if path.name not in wanted and not _is_later(path, (effect.attempt, effect.epoch)):
                    path.unlink(missing_ok=True)

        self._thread.submit(work)

    def drop_snapshots(self, effect: DropSnapshots) -> None:
        """Copies that were brought here, and that nobody reads."""
        folder = self._folder(effect.application, effect.version) / "elements"

        def work() -> None:
            for digest in effect.digests:
                (folder / digest.hex()).unlink(missing_ok=True)

        self._thread.submit(work)

    def forget_part(self, effect: ForgetPart) -> None:
        """Nothing of the run is hosted here any more; what this node votes, and which life it has entered, stays."""
        folder = self._folder(effect.application, effect.version)

        def work() -> None:
            for name in ("part", "record"):
                (folder / name).unlink(missing_ok=True)
            for name in EXECUTOR_FOLDERS:
                shutil.rmtree(folder / name, ignore_errors=True)

        self._thread.submit(work)

    async def begin_to_forget(self, effect: ForgetRun) -> None:
        """The run is over, and its end is carried out now: should the agent die, its next process does it."""
        path = self._folder(effect.application, effect.version) / _ENDING
        content = add_checksum(msgspec.msgpack.encode((effect.digests, effect.why)), self._run_of(path))

        def work() -> None:
            with contextlib.suppress(OSError):  # then it is done in this process, or not at all
                _write(path, content)

        await self._loop.run_in_executor(self._thread, work)

    def forget(self, effect: ForgetRun) -> None:
        """The run is over: nothing of it is needed here."""
        self._thread.submit(self._leave, self._folder(effect.application, effect.version))

    def sweep(self, application: str, version: int) -> None:
        """No process of the run is left here: one that was just beginning may have made folders of a run that was forgotten."""
        folder = self._folder(application, version)
        with contextlib.suppress(RuntimeError):  # the agent ends; its next start sweeps
            self._thread.submit(lambda: None if _is_known(folder) else self._leave(folder))

    def _leave(self, folder: Path) -> None:
        self._leaving.add(folder)
        self._clearing.work()

    def _clear(self) -> bool:
        for folder in tuple(self._leaving):
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                self._leaving.discard(folder)
        return not self._leaving

    def close(self) -> None:
        """What was asked for is still written."""
        self._thread.shutdown(wait=True)

    def _folder(self, application: str, version: int) -> Path:
        return self._root / f"{application}.{version}"

    def _report_disk_state(self, *, takes: bool, text: str) -> None:
        """The first file that the disk does not take, and the first that it takes again, are told."""
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
    """Does this node have anything of the run whose folder this is: a part, a vote, a life, an end to carry out?"""
    return any((folder / name).exists() for name in (*_NAMES, _ENDING))


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
