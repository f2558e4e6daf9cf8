"""Confinement of user code on a node: it may use every file that the agent's user may use, except the agent's own.

Closed are the agent's state directory, other files that the agent names (its token's file, its log), and state directories that lie
beside the path to it. Inside the state directory the application has folders of its own. Landlock knows only what is allowed. So
each file and folder beside the path from `/` to a closed one gets a rule. In a folder *on* that path no new names can be made
later. A sink's file in such a folder is made before the rules; sinks that make further files there are refused.

Python's folders, its user's site and the folders of modules can be read and executed, and nothing more: a file of users' code there
would run in the next process, before that confines itself. The folders above them are treated like those above a closed one, except
that new files there can be read.

Not closed are other services that the agent's user can use (a desktop session, cron, a shell's start-up files). An agent with a
user of its own, as the systemd unit sets it up, has none of these.
"""

import contextlib
import os
import site
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from agiledart_dataflow.plan.connectors import Connector
from agiledart_executor.user_code import landlock
from agiledart_executor.user_code.user_connectors import FILE_KINDS
from agiledart_executor.user_code.user_files import STANDARD_STREAMS
from agiledart_kernel.errors import InternalError, OperationFailed

TOKEN_MARK: Final = b"adart1"
"""Beginning of the text of a token (`agiledart_agent.identity.tokens`)."""

_MAX_TOKEN_BYTES: Final = 16_384

_DEVICES: Final = "/dev"
_RAW: Final = ("mem", "kmem", "port")
"""Devices that are the machine's memory."""

_READ_ONLY: Final = ("/proc", "/sys")
"""Trees of the kernel: as root, users' code could have the kernel run programs by what it writes there."""

MAX_ENTRIES: Final = 20_000
"""Most entries of a folder on the path to a closed one; each costs 20 µs at the start of an executor."""

_AGENT_KEY_FILE: Final = "node.key"
"""File whose presence marks a folder as an agent's state directory."""


class FileOfConnector(NamedTuple):
    """File that a source or sink of the application names.

    Args:
        step: name of the step.
        connector: that names the file.
        writes: True for a sink.
    """

    step: str
    connector: Connector
    writes: bool

    @property
    def is_one_file(self) -> bool:
        """True when the sink writes only the file of this name, without a temporary name."""
        options = dict(self.connector.options)
        return self.connector.kind != "parquet" and not {"roll_bytes", "roll_age"} & options.keys()


