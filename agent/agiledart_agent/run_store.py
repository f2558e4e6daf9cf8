"""What this node must not forget of the runs in which it takes part: small files, on the disk before anybody acts on them.

    runs/NAME.VERSION/part      what it hosts, with the users' code
                      voter     its seat in the run's register
                      life      the last life that it has entered
                      elements/ what its instances saved (written by executors)

Files of one run are written in order, by one thread. After a start all of them are told to the node, which then waits to be asked.
"""

import asyncio
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_node.wire.effects import ForgetPart, ForgetRun, KeepElements, KeepFile
from agiledart_node.wire.events import RunsFound, StoredFile

FOLDER = "runs"
_NAMES = ("part", "voter", "life", "record")


class RunStore:
    """The runs' files below a state directory.

    Args:
        feed: takes the outcome of each write, as an event for the node.
    """

    def __init__(self, state_dir: Path, feed: Callable[[Event], None]) -> None:
        self._root, self._feed = state_dir / FOLDER, feed
        self._thread = ThreadPoolExecutor(1, "runs")
        self._loop = asyncio.get_running_loop()

    def found(self) -> RunsFound:
        """Everything that lies here. A file that cannot be read is left out: others have what it said."""
        files: list[StoredFile] = []
        for folder in sorted(self._root.glob("*.*")) if self._root.is_dir() else []:
            application, _, version = folder.name.rpartition(".")
            if version.isdecimal():
                read = ((name, _content(folder / name)) for name in _NAMES)
                files += (StoredFile(application, int(version), name, raw) for name, raw in read if raw is not None)
        return RunsFound(tuple(files))

    def keep(self, effect: KeepFile) -> None:
        """Write a file, force it to the disk, then say so."""
        path = self._folder(effect.application, effect.version) / effect.name

        def work() -> None:
            try:
                _write(path, effect.content)
            except OSError as error:
                why = f"{path} cannot be written: {(error.strerror or str(error)).lower()}"
                self._tell(Failed(effect.request, why))
            else:
                self._tell(Completed(effect.request, None))

        self._thread.submit(work)

    def keep_elements(self, effect: KeepElements) -> None:
        """Drop all elements but these; one that is being written has no name yet."""
        folder = self._folder(effect.application, effect.version) / "elements"
        wanted = {digest.hex() for digest in effect.digests}

        def work() -> None:
            for path in folder.glob("[0-9a-f]*"):
                if path.name not in wanted:
                    path.unlink(missing_ok=True)

        self._thread.submit(work)

    def forget_part(self, effect: ForgetPart) -> None:
        """Nothing of the run is hosted here any more; what this node votes, and which life it has entered, stays."""
        folder = self._folder(effect.application, effect.version)

        def work() -> None:
            for name in ("part", "record"):
                (folder / name).unlink(missing_ok=True)
            for name in ("elements", "opened"):
                shutil.rmtree(folder / name, ignore_errors=True)

        self._thread.submit(work)

    def forget(self, effect: ForgetRun) -> None:
        """The run is over: nothing of it is needed here."""
        self._thread.submit(shutil.rmtree, self._folder(effect.application, effect.version), True)

    def close(self) -> None:
        """What was asked for is still written."""
        self._thread.shutdown(wait=True)

    def _folder(self, application: str, version: int) -> Path:
        return self._root / f"{application}.{version}"

    def _tell(self, event: Event) -> None:
        try:
            self._loop.call_soon_threadsafe(self._feed, event)
        except RuntimeError:  # the agent ends, and its loop is closed
            return


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


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