class Confinement:
    """Confinement of this process: closes files to it.

    Args:
        closed: files and folders to close; relative names and links are resolved.
        own: folders inside them that stay usable; they are created.
        readable: folders inside them that can be read; they are created.
        code: folders from which Python processes of this user load code; None: those of this process.

    Raises:
        OSError: a folder cannot be made.
    """

    def __init__(
        self,
        closed: Sequence[Path],
        own: Sequence[Path],
        code: Sequence[Path] | None = None,
        readable: Sequence[Path] = (),
    ) -> None:
        self._closed = dict.fromkeys(Path(os.path.realpath(path)) for path in closed)
        self._own, self._readable = own, readable
        self._code = dict.fromkeys(code_folders() if code is None else code)
        self._above_closed = self._above(self._closed)
        self._ancestors = {**self._above_closed, **self._above(self._code)}
        for path in (*own, *readable):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _above(self, places: Iterable[Path]) -> dict[Path, None]:
        """Return the folders above these places that are not closed themselves."""
        return dict.fromkeys(parent for place in places for parent in place.parents if not self._is_closed(parent))

    def check(self, files: Iterable[FileOfConnector]) -> None:
        """Check the files of sources and sinks, and create sinks' files in folders where none can be created later.

        Raises:
            OperationFailed: a source or sink names a closed file, or will need new files where none can be created.
        """
        for file in files:
            path = file.connector.path
            if file.connector.kind not in FILE_KINDS or path in STANDARD_STREAMS or "\0" in path:
                continue
            real = Path(os.path.realpath(path))
            if self._is_closed(real) and not any(real.is_relative_to(os.path.realpath(own)) for own in self._own):
                raise OperationFailed(
                    f"{file.step}: {path} lies in the agent's state directory, which is closed to user code. "
                    f"Give it a file elsewhere"
                )
            if not file.writes or not landlock.is_there() or real.parent not in self._ancestors:
                continue
            if not file.is_one_file:
                raise OperationFailed(
                    f"{file.step}: {file.connector.url()} makes new files in {real.parent}, above the agent's state directory, "
                    f"where user code may make none. Give it a folder of its own below {real.parent}"
                )
            with contextlib.suppress(OSError):  # the sink that opens the file gives the better message
                os.close(os.open(real, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))

    def enforce(self) -> bool:
        """Close the files permanently; return False when the kernel cannot. `TMPDIR` moves when it would refuse new files.

        Raises:
            OperationFailed: the kernel supports confinement but refuses it.
        """
        temporary = Path(os.path.realpath(os.environ.get("TMPDIR") or "/tmp"))
        if self._own and (temporary in self._ancestors or self._is_closed(temporary)):
            os.environ["TMPDIR"] = str(self._own[0])
        if not landlock.is_there():
            return False
        if len(os.listdir("/proc/self/task")) != 1:
            raise InternalError("an executor must confine itself before it has a second thread")
        rules = landlock.Ruleset()
        try:
            for path, rights in self._allowed():
                _allow(rules, path, rights)
        except BaseException:
            rules.close()
            raise
        rules.enforce()
        return True

    def _allowed(self) -> Iterator[tuple[str, int]]:
        """Yield the allowed paths and the rights on them."""
        yield "/", landlock.LIST  # covers every folder: names can be listed, contents cannot be read
        for ancestor in self._ancestors:
            yield from self._beside(ancestor)
        for path in (*self._own, f"/proc/{os.getpid()}"):
            yield str(path), landlock.ALL
        for path in self._readable:
            yield str(path), _READ
        for (
            path
        ) in self._code:  # Python may be installed in the state directory, too; folders closed below it stay closed
            if path not in self._above_closed:
                yield str(path), _READ

    def _beside(self, ancestor: Path) -> Iterator[tuple[str, int]]:
        """Yield the entries of a folder on the path to a closed one, except path folders, closed ones, links and other agents'."""
        known = {str(path) for path in (*self._ancestors, *self._closed, *self._code)}  # only looked up in
        has_secrets = ancestor in self._above_closed
        is_code = self._is_code(ancestor)
        try:
            with os.scandir(ancestor) as entries:
                for number, entry in enumerate(entries):
                    if number >= MAX_ENTRIES:
                        raise OperationFailed(
                            f"user code cannot be confined: {ancestor}, above the agent's state directory or Python's folders, has "
                            f"more than {MAX_ENTRIES:,} entries. Give the agent another --state-dir, or Python another place"
                        )
                    if entry.is_symlink() or entry.path in known:
                        continue
                    if _holds_key(entry):
                        has_secrets = True
                    elif entry.path == _DEVICES:
                        yield from _devices()
                    elif is_code or entry.path in _READ_ONLY:
                        yield entry.path, _READ if entry.is_dir() else _READ & landlock.OF_FILES
                    else:
                        yield entry.path, landlock.ALL if entry.is_dir() else landlock.OF_FILES
        except OSError:  # the folder does not exist, or this process cannot read it anyway
            return
        if not has_secrets:
            yield str(ancestor), _READ  # so that files which come later can be read

    def _is_code(self, path: Path) -> bool:
        return path in self._code or any(parent in self._code for parent in path.parents)

    def _is_closed(self, path: Path) -> bool:
        return path in self._closed or any(parent in self._closed for parent in path.parents)


_READ: Final = 1 << 0 | 1 << 2 | landlock.LIST


def code_folders() -> list[Path]:
    """Return the folders from which Python processes of this user load code, as far as this user can change them.

    Folders that lie in another one of them are left out.
    """
    texts = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path]
    folders = dict.fromkeys(Path(os.path.realpath(text)) for text in texts if text and os.path.exists(text))
    can_change = [path for path in folders if os.access(path, os.W_OK) or path.stat().st_uid == os.geteuid()]
    can_change.append(
        Path(os.path.realpath(site.getusersitepackages()))
    )  # the agent's next process loads it, once it exists
    return [path for path in can_change if not any(parent in folders for parent in path.parents) and path != Path("/")]


def writable_code_folders(folders: Iterable[Path] | None = None) -> list[Path]:
    """Return the folders of code into which this user may write now. `folders`: those of Python and its modules by default."""
    known = code_folders() if folders is None else folders
    return [folder for folder in known if folder.is_dir() and os.access(folder, os.W_OK)]


def _holds_key(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is another agent's state directory, or the file of a token."""
    if entry.is_dir():
        return os.access(f"{entry.path}/{_AGENT_KEY_FILE}", os.F_OK)
    status = entry.stat()
    is_private = stat.S_ISREG(status.st_mode) and not status.st_mode & 0o077  # as `token create` makes it
    return is_private and 0 < status.st_size <= _MAX_TOKEN_BYTES and is_token_file(entry.path)


def is_token_file(path: str) -> bool:
    """Return whether a file begins like a token; False when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(descriptor, 64).lstrip().lower().startswith(TOKEN_MARK)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _devices() -> Iterator[tuple[str, int]]:
    """Yield the devices that user code may use: none that is a disk."""
    try:
        with os.scandir(_DEVICES) as entries:
            for entry in entries:
                if not entry.is_symlink() and entry.name not in _RAW and not stat.S_ISBLK(entry.stat().st_mode):
                    yield entry.path, landlock.ALL if entry.is_dir() else landlock.OF_FILES
    except OSError:
        return


def _allow(rules: landlock.Ruleset, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # the file has gone, or this process cannot use it anyway
        return
    try:
        rules.allow(descriptor, rights)
    finally:
        os.close(descriptor)
